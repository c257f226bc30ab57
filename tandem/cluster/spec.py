"""A checked cluster file as programs beside the nodes need it, and how a node is started.

`tandem.cluster_file` reads the file, here as in the nodes themselves; this adds absolute paths and
the role of each node. `python -P -m tandem_server node check` prints a `ClusterSpec` as JSON.
"""

import os
import re
import site
import sys
from pathlib import Path
from shlex import quote
from typing import Final, Literal, Self

import msgspec

from tandem.cluster.errors import WrongSystemError
from tandem.cluster_file.choices import (
    AckLevel,
    BrokerRole,
    ClientAccess,
    FlushDiskType,
    GroupKind,
    TLSMode,
)
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.cluster_file.coordinator_settings import CoordinatorSettings
from tandem.cluster_file.errors import ClusterError, UnknownNodeError
from tandem.cluster_file.load import load_config
from tandem.cluster_file.secret_file import read_secret
from tandem.cluster_file.settings import (
    BrokerSettings,
    GroupSettings,
    LoggingSettings,
    NodeSettings,
    ReplicationSettings,
)
from tandem.cluster_file.store_settings import StoreSettings
from tandem.tls_files import TLSFiles

_CODE_ROOT: Final = Path(__file__).resolve().parents[2]
"""Where `tandem` was imported from; `tandem_server` is beside it."""

SERVER: Final = (sys.executable, "-P", "-m", "tandem_server")
"""The command line of the server's programs; the program's name and its arguments follow."""

SUPERVISOR: Final = "supervisor"
"""What it is called beside the names of nodes."""

CLUSTER_FILE: Final = "cluster.yaml"

EXAMPLE_DIRECTORY: Final = "tandem-data"
"""Where the example is copied to when it is started in a directory without a cluster file."""

_DATA_DIRECTORY: Final = re.compile(r"^(  data_directory: )data\b", re.MULTILINE)

Role = Literal["MASTER", "SLAVE", "NODE"]
"""NODE: of a fenced group, which elects its master."""


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the file."""

    name: str
    group: str
    broker_id: int
    role: Role
    address: str
    port: int
    ha_port: int
    name_server_port: int
    replication_port: int
    """Of fenced groups."""
    directory: Path
    commit_log_directories: tuple[Path, ...]

    @property
    def client_address(self) -> str:
        """`host:port` for clients; it answers name-server requests too."""
        return f"{self.address}:{self.port}"


class GroupSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How the nodes of a group treat a put."""

    kind: GroupKind
    min_isr: int
    """Fenced: a message is taken only if this many nodes are in sync, the master included."""
    ack_level: AckLevel
    broker_role: BrokerRole
    flush_disk_type: FlushDiskType

    @classmethod
    def of(cls, group: GroupSettings, store: StoreSettings) -> Self:
        """What two sections of the file say of a group."""
        return cls(
            kind=group.kind,
            min_isr=group.min_isr,
            ack_level=group.ack_level,
            broker_role=group.broker_role,
            flush_disk_type=store.flush_disk_type,
        )


class ClusterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A checked cluster file: every default filled in, every path absolute."""

    name: str
    file: Path
    data_directory: Path
    secret_file: Path
    fingerprint: str
    groups: dict[str, GroupSpec]
    nodes: list[NodeSpec]
    store: StoreSettings = StoreSettings()
    replication: ReplicationSettings = ReplicationSettings()
    broker: BrokerSettings = BrokerSettings()
    coordinator: CoordinatorSettings = CoordinatorSettings()
    logging: LoggingSettings = LoggingSettings()
    tls: TLSFiles | None = None
    """With what clients dial the nodes; None: in clear."""
    coordinator_tls: TLSFiles | None = None
    """Certificates of the embedded coordinator; None: it is served in clear."""
    takes_clear: bool = True
    """Whether connections may be in clear."""
    asks_for_users: bool = False
    """Whether clients have to say who they are: `security.clients` is not open."""

    @property
    def coordinator_directory(self) -> Path:
        """Where the supervisor keeps the journal of the embedded coordinator."""
        return self.data_directory / "coordinator"

    @property
    def log_directory(self) -> Path:
        """Where the nodes of a local cluster log, and its supervisor."""
        return self.data_directory / "logs"

    def log_file(self, process: str) -> Path:
        """Where a node of a local cluster logs, or its `supervisor` in the background."""
        return self.log_directory / f"{process}.log"

    def make_directories(self) -> None:
        """Make what a supervisor writes to before a node is there.

        Raises:
            ClusterError: The system refuses.
        """
        try:
            self.log_directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ClusterError(
                f"{self.log_directory} cannot be made: {error.strerror}; let this user write there,"
                f" or set cluster.data_directory in {self.file}"
            ) from error

    @property
    def name_servers(self) -> list[str]:
        """Every node's `host:port`, for a client to take all of them.

        One that is down or has just started knows less than the others.
        """
        return [node.client_address for node in self.nodes]

    def read_secret(self) -> str:
        """Read what one has to know to give orders to this cluster.

        Raises:
            SecretFileError: There is none yet, or it is not for us.
        """
        return read_secret(self.secret_file)

    def node(self, name: str) -> NodeSpec:
        """Find a node by name.

        Raises:
            UnknownNodeError: The file has no such node.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        raise UnknownNodeError(name, [node.name for node in self.nodes])


def read_spec(config: Path) -> ClusterSpec:
    """Read and check a cluster file. Takes milliseconds.

    Raises:
        ClusterConfigError: With the complaints, one a line.
    """
    return spec_of(load_config(config))


def spec_of(config: ClusterConfig) -> ClusterSpec:
    """Return what is to be known of a cluster file that has been read."""
    return ClusterSpec(
        name=config.cluster.name,
        file=config.file,
        data_directory=config.data_directory,
        secret_file=config.secret_file,
        fingerprint=config.fingerprint,
        groups={name: GroupSpec.of(group, config.store) for name, group in config.groups.items()},
        nodes=[_node_spec(config, node) for node in config.nodes],
        store=config.store,
        replication=config.replication,
        broker=config.broker,
        coordinator=config.coordinator,
        logging=config.logging,
        tls=config.client_tls,
        coordinator_tls=config.coordinator_tls if config.tls.is_on else None,
        takes_clear=config.tls.mode is not TLSMode.ENFORCING,
        asks_for_users=config.security.clients is not ClientAccess.OPEN,
    )


def _node_spec(config: ClusterConfig, node: NodeSettings) -> NodeSpec:
    return NodeSpec(
        name=node.name,
        group=node.group,
        broker_id=node.broker_id,
        role=_role(config, node),
        address=node.address,
        port=node.port,
        ha_port=node.ha_port,
        name_server_port=node.name_server_port,
        replication_port=node.replication_port,
        directory=config.node_directory(node),
        commit_log_directories=config.commit_log_directories(node),
    )


def _role(config: ClusterConfig, node: NodeSettings) -> Role:
    if config.groups[node.group].kind is GroupKind.FENCED:
        return "NODE"
    return "MASTER" if node.is_master else "SLAVE"


def default_config() -> Path:
    """The cluster file of the current directory, else the example that comes with the package.

    In a directory it is `cluster.yaml`, or `tandem-data/cluster.yaml` if `config_to_start` has
    written that one. The example is good for its addresses; nothing is ever kept beside it.
    """
    for here in (Path(CLUSTER_FILE), Path(EXAMPLE_DIRECTORY, CLUSTER_FILE)):
        if here.exists():
            return here
    return _example()


def config_to_start() -> Path:
    """The cluster file of the current directory; without one, the example is copied here.

    It goes to `tandem-data`, and so does all that its nodes keep.

    Raises:
        ClusterError: It cannot be written.
    """
    found = default_config()
    if found != _example():
        return found
    text = example_text()
    directory = Path(EXAMPLE_DIRECTORY)
    file = directory / CLUSTER_FILE
    try:
        directory.mkdir(exist_ok=True)
        with file.open("x", encoding="utf-8") as target:
            target.write(_DATA_DIRECTORY.sub(r"\g<1>.   ", text, count=1))
    except OSError as error:
        raise ClusterError(
            f"there is no {CLUSTER_FILE} in {Path.cwd()}, and the example cannot be copied to"
            f" {file}: {error.strerror}; go to a directory that you may write to, or give --config"
        ) from error
    return file


def example_text() -> str:
    """Return the example that comes with the package."""
    return _example().read_text(encoding="utf-8")


def _example() -> Path:
    packaged = Path(__file__).with_name(CLUSTER_FILE)
    # In a checkout the example is at the top; only a wheel has a copy beside this file.
    return packaged if packaged.exists() else _CODE_ROOT / CLUSTER_FILE


def check_system(system: str = sys.platform) -> None:
    """Refuse to start nodes where they cannot run.

    They need fdatasync, posix_fallocate, /proc, and a cluster of one machine all of 127.0.0.0/8.

    Raises:
        WrongSystemError: This is not Linux.
    """
    if system != "linux":
        raise WrongSystemError(system)


def node_command(config: Path, name: str) -> list[str]:
    """The command line that runs one node under a supervisor."""
    return [*SERVER, "node", "--config", str(config), "--name", name, "--supervised"]


def node_by_itself(config: Path, name: str) -> str:
    """The command line by which a person or systemd starts one node without a supervisor."""
    return f"python -P -m tandem_server node --config {quote(str(config))} --name {name}"


def node_environment() -> dict[str, str]:
    """The environment of a node: this one, but importing the code that we were imported from.

    The caller's PYTHONPATH is left out on purpose: a `store.py` in it would come before ours.
    """
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if str(_CODE_ROOT) not in {*site.getsitepackages(), site.getusersitepackages()}:
        environment["PYTHONPATH"] = str(_CODE_ROOT)
    return environment

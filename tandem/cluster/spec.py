"""What the supervisor needs to know of a `cluster.yaml`.

The file is read by the code that serves it: `python -P -m node check` prints the checked
configuration as JSON, or its complaints. So there is one opinion on what a valid file is, and the
library still imports nothing of the server.
"""

import os
import site
import subprocess
import sys
from pathlib import Path
from typing import Final, Literal

import msgspec

from tandem.cluster.errors import ClusterConfigError, UnknownNodeError

CHECK_SECONDS_MAX: Final = 30.0
"""How long reading a configuration may take. Chosen without measuring; it takes 0.2 s here."""

_CODE_ROOT: Final = Path(__file__).resolve().parents[2]
"""Where `tandem` was imported from; `node` lies beside it."""


class NodeSpec(msgspec.Struct, frozen=True):
    """One node of the file."""

    name: str
    group: str
    broker_id: int
    role: Literal["MASTER", "SLAVE", "NODE"]
    """NODE: of a fenced group, which elects its master."""
    address: str
    port: int
    ha_port: int
    name_server_port: int
    directory: Path
    replication_port: int = 10_913
    """Of fenced groups."""

    @property
    def client_address(self) -> str:
        """`host:port` for clients; it answers name-server requests too."""
        return f"{self.address}:{self.port}"


class GroupSpec(msgspec.Struct, frozen=True):
    """How the nodes of a group treat a put."""

    broker_role: str
    flush_disk_type: str
    kind: Literal["classic", "fenced"] = "classic"
    min_isr: int = 2
    """Fenced: a message is taken only if so many nodes are in sync, the master included."""
    ack_level: Literal["written", "flushed"] = "written"


class CoordinatorSpec(msgspec.Struct, frozen=True):
    """Who decides the elections of fenced groups. Paths are absolute."""

    kind: Literal["embedded", "etcd"] = "embedded"
    address: str = "127.0.0.1"
    port: int = 10_920
    endpoints: tuple[str, ...] = ()
    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    lease_ttl_ms: int = 5_000


class ClusterSpec(msgspec.Struct, frozen=True):
    """A checked cluster file. Keys that are of no use here are left out."""

    name: str
    file: Path
    data_directory: Path
    fingerprint: str
    groups: dict[str, GroupSpec]
    nodes: list[NodeSpec]
    coordinator: CoordinatorSpec = CoordinatorSpec()

    @property
    def coordinator_directory(self) -> Path:
        """Where the supervisor keeps the journal of the embedded coordinator."""
        return self.data_directory / "coordinator"

    @property
    def log_directory(self) -> Path:
        """Where the supervisor keeps what the nodes write on standard error."""
        return self.data_directory / "logs"

    @property
    def name_servers(self) -> list[str]:
        """Every node's `host:port`; any of them knows the whole route."""
        return [node.client_address for node in self.nodes]

    def node(self, name: str) -> NodeSpec:
        """Find a node by name.

        Raises:
            UnknownNodeError: The file has no such node.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        raise UnknownNodeError(name, [node.name for node in self.nodes])


def default_config() -> Path:
    """`cluster.yaml` of the current directory, else the example that comes with the package."""
    here = Path("cluster.yaml")
    if here.exists():
        return here
    packaged = Path(__file__).with_name("cluster.yaml")
    # In a checkout the example is at the top; only a wheel has a copy beside this file.
    return packaged if packaged.exists() else _CODE_ROOT / "cluster.yaml"


def node_command(config: Path, name: str) -> list[str]:
    """The command line that runs one node under a supervisor."""
    return [*_NODE_MODULE, "--config", str(config), "--name", name, "--supervised"]


_NODE_MODULE: Final = [sys.executable, "-P", "-m", "node"]


def node_environment() -> dict[str, str]:
    """The environment of a node: this one, but importing the code that we were imported from.

    The caller's PYTHONPATH is left out on purpose: a `store.py` in it would come before ours.
    """
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if str(_CODE_ROOT) not in {*site.getsitepackages(), site.getusersitepackages()}:
        environment["PYTHONPATH"] = str(_CODE_ROOT)
    return environment


def read_spec(config: Path) -> ClusterSpec:
    """Read and check a cluster file. Blocks for as long as a Python start takes.

    Raises:
        ClusterConfigError: With the complaints, one a line, or why the check did not run.
    """
    command = [*_NODE_MODULE, "check", "--config", str(config)]
    try:
        done = subprocess.run(
            command,
            env=node_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=CHECK_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterConfigError(
            f"{config}: could not be checked in {CHECK_SECONDS_MAX:.0f} s"
        ) from error
    if done.returncode != 0:
        complaint = done.stderr.decode(errors="replace").strip()
        raise ClusterConfigError(complaint or f"{config}: the check ended with {done.returncode}")
    try:
        return msgspec.json.decode(done.stdout, type=ClusterSpec, dec_hook=_decode_path)
    except msgspec.DecodeError as error:
        raise ClusterConfigError(f"{config}: the check printed something else: {error}") from error


def _decode_path(_type: type, text: str) -> Path:
    """`Path` is the one type of a spec that msgspec does not know."""
    return Path(text)

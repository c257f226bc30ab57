"""Everything that can be known to be wrong before the first node starts.

Each check raises one error whose text is one line: what is wrong, and what to do about it. A drill
that starts and then finds no Java, after a minute of load, would be a minute lost.

Imports nothing that only the `drill` extra brings: saying that it is missing is done here.
"""

import errno
import fcntl
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import yaml

from tandem.cluster.errors import ClusterConfigError
from tandem.cluster.spec import ClusterSpec, NodeSpec, node_environment
from tandem.drill.errors import BadOptionsError, MissingRequirementError
from tandem.drill.outcomes import FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE

MARKER_NAME: Final = ".tandem-drill"
"""A directory with this file in it was made by a drill, and the next may write over it."""

REPORT_NAMES: Final = (
    "index.html",
    "summary.json",
    "ledger.ndjson",
    "ledger.parquet",
    "cluster.yaml",
    "audit",
    "data",
    "logs",
)
"""What a drill puts into `out`, and what the next one removes from it. Nothing else is touched."""

LIBRARIES: Final = ("jinja2", "matplotlib", "pyarrow")


class Replicated(msgspec.Struct, frozen=True):
    """The settings of `replication:` that a drill has to know."""

    slave_timeout_ms: int
    in_sync_replicas: int | None


class Stored(msgspec.Struct, frozen=True):
    """The settings of `store:` that a drill has to know."""

    max_message_size_bytes: int


class Settings(msgspec.Struct, frozen=True):
    """What `node check` prints, less what `ClusterSpec` has."""

    replication: Replicated
    store: Stored


class Group(msgspec.Struct, frozen=True):
    """The one group of a cluster that is put to the test."""

    name: str
    master: NodeSpec
    slaves: list[NodeSpec]

    @property
    def nodes(self) -> list[NodeSpec]:
        """The master, then the slaves."""
        return [self.master, *self.slaves]


def check_libraries(*, spark: bool) -> None:
    """Raise MissingRequirementError unless the libraries of the `drill` extra are there."""
    wanted = (*LIBRARIES, "pyspark") if spark else LIBRARIES
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingRequirementError(
            f"the drill needs {', '.join(missing)}: pip install 'tandem-mq[drill]'"
        )


def read_settings(config: Path) -> Settings:
    """Ask the node what it makes of a file that `read_spec` has found valid. Blocks."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "node", "check", "--config", str(config)],
        env=node_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise ClusterConfigError(done.stderr.decode(errors="replace").strip())
    return msgspec.json.decode(done.stdout, type=Settings)


def choose_group(spec: ClusterSpec, settings: Settings) -> tuple[Group, str]:
    """Return the group to break, and what its sync sends answer without a slave.

    Raises:
        BadOptionsError: there is nothing to lose: not one group with a master that waits for
            slaves and at least one slave.
    """
    if len(spec.groups) != 1:
        names = ", ".join(spec.groups)
        raise BadOptionsError(f"{spec.file}: a drill plays on one group; this file has {names}")
    ((name, group),) = spec.groups.items()
    slaves = [node for node in spec.nodes if node.role == "SLAVE"]
    masters = [node for node in spec.nodes if node.role == "MASTER"]
    if len(masters) != 1 or not slaves:
        raise BadOptionsError(
            f"{spec.file}: a drill needs one master and at least one slave in {name};"
            f" it has {len(masters)} and {len(slaves)}"
        )
    if group.broker_role != "SYNC_MASTER":
        raise BadOptionsError(
            f"{spec.file}: groups.{name}.broker_role is {group.broker_role}, so no send waits for"
            " a slave and there is no promise to test; set SYNC_MASTER"
        )
    replicas = settings.replication.in_sync_replicas
    if replicas is not None and replicas < 2:
        raise BadOptionsError(
            f"{spec.file}: replication.in_sync_replicas is {replicas}, so no send waits for a slave"
            " and there is no promise to test; set null (one slave) or at least 2"
        )
    status = SLAVE_NOT_AVAILABLE if replicas is None else FLUSH_SLAVE_TIMEOUT
    return Group(name, masters[0], slaves), status


def check_ports(nodes: Iterable[NodeSpec]) -> None:
    """Raise MissingRequirementError, naming them all, if a node's ports are taken."""
    busy = [
        f"{node.address}:{port}"
        for node in nodes
        for port in (node.port, node.ha_port, node.name_server_port)
        if not _can_listen(node.address, port)
    ]
    if busy:
        raise MissingRequirementError(
            f"{', '.join(busy)}: in use by another process; stop it (a cluster of yours:"
            " `tandem cluster down`) or give a cluster.yaml with other ports by --config"
        )


def _can_listen(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As a node does: connections of a former process in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise MissingRequirementError(
                f"cannot listen on {address}:{port}: {error.strerror}; give each node an address"
                " of this machine (Linux has all of 127.0.0.0/8)"
            ) from error
    return True


@contextmanager
def claimed(out: Path) -> Iterator[Path]:
    """Make `out` ours, with the report of an earlier drill removed; yield its absolute path.

    Raises:
        BadOptionsError: something else is in it, another drill is at work there, or it cannot be
            written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        entries = {entry.name for entry in out.iterdir()}
        if entries and MARKER_NAME not in entries:
            raise BadOptionsError(
                f"--out {out}: is not empty and was not made by a drill; give another directory"
            )
        marker = os.open(out / MARKER_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise BadOptionsError(f"--out {out}: {error.strerror}") from error
    try:
        _lock(marker, out)
        _remove(out, REPORT_NAMES)
        yield out.resolve()
    finally:
        os.close(marker)


def _lock(marker: int, out: Path) -> None:
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BadOptionsError(
            f"--out {out}: another drill is writing there; wait for it or give another directory"
        ) from error


def _remove(directory: Path, names: Sequence[str]) -> None:
    for name in names:
        path = directory / name
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise BadOptionsError(f"--out: cannot remove {path}: {error.strerror}") from error


def write_config(config: Path, out: Path) -> Path:
    """Write the cluster file of this drill: the same, with all data below `out`.

    So a drill never touches the data of a cluster that uses the same file.

    Raises:
        BadOptionsError: `out` does not take it.
    """
    document = yaml.safe_load(config.read_text(encoding="utf-8"))
    document["cluster"] = {**(document.get("cluster") or {}), "data_directory": str(out / "data")}
    for node in document["nodes"]:
        node.pop("directory", None)
    path = out / "cluster.yaml"
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    head = f"# {config.resolve()}, with the data of this drill\n"
    try:
        path.write_text(head + text, encoding="utf-8")
    except OSError as error:
        raise BadOptionsError(f"--out {out}: cannot write {path}: {error.strerror}") from error
    return path

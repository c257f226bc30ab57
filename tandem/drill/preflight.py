"""Everything that can be known to be wrong before the first node starts.

Each check raises one error whose text is one line: what is wrong, and what to do about it. A drill
that starts and then finds no Java, after a minute of load, would be a minute lost.

Imports nothing that only the `drill` extra brings: saying that it is missing is done here.
"""

import datetime as dt
import errno
import fcntl
import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import yaml

from tandem.cluster.spec import ClusterSpec, NodeSpec
from tandem.cluster_file.choices import BrokerRole, CoordinatorKind, GroupKind
from tandem.cluster_file.coordinator_settings import COORDINATOR_PATHS, CoordinatorSettings
from tandem.cluster_file.load import load_config
from tandem.cluster_file.settings import ClusterSettings
from tandem.drill.errors import (
    MissingRequirementError,
    NoPromiseError,
    OutError,
    OutFault,
    Requirement,
)
from tandem.drill.fault_proxy import pairs_of
from tandem.drill.outcomes import FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE
from tandem.drill.proxied_pair import ProxiedPair

MARKER_NAME: Final = ".tandem-drill"
"""A directory with this file in it was made by a drill, and the next may write over it."""

REPORT_NAMES: Final = (
    "index.html",
    "summary.json",
    "ledger.ndjson",
    "ledger.parquet",
    "consumers.ndjson",
    "cluster.yaml",
    "audit",
    "stream",
    "data",
    "logs",
    "groups",
    "junit.xml",
    "summary.md",
    "episode",
    "broken",
    "shortest",
    "defect.txt",
    "witness.ndjson",
)
"""What a drill puts into `out`, and what the next one removes from it. Nothing else is touched."""

PROXY_NETWORKS_MAX: Final = 100

_FILE_KEYS: Final = (
    ("cluster", "secret_file"),
    *(("coordinator", key) for key in COORDINATOR_PATHS),
)
"""Paths of a cluster file that count from its own directory."""

LIBRARIES: Final = ("jinja2", "matplotlib", "pyarrow")


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A group of a cluster that is put to the test."""

    name: str
    kind: GroupKind
    nodes: list[NodeSpec]
    """Of a classic group, the master first."""
    status_without_slaves: str = SLAVE_NOT_AVAILABLE
    """What sync sends of a classic group answer without a slave."""

    @property
    def slaves(self) -> list[NodeSpec]:
        """The nodes but the first."""
        return self.nodes[1:]


def check_libraries(*, spark: bool) -> None:
    """Raise MissingRequirementError unless the libraries of the extras are there."""
    wanted = (*LIBRARIES, "pyspark") if spark else LIBRARIES
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingRequirementError(
            f"the drill needs {', '.join(missing)}:"
            f" pip install 'tandem-mq[{'drill,spark,java' if spark else 'drill'}]'",
            Requirement.LIBRARIES,
            missing,
        )


def group_of(spec: ClusterSpec, name: str) -> Group:
    """Return a group of a cluster file.

    Raises:
        NoPromiseError: there is nothing to lose: its sends wait for no other node.
    """
    if spec.groups[name].kind is GroupKind.FENCED:
        return _fenced_group(spec, name)
    return _classic_group(spec, name)


def _fenced_group(spec: ClusterSpec, name: str) -> Group:
    nodes = [node for node in spec.nodes if node.group == name]
    min_isr = spec.groups[name].min_isr
    if len(nodes) < 2 or min_isr < 2:
        raise NoPromiseError(
            f"{spec.file}: group {name} has {len(nodes)} nodes and min_isr {min_isr}, so a"
            " message may be on one node alone and there is no promise to test; give at least 2"
            " of both",
            "min_isr" if min_isr < 2 else "nodes",
        )
    return Group(name=name, kind=GroupKind.FENCED, nodes=nodes)


def _classic_group(spec: ClusterSpec, name: str) -> Group:
    group = spec.groups[name]
    of_group = [node for node in spec.nodes if node.group == name]
    slaves = [node for node in of_group if node.role == "SLAVE"]
    masters = [node for node in of_group if node.role == "MASTER"]
    if len(masters) != 1 or not slaves:
        raise NoPromiseError(
            f"{spec.file}: a drill needs one master and at least one slave in {name};"
            f" it has {len(masters)} and {len(slaves)}",
            "nodes",
        )
    if group.broker_role is not BrokerRole.SYNC_MASTER:
        raise NoPromiseError(
            f"{spec.file}: groups.{name}.broker_role is {group.broker_role}, so no send waits for"
            " a slave and there is no promise to test; set SYNC_MASTER",
            f"groups.{name}.broker_role",
        )
    replicas = spec.replication.in_sync_replicas
    if replicas is not None and replicas < 2:
        raise NoPromiseError(
            f"{spec.file}: replication.in_sync_replicas is {replicas}, so no send waits for a slave"
            " and there is no promise to test; set null (one slave) or at least 2",
            "replication.in_sync_replicas",
        )
    status = SLAVE_NOT_AVAILABLE if replicas is None else FLUSH_SLAVE_TIMEOUT
    nodes = [*masters, *slaves]
    return Group(name=name, kind=GroupKind.CLASSIC, nodes=nodes, status_without_slaves=status)


def check_ports(groups: Sequence[Group], coordinator: CoordinatorSettings) -> None:
    """Raise MissingRequirementError, naming them all, if ports that are needed are taken."""
    wanted = [
        (node.address, port)
        for group in groups
        for node in group.nodes
        for port in ports_of(group, node)
    ]
    is_fenced = any(group.kind is GroupKind.FENCED for group in groups)
    if is_fenced and coordinator.kind is CoordinatorKind.EMBEDDED:
        wanted.append((coordinator.address, coordinator.port))
    busy = [f"{address}:{port}" for address, port in wanted if not can_listen(address, port)]
    if busy:
        raise MissingRequirementError(
            f"{', '.join(busy)}: in use by another process; stop it (a cluster of yours:"
            " `tandem cluster down`) or give a cluster.yaml with other ports by --config",
            Requirement.FREE_PORTS,
            busy,
        )


def ports_of(group: Group, node: NodeSpec) -> tuple[int, ...]:
    """The ports on which a node listens, or will as master."""
    ports = (node.port, node.ha_port, node.name_server_port)
    return (*ports, node.replication_port) if group.kind is GroupKind.FENCED else ports


def proxied_pairs(
    group: Group, coordinator: CoordinatorSettings, *, beside: Sequence[ProxiedPair] = ()
) -> list[ProxiedPair]:
    """Return the pairs of a fault proxy between all nodes of a group, at addresses that are free.

    `beside`: those of other groups, whose addresses are taken.

    Raises:
        MissingRequirementError: the nodes are not on this machine's loopback network, the
            coordinator is not one address, or no such addresses are free.
    """
    if not all(node.address.startswith("127.") for node in group.nodes):
        raise MissingRequirementError(
            "breaking the network needs nodes at addresses of 127.0.0.0/8 (Linux)",
            Requirement.LOOPBACK_NODES,
        )
    nodes = [(node.name, node.address, ports_of(group, node)) for node in group.nodes]
    dialled = (coordinator.address, (coordinator.port,))
    if coordinator.kind is not CoordinatorKind.EMBEDDED:
        url = urlsplit(coordinator.endpoints[0])
        if len(coordinator.endpoints) != 1 or url.hostname is None or url.port is None:
            raise MissingRequirementError(
                "breaking the network needs a coordinator with one endpoint, or the embedded one",
                Requirement.ONE_ENDPOINT,
            )
        dialled = (url.hostname, (url.port,))
    taken = {pair.listen_address for pair in beside}
    for number in range(1, PROXY_NETWORKS_MAX):
        pairs = list(pairs_of(f"127.{number}", nodes, dialled))
        if not {pair.listen_address for pair in pairs}.isdisjoint(taken):
            continue
        if all(can_listen(pair.listen_address, port) for pair in pairs for port in pair.ports):
            return pairs
    raise MissingRequirementError(
        f"no free addresses for the fault proxy: 127.1.0.0 to 127.{PROXY_NETWORKS_MAX - 1}.0.0 are"
        " in use at the nodes' ports",
        Requirement.PROXY_ADDRESSES,
    )


def can_listen(address: str, port: int) -> bool:
    """Whether a port is free; raises MissingRequirementError if the address is not ours."""
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
                " of this machine (Linux has all of 127.0.0.0/8)",
                Requirement.OWN_ADDRESS,
                [f"{address}:{port}"],
            ) from error
    return True


@contextmanager
def claimed(out: Path) -> Iterator[Path]:
    """Make `out` ours, with the report of an earlier drill removed; yield its absolute path.

    Raises:
        OutError: something else is in it, another drill is at work there, or it cannot be
            written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        entries = {entry.name for entry in out.iterdir()}
        if entries and MARKER_NAME not in entries:
            raise OutError(
                f"--out {out}: is not empty and was not made by a drill; give another directory",
                OutFault.FOREIGN,
            )
        marker = os.open(out / MARKER_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OutError(f"--out {out}: {error.strerror}", OutFault.REFUSED) from error
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
        raise OutError(
            f"--out {out}: another drill is writing there; wait for it or give another directory",
            OutFault.IN_USE,
        ) from error


def _remove(directory: Path, names: Sequence[str]) -> None:
    for name in names:
        path = directory / name
        _unmount_below(path.resolve())
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            text = f"--out: cannot remove {path}: {error.strerror}"
            raise OutError(text, OutFault.REFUSED) from error


def _unmount_below(directory: Path) -> None:
    """Let go of the small disks that a killed drill has left: nothing in them is needed."""
    mounts = Path("/proc/self/mounts")
    lines = mounts.read_text(errors="replace").splitlines() if mounts.exists() else []
    for line in lines:
        # Blanks in a path are written as \\040 there.
        place = Path(line.split()[1].replace("\\040", " "))
        if place.is_relative_to(directory):
            subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


def write_config(
    config: Path,
    out: Path,
    *,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    pairs: Sequence[ProxiedPair] = (),
    change: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> Path:
    """Write the cluster file of this drill: the same, with all data below `out`.

    `change` is done first of all to its content.

    So a drill never touches the data of a cluster that uses the same file. `settings` are sections
    that scenarios need, and `group` what each group needs; `pairs` is how nodes reach each other by
    way of the fault proxy. On an etcd it has a name of its own: under the same one it would take
    the records of the real cluster, and the next drill those of this one.

    Raises:
        OutError: `out` does not take it.
    """
    document = change(yaml.safe_load(config.read_text(encoding="utf-8")))
    document["cluster"] = {**(document.get("cluster") or {}), "data_directory": str(out / "data")}
    if (document.get("coordinator") or {}).get("kind") == "etcd":
        name = document["cluster"].get("name", ClusterSettings().name)
        document["cluster"]["name"] = f"{name[:40]}-drill-{secrets.token_hex(4)}"
    _set(document, settings or {})
    for section, key in _FILE_KEYS:
        if (document.get(section) or {}).get(key):
            document[section][key] = str(config.resolve().parent / document[section][key])
    tls = document.get("tls") or {}
    has_tls = tls.get("mode", "disabled") != "disabled"
    if has_tls:
        # With certificates of its own: proxies are at other addresses than nodes.
        document["tls"] = {key: tls[key] for key in ("mode", "client_auth") if key in tls}
    for node in document["nodes"]:
        node.pop("directory", None)
        reach = {pair.target: pair.listen_address for pair in pairs if pair.source == node["name"]}
        if reach:
            node["reach"] = reach
    path = out / "cluster.yaml"
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    head = f"# {config.resolve()}, with the data of this drill\n"
    try:
        path.write_text(head + text, encoding="utf-8")
    except OSError as error:
        text = f"--out {out}: cannot write {path}: {error.strerror}"
        raise OutError(text, OutFault.REFUSED) from error
    if has_tls:
        _make_certificates(path)
    return path


def _set(document: dict[str, Any], settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Put sections over those of a cluster file."""
    for section, keys in settings.items():
        if section != "group":
            document[section] = {**(document.get(section) or {}), **keys}
            continue
        for name, group in document["groups"].items():
            document["groups"][name] = {**(group or {}), **keys}


def _make_certificates(path: Path) -> None:
    try:
        from tandem.cluster.certificates import make_certificates  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingRequirementError(
            "the cluster file has TLS, and the drill makes certificates of its own with the"
            " library cryptography: pip install 'tandem-mq[tls]'",
            Requirement.LIBRARIES,
            ["cryptography"],
        ) from error
    make_certificates(load_config(path), path.parent / "tls", now=dt.datetime.now(dt.UTC))

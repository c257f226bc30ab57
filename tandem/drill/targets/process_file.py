"""Reads the file of a target `processes`: which cluster it is, and by which commands it is hurt.

    kind: fenced
    group: broker-a
    name_servers: [10.0.0.1:9876, 10.0.0.2:9876]
    commands:
      find: ssh $ADDRESS systemctl show -P MainPID tandem@$NODE
      start: ssh $ADDRESS sudo systemctl start tandem@$NODE
      kill: ssh $ADDRESS sudo kill -9 $PID
      fetch: rsync -a $ADDRESS:/var/lib/tandem/data/$NODE/ $STORE/
    nodes:
      - {name: broker-a-0, address: 10.0.0.1, port: 10911}

A node may have commands of its own, which take the place of those for all. Every complaint names
the line, as those about a cluster file do.
"""

import enum
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import yaml

from tandem.cluster_file.errors import ClusterConfigError
from tandem.cluster_file.ranges import Name, Port, text_like, whole_number
from tandem.cluster_file.yaml_reader import MISSING, Reader, compose, is_null
from tandem.drill.errors import BadOptionsError
from tandem.drill.sentences.sentence import Fault
from tandem.tls_files import TLSFiles

NODES_MIN: Final = 2

_HOST: Final = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?"
Host = Annotated[str, text_like(f"^{_HOST}$", "an IPv4 address or a host's name")]
_NUMBERS: Final = ("inSyncReplicas", "minInSyncReplicas")
"""Settings of RocketMQ's brokers that are reckoned with."""

_ADDRESS: Final = re.compile(rf"{_HOST}:([1-9][0-9]{{0,4}})")
PORT_MAX: Final = 65_535


class Kind(enum.StrEnum):
    """Whose nodes they are, and how they replicate."""

    FENCED = "fenced"
    CLASSIC = "classic"
    ROCKETMQ_CLASSIC = "rocketmq-classic"
    ROCKETMQ_CONTROLLER = "rocketmq-controller"

    @property
    def elects(self) -> bool:
        """Whether the group elects its master."""
        return self in (Kind.FENCED, Kind.ROCKETMQ_CONTROLLER)

    @property
    def is_rocketmq(self) -> bool:
        """Whether the brokers are RocketMQ's own."""
        return self in (Kind.ROCKETMQ_CLASSIC, Kind.ROCKETMQ_CONTROLLER)


class Commands(msgspec.Struct, frozen=True, kw_only=True):
    """What a shell runs; empty: there is no such command. `find` prints the process id."""

    find: str = ""
    start: str = ""
    stop: str = ""
    kill: str = ""
    freeze: str = ""
    resume: str = ""
    cut: str = ""
    heal: str = ""
    fetch: str = ""

    def over(self, others: "Commands") -> "Commands":
        """Return these, and those of `others` where there is none."""
        names = self.__struct_fields__
        return Commands(**{name: getattr(self, name) or getattr(others, name) for name in names})


FAULT_COMMANDS: Final[Mapping[Fault, Sequence[str]]] = {
    Fault.KILL: ("kill", "start"),
    Fault.STOP: ("stop", "start"),
    Fault.FREEZE: ("freeze", "resume"),
    Fault.CUT_OFF: ("cut", "heal"),
}
"""What must be there for a fault: the command that hurts, and the one that mends it."""


class _NodeEntry(msgspec.Struct, frozen=True, kw_only=True):
    name: Name
    address: Host
    port: Port
    store: str = ""


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind
    group: Name
    name_servers: list[str]
    controllers: list[str] = []
    settings: dict[str, str] = {}
    version: str = ""
    in_sync_replicas: Annotated[int, whole_number(0, 100, "replicas; 0: as RocketMQ 4")] = 0
    lease_ttl_ms: Annotated[int, whole_number(100, 3_600_000, "milliseconds")] = 5_000
    secret_file: str = ""
    access_key: str = ""
    secret_key_file: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    command_seconds: Annotated[int, whole_number(1, 3_600, "seconds")] = 30
    fetch_seconds: Annotated[int, whole_number(1, 86_400, "seconds")] = 600
    patience: Annotated[int, whole_number(1, 100, "times as long")] = 3
    consumers: bool = True
    clock_ms: Annotated[int, whole_number(0, 3_600_000, "milliseconds")] = 100


class ProcessNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node. `store` is a local directory; without it `commands.fetch` brings a copy."""

    name: str
    address: str
    port: int
    store: Path | None
    commands: Commands

    @property
    def client_address(self) -> str:
        """`host:port`."""
        return f"{self.address}:{self.port}"


class ProcessFile(msgspec.Struct, frozen=True, kw_only=True):
    """A checked file. Of kinds that elect no master, the master is the first node."""

    file: Path
    kind: Kind
    group: str
    name_servers: Sequence[str]
    controllers: Sequence[str]
    settings: Mapping[str, str]
    version: str
    in_sync_replicas: int
    lease_ttl_ms: int
    secret_file: Path | None
    access_key: str
    secret_key_file: Path | None
    tls: TLSFiles | None
    command_seconds: int
    fetch_seconds: int
    patience: int
    consumers: bool
    """Whether groups of consumers are played."""
    clock_ms: int
    """How far the clocks of nodes and drill may be apart."""
    nodes: Sequence[ProcessNode]

    @property
    def faults(self) -> frozenset[Fault]:
        """What every node has the commands for; orders of operators need the secret."""
        found = {
            fault
            for fault, names in FAULT_COMMANDS.items()
            if all(getattr(node.commands, name) for node in self.nodes for name in names)
        }
        if self.kind is Kind.FENCED and self.secret_file is not None:
            found |= {Fault.RESIGN, Fault.PROMOTE}
        return frozenset(found)


def read_process_file(file: Path) -> ProcessFile:
    """Read and check a file.

    Raises:
        BadOptionsError: it cannot be read.
        ClusterConfigError: with every problem of it, each with its line.
    """
    if not file.is_file():
        what = "is no file" if file.exists() else "does not exist"
        raise BadOptionsError(f"--file {file}: {what}; give the file that describes the cluster")
    try:
        return _read(file)
    except ClusterConfigError:
        raise
    except RecursionError as error:
        raise BadOptionsError(f"--file {file}: it is nested too deeply") from error


def _read(file: Path) -> ProcessFile:
    reader = Reader(file)
    root = reader.mapping(compose(file), "")
    own = {key: node for key, node in root.items() if key not in ("commands", "nodes")}
    names = [field.name for field in msgspec.structs.fields(_Head)]
    reader.unknown_keys(root, [*names, "commands", "nodes"], "")
    values = {}
    for field in msgspec.structs.fields(_Head):
        if field.name in own:
            value = reader.value(own[field.name], field.type, field.name)
            if value is not MISSING:
                values[field.name] = value
        elif field.required:
            reader.complain(field.name, "is missing; add it")
    shared = reader.record(Commands, root.get("commands"), "commands") or Commands()
    nodes = _nodes(reader, root.get("nodes"), shared, file.absolute().parent)
    reader.problems.raise_if_any()
    head = _Head(**values)
    _check(reader, head, nodes)
    reader.problems.raise_if_any()
    base = file.absolute().parent
    return ProcessFile(
        file=file.absolute(),
        nodes=nodes,
        secret_file=base / head.secret_file if head.secret_file else None,
        secret_key_file=base / head.secret_key_file if head.secret_key_file else None,
        tls=_tls_of(head, base),
        **{
            name: getattr(head, name)
            for name in ProcessFile.__struct_fields__
            if name not in ("file", "nodes", "secret_file", "secret_key_file", "tls")
        },
    )


def _tls_of(head: _Head, base: Path) -> TLSFiles | None:
    if not head.ca_file:
        return None
    return TLSFiles(
        str(base / head.ca_file),
        certificate_file=str(base / head.certificate_file) if head.certificate_file else "",
        key_file=str(base / head.key_file) if head.key_file else "",
    )


def _nodes(
    reader: Reader, node: yaml.Node | None, shared: Commands, base: Path
) -> list[ProcessNode]:
    if node is None or is_null(node) or not isinstance(node, yaml.SequenceNode):
        reader.problems.add(node, "nodes", "must be a list: one '- name: ...' entry per node")
        return []
    found = []
    for index, entry in enumerate(node.value):
        path = f"nodes[{index}]"
        reader.places[path] = entry
        if not isinstance(entry, yaml.MappingNode):
            reader.problems.add(entry, path, "must be a block of 'key: value' lines")
            continue
        pairs = [pair for pair in entry.value if pair[0].value != "commands"]
        own = [value for key, value in entry.value if key.value == "commands"]
        if len(own) > 1:
            reader.problems.add(own[1], f"{path}.commands", "is given twice; remove one")
        mine = own[0] if own else None
        plain = yaml.MappingNode(entry.tag, pairs, entry.start_mark, entry.end_mark)
        read = reader.record(_NodeEntry, plain, path)
        commands = reader.record(Commands, mine, f"{path}.commands") or Commands()
        if read is not None:
            found.append(
                ProcessNode(
                    name=read.name,
                    address=read.address,
                    port=read.port,
                    store=(base / read.store) if read.store else None,
                    commands=commands.over(shared),
                )
            )
    return found


def _check(reader: Reader, head: _Head, nodes: Sequence[ProcessNode]) -> None:
    """What values mean to each other."""
    for key in ("name_servers", "controllers"):
        for address in getattr(head, key):
            match = _ADDRESS.fullmatch(address)
            if match is None or int(match[2]) > PORT_MAX:
                reader.complain(key, f"{address!r} is not valid; give 'host:port'")
    if not head.name_servers:
        reader.complain("name_servers", "is empty; give at least one 'host:port'")
    if head.kind is Kind.ROCKETMQ_CONTROLLER and not head.controllers:
        reader.complain("controllers", "is missing; give the 'host:port' of every controller")
    if head.kind is Kind.CLASSIC and head.in_sync_replicas == 1:
        reader.complain(
            "in_sync_replicas", "is 1: sends wait for no other node, and there is nothing to test"
        )
    if head.in_sync_replicas > len(nodes):
        reader.complain("in_sync_replicas", f"is more than the {len(nodes)} nodes")
    _check_settings(reader, head)
    _check_access(reader, head)
    _check_nodes(reader, nodes)


def _check_settings(reader: Reader, head: _Head) -> None:
    if head.settings and not head.kind.is_rocketmq:
        reader.complain("settings", f"are those of RocketMQ's brokers, not of a {head.kind} group")
    for key in _NUMBERS:
        if not head.settings.get(key, "1").isdecimal():
            reader.complain(f"settings.{key}", "is not valid; give a number in quotes")


def _check_access(reader: Reader, head: _Head) -> None:
    """What says who the drill is, and whom it trusts."""
    if bool(head.access_key) != bool(head.secret_key_file):
        which = "access_key" if head.access_key else "secret_key_file"
        reader.complain(which, "needs the other of `access_key` and `secret_key_file`; add that")
    if bool(head.certificate_file) != bool(head.key_file):
        which = "certificate_file" if head.certificate_file else "key_file"
        reader.complain(which, "needs the other of `certificate_file` and `key_file`; add that")
    if (head.certificate_file or head.key_file) and not head.ca_file:
        reader.complain("ca_file", "is missing; give the certificates of those who sign for nodes")
    if head.ca_file and head.kind is Kind.ROCKETMQ_CONTROLLER:
        reader.complain("ca_file", "cannot be given: controllers are asked without TLS")


def _check_nodes(reader: Reader, nodes: Sequence[ProcessNode]) -> None:
    if len(nodes) < NODES_MIN:
        reader.complain("nodes", f"has {len(nodes)}; a drill needs at least {NODES_MIN}")
    _check_once(reader, "name", [node.name for node in nodes])
    _check_once(reader, "port", [node.client_address for node in nodes])
    _check_once(reader, "store", [_place_of(node) for node in nodes])
    for index, node in enumerate(nodes):
        path = f"nodes[{index}]"
        if not node.commands.find:
            reader.complain(
                path, f"{node.name} has no command `find`, which prints its process id; add it"
            )
        if (node.store is None) == (not node.commands.fetch):
            which = "neither `store` nor" if node.store is None else "both `store` and"
            reader.complain(
                path,
                f"{node.name} has {which} a command `fetch`; give the directory of its store, or"
                " the command that copies it to $STORE",
            )


def _place_of(node: ProcessNode) -> str:
    """Where its store is, by whatever name: compared with itself it would always be equal."""
    return os.path.realpath(node.store) if node.store is not None else ""


def _check_once(reader: Reader, key: str, values: Sequence[str]) -> None:
    for index, value in enumerate(values):
        if value and value in values[:index]:
            reader.complain(f"nodes[{index}].{key}", f"{value!r} is there twice; correct one")

"""From `cluster.yaml` to frozen records, checked.

The file has two parts. `cluster`, `store`, `replication`, `broker` and `groups` must be the same
for every node (their fingerprint is logged at start); `nodes` says who lives where. The records
below *are* the list of settings: name, default, range and remedy stand together, and the reader
walks them, so that a setting cannot be read without being checked.

All problems are reported at once, each as

    cluster.yaml:12: replication.slave_timeout_ms: 0 is too small; give at least 1 (milliseconds)

Reading one value is `yaml_reader.py`; what values mean to each other is here, and for `store` in
`store_settings.py`.
"""

from __future__ import annotations

import difflib
import hashlib
import ipaddress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec
import yaml
from msgspec import Meta, Struct

from ha.fenced.config import AckLevel
from node.config.fenced_settings import (
    COORDINATOR,
    SECRET_BYTES_MIN,
    CoordinatorSettings,
    GroupKind,
    check_classic_group,
    check_coordinator,
    check_fenced_group,
    check_reach,
)
from node.config.store_settings import StoreSettings, check_store
from node.config.yaml_reader import (
    MISSING,
    Reader,
    compose,
    is_null,
    milliseconds,
    size_bytes,
    whole_number,
)
from node.errors import ConfigError

HA_CLIENT_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""Read buffer of a Java slave: a bigger frame hangs it. Source: DefaultHAClient."""

HA_TRANSFER_BATCH_SIZE_BYTES_MAX: Final = HA_CLIENT_BUFFER_BYTES - 12

MULTI_PATH_SPLITTER: Final = ","
"""Between the directories of one node's commit log. Source: MixAll.MULTI_PATH_SPLITTER."""

MASTER_ID: Final = 0
"""Broker id of a group's master. Source: MixAll.MASTER_ID."""

RESERVED_NAMES: Final = (COORDINATOR, "logs")
"""Directories that a supervisor has beside those of the nodes; `reach` names the first, too."""

Port = Annotated[int, whole_number(1, 65_535, "a TCP port")]
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$",
        extra={"form": "letters, digits, '-' and '_', at most 64, starting with a letter or digit"},
    ),
]


class BrokerRole(StrEnum):
    """Whether a group's master waits for a slave before it answers a put with WAIT."""

    SYNC_MASTER = "SYNC_MASTER"
    ASYNC_MASTER = "ASYNC_MASTER"


class ClusterSettings(Struct, frozen=True):
    """`cluster:` of the file."""

    name: Name = "DefaultCluster"
    data_directory: str = "data"
    secret_file: str | None = None


class ReplicationSettings(Struct, frozen=True):
    """`replication:` of the file."""

    slave_timeout_ms: Annotated[int, milliseconds(1)] = 3_000
    ha_max_gap_not_in_sync_bytes: Annotated[int, size_bytes(1, 1 << 40)] = 268_435_456
    in_sync_replicas: Annotated[int, whole_number(1, 64, "replicas")] | None = None
    ha_transfer_batch_size_bytes: Annotated[
        int, size_bytes(1, HA_TRANSFER_BATCH_SIZE_BYTES_MAX)
    ] = 262_144
    ha_send_heartbeat_interval_ms: Annotated[int, milliseconds(1)] = 5_000
    ha_housekeeping_interval_ms: Annotated[int, milliseconds(1)] = 20_000
    ha_reconnect_interval_ms: Annotated[int, milliseconds(1)] = 5_000
    sync_from_last_file: bool = False
    check_crc_on_append: bool = True


class BrokerSettings(Struct, frozen=True):
    """`broker:` of the file."""

    auto_create_topic_enable: bool = True
    default_topic_queue_nums: Annotated[int, whole_number(1, 1024, "queues")] = 8
    register_broker_interval_ms: Annotated[int, milliseconds(10)] = 5_000
    broker_expired_timeout_ms: Annotated[int, milliseconds(10)] = 20_000
    slave_synchronize_interval_ms: Annotated[int, milliseconds(10)] = 3_000
    connections_max: Annotated[int, whole_number(1, 65_536, "connections")] = 1_024
    stop_grace_ms: Annotated[int, milliseconds(0)] = 3_000


class GroupSettings(Struct, frozen=True):
    """One entry of `groups:`; its key is the broker name that clients see."""

    kind: GroupKind = GroupKind.CLASSIC
    broker_role: BrokerRole = BrokerRole.SYNC_MASTER
    min_isr: Annotated[int, whole_number(1, 64, "replicas, the master included")] = 2
    ack_level: AckLevel = AckLevel.WRITTEN
    learners: list[str] = []


class NodeSettings(Struct, frozen=True):
    """One entry of `nodes:`.

    `address` is more than a place: the replication wire carries no identity, so a slave dials from
    its own address and the master knows it by that.
    """

    name: Name
    group: Name
    broker_id: Annotated[int, whole_number(0, 1_000_000, "a broker id")]
    address: str
    port: Port = 10_911
    ha_port: Port = 10_912
    name_server_port: Port = 9_876
    replication_port: Port = 10_913
    directory: str | None = None
    store_path_commit_log: str | None = None
    reach: dict[str, str] = {}

    @property
    def is_master(self) -> bool:
        """Whether the file names this node as the master of its group."""
        return self.broker_id == MASTER_ID

    @property
    def broker_address(self) -> str:
        """`host:port` under which clients find this node."""
        return f"{self.address}:{self.port}"


class ClusterConfig(Struct, frozen=True):
    """A whole `cluster.yaml`, checked."""

    file: Path
    cluster: ClusterSettings
    store: StoreSettings
    replication: ReplicationSettings
    broker: BrokerSettings
    groups: dict[str, GroupSettings]
    nodes: tuple[NodeSettings, ...]
    coordinator: CoordinatorSettings = CoordinatorSettings()
    secret: str = ""
    """Content of `secret_file`; peers of a fenced group prove that they know it."""

    @property
    def data_directory(self) -> Path:
        """Where the nodes keep their directories; a relative one counts from the file."""
        return self.file.parent / self.cluster.data_directory

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits over everything that must be the same on all machines."""
        nodes = [
            msgspec.structs.replace(node, directory=None, store_path_commit_log=None, reach={})
            for node in self.nodes
        ]
        agreed = (
            self.cluster.name,
            self.store,
            self.replication,
            self.broker,
            self.groups,
            nodes,
            self.coordinator.kind,
            self.coordinator.lease_ttl_ms,
        )
        return hashlib.sha256(msgspec.json.encode(agreed, order="sorted")).hexdigest()[:12]

    def node_directory(self, node: NodeSettings) -> Path:
        """Store root of a node; a relative `directory` counts from the file."""
        if node.directory is None:
            return self.data_directory / node.name
        return self.file.parent / node.directory

    def commit_log_directories(self, node: NodeSettings) -> tuple[Path, ...]:
        """Where a node keeps its commit log; a relative path counts from the file."""
        if node.store_path_commit_log is None:
            return (self.node_directory(node) / "commitlog",)
        pieces = node.store_path_commit_log.split(MULTI_PATH_SPLITTER)
        return tuple(self.file.parent / piece.strip() for piece in pieces)

    def group_nodes(self, group: str) -> list[NodeSettings]:
        """All nodes of a group, master first, then by broker id."""
        members = [node for node in self.nodes if node.group == group]
        return sorted(members, key=lambda node: node.broker_id)

    def node(self, name: str) -> NodeConfig:
        """The view of one node.

        Raises:
            ConfigError: There is no such node.
        """
        for node in self.nodes:
            if node.name == name:
                return NodeConfig(cluster=self, node=node)
        known = ", ".join(node.name for node in self.nodes)
        raise ConfigError([f"{self.file}: no node is named {name!r}; the file has {known}"])


class NodeConfig(Struct, frozen=True):
    """What one node needs to know: the cluster, and who it is in it."""

    cluster: ClusterConfig
    node: NodeSettings

    @property
    def directory(self) -> Path:
        """Root of this node's store."""
        return self.cluster.node_directory(self.node)

    @property
    def commit_log_directories(self) -> tuple[Path, ...]:
        """Where this node keeps its commit log."""
        return self.cluster.commit_log_directories(self.node)

    @property
    def group(self) -> GroupSettings:
        """Settings of this node's group."""
        return self.cluster.groups[self.node.group]

    @property
    def is_fenced(self) -> bool:
        """Whether the nodes of this group elect their master."""
        return self.group.kind is GroupKind.FENCED

    @property
    def peers(self) -> list[NodeSettings]:
        """The other nodes of the group, by broker id."""
        members = self.cluster.group_nodes(self.node.group)
        return [member for member in members if member.name != self.node.name]

    def address_of(self, other: NodeSettings) -> str:
        """The IP address under which this node dials another one."""
        return self.node.reach.get(other.name, other.address)

    @property
    def master(self) -> NodeSettings:
        """The master of this node's classic group (may be the node itself)."""
        return self.cluster.group_nodes(self.node.group)[0]

    @property
    def slaves(self) -> list[NodeSettings]:
        """The slaves of this node's group, by broker id."""
        return self.cluster.group_nodes(self.node.group)[1:]

    @property
    def broker_role(self) -> BrokerRole:
        """How the group's master answers puts with WAIT."""
        return self.cluster.groups[self.node.group].broker_role


_SECTIONS: Final = (
    "cluster",
    "store",
    "replication",
    "broker",
    "coordinator",
    "groups",
    "nodes",
)


def load_config(file: Path) -> ClusterConfig:
    """Read and check a cluster file.

    Raises:
        ConfigError: With every problem of the file, or the reason why it cannot be read.
    """
    reader = Reader(file)
    root = reader.mapping(compose(file), "")
    reader.unknown_keys(root, _SECTIONS, "")
    cluster = reader.record(ClusterSettings, root.get("cluster"), "cluster")
    store = reader.record(StoreSettings, root.get("store"), "store")
    replication = reader.record(ReplicationSettings, root.get("replication"), "replication")
    broker = reader.record(BrokerSettings, root.get("broker"), "broker")
    coordinator = reader.record(CoordinatorSettings, root.get("coordinator"), "coordinator")
    # Only a record with a required field can be None, and these have none.
    assert cluster is not None
    assert store is not None
    assert replication is not None
    assert broker is not None
    assert coordinator is not None
    config = ClusterConfig(
        file=file.absolute(),
        cluster=cluster,
        store=store,
        replication=replication,
        broker=broker,
        groups=_read_groups(reader, root.get("groups")),
        nodes=_read_nodes(reader, root.get("nodes")),
        coordinator=coordinator,
        secret=_read_secret(reader, file, cluster.secret_file),
    )
    check_store(reader, config.store)
    check_coordinator(reader, config.coordinator)
    _check_intervals(reader, config)
    _check_groups(reader, config)
    _check_nodes(reader, config)
    check_reach(reader, config)
    reader.problems.raise_if_any()
    return config


def _read_secret(reader: Reader, file: Path, secret_file: str | None) -> str:
    if secret_file is None:
        return ""
    try:
        secret = (file.absolute().parent / secret_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reader.complain("cluster.secret_file", f"{secret_file} cannot be read: {error}")
        return ""
    if len(secret.encode()) < SECRET_BYTES_MIN:
        reader.complain(
            "cluster.secret_file",
            f"{secret_file} holds less than {SECRET_BYTES_MIN} bytes: too easy to guess;"
            " `openssl rand -hex 32` makes a good one",
        )
    return secret


def _read_groups(reader: Reader, node: yaml.Node | None) -> dict[str, GroupSettings]:
    groups: dict[str, GroupSettings] = {}
    for name, group_node in reader.mapping(node, "groups").items():
        key = yaml.ScalarNode("tag:yaml.org,2002:str", name, group_node.start_mark)
        if reader.value(key, Name, f"groups.{name}") is MISSING:
            continue
        group = reader.record(GroupSettings, group_node, f"groups.{name}")
        if group is not None:
            groups[name] = group
    return groups


def _read_nodes(reader: Reader, node: yaml.Node | None) -> tuple[NodeSettings, ...]:
    if node is None or is_null(node):
        reader.problems.add(node, "nodes", "no node is described; add at least a master")
        return ()
    reader.places["nodes"] = node
    if not isinstance(node, yaml.SequenceNode):
        reader.problems.add(node, "nodes", "must be a list: one '- name: ...' entry per node")
        return ()
    reader.node_entries = len(node.value)
    nodes = []
    for index, entry in enumerate(node.value):
        reader.places[f"nodes[{index}]"] = entry
        settings = reader.record(NodeSettings, entry, f"nodes[{index}]")
        if settings is not None:
            nodes.append(settings)
    return tuple(nodes)


def _check_intervals(reader: Reader, config: ClusterConfig) -> None:
    """Pairs of times of which one must leave room for the other."""
    replication, broker = config.replication, config.broker
    if replication.ha_housekeeping_interval_ms <= replication.ha_send_heartbeat_interval_ms:
        reader.complain(
            "replication.ha_housekeeping_interval_ms",
            f"{replication.ha_housekeeping_interval_ms} leaves no room for a heartbeat every"
            f" {replication.ha_send_heartbeat_interval_ms} ms: idle links would be cut;"
            f" give more than {replication.ha_send_heartbeat_interval_ms}",
        )
    if broker.broker_expired_timeout_ms <= broker.register_broker_interval_ms:
        reader.complain(
            "broker.broker_expired_timeout_ms",
            f"{broker.broker_expired_timeout_ms} leaves no room for a registration every"
            f" {broker.register_broker_interval_ms} ms: live brokers would vanish from the route;"
            f" give more than {broker.register_broker_interval_ms}",
        )


def _check_groups(reader: Reader, config: ClusterConfig) -> None:
    """Each group has one master, and ids and addresses of its own."""
    if len(config.nodes) != reader.node_entries:
        return  # a node that could not be read would be missed here, with misleading complaints
    for index, node in enumerate(config.nodes):
        if node.group not in config.groups:
            near = difflib.get_close_matches(node.group, config.groups, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else "add it under groups:"
            reader.complain(f"nodes[{index}].group", f"no group is named {node.group!r}; {remedy}")
    for group in config.groups:
        _check_group(reader, config, group)


def _check_group(reader: Reader, config: ClusterConfig, group: str) -> None:
    members = [(index, node) for index, node in enumerate(config.nodes) if node.group == group]
    _check_ids(reader, members)
    if config.groups[group].kind is GroupKind.FENCED:
        check_fenced_group(reader, config, group, members)
        return
    check_classic_group(reader, group, config.groups[group])
    masters = [(index, node) for index, node in members if node.is_master]
    if not masters:
        reader.complain(f"groups.{group}", "has no master; give one of its nodes broker_id: 0")
    for index, node in masters[1:]:
        reader.complain(
            f"nodes[{index}].broker_id",
            f"group {group} has two masters, {masters[0][1].name} and {node.name};"
            " only one node of a group may have broker_id 0",
        )
    addresses: dict[str, str] = {}
    for index, node in members:
        if (owner := addresses.get(node.address)) is not None:
            reader.complain(
                f"nodes[{index}].address",
                f"{node.address} is taken by {owner} of the same group, and a slave is known by"
                " its address; give another (127.0.0.2, 127.0.0.3, ... all work on one machine)",
            )
        addresses.setdefault(node.address, node.name)
    _check_in_sync_replicas(reader, config, group, len(members))


def _check_ids(reader: Reader, members: list[tuple[int, NodeSettings]]) -> None:
    owners: dict[int, str] = {}
    for index, node in members:
        # Two masters of a classic group are told about in words of their own.
        if not node.is_master and (owner := owners.get(node.broker_id)) is not None:
            reader.complain(
                f"nodes[{index}].broker_id", f"{node.broker_id} is taken by {owner}; give another"
            )
        owners.setdefault(node.broker_id, node.name)


def _check_in_sync_replicas(
    reader: Reader, config: ClusterConfig, group: str, members: int
) -> None:
    wanted = config.replication.in_sync_replicas
    if wanted is not None and wanted > members > 0:
        reader.complain(
            "replication.in_sync_replicas",
            f"{wanted} replicas cannot be in sync: group {group} has {members} nodes;"
            f" give at most {members}, or null for RocketMQ 4's rule",
        )


def _check_nodes(reader: Reader, config: ClusterConfig) -> None:
    """Names, addresses, ports and directories that must not meet."""
    names: dict[str, int] = {}
    directories: dict[Path, str] = {}
    sockets: dict[tuple[str, int], str] = {}
    for index, node in enumerate(config.nodes):
        path = f"nodes[{index}]"
        if node.name in RESERVED_NAMES:
            reader.complain(
                f"{path}.name",
                f"{node.name!r} is the name of something else in the data directory, and no node's;"
                " give another",
            )
        if node.name in names:
            reader.complain(f"{path}.name", f"two nodes are named {node.name!r}; rename one")
        elif (owner := directories.get(config.node_directory(node))) is not None:
            key = f"{path}.directory" if node.directory else path
            reader.complain(key, f"shares its directory with {owner}; give each its own")
        names[node.name] = index
        directories.setdefault(config.node_directory(node), node.name)
        _check_commit_log_directories(reader, config, node, path, directories)
        _check_address(reader, f"{path}.address", node.address)
        for key in _ports(config, node):
            place = (node.address, getattr(node, key))
            if (owner := sockets.get(place)) is not None:
                reader.complain(
                    f"{path}.{key}" if f"{path}.{key}" in reader.places else path,
                    f"{key} {place[1]} at {place[0]} is already {owner}; give another",
                )
            sockets.setdefault(place, f"the {key} of {node.name}")


def _ports(config: ClusterConfig, node: NodeSettings) -> tuple[str, ...]:
    group = config.groups.get(node.group)
    if group is not None and group.kind is GroupKind.FENCED:
        return ("port", "ha_port", "name_server_port", "replication_port")
    return ("port", "ha_port", "name_server_port")


def _check_commit_log_directories(
    reader: Reader,
    config: ClusterConfig,
    node: NodeSettings,
    path: str,
    directories: dict[Path, str],
) -> None:
    """Each directory belongs to one log: two logs would take each other's files for their own."""
    if node.store_path_commit_log is None:
        return
    key = f"{path}.store_path_commit_log"
    if not all(piece.strip() for piece in node.store_path_commit_log.split(MULTI_PATH_SPLITTER)):
        reader.complain(key, "one of the paths is empty; give one, or several with ',' between")
        return
    for directory in config.commit_log_directories(node):
        if (owner := directories.get(directory)) is not None:
            reader.complain(key, f"{directory} is a directory of {owner} already; give another")
        directories.setdefault(directory, node.name)


def _check_address(reader: Reader, key: str, address: str) -> None:
    remedy = "give an IPv4 address of the machine, such as 127.0.0.1"
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        reader.complain(key, f"{address!r} is not an IP address; {remedy}")
        return
    if parsed.version != 4:
        reader.complain(
            key, f"{address} is IPv6, which clients of RocketMQ 4 cannot read; {remedy}"
        )
    elif parsed.is_unspecified or parsed.is_multicast:
        reader.complain(key, f"{address} is not the address of one machine; {remedy}")

"""The configuration as `python -m node check` prints it: how programs that start nodes read it."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ha.fenced.config import AckLevel
from node.config.fenced_settings import CoordinatorSettings, GroupKind
from node.config.node_config import (
    BrokerRole,
    BrokerSettings,
    ClusterConfig,
    NodeSettings,
    ReplicationSettings,
)
from node.config.store_settings import FlushDiskType, StoreSettings


class CheckedNode(Struct, frozen=True):
    """One node as `python -m node check` prints it: nothing left to default."""

    name: str
    group: str
    broker_id: int
    role: str
    address: str
    port: int
    ha_port: int
    name_server_port: int
    replication_port: int
    directory: str
    commit_log_directories: list[str]


class CheckedGroup(Struct, frozen=True):
    """One group as `python -m node check` prints it."""

    kind: GroupKind
    min_isr: int
    ack_level: AckLevel
    broker_role: BrokerRole
    flush_disk_type: FlushDiskType


class CheckedCluster(Struct, frozen=True):
    """What `python -m node check` prints: how programs that start nodes read a cluster file."""

    name: str
    file: str
    data_directory: str
    fingerprint: str
    groups: dict[str, CheckedGroup]
    nodes: list[CheckedNode]
    store: StoreSettings
    replication: ReplicationSettings
    broker: BrokerSettings
    coordinator: CoordinatorSettings
    """With absolute paths."""


def checked_cluster(config: ClusterConfig) -> CheckedCluster:
    """The whole configuration with every default filled in and every path absolute."""
    return CheckedCluster(
        name=config.cluster.name,
        file=str(config.file),
        data_directory=str(config.data_directory),
        fingerprint=config.fingerprint,
        groups={
            name: CheckedGroup(
                group.kind,
                group.min_isr,
                group.ack_level,
                group.broker_role,
                config.store.flush_disk_type,
            )
            for name, group in config.groups.items()
        },
        nodes=[_checked_node(config, node) for node in config.nodes],
        store=config.store,
        replication=config.replication,
        broker=config.broker,
        coordinator=checked_coordinator(config),
    )


def checked_coordinator(config: ClusterConfig) -> CoordinatorSettings:
    """The coordinator's settings with absolute paths."""
    settings = config.coordinator
    paths = {
        key: str(config.file.parent / value)
        for key in ("password_file", "ca_file", "cert_file", "key_file")
        if (value := getattr(settings, key))
    }
    return msgspec.structs.replace(settings, **paths)


def _checked_node(config: ClusterConfig, node: NodeSettings) -> CheckedNode:
    return CheckedNode(
        name=node.name,
        group=node.group,
        broker_id=node.broker_id,
        role=_role(config, node),
        address=node.address,
        port=node.port,
        ha_port=node.ha_port,
        name_server_port=node.name_server_port,
        replication_port=node.replication_port,
        directory=str(config.node_directory(node)),
        commit_log_directories=list(map(str, config.commit_log_directories(node))),
    )


def _role(config: ClusterConfig, node: NodeSettings) -> str:
    if config.groups[node.group].kind is GroupKind.FENCED:
        return "NODE"
    return "MASTER" if node.is_master else "SLAVE"

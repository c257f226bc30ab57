"""From `cluster.yaml` to frozen records, checked.

The file has two parts. `cluster`, `store`, `replication`, `broker`, `coordinator`, `security` and
`groups` must be the same for every node (their fingerprint is logged at start); `nodes` says who
lives where, `logging` how each process logs, and `metrics` what each node shows of itself.

All problems are reported at once, each as

    cluster.yaml:12: replication.slave_timeout_ms: '0' is not valid; give a whole number from 1 to
    86400000 (milliseconds)

in one line.

Reading one value is `yaml_reader`; what values mean to each other is in `store_settings`,
`coordinator_settings`, `group_checks` and `node_checks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import yaml

from tandem.cluster_file.choices import CoordinatorKind
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.cluster_file.coordinator_settings import CoordinatorSettings, check_coordinator
from tandem.cluster_file.group_checks import check_groups
from tandem.cluster_file.metrics_checks import check_metrics
from tandem.cluster_file.node_checks import check_nodes, check_reach
from tandem.cluster_file.ranges import Name
from tandem.cluster_file.secret_file import SecretFileError, read_secret
from tandem.cluster_file.security_checks import check_security, check_tls
from tandem.cluster_file.settings import (
    BrokerSettings,
    ClusterSettings,
    GroupSettings,
    LoggingSettings,
    MetricsSettings,
    NodeSettings,
    ReplicationSettings,
    SecuritySettings,
    TLSSettings,
)
from tandem.cluster_file.store_settings import StoreSettings, check_store
from tandem.cluster_file.yaml_reader import MISSING, Reader, compose, is_null, text_node

if TYPE_CHECKING:
    from pathlib import Path

_SECTIONS: Final = (
    "cluster",
    "store",
    "replication",
    "broker",
    "coordinator",
    "logging",
    "security",
    "tls",
    "metrics",
    "groups",
    "nodes",
)


def load_config(file: Path) -> ClusterConfig:
    """Read and check a cluster file.

    Raises:
        ClusterConfigError: With every problem of the file, or the reason why it cannot be read.
    """
    reader = Reader(file)
    root = reader.mapping(compose(file), "")
    reader.unknown_keys(root, _SECTIONS, "")
    cluster = reader.record(ClusterSettings, root.get("cluster"), "cluster")
    store = reader.record(StoreSettings, root.get("store"), "store")
    replication = reader.record(ReplicationSettings, root.get("replication"), "replication")
    broker = reader.record(BrokerSettings, root.get("broker"), "broker")
    coordinator = reader.record(CoordinatorSettings, root.get("coordinator"), "coordinator")
    logs = reader.record(LoggingSettings, root.get("logging"), "logging")
    security = reader.record(SecuritySettings, root.get("security"), "security")
    tls = reader.record(TLSSettings, root.get("tls"), "tls")
    metrics = reader.record(MetricsSettings, root.get("metrics"), "metrics")
    # Only a record with a required field can be None, and these have none.
    assert cluster is not None
    assert store is not None
    assert replication is not None
    assert broker is not None
    assert coordinator is not None
    assert logs is not None
    assert security is not None
    assert tls is not None
    assert metrics is not None
    config = ClusterConfig(
        file=file.absolute(),
        cluster=cluster,
        store=store,
        replication=replication,
        broker=broker,
        groups=_read_groups(reader, root.get("groups")),
        nodes=_read_nodes(reader, root.get("nodes")),
        coordinator=_of_cluster(coordinator.counted_from(file.absolute().parent), tls, file),
        logging=logs,
        security=security,
        tls=tls,
        metrics=metrics,
        secret=_read_secret(reader, file, cluster.secret_file),
    )
    check_store(reader, config.store)
    check_coordinator(reader, config.coordinator)
    check_security(reader, config.security)
    check_tls(reader, config.tls)
    check_metrics(reader, config.metrics)
    _check_intervals(reader, config)
    _check_bit_maps(reader, config)
    if reader.all_nodes_read:
        check_groups(reader, config)
    check_nodes(reader, config)
    if reader.all_nodes_read:
        check_reach(reader, config)
    reader.problems.raise_if_any()
    return config


def _of_cluster(
    coordinator: CoordinatorSettings, tls: TLSSettings, file: Path
) -> CoordinatorSettings:
    """The same, with the CA of the cluster for its own coordinator: clients dial it with TLS."""
    if coordinator.kind is not CoordinatorKind.EMBEDDED or not tls.is_on:
        return coordinator
    files = tls.files("", file.absolute().parent)
    return msgspec.structs.replace(coordinator, ca_file=files.ca_file)


def _read_secret(reader: Reader, file: Path, secret_file: str | None) -> str:
    """The secret in a file that is named; see `ClusterConfig.with_secret` for all others."""
    if secret_file is None:
        return ""
    try:
        return read_secret(file.absolute().parent / secret_file, called=secret_file)
    except SecretFileError as error:
        reader.complain("cluster.secret_file", str(error))
        return ""


def _read_groups(reader: Reader, node: yaml.Node | None) -> dict[str, GroupSettings]:
    groups: dict[str, GroupSettings] = {}
    for name, group_node in reader.mapping(node, "groups").items():
        key = f"groups.{name}"
        if reader.value(text_node(name, group_node), Name, key) is MISSING:
            continue
        group = reader.record(GroupSettings, group_node, key)
        if group is not None:
            groups[name] = group
    return groups


def _read_nodes(reader: Reader, node: yaml.Node | None) -> tuple[NodeSettings, ...]:
    if node is None or is_null(node) or node.value == []:
        reader.problems.add(node, "nodes", "no node is described; add at least a master")
        return ()
    reader.places["nodes"] = node
    if not isinstance(node, yaml.SequenceNode):
        reader.problems.add(node, "nodes", "must be a list: one '- name: ...' entry per node")
        return ()
    nodes = []
    for index, entry in enumerate(node.value):
        path = f"nodes[{index}]"
        reader.places[path] = entry
        settings = reader.record(NodeSettings, entry, path)
        if settings is None:
            reader.all_nodes_read = False
        else:
            reader.node_paths.append(path)
            nodes.append(settings)
    return tuple(nodes)


def _check_bit_maps(reader: Reader, config: ClusterConfig) -> None:
    """Bit maps are kept in the extensions of queues, and nowhere else."""
    if config.broker.enable_calc_filter_bit_map and not config.store.enable_consume_queue_ext:
        reader.complain(
            "broker.enable_calc_filter_bit_map",
            "true has nowhere to keep the bit maps; set store.enable_consume_queue_ext: true as"
            " well, or this to false",
        )


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

"""What each part of a node has to know of cluster.yaml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ha.classic.config import HAConfig, SlaveNode
from ha.fenced.config import FencedConfig, FencedPeer
from node.config.node_config import BrokerRole
from store import FlushDiskType as StoreFlushDiskType
from store import StoreConfig
from tandem.wire.message import Host

if TYPE_CHECKING:
    from node.config.node_config import NodeConfig

KEEPALIVES_PER_LEASE: Final = 5
"""A lease survives a few lost ones."""

KEEPALIVE_INTERVAL_MS_MAX: Final = 1_000

FENCED_RECONNECT_INTERVAL_MS: Final = 50
"""A new master takes messages when its followers have found it; a refused connection is cheap."""


def store_config(config: NodeConfig) -> StoreConfig:
    """What the store has to know of cluster.yaml."""
    store = config.cluster.store
    return StoreConfig(
        directory=str(config.directory),
        store_path_commit_log=tuple(map(str, config.commit_log_directories)),
        mapped_file_size_commit_log_bytes=store.mapped_file_size_commit_log_bytes,
        mapped_file_size_consume_queue_bytes=store.mapped_file_size_consume_queue_bytes,
        enable_consume_queue_ext=store.enable_consume_queue_ext,
        mapped_file_size_consume_queue_ext_bytes=store.mapped_file_size_consume_queue_ext_bytes,
        max_message_size_bytes=store.max_message_size_bytes,
        message_delay_level=store.message_delay_level,
        timer_wheel_enable=store.timer_wheel_enable,
        enabled_append_prop_crc=store.enabled_append_prop_crc,
        force_verify_prop_crc=store.force_verify_prop_crc,
        flush_disk_type=StoreFlushDiskType(store.flush_disk_type.value),
        flush_interval_commit_log_ms=store.flush_interval_commit_log_ms,
        flush_commit_log_least_pages=store.flush_commit_log_least_pages,
        flush_commit_log_thorough_interval_ms=store.flush_commit_log_thorough_interval_ms,
        flush_interval_consume_queue_ms=store.flush_interval_consume_queue_ms,
        transient_store_pool_enable=store.transient_store_pool_enable,
        transient_store_pool_size=store.transient_store_pool_size,
        warm_mapped_file_enable=store.warm_mapped_file_enable,
        message_index_enable=store.message_index_enable,
        max_hash_slot_num=store.max_hash_slot_num,
        max_index_num=store.max_index_num,
        delete_when=store.delete_hours,
        file_reserved_time_hours=store.file_reserved_time_hours,
        disk_max_used_space_ratio=store.disk_max_used_space_ratio,
        disk_space_clean_forcibly_ratio=store.disk_space_clean_forcibly_ratio,
        disk_space_warning_level_ratio=store.disk_space_warning_level_ratio,
        clean_resource_interval_ms=store.clean_resource_interval_ms,
    )


def ha_config(config: NodeConfig) -> HAConfig:
    """What the replication of a classic group has to know of cluster.yaml."""
    master = None if config.node.is_master else Host(config.master.address, config.master.ha_port)
    slaves = tuple(SlaveNode(slave.name, slave.address) for slave in config.slaves)
    return msgspec.structs.replace(
        _classic(config, master, slaves),
        master_for_clients=f"{config.master.name} at {config.master.broker_address}",
        is_sync_master=config.broker_role is BrokerRole.SYNC_MASTER,
    )


def learner_config(config: NodeConfig) -> HAConfig:
    """What the classic port has to know in a fenced group: who may copy the log, uncounted."""
    return _classic(config, None, tuple(SlaveNode(ip, ip) for ip in config.group.learners))


def _classic(config: NodeConfig, master: Host | None, slaves: tuple[SlaveNode, ...]) -> HAConfig:
    replication = config.cluster.replication
    return HAConfig(
        name=config.node.name,
        address=config.node.address,
        ha_port=config.node.ha_port,
        master=master,
        slaves=slaves,
        slave_timeout_ms=replication.slave_timeout_ms,
        ha_max_gap_not_in_sync_bytes=replication.ha_max_gap_not_in_sync_bytes,
        in_sync_replicas=replication.in_sync_replicas,
        ha_transfer_batch_size_bytes=replication.ha_transfer_batch_size_bytes,
        ha_send_heartbeat_interval_ms=replication.ha_send_heartbeat_interval_ms,
        ha_housekeeping_interval_ms=replication.ha_housekeeping_interval_ms,
        ha_reconnect_interval_ms=replication.ha_reconnect_interval_ms,
        sync_from_last_file=replication.sync_from_last_file,
        check_crc_on_append=replication.check_crc_on_append,
    )


def fenced_config(config: NodeConfig) -> FencedConfig:
    """What the replication of a fenced group has to know of cluster.yaml."""
    cluster, node = config.cluster, config.node
    replication, lease_ttl_ms = cluster.replication, cluster.coordinator.lease_ttl_ms
    return FencedConfig(
        cluster=cluster.cluster.name,
        group=node.group,
        name=node.name,
        address=node.address,
        replication_port=node.replication_port,
        client_address=node.broker_address,
        directory=str(config.directory),
        peers=tuple(
            FencedPeer(peer.name, Host(config.address_of(peer), peer.replication_port))
            for peer in config.peers
        ),
        min_isr=config.group.min_isr,
        ack_level=config.group.ack_level,
        secret=cluster.secret,
        lease_ttl_ms=lease_ttl_ms,
        reconnect_interval_ms=FENCED_RECONNECT_INTERVAL_MS,
        keepalive_interval_ms=min(KEEPALIVE_INTERVAL_MS_MAX, lease_ttl_ms // KEEPALIVES_PER_LEASE),
        slave_timeout_ms=replication.slave_timeout_ms,
        ha_transfer_batch_size_bytes=replication.ha_transfer_batch_size_bytes,
        check_crc_on_append=replication.check_crc_on_append,
    )

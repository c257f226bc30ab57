"""What each part of a node has to know of the cluster file.

A setting has the same name in the file and in the part that takes it, so most are copied by name;
what is written out here is what the file says in other words.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final

import msgspec
from msgspec import Struct

from ha.classic.config import HAConfig, SlaveNode
from ha.fenced.config import FencedConfig, FencedPeer
from store import StoreConfig
from tandem import __version__
from tandem.cluster_file.choices import BrokerRole, TLSMode
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.wire.message import Host
from tandem.wire.secret_keys import Purpose, key_of

KEEPALIVES_PER_LEASE: Final = 5
"""A lease survives a few lost ones."""

KEEPALIVE_INTERVAL_MS_MAX: Final = 1_000

FENCED_RECONNECT_INTERVAL_MS: Final = 50
"""A new master takes messages when its followers have found it; a refused connection is cheap."""


def store_config(config: NodeConfig) -> StoreConfig:
    """What the store has to know: all of `store:` but how long a put waits for the disk."""
    store = config.cluster.store
    own = {
        "directory": str(config.directory),
        "store_path_commit_log": tuple(map(str, config.commit_log_directories)),
        "delete_when": store.delete_hours,
    }
    return StoreConfig(**(_of_same_name(store, StoreConfig) | own))


def ha_config(config: NodeConfig) -> HAConfig:
    """What a classic group's replication has to know: all of `replication:`, and who is who."""
    master = None
    if not config.node.is_master:
        master = Host(config.address_of(config.master), config.master.ha_port)
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
    return HAConfig(
        name=config.node.name,
        address=config.node.address,
        ha_port=config.node.ha_port,
        master=master,
        slaves=slaves,
        **_of_same_name(config.cluster.replication, HAConfig),
    )


def fenced_config(config: NodeConfig) -> FencedConfig:
    """What a fenced group's replication has to know: of `replication:` what it has a use for."""
    cluster, node = config.cluster, config.node
    lease_ttl_ms = cluster.coordinator.lease_ttl_ms
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
        secret=key_of(cluster.secret, Purpose.LINK).hex(),
        digests_bodies=_digests_bodies(config),
        program=__version__,
        level_max=config.level_max,
        lease_ttl_ms=lease_ttl_ms,
        reconnect_interval_ms=FENCED_RECONNECT_INTERVAL_MS,
        keepalive_interval_ms=min(KEEPALIVE_INTERVAL_MS_MAX, lease_ttl_ms // KEEPALIVES_PER_LEASE),
        **_of_same_name(config.group, FencedConfig),
        **_of_same_name(cluster.replication, FencedConfig),
    )


def _digests_bodies(config: NodeConfig) -> bool:
    """On loopback only root could change packets, and root could read the secret as well.

    TLS sees what has changed by itself.
    """
    wanted = config.cluster.security.authenticate_log_bytes
    if wanted is not None:
        return wanted
    if config.cluster.tls.mode is TLSMode.ENFORCING:
        return False
    members = config.cluster.group_nodes(config.node.group)
    return not all(ipaddress.ip_address(member.address).is_loopback for member in members)


def _of_same_name(settings: Struct, kind: type[Struct]) -> dict[str, Any]:
    """The settings that `kind` has a field of the same name for."""
    names = set(settings.__struct_fields__) & set(kind.__struct_fields__)
    return {name: getattr(settings, name) for name in names}

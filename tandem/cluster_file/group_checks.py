"""What the nodes of a group must be to each other, and which settings its kind has a use for."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from tandem.cluster_file.choices import AckLevel, BrokerRole, GroupKind

if TYPE_CHECKING:
    from tandem.cluster_file.cluster_config import ClusterConfig
    from tandem.cluster_file.settings import GroupSettings, NodeSettings
    from tandem.cluster_file.yaml_reader import Reader

    Member = tuple[str, NodeSettings]
    """A node of a group, after its path in the file: `nodes[0]`."""


def check_groups(reader: Reader, config: ClusterConfig) -> None:
    """Complain about nodes of no group, and about groups that their nodes do not make.

    Every entry of `nodes:` must have been read: a group would seem to lack the others.
    """
    members: dict[str, list[Member]] = {group: [] for group in config.groups}
    for path, node in zip(reader.node_paths, config.nodes, strict=True):
        if node.group in members:
            members[node.group].append((path, node))
        elif not reader.problems.is_full:
            near = difflib.get_close_matches(node.group, config.groups, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else "add it under groups:"
            reader.complain(f"{path}.group", f"no group is named {node.group!r}; {remedy}")
    for group, found in members.items():
        _check_ids(reader, found)
        if config.groups[group].kind is GroupKind.FENCED:
            _check_fenced_group(reader, config, group, found)
        else:
            _check_classic_group(reader, config, group, found)


def _check_classic_group(
    reader: Reader, config: ClusterConfig, group: str, members: list[Member]
) -> None:
    """One master, and addresses of their own."""
    _check_what_classic_groups_lack(reader, group, config.groups[group])
    masters = [(path, node) for path, node in members if node.is_master]
    if not masters:
        reader.complain(f"groups.{group}", "has no master; give one of its nodes broker_id: 0")
    for path, node in masters[1:]:
        reader.complain(
            f"{path}.broker_id",
            f"group {group} has two masters, {masters[0][1].name} and {node.name};"
            " only one node of a group may have broker_id 0",
        )
    addresses: dict[str, str] = {}
    for path, node in members:
        if (owner := addresses.get(node.address)) is not None:
            reader.complain(
                f"{path}.address",
                f"{node.address} is taken by {owner} of the same group, and a slave is known by"
                " its address; give another (127.0.0.2, 127.0.0.3, ... all work on one machine)",
            )
        addresses.setdefault(node.address, node.name)
    _check_in_sync_replicas(reader, config, group, len(members))


def _check_ids(reader: Reader, members: list[Member]) -> None:
    owners: dict[int, str] = {}
    for path, node in members:
        # Two masters of a classic group have a complaint of their own.
        if not node.is_master and (owner := owners.get(node.broker_id)) is not None:
            reader.complain(
                f"{path}.broker_id", f"{node.broker_id} is taken by {owner}; give another"
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


def _check_fenced_group(
    reader: Reader, config: ClusterConfig, group: str, members: list[Member]
) -> None:
    settings = config.groups[group]
    if not members:
        reader.complain(f"groups.{group}", "has no node; add one under nodes:")
    if settings.min_isr > len(members) > 0:
        reader.complain(
            f"groups.{group}.min_isr",
            f"{settings.min_isr} replicas cannot be in sync: the group has {len(members)} nodes;"
            f" give at most {len(members)}",
        )
    for path, node in members:
        if node.is_master:
            reader.complain(
                f"{path}.broker_id",
                "0 is the master of the moment, and a fenced group elects it; give 1 or more",
            )
    _check_what_fenced_groups_lack(reader, config, group, settings)


def _check_what_fenced_groups_lack(
    reader: Reader, config: ClusterConfig, group: str, settings: GroupSettings
) -> None:
    if settings.broker_role is BrokerRole.ASYNC_MASTER:
        reader.complain(
            f"groups.{group}.broker_role",
            "a fenced group answers a put once its replicas have it; producers choose otherwise"
            " message by message (WAIT=false); take it out",
        )
    if config.store.transient_store_pool_enable:
        reader.complain(
            "store.transient_store_pool_enable",
            f"what waits in the pool is lost with the process, but group {group} counts on it;"
            " turn it off, or make the group classic",
        )


def _check_what_classic_groups_lack(reader: Reader, group: str, settings: GroupSettings) -> None:
    if settings.ack_level is AckLevel.FLUSHED:
        reader.complain(
            f"groups.{group}.ack_level",
            "a classic slave does not say what it has flushed; make the group fenced",
        )
    if settings.learners:
        reader.complain(
            f"groups.{group}.learners",
            "a classic group lists its slaves under nodes:; make the group fenced",
        )
    if settings.master_address is not None:
        reader.complain(
            f"groups.{group}.master_address",
            "the master of a classic group is always the same, at its own; take it out",
        )

"""What a replica tells people about itself and, as master, about the others."""

from __future__ import annotations

from typing import Final

import msgspec
import trio

from ha.fenced.healing_tasks import Healing
from ha.fenced.in_sync_replicas import UNKNOWN
from ha.fenced.master import FencedMaster
from ha.fenced.replica_parts import ReplicaParts
from ha.results import ReplicaStanding
from tandem.wire.ha_status import FencedStatus, ReplicaStatus
from tandem.wire.request_headers import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)

HEALED_SHOWN_MAX: Final = 20


def fenced_status(parts: ReplicaParts, healing: Healing, refusal: str | None) -> FencedStatus:
    """Return the answer to FENCED_STATUS.

    `refusal` says why this replica takes no messages, in words; None if it does.
    """
    config, store = parts.config, parts.store
    master, lease = parts.standing.mastership, parts.session.lease
    view = parts.session.view
    state = master.state if master else view.state if view else None
    left_seconds = lease.left_seconds(parts.machine.boottime()) if lease else 0.0
    lateness = parts.session.punctuality.lateness(config, trio.current_time())
    return FencedStatus(
        node=config.name,
        group=config.group,
        role=parts.standing.role,
        epoch=parts.standing.epoch,
        log_epoch=parts.replica.epochs.last_epoch,
        master=parts.standing.master_name,
        incarnation=parts.replica.file.incarnation,
        promised=parts.replica.file.promised,
        log_start=store.min_physical_offset,
        log_end=store.max_physical_offset,
        flushed=store.flushed_where,
        confirm=store.confirm_offset,
        min_isr=config.min_isr,
        ack_level=config.ack_level,
        isr=sorted(state.isr) if state else [],
        lease_left_ms=int(left_seconds * 1000),
        refusal="" if refusal is None else _with_reasons(parts, refusal),
        damage=parts.replica.damage,
        bad_bytes=store.commit_log.damage.bad_bytes,
        not_healed=healing.not_healed,
        undecided=healing.undecided,
        scrub=store.scrub_service.progress.in_words(),
        healed=healing.healed[-HEALED_SHOWN_MAX:],
        replicas=_replicas(master) if master and master.closed_because is None else [],
        last_switch_reason=state.reason if state else "",
        last_switch_cause=state.cause if state else "",
        last_switch_at_ms=state.switched_at_ms if state else 0,
        previous_master=state.previous_master if state else "",
        program=config.program,
        level=max(parts.replica.file.level, state.level if state else 1),
        level_max=config.level_max,
        not_run_ms=int(lateness.longest_seconds * 1000),
        late_keep_alives=lateness.late_keep_alives,
        too_slow=lateness.words,
    )


def _with_reasons(parts: ReplicaParts, refusal: str) -> str:
    """Add to a refusal why this replica follows nobody, if that is so."""
    standing, coordinator = parts.standing, parts.session.trouble
    reasons = [
        refusal,
        standing.waits_for if not standing.mastership else "",
        standing.follower.trouble if standing.follower else "",
        f"coordinator: {coordinator}" if coordinator else "",
    ]
    return "; ".join(filter(None, reasons))


def _replicas(master: FencedMaster) -> list[ReplicaStatus]:
    """Return every node that is or was connected, or is a member."""
    now = trio.current_time()
    isr = master.isr
    end = isr.own_end
    return [
        ReplicaStatus(
            name=name,
            incarnation=replica.incarnation,
            connected=replica.connected,
            in_sync=name in isr.recorded,
            written=replica.written,
            flushed=replica.flushed,
            lag_bytes=end - replica.written if replica.written != UNKNOWN else -1,
            acked_ago_ms=int((now - replica.caught_up_at) * 1000),
            trouble=_trouble(master, name, now),
        )
        for name, replica in sorted(isr.replicas.items())
    ]


def _trouble(master: FencedMaster, name: str, now: float) -> str:
    link = master.server.links.get(name)
    paused = master.server.why_paused(link) if link is not None and link.is_attached else None
    return "; ".join(filter(None, (master.isr.why_not_live(name, now), paused)))


def replica_standing(parts: ReplicaParts) -> ReplicaStanding:
    """Return what this replica is at the moment; only a master in office knows who is in sync."""
    lateness = parts.session.punctuality.lateness(parts.config, trio.current_time())
    found, view = _standing(parts), parts.session.view
    found = msgspec.structs.replace(
        found,
        feature_level=parts.replica.file.level,
        late_keep_alives=lateness.late_keep_alives,
        not_run_seconds=lateness.longest_seconds,
    )
    if view is None or view.state is None:
        return found
    return msgspec.structs.replace(
        found, switched_at_ms=view.state.switched_at_ms, switch_cause=view.state.cause
    )


def _standing(parts: ReplicaParts) -> ReplicaStanding:
    standing, lease, role = parts.standing, parts.session.lease, parts.standing.role.value
    master, follower = standing.mastership, standing.follower
    if master is not None:
        left = lease.left_seconds(parts.machine.boottime()) if lease else 0.0
        if master.closed_because is not None:
            return ReplicaStanding(role=role, needed=parts.config.min_isr, lease_left_seconds=left)
        return ReplicaStanding(
            role=role,
            in_sync=len(master.isr.recorded),
            needed=parts.config.min_isr,
            lease_left_seconds=left,
        )
    if follower is None or not follower.link_up:
        return ReplicaStanding(role=role, needed=parts.config.min_isr)
    behind = follower.client.master_end - parts.store.max_physical_offset
    return ReplicaStanding(
        role=role, needed=parts.config.min_isr, follows=True, behind_bytes=max(0, behind)
    )


def runtime_info(parts: ReplicaParts) -> HARuntimeInfo:
    """Return the answer to GET_BROKER_HA_STATUS.

    Source: HAService.getRuntimeInfo. As in classic groups, replicas that are not connected are
    listed too, and each carries why it is not in sync.
    """
    master = parts.standing.mastership
    if master is None or master.closed_because is not None:
        return HARuntimeInfo(
            master=False,
            master_commit_log_max_offset=0,
            ha_client_runtime_info=_client_info(parts),
        )
    connections = [_connection_info(parts, master, peer.name) for peer in parts.config.peers]
    return HARuntimeInfo(
        master=True,
        master_commit_log_max_offset=parts.store.max_physical_offset,
        in_sync_slave_nums=sum(info.in_sync for info in connections),
        ha_connection_info=connections,
    )


def _connection_info(
    parts: ReplicaParts, master: FencedMaster, name: str
) -> HAConnectionRuntimeInfo:
    now = trio.current_time()
    link = master.server.links.get(name)
    acked = master.isr.acked(name)
    reason = master.isr.why_not_live(name, now)
    if reason is None and name not in master.isr.recorded:
        reason = "is not in the in-sync set"
    peer = next(peer for peer in parts.config.peers if peer.name == name)
    return HAConnectionRuntimeInfo(
        addr=str(link.peer) if link else str(peer.replication),
        slave_ack_offset=acked,
        diff=parts.store.max_physical_offset - max(acked, 0),
        in_sync=reason is None,
        transferred_byte_in_second=link.traffic.rate.in_last_second(now) if link else 0,
        transfer_from_where=link.sent if link else -1,
        name=name,
        reason=reason or "",
    )


def _client_info(parts: ReplicaParts) -> HAClientRuntimeInfo:
    follower = parts.standing.follower
    if follower is None:
        return HAClientRuntimeInfo(max_offset=parts.store.max_physical_offset)
    now, wall_clock_ms = trio.current_time(), parts.machine.wall_clock_ms()
    peers = {peer.name: str(peer.replication) for peer in parts.config.peers}
    return HAClientRuntimeInfo(
        master_addr=peers.get(parts.standing.master_name, ""),
        transferred_byte_in_second=follower.traffic.rate.in_last_second(now),
        max_offset=parts.store.max_physical_offset,
        last_read_timestamp=wall_clock_ms - int((now - follower.traffic.last_read) * 1000),
        last_write_timestamp=wall_clock_ms - int((now - follower.traffic.last_write) * 1000),
    )

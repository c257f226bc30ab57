"""Watches a group while it is drilled.

    fenced     the coordinator's records, and every node's own status, every few hundredths of a
               second, so that a failover's steps are known that exactly
    classic    what the master says of its slaves, four times a second
    the drill  how late it is woken itself

A node that does not answer, being frozen or dead, is known by its silence.
"""

from typing import Final, Protocol

import trio

from tandem.client import ClientError
from tandem.coordinator.interface import CoordinatorError, Snapshot
from tandem.drill.lost_leases import LATE_SECONDS_MIN, Late
from tandem.drill.replication import Replication, SlaveReport
from tandem.drill.watched_group import MASTER_ROLE, WatchedGroup
from tandem.wire.group_state import (
    GroupKeys,
    MalformedGroupRecordError,
    decode_leader,
    decode_state,
)
from tandem.wire.ha_status import FencedStatus
from tandem.wire.request_headers import HARuntimeInfo

POLL_SECONDS: Final = 0.05
CLASSIC_POLL_SECONDS: Final = 0.25
SILENT_SECONDS: Final = 1.0
"""No answer is waited for longer than this, by a drill that is not more patient."""


class ReadsRecords(Protocol):
    """What is needed of a coordinator."""

    async def read(self, prefix: str) -> Snapshot:
        """Return all keys under a prefix; raises CoordinatorError."""
        ...


class AsksNodes(Protocol):
    """What is needed of tandem.Admin."""

    async def fenced_status(self, address: str) -> FencedStatus:
        """Ask a node how it sees its group; raises ClientError."""
        ...


class AsksMaster(Protocol):
    """What is needed of tandem.Admin for a classic group."""

    async def ha_runtime_info(self, address: str) -> HARuntimeInfo:
        """Ask a master for its slaves; raises ClientError."""
        ...


class Clock(Protocol):
    """Seconds since the drill started."""

    def now(self) -> float:
        """Return the time."""
        ...


async def watch_lateness(lateness: list[Late], clock: Clock) -> None:
    """Note how late this task is woken, until cancelled: on a slow machine nothing gets to run."""
    while True:
        due = clock.now() + POLL_SECONDS
        await trio.sleep(POLL_SECONDS)
        late = clock.now() - due
        if late >= LATE_SECONDS_MIN:
            lateness.append(Late(round(due, 3), round(late, 3)))


async def watch_records(
    coordinator: ReadsRecords,
    keys: GroupKeys,
    watched: WatchedGroup,
    clock: Clock,
    *,
    silent_seconds: float = SILENT_SECONDS,
) -> None:
    """Read the group's records again and again, until cancelled."""
    while True:
        asked_at = clock.now()
        try:
            with trio.move_on_after(silent_seconds):
                values = (await coordinator.read(keys.prefix)).values
                state, leader = values.get(keys.state), values.get(keys.leader)
                watched.coordinator_said(
                    asked_at,
                    clock.now(),
                    None if state is None else decode_state(state.value),
                    None if leader is None else decode_leader(leader.value),
                )
        except (CoordinatorError, MalformedGroupRecordError):
            # Restarting, perhaps because a scenario wants it. Nothing is known meanwhile.
            pass
        await trio.sleep(POLL_SECONDS)


async def watch_node(
    admin: AsksNodes,
    node: str,
    address: str,
    watched: WatchedGroup,
    replication: Replication,
    clock: Clock,
    *,
    silent_seconds: float = SILENT_SECONDS,
) -> None:
    """Ask one node for its status again and again, until cancelled."""
    while True:
        asked_at = clock.now()
        status = None
        try:
            with trio.move_on_after(silent_seconds):
                status = await admin.fenced_status(address)
        except ClientError:
            pass  # it is down
        if status is None:
            watched.node_silent(asked_at, node)
        else:
            watched.node_said(asked_at, clock.now(), node, status)
        _tell_replication(watched, replication, clock.now(), node, asked_at)
        await trio.sleep(POLL_SECONDS)


def _tell_replication(
    watched: WatchedGroup, replication: Replication, now: float, node: str, asked_at: float
) -> None:
    """Take the master's view of its followers; without a master, note that nobody answers."""
    master = watched.master
    if not master:
        replication.silent(now)
        return
    status = watched.statuses[master]
    if node != master or status is None or status.role != MASTER_ROLE:
        return
    reports = [
        SlaveReport(replica.name, max(0, replica.written), max(0, status.log_end - replica.written))
        for replica in status.replicas
        if replica.connected and replica.in_sync and replica.written >= 0
    ]
    reports.append(SlaveReport(master, status.log_end, 0))
    replication.sampled(asked_at, status.log_end, reports)


async def watch_classic_master(
    admin: AsksMaster, address: str, replication: Replication, clock: Clock
) -> None:
    """Ask the master of a classic group for its slaves again and again, until cancelled."""
    while True:
        asked_at = clock.now()
        try:
            with trio.fail_after(SILENT_SECONDS):
                info = await admin.ha_runtime_info(address)
        except (ClientError, trio.TooSlowError):
            replication.silent(asked_at)
        else:
            reports = [
                SlaveReport(slave.addr.rpartition(":")[0], slave.slave_ack_offset, slave.diff)
                for slave in info.ha_connection_info
            ]
            replication.sampled(asked_at, info.master_commit_log_max_offset, reports)
        await trio.sleep(CLASSIC_POLL_SECONDS)

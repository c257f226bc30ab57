"""What a fenced group is, by the words of its nodes alone: there may be no way to its coordinator.

A change of master is then known when the new one says so, and the old one's end when it no longer
answers as master.
"""

from collections.abc import Mapping

import trio

from tandem.drill.targets.rocketmq_watch import Clock
from tandem.drill.watch import POLL_SECONDS
from tandem.drill.watched_group import MASTER_ROLE, WatchedGroup
from tandem.wire.group_state import GroupState, LeaderRecord
from tandem.wire.ha_status import FencedStatus


def group_of(
    statuses: Mapping[str, FencedStatus | None], before: GroupState | None
) -> tuple[GroupState | None, LeaderRecord | None]:
    """Return the records that a coordinator would have, by what nodes say now.

    `before`: the state that was known last. It stays while nobody knows a newer one.
    """
    known = [status for status in statuses.values() if status is not None and status.epoch]
    if not known:
        return before, None
    newest = max(known, key=lambda status: (status.epoch, status.role == MASTER_ROLE))
    if before is not None and before.epoch > newest.epoch:
        return before, None
    state = GroupState(
        epoch=newest.epoch,
        master=newest.master,
        isr=dict.fromkeys(newest.isr, ""),
        min_isr=newest.min_isr,
        reason="as the nodes say",
    )
    master = statuses.get(newest.master)
    leads = (
        master is not None
        and master.role == MASTER_ROLE
        and master.epoch == newest.epoch
        and master.lease_left_ms > 0
    )
    leader = LeaderRecord(node=newest.master, session="", epoch=newest.epoch) if leads else None
    return state, leader


async def watch_words(watched: WatchedGroup, clock: Clock) -> None:
    """Put together what nodes say, again and again, until cancelled."""
    while True:
        now = clock.now()
        state, leader = group_of(watched.statuses, watched.state)
        watched.coordinator_said(now, now, state, leader)
        await trio.sleep(POLL_SECONDS)

"""One candidate's way through an election: wait for its turn, ask, and find out who won.

    turn --> transaction --+--> taken                 won
     ^                     +--> not taken             read: another won, or an earlier try of ours
     |                     `--> no answer             it is not known
     `-----------------------------'

All tries for one epoch compare the same two revisions, so at most one of them is taken, whenever
its turn comes; and the records show which one. A candidate that has asked once therefore
goes on until the records say who won, or its own lease is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from ha.fenced.coordinator_session import CoordinatorSession, is_ours
from ha.fenced.election import Decision, Election, Run, Won, state_if_won, why_switched
from ha.fenced.group_view import GroupView, OwnFacts
from tandem.coordinator.interface import Compare, CoordinatorUnavailableError, Put
from tandem.wire.group_state import LeaderRecord, encode_record

_log = logging.getLogger(__name__)

WAIT_SECONDS_MIN: Final = 0.001

RETRY_SECONDS: Final = 0.3


class Candidacy:
    """The candidacy of one node for one epoch; its log ends at `log_end` and stays as it is."""

    def __init__(
        self,
        session: CoordinatorSession,
        election: Election,
        *,
        epoch: int,
        log_end: int,
        facts: Callable[[], OwnFacts],
        boottime: Callable[[], float],
        wall_clock_ms: Callable[[], int],
        epoch_id: str,
    ) -> None:
        """`facts` says what an election has to know of this node now; `epoch_id` is new."""
        self._session = session
        self._election = election
        self._epoch = epoch
        self._log_end = log_end
        self._facts = facts
        self._boottime = boottime
        self._wall_clock_ms = wall_clock_ms
        self._epoch_id = epoch_id

    async def run(self) -> Won | None:
        """Return what was won, None if it was not.

        It ends as soon as a follower would do anything but run for this epoch.

        Raises:
            LeaseLostError: this node is not registered any more.
            CoordinatorRefusedError: the coordinator does not take such a transaction.
        """
        since = self._boottime()
        while self._decide() == Run(self._epoch) and self._session.holds():
            view = self._session.view
            if view is None:
                break
            wait_seconds = self._election.turn(view, self._facts(), since) - self._boottime()
            if wait_seconds > 0:
                # Two clocks, and sums that are rounded: a shorter time might be none at all.
                with trio.move_on_after(max(wait_seconds, WAIT_SECONDS_MIN)):
                    await self._session.changed.wait()
                continue
            try:
                won = await self._ask(view)
            except CoordinatorUnavailableError as error:
                _log.warning("it is not known whether epoch %d was won: %s", self._epoch, error)
                await trio.sleep(RETRY_SECONDS)
                continue
            if won is not None:
                return won
        return self._as_recorded()

    def _decide(self) -> Decision:
        return self._election.decide(self._session.view, self._facts(), self._boottime())

    async def _ask(self, view: GroupView) -> Won | None:
        """Ask once; None if it was not taken, now or before.

        Raises:
            CoordinatorError: it is not known, or see `run`.
        """
        own, session, keys = self._facts(), self._session, self._session.keys
        if view.state is None:
            return None
        state = state_if_won(
            view.state,
            view.nodes,
            own,
            why=why_switched(view.state, own.name),
            wall_clock_ms=self._wall_clock_ms(),
            epoch_id=self._epoch_id,
        )
        leader = LeaderRecord(node=own.name, session=session.session_id, epoch=self._epoch)
        result = await session.transact(
            [Compare(keys.state, view.state_revision), Compare(keys.leader, 0)],
            [
                Put(keys.state, encode_record(state)),
                Put(keys.leader, encode_record(leader), session.lease_id),
            ],
        )
        if result.succeeded:
            if state.min_isr != view.state.min_isr:
                _log.warning("min_isr is %d now, it was %d", state.min_isr, view.state.min_isr)
            return Won(
                state=state,
                state_revision=result.revision,
                leader_revision=result.revision,
                log_end=self._log_end,
            )
        await session.refresh()
        return self._as_recorded()

    def _as_recorded(self) -> Won | None:
        """Return what the records say of a try of ours, if one was taken."""
        view = self._session.view
        if view is None or view.state is None or self._session.lease is None:
            return None
        is_master = (view.state.epoch, view.state.master) == (self._epoch, self._facts().name)
        if not is_master or not is_ours(view.leader, self._session.session_id, self._epoch):
            return None
        return Won(
            state=view.state,
            state_revision=view.state_revision,
            leader_revision=view.leader_revision,
            log_end=self._log_end,
        )

"""What a replica does that is not master: it follows, waits, or runs for master; one at a time.

    decide --+-- Follow     a ReplicaFollower, until it is decided otherwise or nothing can mend it
      ^      +-- Wait       until something has changed
      |      +-- Show       promise -> log end -> published; then wait
      |      +-- Bootstrap  write the group's first record
      |      +-- Run        promise -> log end -> published -> turn -> transaction --> Leadership
      +------+

What to do is decided by `Election`; here it is done. Order of an election, each step durable before
the next: the link to the old master is dropped; the next epoch is promised; the log's end is fixed
and published; the coordinator takes the transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from ha.fenced.aftermath import AskOperator, CopyAnew, CutLog, aftermath_of
from ha.fenced.candidacy import Candidacy
from ha.fenced.election import (
    Bootstrap,
    Decision,
    Disown,
    Election,
    Follow,
    Refuse,
    Run,
    Show,
    Wait,
    Won,
)
from ha.fenced.joining import FollowerOutcome
from ha.fenced.leadership import Leadership
from ha.fenced.replica_follower import ReplicaFollower, nobody_knows
from ha.fenced.replica_parts import ReplicaParts
from ha.fenced.replica_role import ReplicaRole
from ha.fenced.round_end import RoundEnd
from ha.fenced.standing import Parting
from ha.replication import ReplicationListener
from store.machine.errors import StoreError
from store.machine.tell_once import TellOnce
from tandem.coordinator.interface import Compare, CoordinatorError, Put
from tandem.wire.group_state import GroupState, encode_record

_log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS: Final = 1.0
"""Own troubles come and go without a change in the coordinator."""
RETRY_SECONDS: Final = 0.3


class Participation:
    """One replica's part in its group, for one round."""

    def __init__(
        self,
        parts: ReplicaParts,
        leadership: Leadership,
        round_end: RoundEnd,
        listener: ReplicationListener,
        is_in_dispute: Callable[[str, int, int], Awaitable[bool]] = nobody_knows,
    ) -> None:
        """`listener` hears of changes of the role and of the master.

        `is_in_dispute` is asked where our bytes differ from those of a master, by name, between two
        offsets: whether it may turn out yet who is right.
        """
        self._is_in_dispute = is_in_dispute
        self._config = parts.config
        self._store = parts.store
        self._machine = parts.machine
        self._session = parts.session
        self._replica = parts.replica
        self._standing = parts.standing
        self._on_event = parts.on_event
        self._leadership = leadership
        self._round_end = round_end
        self._listener = listener
        self._election = Election()
        self._told: TellOnce[str] = TellOnce()
        self._shown = (0, 0)
        """The epoch that was promised, and the lease under which that was published."""

    async def run(self) -> None:
        """Take part until this replica is no follower any more."""
        self._election.resigned(self._replica.file.stands_back_until)
        while self._standing.role is ReplicaRole.FOLLOWER:
            decision = self._decide()
            self._note_decision(decision)
            try:
                await self._act(decision)
            except (CoordinatorError, StoreError) as error:
                if self._told.is_news(str(error)):
                    _log.warning("%s: trying again", error)
                await trio.sleep(RETRY_SECONDS)

    def _decide(self) -> Decision:
        if not self._replica.is_judged:
            return Wait("the coordinator has not said yet whether this directory is the latest")
        return self._election.decide(
            self._session.view, self._replica.facts(), self._machine.boottime()
        )

    async def _act(self, decision: Decision) -> None:
        match decision:
            case Follow():
                await self._follow(decision)
            case Run(epoch) if self._session.holds():
                await self._run_for(epoch)
            case Bootstrap(state) if self._session.holds():
                await self._bootstrap(state)
            case Disown() if self._session.view is not None:
                await self._session.give_up_leader(self._session.view.leader_revision, None, 0)
                await self._session.refresh()
            case Show(epoch, _, until) if self._session.holds():
                await self._show(epoch)
                now = self._machine.boottime()
                await self._until_changed(until - now if until else LOOK_AGAIN_SECONDS)
            case _:
                await self._until_changed(LOOK_AGAIN_SECONDS)

    async def _until_changed(self, seconds: float) -> None:
        with trio.move_on_after(max(0.0, min(seconds, LOOK_AGAIN_SECONDS))):
            await self._session.changed.wait()

    def _note_decision(self, decision: Decision) -> None:
        why = decision.why if isinstance(decision, Wait | Show | Refuse) else ""
        if why and why != self._standing.waits_for:
            level = logging.ERROR if isinstance(decision, Refuse) else logging.INFO
            _log.log(level, "this node follows no master: %s", why)
        self._standing.waits_for = why
        if not isinstance(decision, Follow):
            self._note_master("")

    def _note_master(self, name: str) -> None:
        if self._standing.knows_master(name, self._session.view):
            self._listener.role_changed()

    def _become(self, role: ReplicaRole) -> None:
        self._standing.become(role)
        self._listener.role_changed()

    async def _bootstrap(self, state: GroupState) -> None:
        """Write the group's first record, unless one of the keys it was made from has changed."""
        view, keys = self._session.view, self._session.keys
        if view is None:
            return
        compares = [Compare(keys.state, 0), Compare(keys.leader, 0)]
        compares += [Compare(keys.node(name), view.node_revisions[name]) for name in state.isr]
        result = await self._session.transact(compares, [Put(keys.state, encode_record(state))])
        if result.succeeded:
            members = ", ".join(sorted(state.isr))
            _log.warning("%s is a new group of %s", self._config.group, members)
        await self._session.refresh()

    # -- following -------------------------------------------------------------------------------

    async def _follow(self, decision: Follow) -> None:
        """Follow a master until there is a reason not to."""
        peers = {peer.name: peer for peer in self._config.peers}
        if decision.master not in peers:
            self._standing.waits_for = (
                f"master {decision.master} is no node of this group in cluster.yaml"
            )
            await self._until_changed(LOOK_AGAIN_SECONDS)
            return
        self._replica.promise(decision.epoch)
        self._note_master(decision.master)
        follower = self._standing.follower = ReplicaFollower(
            self._config,
            self._store,
            self._machine.network,
            master=peers[decision.master],
            epoch=decision.epoch,
            epoch_id=decision.epoch_id,
            epochs=self._replica.epochs,
            incarnation=self._replica.file.incarnation,
            promised=lambda: self._replica.file.promised,
            random=self._machine.random,
            may_object=self._may_object,
            on_complete=self._replica.has_everything,
            on_bad_bytes=partial(self._standing.was_sent_bad_bytes, decision.master),
            is_in_dispute=partial(self._is_in_dispute, decision.master),
            on_event=self._on_event,
        )
        _log.info("this node follows %s, master of epoch %d", decision.master, decision.epoch)
        outcome: FollowerOutcome | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._until_decided_otherwise, decision, nursery.cancel_scope)
                outcome = await follower.run()
                nursery.cancel_scope.cancel()
        finally:
            self._standing.follower = None
            self._standing.parting = Parting(decision.epoch, follower.equal_below)
        if outcome is not None:
            # Whether this replica is a member is asked anew: it may have become one just now.
            await self._session.refresh()
            if not self._round_end.is_over.is_set():
                self._take(outcome)

    async def _until_decided_otherwise(self, decision: Follow, scope: trio.CancelScope) -> None:
        while self._decide() == decision:
            self._note_master(decision.master)
            await self._session.changed.wait()
        scope.cancel()

    def _take(self, outcome: FollowerOutcome) -> None:
        """Do what following has shown to be necessary.

        Raises:
            StoreError: it could not be written down; nothing happened.
        """
        aftermath = aftermath_of(
            outcome,
            confirm_offset=self._store.confirm_offset,
            may_be_member=self._may_be_member(),
        )
        match aftermath:
            case CutLog(order):
                self._round_end.begin_again(self._replica.want_cut(order))
            case CopyAnew(reason):
                self._replica.want_set_aside(reason)
                self._round_end.begin_empty(f"the store is set aside: {reason}")
            case AskOperator(reason):
                self._round_end.quarantine(reason)

    def _may_object(self) -> bool:
        """False if an operator has accepted that what this log has confirmed may be lost."""
        view = self._session.view
        accepted = view.state.loss_accepted if view and view.state else 0
        return self._replica.epochs.last_epoch > accepted

    def _may_be_member(self) -> bool:
        """True unless the in-sync set is known, and is without this replica."""
        view = self._session.view
        if view is None or view.state is None:
            return True
        return view.state.isr.get(self._config.name) == self._replica.file.incarnation

    # -- running for master ----------------------------------------------------------------------

    async def _show(self, epoch: int) -> None:
        """Let others know where the log ends, for good: nothing is taken before `epoch` begins."""
        if self._shown != (epoch, self._session.lease_id):
            self._replica.promise(epoch)
            await self._session.publish()
            self._shown = epoch, self._session.lease_id

    async def _run_for(self, epoch: int) -> None:
        """Try to win `epoch`; return as FOLLOWER, or after mastership."""
        self._become(ReplicaRole.CANDIDATE)
        won: Won | None = None
        try:
            self._replica.promise(epoch)
            end = self._store.max_physical_offset
            _log.info("this node runs for master of epoch %d with a log up to %d", epoch, end)
            await self._publish()
            candidacy = Candidacy(
                self._session,
                self._election,
                epoch=epoch,
                log_end=end,
                facts=self._replica.facts,
                boottime=self._machine.boottime,
                wall_clock_ms=self._machine.wall_clock_ms,
                epoch_id=f"{self._machine.random.getrandbits(64):016x}",
            )
            won = await candidacy.run()
        finally:
            if won is None and self._standing.role is ReplicaRole.CANDIDATE:
                self._become(ReplicaRole.FOLLOWER)
        if won is not None:
            self._replica.has_everything()
            await self._leadership.lead(won)

    async def _publish(self) -> None:
        """Say how long the log is, so that the longest goes first. Not saying so does no harm."""
        try:
            await self._session.publish()
        except CoordinatorError as error:
            _log.info("the end of the log could not be published: %s", error)

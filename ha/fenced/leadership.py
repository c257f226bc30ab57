"""How one node becomes master of an epoch that it has won, and how it stops being master.

    lead --> OPENING --> the in-sync set has its log --> MASTER
                |                                          |
                +-- step_down, resign <--------------------+   in the very step that shows it
                          |
                          +--> the steps of `mastership_end` --> farewell

Each step of the beginning is durable before the next: the coordinator has taken the transaction;
the epoch is entered in the epoch file; queues are brought up to the end; followers are served.

Reasons to stop come from the mastership itself (`MasterListener`), from what the coordinator says
(`GroupListener`), and from operators. Whatever comes first counts; the others change nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import trio

from ha.errors import LocalHAError
from ha.fenced.election import Won, farewell
from ha.fenced.events import Elected, EpochAppended, MasterOpened, SteppedDown
from ha.fenced.group_view import GroupView
from ha.fenced.master import FencedMaster
from ha.fenced.mastership_end import ORDER, ORDER_OF_A_STOP, EndStep
from ha.fenced.replica_parts import ReplicaParts
from ha.fenced.replica_role import ReplicaRole
from ha.fenced.round_end import RoundEnd
from ha.replication import ReplicationListener
from store.machine.errors import StoreError
from tandem.coordinator.interface import CoordinatorError
from tandem.wire.group_state import GroupState
from tandem.wire.switch_cause import SwitchCause

_log = logging.getLogger(__name__)

FAREWELL_SECONDS: Final = 1.0


class Leadership:
    """The one mastership that a round can have; a `MasterListener` and a `GroupListener`."""

    def __init__(
        self, parts: ReplicaParts, round_end: RoundEnd, listener: ReplicationListener
    ) -> None:
        """`listener` hears when this node opens, and when puts were answered."""
        self._config = parts.config
        self._store = parts.store
        self._machine = parts.machine
        self._session = parts.session
        self._replica = parts.replica
        self._standing = parts.standing
        self._on_event = parts.on_event
        self._round_end = round_end
        self._listener = listener
        self._farewell: GroupState | None = None
        self._has_failed_puts = False

    # -- the beginning ---------------------------------------------------------------------------

    async def lead(self, won: Won) -> None:
        """Be master of an epoch that was won, until cancelled: the round is over then."""
        self._on_event(Elected(epoch=won.state.epoch, log_end=won.log_end))
        self._store.fence(f"{self._config.name} is about to become master of epoch {won.epoch}")
        master = FencedMaster(
            self._config,
            self._store,
            self._machine.network,
            self._session,
            won,
            epochs=self._replica.epochs,
            incarnation=self._replica.file.incarnation,
            boottime=self._machine.boottime,
            random=self._machine.random,
            listener=self,
            on_event=self._on_event,
            on_doubt=self._standing.was_doubted,
        )
        self._standing.won(master)
        try:
            self._begin(won)
        except StoreError as error:
            self.resign(f"it cannot begin epoch {won.epoch}: {error}")
            return
        self._standing.knows_master(self._config.name, self._session.view)
        self._listener.role_changed()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(master.run)
            await master.caught_up.wait()
            self._open(master)

    def _begin(self, won: Won) -> None:
        """Write down where the epoch begins, and bring queues up to there.

        Raises:
            StoreError: the disk does not take it.
        """
        if self._store.max_physical_offset != won.log_end:
            raise LocalHAError(f"the log has grown past {won.log_end} during an election")
        self._replica.epochs.append(won.epoch, won.log_end, won.state.epoch_id)
        self._on_event(EpochAppended(won.epoch, won.log_end, won.state.epoch_id))
        self._store.become_master()
        _log.warning(
            "this node won epoch %d (%s): the log ends at %d, confirmed up to %d, in-sync set %s",
            won.epoch,
            won.state.reason,
            won.log_end,
            self._store.confirm_offset,
            ", ".join(sorted(won.state.isr)),
        )

    def _open(self, master: FencedMaster) -> None:
        """Take messages from this step on, unless it is over already."""
        if self._standing.role is not ReplicaRole.OPENING:
            return
        if not self._session.holds():
            self.step_down("its lease ended before it could open", SwitchCause.LEASE_ENDED)
            return
        self._standing.become(ReplicaRole.MASTER)
        master.is_open = True
        self._store.unfence()
        self._on_event(MasterOpened(epoch=master.epoch, confirm=master.isr.confirm))
        _log.warning(
            "this node is master of epoch %d from offset %d on: takes messages",
            master.epoch,
            master.epoch_start,
        )
        self._listener.opened(master.epoch)
        self._listener.role_changed()

    # -- what is heard meanwhile -----------------------------------------------------------------

    def answered(self) -> None:
        """See `MasterListener`."""
        self._listener.answered()

    def group_changed(self, view: GroupView) -> None:
        """See `GroupListener`."""
        self._replica.saw(view)
        if self._round_end.is_recovered(view.state):
            self._round_end.begin_again("an operator has recovered the group")
            return
        master = self._standing.mastership
        if master is not None:
            reason = master.group_changed(view)
            if reason is not None:
                self.step_down(reason)
        elif view.state is not None:
            self._standing.epoch = view.state.epoch

    def lease_lost(self, reason: str) -> None:
        """See `GroupListener`."""
        self.step_down(reason, SwitchCause.LEASE_ENDED)

    # -- the end ---------------------------------------------------------------------------------

    def resign(self, reason: str) -> None:
        """Step down because another should be master, and leave the field to others."""
        if self._standing.mastership is None:
            return
        until = self._machine.boottime() + self._config.resign_pause_ms / 1000
        # It may be over already: the watch may know of an order before the order is answered.
        self.step_down(reason)
        self._replica.stand_back(until)

    def step_down(self, reason: str, cause: SwitchCause = SwitchCause.STEPPED_DOWN) -> None:
        """Be master no more, from this very step on, and end the round. Harmless if it is not."""
        self._end(reason, cause, ORDER)

    def close(self, reason: str) -> bool:
        """The process stops: the same, without another round. True if this node was master."""
        return self._end(reason, SwitchCause.STEPPED_DOWN, ORDER_OF_A_STOP)

    def _end(self, reason: str, cause: SwitchCause, steps: Sequence[EndStep]) -> bool:
        """Carry out the end of a mastership; False if there is none, or it is over."""
        master = self._standing.mastership
        if master is None or master.closed_because is not None:
            return False
        if cause is SwitchCause.LEASE_ENDED:
            ttl_ms = self._config.lease_ttl_ms
            slow = self._session.punctuality.why_lease_ended(trio.current_time(), ttl_ms)
            reason = "; ".join(filter(None, (reason, slow)))
        for step in steps:
            self._carry_out(step, master, reason, cause)
        return True

    def _carry_out(
        self, step: EndStep, master: FencedMaster, reason: str, cause: SwitchCause
    ) -> None:
        name = self._config.name
        match step:
            case EndStep.REFUSE_PUTS:
                self._store.fence(f"{name} is no longer master: {reason}")
            case EndStep.LEAVE_ROLE:
                self._standing.become(ReplicaRole.RESTARTING)
            case EndStep.KEEP_FAREWELL:
                self._farewell = farewell(master.state, reason, cause)
            case EndStep.STOP_ANSWERING:
                master.stop_answering(reason)
            case EndStep.FAIL_WAITING:
                self._has_failed_puts = master.fail_waiting()
            case EndStep.SEND_ANSWERS:
                if self._has_failed_puts:
                    self._listener.answered()
            case EndStep.SAY_SO:
                self._on_event(SteppedDown(epoch=master.epoch, reason=reason))
                _log.warning(
                    "this node is no longer master of epoch %d: %s; the log ends at %d, confirmed"
                    " up to %d",
                    master.epoch,
                    reason,
                    self._store.max_physical_offset,
                    master.isr.confirm,
                )
            case EndStep.END_ROUND:
                self._round_end.begin_again(reason)

    async def say_farewell(self) -> None:
        """End what depends on our lease, so that nobody has to wait for its end."""
        master, state, session = self._standing.mastership, self._farewell, self._session
        if master is not None and state is not None and session.lease is not None:
            with trio.CancelScope(shield=True), trio.move_on_after(FAREWELL_SECONDS):
                try:
                    await session.give_up_leader(master.leader_revision, state, master.isr.revision)
                except CoordinatorError as error:
                    _log.info("the reason for stepping down could not be recorded: %s", error)
        await session.close()

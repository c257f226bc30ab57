"""One node's mastership of one epoch: acknowledgements, confirm offset, in-sync set.

    run --+-- ReplicaServer.run     followers; calls the replica_... methods in the same step
          +-- _follow_own_log       the log has grown, and nobody's report is waited for
          +-- _expire_puts          answers puts whose time is up
          +-- _keep_isr             proposes changes of the in-sync set, one at a time
          `-- _keep_watch           lease, disk, missing members: reasons to step down

The rules are in the engines (`in_sync_replicas`, `acknowledgements`, `lease`); what is here asks
them in the right order, and never on both sides of an await without looking again.

A put is answered SEND_OK in one step with the tests that allow it: this node is master of this
epoch, its lease holds on CLOCK_BOOTTIME, its disk is sound, at least `min_isr` members are live,
and everybody in the recorded set united with all changes under way has the put.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

import msgspec
import trio

from ha.fenced.acknowledgements import Acknowledgements
from ha.fenced.config import FencedConfig
from ha.fenced.coordinator_session import CoordinatorSession
from ha.fenced.election import Won, what_is_lacking, why_no_longer_master
from ha.fenced.epoch_file import EpochFile
from ha.fenced.events import AckDecided, ConfirmAdvanced, IsrChanged, IsrChanging, OnEvent, ignore
from ha.fenced.group_view import GroupView, who_else_may_win, whose_epoch_is_over
from ha.fenced.in_sync_replicas import InSyncReplicas
from ha.fenced.replica_server import ReplicaServer
from ha.results import Refusal
from store import MessageStore
from store.machine.errors import NetworkError
from store.machine.network import Network
from store.machine.signal import Signal
from store.machine.tell_once import TellOnce
from store.results import Done
from tandem.cluster_file.choices import AckLevel
from tandem.coordinator.interface import CoordinatorError
from tandem.wire.group_state import GroupState
from tandem.wire.response_code import ResponseCode
from tandem.wire.switch_cause import SwitchCause

_log = logging.getLogger(__name__)

WATCH_SECONDS: Final = 0.1
ADMITTED_SECONDS: Final = 0.05
"""For so long the long form of the test for a put is valid; its short form, the lease, never."""
CHANGE_RETRY_SECONDS: Final = 0.5


class MasterListener(Protocol):
    """What a mastership tells its owner, between two awaits."""

    def answered(self) -> None:
        """Waiting puts were answered: once after each round of answers, to send them together."""

    def step_down(self, reason: str, cause: SwitchCause) -> None:
        """This node must not be master any more."""

    def resign(self, reason: str) -> None:
        """Another node should be master: this one leaves the field to others for a while."""


class FencedMaster:
    """Mastership of the epoch that was won. Owned by the `Leadership` of one round.

    It opens once: when every member of the in-sync set has the log up to where the epoch starts.
    """

    # Long because it lists what a mastership begins with, one attribute a line; no step is in it.
    def __init__(
        self,
        config: FencedConfig,
        store: MessageStore,
        network: Network,
        session: CoordinatorSession,
        won: Won,
        *,
        epochs: EpochFile,
        incarnation: str,
        boottime: Callable[[], float],
        random: Random,
        listener: MasterListener,
        on_event: OnEvent,
        on_doubt: Callable[[int, int], None],
    ) -> None:
        """Nothing happens before `run`. For `on_doubt` see `ReplicaServer`."""
        self._config = config
        self._store = store
        self._session = session
        self._boottime = boottime
        self._on_event = on_event
        self._listener = listener
        self.epoch = won.epoch
        self.epoch_start = won.log_end
        self.state = won.state
        """As it is at `isr.revision`."""
        self.leader_revision = won.leader_revision
        self.is_open = False
        self.closed_because: str | None = None
        """Why nothing is answered SEND_OK any more; None while it may be."""
        self._holds_back = ""
        self.caught_up = trio.Event()
        """Set when every member has the log up to where the epoch starts."""
        self.moved = Signal()
        """Notified when an acknowledgement came, for orders that wait for a certain replica."""
        self._admitted_until = 0.0
        self._flush_wanted = won.log_end
        """Also what earlier masters may have promised: a replica that joins has to flush it."""
        self._submitted = Signal()
        self._isr_wanted = Signal()
        self._own_log_counts = Signal()
        self.acknowledgements = Acknowledgements(lambda: self._refusal(boottime()), self._answering)
        self.isr = InSyncReplicas(
            name=config.name,
            incarnation=incarnation,
            min_isr=config.min_isr,
            ack_level=config.ack_level,
            lag_seconds=config.isr_lag_ms / 1000,
            epoch_start=won.log_end,
            confirm=store.confirm_offset,
            recorded=won.state.isr,
            revision=won.state_revision,
            now=trio.current_time(),
        )
        self.confirm_offset = self.isr.confirm
        """Up to where the log is confirmed, as followers hear; it stays once this is closed."""
        self._told: TellOnce[str] = TellOnce()
        self.server = ReplicaServer(
            config,
            store,
            network,
            epochs=epochs,
            epoch=self.epoch,
            incarnation=incarnation,
            listener=self,
            confirm_offset=lambda: self.confirm_offset,
            flush_wanted=lambda: self._flush_wanted,
            random=random,
            on_doubt=on_doubt,
            level=lambda: self.state.level,
        )

    async def run(self) -> None:
        """Be master until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve)
            nursery.start_soon(self._follow_own_log)
            nursery.start_soon(self._follow_flushes)
            nursery.start_soon(self._expire_puts)
            nursery.start_soon(self._keep_isr)
            nursery.start_soon(self._keep_watch)

    async def _serve(self) -> None:
        try:
            await self.server.run()
        except NetworkError as error:
            self._listener.resign(f"it cannot serve replicas: {error}")

    def stop_answering(self, reason: str) -> None:
        """Answer nothing SEND_OK from this step on, and take no put."""
        self.closed_because = reason
        self._admitted_until = 0.0

    def fail_waiting(self) -> bool:
        """Answer the puts that wait: their outcome is unknown. True if there was one."""
        return self.acknowledgements.fail_all(
            f"{self._config.name} is no longer master of epoch {self.epoch}:"
            f" {self.closed_because}; the message may or may not survive"
        )

    def hold_back(self, reason: str) -> None:
        """Take no puts, for this reason; "" takes them again."""
        self._holds_back = reason
        self._admitted_until = 0.0
        if reason:
            self._store.fence(reason)
        elif self.closed_because is None and self.is_open:
            self._store.unfence()

    # -- puts ------------------------------------------------------------------------------------

    def refusal(self) -> Refusal | None:
        """Return why no put is taken now; None if puts are taken."""
        now = self._boottime()
        if now < self._admitted_until:
            return None
        refusal = self._refusal(now)
        if refusal is None and self._holds_back:
            refusal = _not_available(self._holds_back)
        if refusal is None:
            lease = self._session.lease
            deadline = 0.0 if lease is None else lease.deadline
            self._admitted_until = min(deadline, now + ADMITTED_SECONDS)
        return refusal

    def submit(self, end_offset: int, deadline: float, done: Done) -> None:
        """Wait for the group's ack level."""
        self._own_log_moved()
        if self._config.ack_level is AckLevel.FLUSHED:
            self._want_flush(end_offset)
        acks = self.acknowledgements
        acks.submit(acks.replicated, end_offset, self.isr.confirm, deadline, done)
        self._submitted.notify()

    def submit_flushed(self, end_offset: int, deadline: float, done: Done) -> None:
        """Wait for the disks of all members."""
        self._own_log_moved()
        self.isr.flush_asked = max(self.isr.flush_asked, end_offset)
        self._want_flush(end_offset)
        acks = self.acknowledgements
        acks.submit(acks.flushed, end_offset, self.flushed_where, deadline, done)
        self._submitted.notify()

    @property
    def flushed_where(self) -> int:
        """Every node that must have the log has it below this, in memory and on disk."""
        return min(self.isr.flushed_everywhere, self.isr.confirm)

    def answerable(self, offset: int) -> int:
        """Return `offset` if a put that ends there may be answered SEND_OK in this step, else -1.

        Call it only to answer in this step.
        """
        if self._refusal(self._boottime()) is not None:
            return -1
        self._answering(offset)
        return offset

    def _answering(self, end: int) -> None:
        if self._on_event is ignore:
            return
        now, lease = self._boottime(), self._session.lease
        self._on_event(
            AckDecided(
                epoch=self.epoch,
                end=end,
                isr=tuple(sorted({name for name, _ in self.isr.must_have})),
                live_count=self.isr.live_count(trio.current_time()),
                boottime_seconds=now,
                deadline_seconds=lease.deadline if lease else now,
            )
        )

    def _refusal(self, now: float) -> Refusal | None:
        """Return why nothing may be promised at boot time `now`."""
        behind = self.why_behind(now)
        if behind is not None:
            return _not_available(behind)
        trouble = self._store.disk_trouble
        if trouble is not None:
            return _not_available(trouble.text)
        short = self.isr.why_short(trio.current_time())
        if short is None:
            return None
        return Refusal(ResponseCode.SYSTEM_ERROR, short, is_short=True)

    def why_behind(self, now: float) -> str | None:
        """Return why, at boot time `now`, others may know of more; None if this is the master."""
        name = self._config.name
        if self.closed_because is not None:
            return f"{name} is no longer master: {self.closed_because}"
        lease = self._session.lease
        if lease is None or not lease.holds(now):
            return f"{name} cannot show that it is still master: its lease is over"
        if not self.is_open:
            return f"{name} is about to become master of epoch {self.epoch}: {self.why_not_open}"
        return None

    @property
    def why_not_open(self) -> str:
        """Which members still lack the log up to where the epoch starts, in words."""
        lacking = self.isr.why_lacking(self.epoch_start, trio.current_time())
        return f"waiting until the in-sync set has its log ({lacking or 'its own disk'})"

    # -- what followers do; called by the server -------------------------------------------------

    def replica_connected(self, name: str, incarnation: str, now: float) -> None:
        """See `ReplicaListener`."""
        self._admitted_until = 0.0
        self.isr.replica_connected(name, incarnation, now)

    def replica_attached(self, name: str, offset: int, now: float) -> None:
        """See `ReplicaListener`. Its log counts when it has reported under this epoch."""

    def replica_objected(self, name: str, parting: int, confirm: int) -> None:
        """See `ReplicaListener`. A master that lacks what was confirmed must not go on."""
        has = f"{name} has confirmed everything below {confirm}"
        reason = f"{has}, and this log parts from it at {parting}: it is an older copy"
        if self.isr.confirm > parting:
            _log.critical("%s; but both have confirmed messages since: an operator decides", reason)
        elif self.closed_because is None:
            self._listener.resign(reason)

    def replica_acked(self, name: str, written: int, flushed: int, sent: int, now: float) -> None:
        """See `ReplicaListener`."""
        self._note_own_log()
        self.isr.replica_acked(name, written, flushed, now)
        self._after_progress()
        if self.isr.recorded.get(name) != self.isr.replicas[name].incarnation:
            self._isr_wanted.notify()

    def replica_lost(self, name: str, trouble: str, now: float) -> None:
        """See `ReplicaListener`."""
        self._admitted_until = 0.0
        self.isr.replica_lost(name, trouble, now)
        self._isr_wanted.notify()

    # -- progress --------------------------------------------------------------------------------

    def _note_own_log(self) -> None:
        self.isr.own_log(self._store.max_physical_offset, self._store.flushed_where)

    def _own_log_moved(self) -> None:
        self._note_own_log()
        self._after_progress()

    def _after_progress(self) -> None:
        """Answer what waits for the progress that has just been made."""
        if self.closed_because is not None:
            return
        confirm = self.isr.confirm
        if confirm > self.confirm_offset:
            self.confirm_offset = confirm
            if self._on_event is not ignore:
                self._on_event(ConfirmAdvanced(epoch=self.epoch, confirm=confirm))
            self._store.confirm(confirm)
            self.server.confirm_changed()
        if confirm >= self.epoch_start:
            self.caught_up.set()
        if self.acknowledgements.reached(confirm, self.flushed_where):
            self._listener.answered()
        self.moved.notify()

    def _want_flush(self, offset: int) -> None:
        if offset > self._flush_wanted:
            self._flush_wanted = offset
            self._store.flush_service.want_flush(offset)
            self.server.flush_wanted_changed()

    async def _follow_own_log(self) -> None:
        self._store.flush_service.want_flush(self._flush_wanted)
        with self._store.grown.heard_by(self._grown):
            while True:
                self._own_log_moved()
                if self._config.ack_level is AckLevel.FLUSHED:
                    self._want_flush(self._store.max_physical_offset)
                await self._own_log_counts.wait()

    def _grown(self) -> None:
        """Have the log's end looked at, unless nothing is confirmed before the next report."""
        if self.isr.is_alone or self._config.ack_level is AckLevel.FLUSHED:
            self._own_log_counts.notify()

    async def _follow_flushes(self) -> None:
        while True:
            await self._store.flush_service.flushed.wait()
            self._own_log_moved()

    async def _expire_puts(self) -> None:
        acks = self.acknowledgements
        while True:
            deadline = acks.next_deadline
            if deadline is None:
                await self._submitted.wait()
                continue
            await trio.sleep_until(deadline)
            self._own_log_moved()
            if acks.expire(trio.current_time(), self._why_late):
                self._listener.answered()

    def _why_late(self, end: int) -> str:
        refusal = self._refusal(self._boottime())
        if refusal is not None:
            return f"{refusal.text}; the message may or may not survive"
        return (
            f"not every in-sync replica acknowledged offset {end} in time"
            f" ({self.isr.why_lacking(end, trio.current_time()) or 'a disk is slow'});"
            " the message may or may not survive"
        )

    # -- the in-sync set -------------------------------------------------------------------------

    def group_changed(self, view: GroupView) -> str | None:
        """Note what the coordinator has. Return why this node is no longer master, or None."""
        state = view.state
        if view.revision < self.isr.revision:
            return None
        why_over = why_no_longer_master(view, self.state, self._session.session_id)
        if why_over is not None or state is None:
            return why_over
        self._admitted_until = 0.0
        self.isr.nodes_alive(view.nodes)
        self.record_seen(state, view.state_revision)
        self._isr_wanted.notify()
        return None

    def record_seen(self, state: GroupState, revision: int) -> None:
        """This record of ours is at the coordinator."""
        before = self.isr.recorded
        if not self.isr.record_seen(state.isr, revision, trio.current_time()):
            return
        self.state = state
        if state.isr != before:
            self._on_event(IsrChanged(epoch=self.epoch, isr=tuple(sorted(state.isr))))
            _log.warning(
                "epoch %d: the in-sync set is %s now (it was %s)",
                self.epoch,
                ", ".join(sorted(state.isr)),
                ", ".join(sorted(before)),
            )
        self._admitted_until = 0.0
        self._own_log_moved()

    async def _keep_isr(self) -> None:
        while True:
            with trio.move_on_after(WATCH_SECONDS):
                await self._isr_wanted.wait()
            now = trio.current_time()
            self._note_own_log()
            self.isr.tick(now)
            wanted = self.isr.proposal(now)
            if wanted is not None and self._session.holds() and self.closed_because is None:
                await self._change_isr(wanted)

    async def _change_isr(self, wanted: dict[str, str]) -> None:
        """Ask the coordinator for another set; from this step on puts wait for its members."""
        version = self.state.version + 1
        state = msgspec.structs.replace(
            self.state, isr=wanted, min_isr=self._config.min_isr, version=version
        )
        self.isr.proposed(wanted)
        self._on_event(IsrChanging(epoch=self.epoch, isr=tuple(sorted(wanted))))
        try:
            result = await self._session.replace_state(
                state, state_revision=self.isr.revision, leader_revision=self.leader_revision
            )
            self._told.over()
            if result.succeeded:
                self.record_seen(state, result.revision)
                return
            await self._session.refresh()
        except CoordinatorError as error:
            # Logged once: it is sent again twice a second for as long as that lasts.
            if self._told.is_news(str(error)):
                _log.warning(
                    "epoch %d: it is not known yet whether the in-sync set has changed: %s",
                    self.epoch,
                    error,
                )
        await trio.sleep(CHANGE_RETRY_SECONDS)

    # -- reasons to step down --------------------------------------------------------------------

    async def _keep_watch(self) -> None:
        while True:
            if not self._session.holds():
                self._listener.step_down("its lease is over", SwitchCause.LEASE_ENDED)
                return
            # A node that does not follow, because it does not believe the records, cannot object.
            view, end = self._session.view, self._store.max_physical_offset
            reason = what_is_lacking(view, self._config.name, end) or self._why_resign()
            if reason is not None:
                self._listener.resign(reason)
                return
            await trio.sleep(WATCH_SECONDS)

    def _why_resign(self) -> str | None:
        """Return why another member should be master, if there is one that can."""
        trouble = self._store.disk_trouble
        short_seconds = self.isr.short_for(trio.current_time())
        over = whose_epoch_is_over(self._session.view, self.isr.recorded, self.epoch)
        if over is not None and short_seconds:
            return over  # at once: who has promised does not come back
        if trouble is None and short_seconds < self._config.resign_after_ms / 1000:
            return None
        if not self.others_electable():
            return None
        if trouble is not None:
            return trouble.text
        return (
            f"for {short_seconds:.0f} s {self.isr.why_short(trio.current_time())}, and"
            f" {', '.join(self.others_electable())} may reach more of them"
        )

    def others_electable(self) -> list[str]:
        """Return the other members that live and could win an election."""
        return who_else_may_win(self._session.view, self.isr.recorded, self._config.name)


def _not_available(text: str) -> Refusal:
    return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, text)

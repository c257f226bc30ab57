"""FencedHAService: the replication of a node of a fenced group, as its broker sees it, for a round.

    run --+-- CoordinatorSession.run   lease, own record, what is known of the group
          +-- _take_part               one role at a time, in this one task:
          |      FOLLOWER   ReplicaFollower, or waiting
          |      CANDIDATE  promise -> log end -> published -> turn -> transaction
          |      OPENING    FencedMaster, until the in-sync set has its log
          |      MASTER     the same one, open
          `-- _note_progress           writes down how far the log is, from time to time

Order of an election, each step durable before the next: the link to the old master is dropped; the
next epoch is promised; the log's end is fixed and published; the coordinator takes the transaction;
the epoch is entered in the epoch file; queues are brought up to the end; followers are served.

The way out of OPENING and MASTER is the end of the round: the store is fenced and every waiting put
answered in that same step; then the owner closes the store and opens all of it again. See
`replica_role`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from ha.errors import LocalHAError
from ha.fenced.candidacy import Candidacy
from ha.fenced.client import NeedsFullCopy, NeedsTruncation
from ha.fenced.commands import FencedCommands
from ha.fenced.coordinator_session import CoordinatorSession
from ha.fenced.election import (
    Bootstrap,
    Disown,
    Election,
    Follow,
    Refuse,
    Run,
    Wait,
)
from ha.fenced.events import (
    Elected,
    EpochAppended,
    MasterOpened,
    Quarantined,
    SteppedDown,
    ignore,
)
from ha.fenced.master import FencedMaster
from ha.fenced.own_replica import OwnReplica
from ha.fenced.replica_follower import ReplicaFollower
from ha.fenced.replica_role import ReplicaRole
from ha.fenced.status import ReplicaNow, fenced_status, runtime_info
from ha.results import Ack, PutWait, Refusal
from store.machine.errors import StoreError
from store.machine.tell_once import TellOnce
from store.results import PutMessageStatus
from store.running_flags import RunningFlag
from tandem.coordinator.interface import (
    Compare,
    CoordinatorError,
    Put,
)
from tandem.wire.group_state import GroupState, encode_record
from tandem.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from ha.fenced.client import FollowerOutcome
    from ha.fenced.config import FencedConfig
    from ha.fenced.election import Decision, GroupView
    from ha.fenced.events import OnEvent
    from ha.fenced.master import Won
    from ha.replication import ReplicationListener
    from store import MessageStore
    from store.machine.disk import Disk
    from store.machine.network import Network
    from store.results import Done
    from tandem.coordinator.interface import Coordinator
    from tandem.wire.ha_status import FencedCommand, FencedCommandResult, FencedStatus
    from tandem.wire.request_headers import HARuntimeInfo

_log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS: Final = 1.0
"""Own troubles come and go without a change in the coordinator."""
RETRY_SECONDS: Final = 0.3
NOTE_ACKED_SECONDS: Final = 10.0
FAREWELL_SECONDS: Final = 1.0


class FencedHAService:
    """Replication of one store for one round. Its owner opens and closes store and network."""

    def __init__(
        self,
        config: FencedConfig,
        store: MessageStore,
        network: Network,
        coordinator: Coordinator,
        *,
        disk: Disk,
        boottime: Callable[[], float],
        boot_id: str,
        wall_clock_ms: Callable[[], int],
        random: Random,
        on_event: OnEvent | None = None,
    ) -> None:
        """Read what the replica remembers of itself.

        Raises:
            EpochFileError: the epoch file is damaged.
        """
        self.config = config
        self.store = store
        self._network = network
        self._boottime = boottime
        self._boot_id = boot_id
        self._wall_clock_ms = wall_clock_ms
        self._random = random
        self._on_event = on_event or ignore
        self.own = OwnReplica(config, store, disk, random, self._on_event)
        self._election = Election()
        self.session = CoordinatorSession(
            config,
            coordinator,
            session=self.own.session,
            boottime=boottime,
            describe=self.own.describe,
            on_view=self._group_changed,
            on_lost=self._lease_lost,
        )
        self._commands = FencedCommands(
            config,
            store,
            self.session,
            self.own,
            master=lambda: self.mastership,
            role=lambda: self.role,
            step_down=self._step_down,
            resign=self._resign,
            restart=self._begin_empty,
        )
        self.mastership: FencedMaster | None = None
        self.follower: ReplicaFollower | None = None
        self.waits_for = "the coordinator has not answered yet"
        """Why this node follows nobody, in words; empty while it does."""
        self._told: TellOnce[str] = TellOnce()
        self._is_over = trio.Event()
        self._farewell: GroupState | None = None
        self.restart_reason = ""
        """Why this round is over; empty before that."""
        self.role = ReplicaRole.FOLLOWER
        self.epoch = 0
        """Of the state record this node knows."""
        self.master = ""
        """Name of the master this node knows; empty if there is none."""
        self.master_client_address = ""
        """`host:port` of that master for clients; empty if it is not known."""
        timeout_seconds = config.slave_timeout_ms / 1000
        self._waits = {
            Ack.REPLICATED: PutWait(self.submit, self.replicated_where, timeout_seconds),
            Ack.FLUSHED: PutWait(self.submit_flushed, self.flushed_everywhere, timeout_seconds),
        }
        self.won_an_epoch = trio.Event()
        """Set once this node is about to be master, or is. Then learners may be served."""
        self._listener: ReplicationListener
        """Given to `run`; nothing is reported before."""

    async def run(
        self,
        listener: ReplicationListener,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Take part in the group until cancelled.

        Raises:
            StoreError: what the replica remembers of itself cannot be written.
        """
        self._listener = listener
        self.own.begin(self._boot_id)
        self._election.resigned(self.own.file.stands_back_until)
        task_status.started()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.session.run)
                nursery.start_soon(self._take_part)
                nursery.start_soon(self._note_progress)
                nursery.start_soon(self._note_failed_sync)
                await self._is_over.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._close_mastership(self.restart_reason or f"{self.config.name} is stopping")
            await self._say_farewell()
        await self._note_failed_sync()
        await trio.sleep_forever()

    def stopped_clean(self) -> None:
        """The owner has closed the store in order: what was written is on disk."""
        self.own.stopped_clean()

    # -- what the node asks ----------------------------------------------------------------------

    @property
    def confirm_offset(self) -> int:
        """Every replica that must have it holds the log below this."""
        return self.store.confirm_offset

    @property
    def is_master(self) -> bool:
        """Whether this node takes messages, or would if nothing else was wrong."""
        return self.role is ReplicaRole.MASTER

    @property
    def is_quarantined(self) -> bool:
        """Whether this node takes no part, and answers nothing but questions about itself."""
        return self.role is ReplicaRole.QUARANTINED

    def refusal(self) -> Refusal | None:
        """Return why no put is taken now, and where to send it instead; None if puts are taken."""
        master = self.mastership
        if master is None:
            return Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"{self._why_not_master()}; nothing was stored"
            )
        refusal = master.refusal()
        if refusal is None:
            return None
        return msgspec.structs.replace(refusal, text=f"{refusal.text}; nothing was stored")

    def waits(self, ack: Ack) -> PutWait:
        """Return the wait for the in-sync set: as the group's ack level says, or for its disks."""
        return self._waits[ack]

    def submit(self, end_offset: int, deadline: float, done: Done) -> None:
        """Call `done` once every in-sync replica holds the log up to `end_offset`, or in time.

        `deadline` in trio's time. "Holds" as the group's ack level says.
        """
        if self.mastership is None:
            done(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, self._why_unknown())
        else:
            self.mastership.submit(end_offset, deadline, done)

    def submit_flushed(self, end_offset: int, deadline: float, done: Done) -> None:
        """Call `done` once every in-sync replica has it on its disk, or in time."""
        if self.mastership is None:
            done(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, self._why_unknown())
        else:
            self.mastership.submit_flushed(end_offset, deadline, done)

    def replicated_where(self) -> int:
        """Up to where a put may be answered SEND_OK in this very step; -1 for nothing."""
        master = self.mastership
        return -1 if master is None else master.answerable(master.isr.confirm)

    def flushed_everywhere(self) -> int:
        """The same for puts that wait for disks."""
        master = self.mastership
        return -1 if master is None else master.answerable(master.flushed_where)

    def status(self) -> FencedStatus:
        """Return what this node knows of its group."""
        return fenced_status(self._now(), self._boottime())

    def runtime_info(self) -> HARuntimeInfo:
        """Return the same in RocketMQ's shape: the answer to GET_BROKER_HA_STATUS."""
        return runtime_info(self._now(), self._wall_clock_ms())

    def _now(self) -> ReplicaNow:
        return ReplicaNow(
            config=self.config,
            store=self.store,
            session=self.session,
            own=self.own,
            role=self.role,
            epoch=self.epoch,
            master=self.master,
            mastership=self.mastership,
            follower=self.follower,
            waits_for=self.waits_for,
            refusal=self.why_no_messages,
        )

    async def command(self, command: FencedCommand) -> FencedCommandResult:
        """Carry out an operator's order, or say why not."""
        return await self._commands.carry_out(command)

    @property
    def why_no_messages(self) -> str:
        """Why this node takes no messages, in words; empty if it does."""
        refusal = None if self.own.quarantine else self.refusal()
        return refusal.text if refusal is not None else self.own.quarantine

    def why_not_served(self) -> str:
        """Return why a quarantined node serves nobody."""
        return f"{self.config.name} is in quarantine: {self.status().refusal}"

    def _why_not_master(self) -> str:
        name = self.config.name
        if self.own.quarantine:
            return f"{name} is in quarantine: {self.own.quarantine}"
        if self.role is ReplicaRole.RESTARTING:
            return f"{name} is not master: {self.restart_reason}"
        if self.master:
            address = self.master_client_address or "an address not known yet"
            return f"{name} is not master of {self.config.group}: that is {self.master} ({address})"
        return f"{name} is not master of {self.config.group}, nobody is known to be"

    def _why_unknown(self) -> str:
        return f"{self._why_not_master()}; the message may or may not survive"

    async def _note_progress(self) -> None:
        while True:
            await trio.sleep(NOTE_ACKED_SECONDS)
            self.own.note_progress()

    async def _note_failed_sync(self) -> None:
        """A disk that has failed once may not take the note at once."""
        while not self.own.note_failed_sync():
            with trio.move_on_after(LOOK_AGAIN_SECONDS):
                await self.store.flush_service.flushed.wait()

    # -- taking part -----------------------------------------------------------------------------

    async def _take_part(self) -> None:
        while self.role is ReplicaRole.FOLLOWER:
            decision = self._decide()
            self._tell_decision(decision)
            try:
                await self._act(decision)
            except (CoordinatorError, StoreError) as error:
                if self._told.is_news(str(error)):
                    _log.warning("%s: trying again", error)
                await trio.sleep(RETRY_SECONDS)

    def _decide(self) -> Decision:
        view = self.session.view
        if view is None:
            return Wait("the coordinator has not answered yet")
        return self._election.decide(view, self.own.facts(), self._boottime())

    async def _act(self, decision: Decision) -> None:
        match decision:
            case Follow():
                await self._follow(decision)
            case Run(epoch) if self.session.holds():
                await self._run_for(epoch)
            case Bootstrap(state) if self.session.holds():
                await self._bootstrap(state)
            case Disown() if self.session.view is not None:
                await self.session.give_up_leader(self.session.view.leader_revision, None, 0)
                await self.session.refresh()
            case Wait(_, until) if until is not None:
                await self._until_changed(until - self._boottime())
            case _:
                await self._until_changed(LOOK_AGAIN_SECONDS)

    async def _until_changed(self, seconds: float) -> None:
        with trio.move_on_after(max(0.0, min(seconds, LOOK_AGAIN_SECONDS))):
            await self.session.changed.wait()

    def _tell_decision(self, decision: Decision) -> None:
        why = decision.why if isinstance(decision, Wait | Refuse) else ""
        if why and why != self.waits_for:
            level = logging.ERROR if isinstance(decision, Refuse) else logging.INFO
            _log.log(level, "follows nobody: %s", why)
        self.waits_for = why
        if not isinstance(decision, Follow):
            self._set_master("")

    def _set_master(self, name: str) -> None:
        view = self.session.view
        node = view.nodes.get(name) if view else None
        address = node.client_address if node else ""
        if (name, address) != (self.master, self.master_client_address):
            self.master, self.master_client_address = name, address
            self._listener.role_changed()

    async def _bootstrap(self, state: GroupState) -> None:
        """Write the group's first record, unless one of the keys it was made from has changed."""
        view, keys = self.session.view, self.session.keys
        if view is None:
            return
        compares = [Compare(keys.state, 0), Compare(keys.leader, 0)]
        compares += [Compare(keys.node(name), view.node_revisions[name]) for name in state.isr]
        result = await self.session.transact(compares, [Put(keys.state, encode_record(state))])
        if result.succeeded:
            members = ", ".join(sorted(state.isr))
            _log.warning("%s is a new group of %s", self.config.group, members)
        await self.session.refresh()

    # -- following -------------------------------------------------------------------------------

    async def _follow(self, decision: Follow) -> None:
        """Follow a master until there is a reason not to."""
        peers = {peer.name: peer for peer in self.config.peers}
        if decision.master not in peers:
            self.waits_for = f"master {decision.master} is no node of this group in cluster.yaml"
            await self._until_changed(LOOK_AGAIN_SECONDS)
            return
        self.own.promise(decision.epoch)
        self._set_master(decision.master)
        follower = self.follower = ReplicaFollower(
            self.config,
            self.store,
            self._network,
            master=peers[decision.master],
            epoch=decision.epoch,
            epochs=self.own.epochs,
            incarnation=self.own.file.incarnation,
            promised=lambda: self.own.file.promised,
            confirm=self.store.confirm,
            random=self._random,
            on_event=self._on_event,
        )
        _log.info("follows %s, master of epoch %d", decision.master, decision.epoch)
        outcome: FollowerOutcome | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._until_decided_otherwise, decision, nursery.cancel_scope)
                outcome = await follower.run()
                nursery.cancel_scope.cancel()
        finally:
            self.follower = None
        if outcome is not None:
            # Whether this replica is a member is asked anew: it may have become one just now.
            await self.session.refresh()
            if not self._is_over.is_set():
                self._take(outcome)

    async def _until_decided_otherwise(self, decision: Follow, scope: trio.CancelScope) -> None:
        while self._decide() == decision:
            self._set_master(decision.master)
            await self.session.changed.wait()
        scope.cancel()

    def _take(self, outcome: FollowerOutcome) -> None:
        """Do what following has shown to be necessary.

        Raises:
            StoreError: it could not be written down; nothing happened.
        """
        match outcome:
            case NeedsTruncation() if outcome.cut >= self.store.confirm_offset:
                self._restart(self.own.want_cut(outcome))
            case NeedsTruncation():
                self._into_quarantine(
                    f"{outcome.master} (epoch {outcome.epoch}) has this log up to {outcome.cut}"
                    f" only, but everything below {self.store.confirm_offset} was confirmed"
                )
            case NeedsFullCopy(reason=reason) if not self._is_member():
                self.own.want_set_aside(reason)
                self._begin_empty(f"the store is set aside: {reason}")
            case NeedsFullCopy(reason=reason):
                self._into_quarantine(
                    f"{reason}; but this node is in the in-sync set, and its log may be needed."
                    " `tandem ha rejoin` gives it up"
                )
            case _:
                self._into_quarantine(outcome.reason)

    def _is_member(self) -> bool:
        """True unless the in-sync set is known, and is without this replica."""
        view = self.session.view
        if view is None or view.state is None:
            return True
        return view.state.isr.get(self.config.name) == self.own.file.incarnation

    def _into_quarantine(self, reason: str) -> None:
        self.own.quarantine = reason
        self.store.fence(f"{self.config.name} is in quarantine: {reason}")
        self.role = ReplicaRole.QUARANTINED
        self._on_event(Quarantined(reason=reason))
        _log.critical("in quarantine, nothing is changed until an operator has looked: %s", reason)
        self._set_master("")
        self._listener.role_changed()

    # -- running for master ----------------------------------------------------------------------

    async def _run_for(self, epoch: int) -> None:
        """Try to win `epoch`; return as FOLLOWER, or after mastership."""
        self.role = ReplicaRole.CANDIDATE
        self._listener.role_changed()
        won: Won | None = None
        try:
            self.own.promise(epoch)
            end = self.store.max_physical_offset
            _log.info("runs for epoch %d with a log up to %d", epoch, end)
            await self._publish()
            candidacy = Candidacy(
                self.session,
                self._election,
                epoch=epoch,
                log_end=end,
                own=self.own.facts,
                decide=self._decide,
                boottime=self._boottime,
                wall_clock_ms=self._wall_clock_ms,
            )
            won = await candidacy.run()
        finally:
            if won is None and self.role is ReplicaRole.CANDIDATE:
                self.role = ReplicaRole.FOLLOWER
                self._listener.role_changed()
        if won is not None:
            await self._lead(won)

    async def _publish(self) -> None:
        """Say how long the log is, so that the longest goes first. Not saying so does no harm."""
        try:
            await self.session.publish()
        except CoordinatorError as error:
            _log.info("the end of the log could not be published: %s", error)

    # -- leading ---------------------------------------------------------------------------------

    async def _lead(self, won: Won) -> None:
        """Be master of an epoch that was won, until the round is over."""
        config, store, epoch = self.config, self.store, won.state.epoch
        self._on_event(Elected(epoch=epoch, log_end=won.log_end))
        self.epoch = epoch
        store.fence(f"{config.name} is about to become master of epoch {epoch}")
        master = FencedMaster(
            config,
            store,
            self._network,
            self.session,
            won,
            epochs=self.own.epochs,
            incarnation=self.own.file.incarnation,
            boottime=self._boottime,
            random=self._random,
            on_event=self._on_event,
            answered=self._listener.answered,
            step_down=self._step_down,
            resign=self._resign,
        )
        self.mastership = master
        self.role = ReplicaRole.OPENING
        self.won_an_epoch.set()
        try:
            if store.max_physical_offset != won.log_end:
                raise LocalHAError(f"the log has grown behind {won.log_end} during an election")
            self.own.epochs.append(epoch, won.log_end)
            self._on_event(EpochAppended(epoch=epoch, start=won.log_end))
            store.become_master()
        except StoreError as error:
            self._resign(f"it cannot begin epoch {epoch}: {error}")
            return
        _log.warning(
            "won epoch %d (%s): the log ends at %d, confirmed up to %d, in-sync set %s",
            epoch,
            won.state.reason,
            won.log_end,
            store.confirm_offset,
            ", ".join(sorted(won.state.isr)),
        )
        self._set_master(config.name)
        self._listener.role_changed()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(master.run)
            await master.caught_up.wait()
            self._open(master)

    def _open(self, master: FencedMaster) -> None:
        """Take messages from this step on, unless it is over already."""
        if self.role is not ReplicaRole.OPENING:
            return
        if not self.session.holds():
            self._step_down("its lease ended before it could open")
            return
        self.role = ReplicaRole.MASTER
        master.is_open = True
        self.store.unfence()
        self._on_event(MasterOpened(epoch=master.epoch, confirm=master.isr.confirm))
        _log.warning(
            "master of epoch %d from offset %d on: takes messages", master.epoch, master.epoch_start
        )
        self._listener.opened(master.epoch)
        self._listener.role_changed()

    def _group_changed(self, view: GroupView) -> None:
        """Something newer is known of the group."""
        if view.state is not None:
            self.own.note_seen(view.state)
        master = self.mastership
        if master is not None:
            reason = master.group_changed(view)
            if reason:
                self._step_down(reason)
        if view.state is not None and self.mastership is None:
            self.epoch = view.state.epoch

    def _lease_lost(self, reason: str) -> None:
        if self.mastership is not None:
            self._step_down(reason)

    def _resign(self, reason: str) -> None:
        """Step down because another should be master, and leave the field to others."""
        if self.mastership is None:
            return
        until = self._boottime() + self.config.resign_pause_ms / 1000
        # It may be over already: of an order, the watch can tell before its own answer comes.
        self._step_down(reason)
        self.own.stand_back(until)

    def _step_down(self, reason: str) -> None:
        """Be master no more, from this very step on; the rest is done by `run`."""
        master = self.mastership
        if master is None or master.closed_because:
            return
        self._close_mastership(reason)
        self._restart(reason)

    def _close_mastership(self, reason: str) -> None:
        master = self.mastership
        if master is None or master.closed_because:
            return
        self.store.fence(f"{self.config.name} is no longer master: {reason}")
        self.role = ReplicaRole.RESTARTING
        self._farewell = msgspec.structs.replace(
            master.state, reason=f"{self.config.name} stepped down: {reason}"
        )
        master.close(reason)
        self._on_event(SteppedDown(epoch=master.epoch, reason=reason))
        _log.warning(
            "no longer master of epoch %d: %s; the log ends at %d, confirmed up to %d",
            master.epoch,
            reason,
            self.store.max_physical_offset,
            master.isr.confirm,
        )

    async def _say_farewell(self) -> None:
        """End what hangs on our lease, so that nobody has to wait for its end."""
        master, state = self.mastership, self._farewell
        if master is not None and state is not None and self.session.lease is not None:
            with trio.CancelScope(shield=True), trio.move_on_after(FAREWELL_SECONDS):
                try:
                    await self.session.give_up_leader(
                        master.leader_revision, state, master.isr.revision
                    )
                except CoordinatorError as error:
                    _log.info("why it stepped down could not be told: %s", error)
        await self.session.close()

    def _restart(self, reason: str) -> None:
        """End this round. The next one begins at once, unless a sync of this store has failed.

        What is in memory need not be on the disk then, and a new round would take it for that.
        """
        if self._is_over.is_set():
            return
        self.restart_reason = reason
        self._is_over.set()
        if self.store.flags.is_set(RunningFlag.NOT_WRITEABLE):
            self.own.quarantine = f"{reason}; start this node again on a sound disk"
            self.role = ReplicaRole.QUARANTINED
            _log.critical("takes no part any more: %s", self.own.quarantine)
        else:
            self._end_round()
        self._set_master("")
        self._listener.role_changed()

    def _end_round(self) -> None:
        self.role = ReplicaRole.RESTARTING
        self._listener.ended(self.restart_reason)

    def _begin_empty(self, reason: str) -> None:
        """End this round, with a store that is set aside: what it holds does not matter."""
        self.restart_reason = reason
        self._is_over.set()
        self._end_round()
        self._set_master("")
        self._listener.role_changed()

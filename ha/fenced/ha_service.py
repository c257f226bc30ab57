"""FencedHAService: one replica of a fenced group, as its node sees it, for one round.

    run --+-- CoordinatorSession.run   lease, own record, what is known of the group
          +-- Participation.run        one role at a time, in this one task:
          |      FOLLOWER   ReplicaFollower, or waiting
          |      CANDIDATE  Candidacy
          |      OPENING    Leadership: FencedMaster, until the in-sync set has its log
          |      MASTER     the same one, open
          +-- GivingWay.run            a damaged master makes room for a whole member
          +-- Healing.run              damage of the log is found, and healed from peers
          +-- _note_progress           writes down how far the log is, from time to time
          `-- FailedSyncNotes          writes down that a disk has failed

What the replica is at the moment is one state, `Standing`. The way out of OPENING and MASTER is the
round's end: the store is fenced and every waiting put answered in that same step; then the owner
closes the store and opens all of it again. See `replica_role`.

An engine that takes every event and returns what is to be done, as etcd's raft has it, would need
the store's fence, the answers of waiting puts and the listener of the broker as actions, all to be
carried out before the next await: the same calls in the same order, with a name each. So decisions
are values (`Decision`, `Aftermath`) and made by engines; but the code that takes them also acts.
"""

from __future__ import annotations

from typing import Final

import msgspec
import trio

from ha.fenced.commands import FencedCommands
from ha.fenced.completeness import Completeness
from ha.fenced.config import FencedConfig
from ha.fenced.coordinator_session import CoordinatorSession
from ha.fenced.events import ignore
from ha.fenced.failed_sync import FailedSyncNotes
from ha.fenced.giving_way import GivingWay
from ha.fenced.healing_tasks import Healing
from ha.fenced.leadership import Leadership
from ha.fenced.own_replica import OwnReplica
from ha.fenced.participation import Participation
from ha.fenced.peer_logs import PeerLogs
from ha.fenced.punctuality import Punctuality
from ha.fenced.replica_parts import ReplicaParts
from ha.fenced.replica_role import ReplicaRole
from ha.fenced.round_end import RoundEnd
from ha.fenced.served_log import ServedLog
from ha.fenced.standing import Standing
from ha.fenced.status import fenced_status, replica_standing, runtime_info
from ha.replication import ReplicationListener
from ha.results import Ack, PutWait, Refusal, ReplicaStanding
from store import MessageStore
from store.machine.machine import Machine
from store.results import Done, PutMessageStatus
from tandem.coordinator.interface import Coordinator
from tandem.wire.feature_level import LEVEL_MIN
from tandem.wire.ha_status import FencedCommand, FencedCommandResult, FencedStatus
from tandem.wire.request_headers import HARuntimeInfo
from tandem.wire.response_code import ResponseCode
from tandem.wire.stats_requests import EpochEntryBody

NOTE_ACKED_SECONDS: Final = 10.0


class FencedHAService:
    """Replication of one store for one round. Its owner opens and closes store and network."""

    def __init__(
        self,
        config: FencedConfig,
        store: MessageStore,
        machine: Machine,
        coordinator: Coordinator,
        completeness: Completeness | None = None,
        peer_logs: PeerLogs | None = None,
        punctuality: Punctuality | None = None,
    ) -> None:
        """Read what the replica remembers of itself.

        `completeness` and `punctuality` are of the process, and outlive the round.

        `peer_logs` asks its peers about their logs; without, nothing is compared or healed.

        Raises:
            EpochFileError: the epoch file is damaged.
        """
        on_event = machine.on_event or ignore
        self.config = config
        self.store = store
        self.replica = OwnReplica(
            config, store, machine.disk, machine.random, on_event, completeness
        )
        self.session = CoordinatorSession(
            config,
            coordinator,
            session_id=self.replica.session_id,
            boottime=machine.boottime,
            own=self.replica,
            punctuality=punctuality,
        )
        self.standing = Standing()
        self._parts = ReplicaParts(
            config=config,
            store=store,
            machine=machine,
            session=self.session,
            replica=self.replica,
            standing=self.standing,
            on_event=on_event,
        )
        self.served_log = ServedLog(self._parts)
        """What its peers may ask of its log."""
        self._failed_sync_notes = FailedSyncNotes(self._parts, coordinator)
        self._healing = Healing(self._parts, peer_logs)
        self._commands: FencedCommands | None = None
        timeout_seconds = config.slave_timeout_ms / 1000
        self._waits = {
            Ack.REPLICATED: PutWait(self.submit, self.replicated_where, timeout_seconds),
            Ack.FLUSHED: PutWait(self.submit_flushed, self.flushed_everywhere, timeout_seconds),
        }

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
        round_end = RoundEnd(self._parts, listener)
        leadership = Leadership(self._parts, round_end, listener)
        participation = Participation(
            self._parts, leadership, round_end, listener, self._healing.is_in_dispute
        )
        self._commands = FencedCommands(self._parts, leadership, round_end)
        self.replica.begin(self._parts.machine.boot_id)
        task_status.started()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.session.run, leadership)
                nursery.start_soon(participation.run)
                nursery.start_soon(GivingWay(self._parts, leadership).run)
                nursery.start_soon(self._healing.run)
                nursery.start_soon(self._note_progress)
                nursery.start_soon(self._failed_sync_notes.on_disk)
                await round_end.is_over.wait()
                nursery.cancel_scope.cancel()
        finally:
            leadership.close(self.standing.over_because or f"{self.config.name} is stopping")
            self.replica.round_ends()
            await leadership.say_farewell()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._failed_sync_notes.on_disk)
            nursery.start_soon(self._failed_sync_notes.at_coordinator)
        await trio.sleep_forever()

    def stopped_clean(self) -> None:
        """The owner has closed the store in order: what was written is on disk."""
        self.replica.stopped_clean()

    # -- what the broker asks --------------------------------------------------------------------

    @property
    def role(self) -> ReplicaRole:
        """What this replica is at the moment."""
        return self.standing.role

    @property
    def is_master(self) -> bool:
        """Whether this node takes messages, or would if nothing else was wrong."""
        return self.standing.role is ReplicaRole.MASTER

    @property
    def is_quarantined(self) -> bool:
        """Whether this node takes no part, and answers nothing but questions about itself."""
        return self.standing.role is ReplicaRole.QUARANTINED

    @property
    def epoch(self) -> int:
        """Of the state record this node knows."""
        return self.standing.epoch

    @property
    def feature_level(self) -> int:
        """Of the group, as this node knows it."""
        master = self.standing.mastership
        return max(self.replica.file.level, master.state.level if master else LEVEL_MIN)

    @property
    def won_an_epoch(self) -> trio.Event:
        """Set once this node is about to be master, or is. Then learners may be served."""
        return self.standing.won_an_epoch

    def refusal(self) -> Refusal | None:
        """Return why no put is taken now, and where to send it instead; None if puts are taken."""
        master = self.standing.mastership
        if master is None:
            return Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"{self._why_not_master()}; nothing was stored"
            )
        refusal = master.refusal()
        if refusal is None:
            return None
        return msgspec.structs.replace(refusal, text=f"{refusal.text}; nothing was stored")

    def why_behind(self) -> str | None:
        """Return why this node may not know all that was acknowledged; None if it does."""
        master = self.standing.mastership
        if master is None:
            return self._why_not_master()
        return master.why_behind(self._parts.machine.boottime())

    def waits(self, ack: Ack) -> PutWait:
        """Return the wait for the in-sync set: as the group's ack level says, or for its disks."""
        return self._waits[ack]

    def submit(self, end_offset: int, deadline: float, done: Done) -> None:
        """Call `done` once every in-sync replica holds the log up to `end_offset`, or in time.

        `deadline` in trio's time. "Holds" as the group's ack level says.
        """
        master = self.standing.mastership
        if master is None:
            done(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, self._why_unknown())
        else:
            master.submit(end_offset, deadline, done)

    def submit_flushed(self, end_offset: int, deadline: float, done: Done) -> None:
        """Call `done` once every in-sync replica has it on its disk, or in time."""
        master = self.standing.mastership
        if master is None:
            done(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, self._why_unknown())
        else:
            master.submit_flushed(end_offset, deadline, done)

    def replicated_where(self) -> int:
        """Up to where a put may be answered SEND_OK in this very step; -1 for nothing."""
        master = self.standing.mastership
        return -1 if master is None else master.answerable(master.isr.confirm)

    def flushed_everywhere(self) -> int:
        """The same for puts that wait for disks."""
        master = self.standing.mastership
        return -1 if master is None else master.answerable(master.flushed_where)

    def _why_not_master(self) -> str:
        name, standing = self.config.name, self.standing
        if self.replica.quarantine:
            return f"{name} is in quarantine: {self.replica.quarantine}"
        if standing.role is ReplicaRole.RESTARTING:
            return f"{name} is not master: {standing.over_because}"
        if standing.master_name:
            address = standing.master_client_address or "an address not known yet"
            return (
                f"{name} is not master of {self.config.group}:"
                f" that is {standing.master_name} ({address})"
            )
        return f"{name} is not master of {self.config.group}, nobody is known to be"

    def _why_unknown(self) -> str:
        return f"{self._why_not_master()}; the message may or may not survive"

    # -- for people ------------------------------------------------------------------------------

    def status(self) -> FencedStatus:
        """Return what this node knows of its group."""
        return fenced_status(self._parts, self._healing, self._why_no_messages())

    def runtime_info(self) -> HARuntimeInfo:
        """Return the same in RocketMQ's shape: the answer to GET_BROKER_HA_STATUS."""
        return runtime_info(self._parts)

    def replica_standing(self) -> ReplicaStanding:
        """Return what this replica is at the moment."""
        return replica_standing(self._parts)

    def epoch_list(self) -> list[EpochEntryBody]:
        """Return which master wrote which part of the log: for GET_BROKER_EPOCH_CACHE.

        RocketMQ gives the last entry the highest end there is, here it ends with the log.
        """
        entries = self.replica.epochs.entries
        ends = [entry.start for entry in entries[1:]] + [self.store.max_physical_offset]
        return [
            EpochEntryBody(end, entry.epoch, entry.start)
            for entry, end in zip(entries, ends, strict=False)
        ]

    def _why_no_messages(self) -> str | None:
        """Return why this node takes no messages, in words; None if it does."""
        if self.replica.quarantine:
            return self.replica.quarantine
        refusal = self.refusal()
        return None if refusal is None else refusal.text

    def why_not_served(self) -> str:
        """Return why a quarantined node serves nobody."""
        return f"{self.config.name} is in quarantine: {self.status().refusal}"

    async def command(self, command: FencedCommand) -> FencedCommandResult:
        """Carry out an operator's order, or say why not."""
        if self._commands is None:
            text = f"{self.config.name} has not begun to take part: ask again"
            return FencedCommandResult(done=False, text=text)
        return await self._commands.carry_out(command)

    # -- tasks -----------------------------------------------------------------------------------

    async def _note_progress(self) -> None:
        while True:
            await trio.sleep(NOTE_ACKED_SECONDS)
            self.replica.note_progress()

"""The tasks of a follower of a fenced group: dial the master, append what it sends, report.

    run -- per connection: handshake, then --> _receive_frames  stream -> log; a report a read
                                           |-> _send_reports    what a full stream did not take;
                                           |                    a report when nothing else was said
                                           `-> _follow_flushes  a report when a flush was wanted

No rules in here: they are in `ha.fenced.client`. A report says what the log has taken, asked in the
same step in which it is sent; a log that takes nothing any more is not reported.

Whatever goes wrong, the connection ends and the next begins after the reconnect interval; each kind
of trouble is logged once. Trouble that no new connection can mend ends `run` with an outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Final

import trio

from ha.errors import (
    CorruptTransferError,
    DamagedLogError,
    DisputedLogError,
    MasterDeposedError,
    MasterLacksConfirmedError,
    RemoteHAError,
)
from ha.fenced.client import (
    Attached,
    BeginEpoch,
    FencedClient,
    FencedClientState,
    Object,
    SendHello,
)
from ha.fenced.config import FencedConfig, FencedPeer
from ha.fenced.epoch_file import EpochEntries, EpochFile
from ha.fenced.events import EpochAppended, FrameTaken, OnEvent, ReplicaReported, ignore
from ha.fenced.joining import (
    AttachLog,
    Diverged,
    FollowerOutcome,
    NeedsFullCopy,
    NeedsTruncation,
    OwnLog,
)
from ha.fenced.joint import checksum
from ha.fenced.link_follower import LinkFollower
from ha.fenced.log_check import bad_until, begins_record, look_at
from ha.link.dial import dial
from ha.link.limits import RECEIVE_BYTES_MAX
from ha.link.link_end import LinkEnd
from ha.link.sending import send_in_time
from ha.link.traffic import LinkTraffic
from ha.link.whole_records import AppendBody
from store import MessageStore
from store.machine.errors import ConnectionLost, StoreError
from store.machine.network import Network, Stream
from store.machine.signal import Signal
from store.machine.tell_once import TellOnce
from tandem.wire.message import RECORD_OVERHEAD_BYTES_MAX

_log = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 3.0
"""More than a lost packet costs, less than people wait for a page of status."""


def _always() -> bool:
    """The default of `may_object`."""
    return True


def _nobody_asks() -> None:
    """The default of `on_complete`."""


def _ignore(_offset: int) -> None:
    """The default of `on_bad_bytes`."""


async def nobody_knows(*_: object) -> bool:
    """The default of `is_in_dispute`."""
    return False


def _link_follower(
    config: FencedConfig,
    store: MessageStore,
    *,
    incarnation: str,
    master: str,
    epoch: int,
    epoch_id: str,
) -> LinkFollower:
    return LinkFollower(
        cluster=config.cluster,
        group=config.group,
        name=config.name,
        incarnation=incarnation,
        secret=config.secret,
        master=master,
        epoch=epoch,
        epoch_id=epoch_id,
        file_size_bytes=store.config.mapped_file_size_commit_log_bytes,
        record_bytes_max=store.config.max_message_size_bytes + RECORD_OVERHEAD_BYTES_MAX,
        check_crc=config.check_crc_on_append,
        digests_bodies=config.digests_bodies,
        program=config.program,
        level_max=config.level_max,
    )


class ReplicaFollower:
    """Follows one master of one epoch. Its owner cancels it when there is a newer one."""

    def __init__(
        self,
        config: FencedConfig,
        store: MessageStore,
        network: Network,
        *,
        master: FencedPeer,
        epoch: int,
        epochs: EpochFile,
        incarnation: str,
        promised: Callable[[], int],
        random: Random,
        epoch_id: str = "",
        may_object: Callable[[], bool] = _always,
        on_complete: Callable[[], None] = _nobody_asks,
        on_bad_bytes: Callable[[int], None] = _ignore,
        is_in_dispute: Callable[[int, int], Awaitable[bool]] = nobody_knows,
        on_event: OnEvent = ignore,
    ) -> None:
        """Follow `master`, which the coordinator says is that of `epoch`, with this id.

        `promised` returns the newest epoch this node has promised to, on disk: nothing is taken
        from the master of a lower one. `random` makes the numbers that are used once; outside of
        tests it must be unpredictable. `may_object` returns False if an operator has accepted that
        what this node has confirmed may be lost. `on_complete` is called once, in the step in which
        this log has all that the master had when it was dialled. `on_bad_bytes` is called with the
        physical offset of a record that the master sends and that is not sound. `is_in_dispute` is
        asked where the bytes differ that were compared: whether it may turn out yet who is right.
        """
        self._config = config
        self._store = store
        self._network = network
        self._may_object = may_object
        self._on_complete = on_complete
        self._is_complete = False
        self._on_bad_bytes = on_bad_bytes
        self._is_in_dispute = is_in_dispute
        self._master = master
        self.epoch = epoch
        self._epochs = epochs
        self._promised = promised
        self._random = random
        self._on_event = on_event
        self.client = FencedClient(
            _link_follower(
                config,
                store,
                incarnation=incarnation,
                master=master.name,
                epoch=epoch,
                epoch_id=epoch_id,
            )
        )
        self._confirmed = -1
        self._reported = -1, -1
        self._unsent = b""
        self._blocked = Signal()
        self._told: TellOnce[str] = TellOnce()
        self.traffic = LinkTraffic()
        self.link_up = False
        """True while the master sends us its log."""
        self.equal_below = -1
        """Up to where our log is known to be equal to the master's; -1 before they are compared."""
        self.trouble = ""
        """Why it does not, in words; empty if it does, or before the first try."""

    async def run(self) -> FollowerOutcome:
        """Follow on one connection after another; return what none can mend. Cancel it to stop."""
        while True:
            stream = await self._dial()
            if stream is not None:
                try:
                    outcome = await self._follow_or_tell(stream)
                finally:
                    self.link_up = False
                    stream.close_nowait()
                    if self.client.state is not FencedClientState.READY:
                        self.client.connection_lost()
                if outcome is not None:
                    return outcome
            await trio.sleep(self._config.reconnect_interval_ms / 1000)

    async def _dial(self) -> Stream | None:
        host, source = self._master.replication, self._config.address
        try:
            return await dial(self._network, host, source=source, seconds=CONNECT_SECONDS)
        except ConnectionLost as error:
            self._tell(logging.WARNING, str(error))
        return None

    async def _follow_or_tell(self, stream: Stream) -> FollowerOutcome | None:
        try:
            return await self._follow(stream)
        except ConnectionLost as error:
            self._tell(logging.WARNING, str(error))
        except CorruptTransferError as error:
            self._on_bad_bytes(error.offset)
            name = self._master.name
            self._tell(
                logging.ERROR,
                f"the log of {name} is damaged: it sends a {error}. Nothing of it was acknowledged;"
                f" {name} is asked to look at it",
            )
        except (RemoteHAError, StoreError) as error:
            self._tell(logging.ERROR, f"{error}. Nothing of it was acknowledged")
        return None

    async def _follow(self, stream: Stream) -> FollowerOutcome | None:
        """Use one connection until it ends.

        Raises:
            ConnectionLost: the stream ended or broke, or the master fell silent.
            RemoteHAError: the master sent what cannot be taken; nothing of it was.
            StoreError: the log, or the epoch file, does not take it.
        """
        outcome = await self._shake_hands(stream)
        if outcome is not None:
            await self._expect_undisputed(outcome)
            return outcome
        end = LinkEnd(ConnectionLost, RemoteHAError, StoreError)
        with end.scope:
            async with trio.open_nursery() as nursery:
                for task in (self._receive_frames, self._send_reports, self._follow_flushes):
                    nursery.start_soon(end.guard, partial(task, stream))
        if end.reason is not None:
            raise end.reason
        return None

    # Handshake

    async def _shake_hands(self, stream: Stream) -> FollowerOutcome | None:
        """Attach to the master's log and report our end, or return why that cannot be."""
        store, silence_seconds = self._store, self._config.silence_ms / 1000
        self._unsent = b""
        own = OwnLog(
            start=store.min_physical_offset,
            end=store.max_physical_offset,
            confirm=store.confirm_offset,
            entries=self._epochs.entries,
            promised=self._promised(),
            bad_until=bad_until(store, store.max_physical_offset),
            may_object=self._may_object(),
        )
        self.client.connected(own, f"{self._random.getrandbits(128):032x}")
        with trio.move_on_after(silence_seconds):
            while True:
                self._receive_data(
                    await self.traffic.receive(stream, RECEIVE_BYTES_MAX, "the master")
                )
                event = self.client.next_event()
                if event is not None and not isinstance(event, SendHello):
                    self.equal_below = self.client.equal_below
                match event:
                    case SendHello(data):
                        await stream.send_all(data)
                    case AttachLog(entries, offset, start):
                        self._adopt(entries)
                        attach = self.client.attach(checksum(store, start, offset))
                        await stream.send_all(attach + self._report(self._ends))
                    case Attached():
                        self._tell_following()
                        return None
                    case Object(data, reason):
                        await stream.send_all(data)
                        raise MasterLacksConfirmedError(reason)
                    case NeedsTruncation() | NeedsFullCopy() | Diverged() as outcome:
                        return self._checked(outcome)
        raise ConnectionLost(f"no handshake within {silence_seconds:g} seconds")

    def _adopt(self, entries: EpochEntries) -> None:
        self._expect_current()
        before = self._epochs.entries
        self._epochs.replace(entries)
        for entry in entries:
            if entry not in before:
                self._on_event(EpochAppended(entry.epoch, entry.start, entry.id))

    def _checked(self, outcome: FollowerOutcome) -> FollowerOutcome:
        """Return the outcome, unless our log is to be cut where none of its records begins.

        Raises:
            DamagedLogError: our own log turned out to be bad where the two were compared.
        """
        self._expect_whole(outcome)
        if isinstance(outcome, NeedsTruncation) and not self._may_cut(outcome.cut):
            return Diverged(
                reason=f"our log and that of {outcome.master} part at {outcome.cut}, where no"
                " sound record of ours begins: one of the two logs is damaged"
            )
        return outcome

    def _expect_whole(self, outcome: FollowerOutcome) -> None:
        start, end = self.client.compared
        if isinstance(outcome, Diverged) and start < end and not look_at(self._store, start, end):
            raise DamagedLogError(
                f"our log is damaged between {start} and {end}, where it was compared with that of"
                f" {self._master.name}"
            )

    async def _expect_undisputed(self, outcome: FollowerOutcome) -> None:
        """Return if an operator has to look.

        Raises:
            DamagedLogError: our own log turned out to be bad where the two were compared.
            DisputedLogError: it is not known yet which of the two it is.
        """
        start, end = self.client.compared
        if isinstance(outcome, Diverged) and start < end and await self._is_in_dispute(start, end):
            self._expect_whole(outcome)
            raise DisputedLogError(
                f"our log and that of {self._master.name} have the same epochs, but other bytes"
                f" between {start} and {end}, and it is not known yet who is right"
            )

    def _may_cut(self, offset: int) -> bool:
        """True if a record begins there, or what is there is known to be bad: it goes anyway."""
        damage = self._store.commit_log.damage
        return begins_record(self._store, offset) or damage.within(offset, offset + 1) is not None

    # Master to follower

    async def _receive_frames(self, stream: Stream) -> None:
        def take(data: bytes) -> None:
            try:
                self._take(data)
                ends = self._ends
                if ends != self._reported:
                    self._report_now(stream, ends)
            finally:
                # After the report: the master waits for that, and for nothing else.
                self._store.announce()
            if not self._is_complete and ends[0] >= self.client.master_end:
                self._is_complete = True
                self._on_complete()
            self._confirm()

        take(b"")  # what came together with the last word of the handshake
        await self.traffic.receive_until_silent(
            stream,
            RECEIVE_BYTES_MAX,
            "the master",
            silence_seconds=self._config.silence_ms / 1000,
            silence="the master sent nothing",
            take=take,
        )

    def _receive_data(self, data: bytes) -> None:
        self.traffic.rate.add(len(data), self.traffic.last_read)
        self.client.receive_data(data)

    def _take(self, data: bytes) -> None:
        """Append all whole records received, and begin the epochs that were."""
        client, store = self.client, self._store
        self._expect_current()
        self._receive_data(data)
        while (event := client.next_event()) is not None:
            if isinstance(event, AppendBody):
                store.append_data(event.offset, event.body)
                self._told.over()
                self._note_taken(event)
            elif isinstance(event, BeginEpoch):
                self._epochs.append(event.epoch, event.start, event.id)
                self._on_event(EpochAppended(event.epoch, event.start, event.id))

    def _confirm(self) -> None:
        """Let clients read what the master says is confirmed, and flush what it wants flushed."""
        client, store = self.client, self._store
        end = store.max_physical_offset
        confirm = min(client.confirm, end)
        if confirm > self._confirmed:
            self._confirmed = confirm
            store.confirm(confirm)
        if client.flush_wanted and client.flush_wanted > store.flushed_where:
            store.flush_service.want_flush(min(client.flush_wanted, end))

    def _note_taken(self, event: AppendBody) -> None:
        if self._on_event is not ignore:
            size = len(event.body)
            self._on_event(FrameTaken(self.client.data_epoch, event.offset, size, self.epoch))

    def _expect_current(self) -> None:
        """Take nothing from a master that this node has promised to follow no longer."""
        promised = self._promised()
        if promised > self.epoch:
            raise MasterDeposedError(
                f"it is the master of epoch {self.epoch}; epoch {promised} was promised"
            )

    # Follower to master

    @property
    def _ends(self) -> tuple[int, int]:
        """Where our log is written, and where it is flushed."""
        written = self._store.max_physical_offset
        return written, min(written, self._store.flushed_where)

    def _report(self, ends: tuple[int, int]) -> bytes:
        """Return a report of this moment, in which our log ends there.

        Raises:
            MasterDeposedError: a newer epoch was promised; the old one gets no more reports.
            StoreError: the disk has failed: what was written may be gone.
        """
        self._expect_current()
        # A store whose disk has failed takes nothing, not even nothing.
        self._store.append_data(ends[0], b"")
        written, flushed = self._reported = ends
        if self._on_event is not ignore:
            self._on_event(ReplicaReported(self.epoch, written, flushed))
        self.traffic.last_write = trio.current_time()
        return self.client.report(written, flushed)

    def _report_now(self, stream: Stream, ends: tuple[int, int]) -> None:
        """Send a report without waiting. If the stream is full, `_send_reports` sees to it."""
        if self._unsent:
            return
        report = self._report(ends)
        self._unsent = report[stream.send_nowait(report) :]
        if self._unsent:
            self._blocked.notify()

    async def _send_reports(self, stream: Stream) -> None:
        traffic, heartbeat_seconds = self.traffic, self._config.heartbeat_interval_ms / 1000
        while True:
            if not self._unsent:
                with trio.move_on_at(traffic.last_write + heartbeat_seconds):
                    await self._blocked.wait()
            if self._unsent:
                await send_in_time(
                    stream,
                    self._unsent,
                    seconds=self._config.silence_ms / 1000,
                    refusal="the master took no report",
                )
                self._unsent = b""
            ends = self._ends
            if ends != self._reported or traffic.wrote_nothing_for(heartbeat_seconds):
                self._report_now(stream, ends)

    async def _follow_flushes(self, stream: Stream) -> None:
        """Report a flush that the master waits for."""
        while True:
            await self._store.flush_service.flushed.wait()
            ends = self._ends
            if self._reported[1] < self.client.flush_wanted and ends != self._reported:
                self._report_now(stream, ends)

    # For people

    def _tell_following(self) -> None:
        self.link_up = True
        self.trouble = ""
        if self._told.last() is None:
            _log.info(
                "this node follows %s, the master of epoch %d; its log ends at %d",
                self._master.name,
                self.epoch,
                self._store.max_physical_offset,
            )

    def _tell(self, level: int, text: str) -> None:
        """Log a trouble, once."""
        self.trouble = text
        if self._told.is_news(text):
            _log.log(
                level, "this node does not follow %s: %s. Trying again", self._master.name, text
            )

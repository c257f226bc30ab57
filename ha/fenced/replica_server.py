"""The tasks of a fenced group's master: accept followers, send them the log, take their reports.

    run -- accept --> a ReplicaLink per connection: handshake, then --> _send_frames      log
     |                                                              `-> _receive_reports  reports
     `- _send_confirm  has idle links say that the confirm offset has moved

No rules in here: they are in `ha.fenced.connection`. Nodes are told apart by what they have
proved; the newest connection of a node replaces its older one, and only what the newest says is
passed on.

Nothing on the way of a put waits for a timer: what is new is sent in the step in which the log
grows (`FrameSender`). Every frame carries the confirm offset of that moment; where no frame
is due, a heartbeat brings it `CONFIRM_SECONDS` later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, Protocol

import trio

from ha.errors import LinkRefusedError, RemoteHAError, SlaveTooOldError
from ha.fenced.config import FencedConfig
from ha.fenced.connection import (
    Acked,
    FencedConnection,
    FencedConnectionState,
    Introduced,
    LinkMaster,
    LogBounds,
    Objected,
    WantsJoin,
)
from ha.fenced.epoch_file import EpochFile
from ha.fenced.joint import checksum
from ha.fenced.log_check import look_at
from ha.link.limits import REPORT_BYTES_READ_MAX
from ha.link.link_end import LinkEnd
from ha.link.sending import FrameSender, say_good_bye
from ha.link.traffic import LinkTraffic
from store import MessageStore
from store.machine.errors import ConnectionLost
from store.machine.network import Network, Stream
from store.machine.signal import Signal
from store.machine.tell_once import TellOnce
from tandem.wire.feature_level import LEVEL_MIN

_log = logging.getLogger(__name__)

CONFIRM_SECONDS: Final = 0.01
"""How long a new confirm offset waits for others, and for a frame that takes it along."""

HANDSHAKES_MAX: Final = 64
"""Connections that have not proved anything yet; more are closed at once. Each has
`silence_ms` to get through."""


class ReplicaListener(Protocol):
    """Hears what followers do, in the same step; `now` is trio's time.

    Per node the calls come in this order: connected, attached, acked..., lost. A node that connects
    anew while its older connection lives is connected again without having been lost.
    """

    def replica_connected(self, name: str, incarnation: str, now: float) -> None:
        """A node of the group has proved its name. It holds nothing yet that counts."""

    def replica_attached(self, name: str, offset: int, now: float) -> None:
        """Its log is equal to ours below `offset`, and is being sent the rest."""

    def replica_objected(self, name: str, parting: int, confirm: int) -> None:
        """Our log parts from its log at `parting`, but it has confirmed all below `confirm`."""

    def replica_acked(self, name: str, written: int, flushed: int, sent: int, now: float) -> None:
        """It has written and flushed so much of the `sent` bytes' end, all physical offsets."""

    def replica_lost(self, name: str, trouble: str, now: float) -> None:
        """Its connection has ended: why, in words."""


class ReplicaLink:
    """One connection. Owned by the task that serves it."""

    def __init__(self, stream: Stream, connection: FencedConnection) -> None:
        self.stream = stream
        self.peer = stream.peer
        self.connection = connection
        self.end = LinkEnd(ConnectionLost, RemoteHAError, on_end=connection.close)
        self.pause = trio.CancelScope()
        """Around the sender's work: cancel it, and the sender looks for what else is to be sent."""
        self.traffic = LinkTraffic()
        self.attached_at = -1
        """End of the node's log when it attached, in bytes; -1 before that."""

    @property
    def name(self) -> str:
        """Name of the node; empty while it has proved nothing."""
        return self.connection.name

    @property
    def incarnation(self) -> str:
        """What the node calls its log."""
        return self.connection.incarnation

    @property
    def written(self) -> int:
        """End of the node's log as it reported, in bytes."""
        return self.connection.written

    @property
    def flushed(self) -> int:
        """Where its log is durable, as it reported, in bytes."""
        return self.connection.flushed

    @property
    def sent(self) -> int:
        """End of what was sent to it, in bytes."""
        return self.connection.next_offset

    @property
    def is_attached(self) -> bool:
        """True if it is being sent the log."""
        return self.connection.state is FencedConnectionState.TRANSFER


def _nobody_looks(_start: int, _end: int) -> None:
    """The default of `on_doubt`."""


class ReplicaServer:
    """Serves the followers of one master for one epoch."""

    def __init__(
        self,
        config: FencedConfig,
        store: MessageStore,
        network: Network,
        *,
        epochs: EpochFile,
        epoch: int,
        incarnation: str,
        listener: ReplicaListener,
        confirm_offset: Callable[[], int],
        flush_wanted: Callable[[], int],
        random: Random,
        on_doubt: Callable[[int, int], None] = _nobody_looks,
        level: Callable[[], int] = lambda: LEVEL_MIN,
    ) -> None:
        """Serve `epoch`, whose entry `epochs` has already.

        `confirm_offset` returns that of this moment; call `confirm_changed` when it rises.
        `flush_wanted` returns up to where followers shall make their logs durable; call
        `flush_wanted_changed` when it rises. `random` makes the numbers that are used once; outside
        of tests it must be unpredictable. `on_doubt` is called with from where to where a follower
        has other bytes, of the same epochs. `level` returns the feature level of the group.
        """
        self._config = config
        self._store = store
        self._network = network
        self._epochs = epochs
        self._epoch = epoch
        self._incarnation = incarnation
        self._listener = listener
        self._confirm_offset = confirm_offset
        self._flush_wanted = flush_wanted
        self._random = random
        self._confirm_moved = Signal()
        self._confirm_sent = True
        self._handshakes = 0
        self._told: TellOnce[str] = TellOnce()
        """By node, or by address where no name was proved."""
        self._on_doubt = on_doubt
        self._level = level
        self.links: dict[str, ReplicaLink] = {}
        """The newest connection of each connected follower, by node name."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled.

        Raises:
            AddressInUseError: something else listens on the replication port.
            ConnectionLost: our own address cannot be bound.
        """
        config = self._config
        listener = await self._network.listen(config.address, config.replication_port)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_confirm)
                nursery.start_soon(self._go_on_when_healed)
                task_status.started()
                while True:
                    stream = await listener.accept()
                    if self._handshakes < HANDSHAKES_MAX:
                        self._handshakes += 1
                        nursery.start_soon(self._serve, self._link(stream))
                    else:
                        stream.close_nowait()
        finally:
            await listener.aclose()

    def confirm_changed(self) -> None:
        """Have followers learn of the confirm offset soon. Cheap: call it whenever it rises."""
        if self._confirm_sent:
            self._confirm_sent = False
            self._confirm_moved.notify()

    def flush_wanted_changed(self) -> None:
        """Have followers learn at once what they shall make durable."""
        wanted = self._flush_wanted()
        for link in self.links.values():
            if self._is_dry(link) and link.connection.sent_flush_wanted < wanted:
                link.pause.cancel()

    async def _send_confirm(self) -> None:
        while True:
            while self._confirm_sent:
                await self._confirm_moved.wait()
            await trio.sleep(CONFIRM_SECONDS)
            self._confirm_sent = True
            confirm = self._confirm_offset()
            for link in self.links.values():
                if self._is_dry(link) and link.connection.sent_confirm < confirm:
                    link.pause.cancel()

    def _is_dry(self, link: ReplicaLink) -> bool:
        """True if the follower was sent all there is, up to what is known to be bad."""
        if not link.is_attached:
            return False
        return link.sent >= self._store.max_physical_offset or self.why_paused(link) is not None

    def why_paused(self, link: ReplicaLink) -> str | None:
        """Return why nothing is sent now although there is more; None if that is not so."""
        damage = self._store.commit_log.damage
        bad = damage.within(link.sent, link.sent + 1) if damage.ranges else None
        if bad is None:
            return None
        return (
            f"is not sent what is damaged here, from {bad.start} to {bad.end}, until it has been"
            " healed"
        )

    async def _go_on_when_healed(self) -> None:
        while True:
            await self._store.commit_log.damage.changed.wait()
            for link in self.links.values():
                link.pause.cancel()

    # Connections

    def _link(self, stream: Stream) -> ReplicaLink:
        config = self._config
        master = LinkMaster(
            cluster=config.cluster,
            group=config.group,
            name=config.name,
            incarnation=self._incarnation,
            members=frozenset(peer.name for peer in config.peers),
            secret=config.secret,
            epoch=self._epoch,
            entries=self._epochs.entries,
            file_size_bytes=self._store.config.mapped_file_size_commit_log_bytes,
            digests_bodies=config.digests_bodies,
            level=self._level(),
        )
        return ReplicaLink(
            stream, FencedConnection(master, f"{self._random.getrandbits(128):032x}")
        )

    async def _serve(self, link: ReplicaLink) -> None:
        try:
            with link.end.scope:
                try:
                    await link.end.guard(partial(self._shake_hands, link))
                finally:
                    self._handshakes -= 1
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(link.end.guard, partial(self._send_frames, link))
                    nursery.start_soon(link.end.guard, partial(self._receive_reports, link))
        finally:
            link.connection.close()
            link.stream.close_nowait()
            self._leave(link)

    async def _shake_hands(self, link: ReplicaLink) -> None:
        """Return when the follower has attached.

        Raises:
            ConnectionLost: it went away, or took too long.
            RemoteHAError: it is not to be served. It has been sent the reason.
        """
        silence_seconds = self._config.silence_ms / 1000
        stream, connection = link.stream, link.connection
        with trio.move_on_after(silence_seconds):
            await stream.send_all(connection.challenge())
            while not link.is_attached:
                try:
                    data = await link.traffic.receive(stream, REPORT_BYTES_READ_MAX, "it")
                    reply = self._take(link, data)
                except LinkRefusedError:
                    await say_good_bye(stream, connection.farewell)
                    raise
                if reply:
                    await stream.send_all(reply)
            return
        raise ConnectionLost(f"no handshake within {silence_seconds:g} seconds")

    def _introduce(self, link: ReplicaLink, now: float) -> None:
        """Let a new connection take the place of the node's older one."""
        older = self.links.get(link.name)
        if older is not None:
            older.end.because(ConnectionLost(f"replaced by a newer connection from {link.peer}"))
        self.links[link.name] = link
        self._listener.replica_connected(link.name, link.incarnation, now)

    def _leave(self, link: ReplicaLink) -> None:
        """Say why the link ended, and forget it unless a newer one has its place."""
        if link.end.reason is not None:
            self._tell_end(link, link.end.reason)
        if self.links.get(link.name) is link:
            del self.links[link.name]
            trouble = str(link.end.reason or "this node serves no followers any more")
            self._listener.replica_lost(link.name, trouble, trio.current_time())

    # Master to follower

    async def _send_frames(self, link: ReplicaLink) -> None:
        """Send what the log has, and a heartbeat when there is something else to say."""
        heartbeat_seconds = self._config.heartbeat_interval_ms / 1000
        traffic = link.traffic
        sender = self._sender(link)
        while link.is_attached:
            if self._is_dry(link) and self._has_news(link):
                await self._send_heartbeat(link)
            with trio.CancelScope(deadline=traffic.last_write + heartbeat_seconds) as link.pause:
                await sender.send_until_blocked(self._store.grown)
            if sender.rest:
                with memoryview(sender.take_rest()) as view:
                    await link.stream.send_all(view)
                traffic.last_write = trio.current_time()
            elif traffic.wrote_nothing_for(heartbeat_seconds) and self._is_dry(link):
                await self._send_heartbeat(link)

    def _has_news(self, link: ReplicaLink) -> bool:
        """True if the last frame did not say what one would say now."""
        connection = link.connection
        return (
            connection.has_untold_epoch
            or connection.sent_confirm < self._confirm_offset()
            or connection.sent_flush_wanted < self._flush_wanted()
        )

    async def _send_heartbeat(self, link: ReplicaLink) -> None:
        confirm, flush_wanted = self._confirm_offset(), self._flush_wanted()
        heartbeat = link.connection.heartbeat(confirm=confirm, flush_wanted=flush_wanted)
        await link.stream.send_all(heartbeat)
        link.traffic.last_write = trio.current_time()

    def _sender(self, link: ReplicaLink) -> FrameSender:
        store, connection = self._store, link.connection
        frame_bytes = self._config.ha_transfer_batch_size_bytes

        def next_frame() -> tuple[bytes, memoryview] | None:
            if connection.next_offset == store.max_physical_offset:
                return None
            bytes_max = min(frame_bytes, connection.frame_bytes_max())
            body = store.read_log(connection.next_offset, bytes_max)
            if not body:
                self._expect_held(connection.next_offset)
                return None
            confirm, flush_wanted = self._confirm_offset(), self._flush_wanted()
            return connection.transfer(body, confirm=confirm, flush_wanted=flush_wanted), body

        def is_sending() -> bool:
            has_other_news = connection.has_untold_epoch and self._is_dry(link)
            return link.is_attached and not has_other_news

        return FrameSender(
            link.stream,
            link.traffic,
            next_frame=next_frame,
            is_sending=is_sending,
            has_arrived=lambda: connection.written >= connection.next_offset,
        )

    def _expect_held(self, offset: int) -> None:
        log_start = self._store.min_physical_offset
        if offset < log_start:
            raise SlaveTooOldError(reported_offset=offset, master_min_offset=log_start)

    # Follower to master

    async def _receive_reports(self, link: ReplicaLink) -> None:
        await link.traffic.receive_until_silent(
            link.stream,
            REPORT_BYTES_READ_MAX,
            "it",
            silence_seconds=self._config.silence_ms / 1000,
            silence="no report",
            take=partial(self._take_reports, link),
        )

    def _take_reports(self, link: ReplicaLink, data: bytes) -> None:
        connection = link.connection
        connection.receive_data(data)
        acked = connection.acknowledged()
        if acked is not None:
            self._acked(link, acked, link.traffic.last_read)

    def _acked(self, link: ReplicaLink, acked: Acked, now: float) -> None:
        silence_seconds = self._config.silence_ms / 1000
        if acked.written > link.attached_at or now > link.traffic.since + silence_seconds:
            self._told.over(link.name)
        self._listener.replica_acked(link.name, acked.written, acked.flushed, link.sent, now)

    def _take(self, link: ReplicaLink, data: bytes) -> bytes:
        """Take what the follower says before it is sent the log; return what to answer."""
        store, connection, now = self._store, link.connection, link.traffic.last_read
        confirm = self._confirm_offset()
        log = LogBounds(store.min_physical_offset, store.max_physical_offset, confirm)
        reply = b""
        connection.receive_data(data)
        while (event := connection.next_event(log)) is not None:
            match event:
                case Acked():
                    self._acked(link, event, now)
                case Objected(parting, confirm):
                    self._listener.replica_objected(link.name, parting, confirm)
                    raise LinkRefusedError(
                        f"has confirmed everything below {confirm}, but its log parts from ours at"
                        f" {parting}"
                    )
                case WantsJoin(offset, start):
                    reply += connection.join(self._checksum(link, start, offset))
                    link.attached_at = offset
                    self._tell_attached(link)
                    self._listener.replica_attached(link.name, offset, now)
                case Introduced():
                    self._introduce(link, now)
                    reply = event.reply
        return reply

    def _checksum(self, link: ReplicaLink, start: int, end: int) -> str:
        """Return our checksum of the bytes before the joint.

        Where ours are bad, the follower's: lists of epochs have shown that the logs are equal, and
        bytes that are bad cannot show that they are not.
        """
        found, theirs = checksum(self._store, start, end), link.connection.their_checksum
        if found == theirs:
            return found
        if not look_at(self._store, start, end):
            _log.warning(
                "%s follows from %d on, not compared: this log is damaged before that",
                link.name,
                end,
            )
            return theirs
        self._on_doubt(start, end)
        return found

    # For people

    def _tell_attached(self, link: ReplicaLink) -> None:
        if self._told.last(link.name) is None:
            _log.info(
                "%s (%s) follows from offset %d on; the log ends at %d",
                link.name,
                link.peer,
                link.sent,
                self._store.max_physical_offset,
            )

    def _tell_end(self, link: ReplicaLink, error: Exception) -> None:
        """Log why a link ended, once: the follower dials again several times a second."""
        key = link.name or link.peer.ip
        if not self._told.is_news(str(error), about=key):
            return
        if isinstance(error, ConnectionLost):
            _log.warning("%s (%s) lost at %d: %s", key, link.peer, link.written, error)
        else:
            _log.error("%s (%s) %s. The connection was closed", key, link.peer, error)

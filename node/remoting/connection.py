"""One client connection: requests in, answers out, in rounds.

    READING --+--> read what is there; in turns: handle whole frames, announce once, send once
      ^       |
      |       +--> CONGESTED   the peer takes no more answers, or too many are owed:
      +------------------+     no reading until both are low again

Handlers are plain functions, so a round has no await in it. An answer that comes later (a put that
waits for a slave, a pull that waits for a message) is written when it is ready, with
`write`; the `Outbox` then sends what the connections it touched have gathered. Bytes that the
kernel does not take at once are left to one writer task, and until it is done nobody else sends.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import trio

from node.remoting.caller import ANYBODY
from store.machine.many_sockets import NO_SOCKET, many_sockets
from store.machine.network import ConnectionLost
from store.machine.signal import Signal
from tandem.wire.remoting_command import (
    ONEWAY_FLAG,
    RemotingCommand,
    encode_frame,
    encode_frame_head,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from node.remoting.user_share import Charge
    from store.machine.network import Stream
    from tandem.wire.call_signature import CallSignature
    from tandem.wire.frame_seal import SealingPeer

OUT_BYTES_MAX: Final = 4 * 1024 * 1024
"""Answers that wait for the peer. Beyond it no request is read and no held pull is run."""

SEND_BYTES_MAX: Final = 256 * 1024
"""What the writer hands over in one piece: after each it is known that the peer takes some."""

OWED_ANSWERS_MAX: Final = 16_384
"""Answers of one connection that wait for a disk or a replica. Beyond it no request is read."""


NOT_ANSWERED: Final = -1
"""In place of a code, for `when_answered`."""

_THROUGH: Final = object()


def _nothing(_connection: Connection, _kept_bytes: int) -> None:
    pass


class Outbox:
    """The connections with something to send, across tasks. One per node.

    Attributes:
        refused: How many requests were answered with an error, by its code.
    """

    def __init__(self) -> None:
        self.refused: Counter[int] = Counter()
        self._filled: list[Connection] = []

    def add(self, connection: Connection) -> None:
        """Remember to send for this connection at the next `flush`."""
        self._filled.append(connection)

    def flush(self) -> None:
        """Send what all of them have gathered. Call it once after a round of `write`s."""
        while self._filled:  # an answer may be part of one on another connection
            filled, self._filled = self._filled, []
            for connection in filled:
                connection.flush()


class Connection:
    """One client. Owned by the task in `Server`; any task may `write`.

    Invariant: while `_writing`, only the writer task sends.

    Attributes:
        born_host: The client's address and port, packed as records hold it.
        last_active: When bytes last moved, in trio's time.
        has_asked: Whether a request has come: nobody knows what a connection without one is for.
        unfinished_bytes: Of a frame that is not whole yet; see `note_kept`.
        owed_count: How many requests of this connection are waiting for their answer; see `owe`.
        reading: Cancel it to take no more requests; answers owed are still sent.
        one_by_one: How many requests are to be handled before a run of them is looked for again.
        misses: How far apart those looks are by now; see `SendRunHandler`.
        challenges: Numbers given to this peer for signatures, not used up yet; see `Guard`.
        signing: Who seals the requests of this connection; None: nobody has asked for a number.
        sealed_frame: The frame of the request that is handled now, if it is sealed, else b"".
        call_signature: What the call of gRPC that is handled now has as a signature; None: it is
            no call.
        caller: Who has sent the request that is handled now, or was the last.
        refusals: When the last few signatures were wrong; see `Guard`.
        when_answered: By opaque, what wants to know what a request is answered; see `Audit`.
        unfinished: The rest of a request that is handled in pieces; the next ones wait for it.
        counted_as: The connection of the client that this one is a part of, for its user's bounds;
            None: itself.
        outbox: Sends what is written here.
        charges: Bytes in flight of the requests of this round, of users with a bound on them.
    """

    def __init__(
        self, stream: Stream, outbox: Outbox, on_kept: Callable[[Connection, int], None] = _nothing
    ) -> None:
        """Serve a stream; `on_kept` hears how many bytes are kept in memory for it."""
        self.stream = stream
        self.peer = stream.peer
        self.born_host = stream.peer.packed
        self.last_active = trio.current_time()
        self.has_asked = False
        self.unfinished_bytes = 0
        self.owed_count = 0
        self.reading = trio.CancelScope()
        self.one_by_one = self.misses = 0
        self.challenges: list[str] = []
        self.signing: SealingPeer | None = None
        self.sealed_frame = b""
        self.call_signature: CallSignature | None = None
        self.caller = ANYBODY
        self.refusals: list[float] = []
        self.when_answered: dict[int, Callable[[int, str], None]] = {}
        self.unfinished: Generator[None, None, None] | None = None
        self.charges: tuple[Charge, ...] = ()
        self.is_closed = False
        self.counted_as: Connection | None = None  # itself would be a cycle for the collector
        self.outbox = outbox
        self._out = bytearray()
        self._sending_bytes = 0
        self._on_kept = on_kept
        self._in_outbox = False
        self._writing = False
        self._changed = Signal()
        self._waits_count = 0
        self._writer_needed = Signal()
        self._when_drained: list[Callable[[], None]] = []
        self._at_round_end: list[Callable[[], None]] = []

    @cached_property
    def peer_name(self) -> str | None:
        """The name in the peer's certificate. To be asked for once the peer has sent something."""
        return self.stream.peer_name

    @property
    def has_tls(self) -> bool:
        """Whether nobody on the way reads it."""
        return self.stream.has_tls

    @property
    def sealed_by(self) -> str | None:
        """Who says to have sealed the request that is handled now; None: it has no seal."""
        if not self.sealed_frame:
            return None
        return "" if self.signing is None else self.signing.name

    @property
    def may_read(self) -> bool:
        """Whether the peer may be given more work: answers taken, answers owed given."""
        unsent_bytes = len(self._out) + self._sending_bytes  # asked for after every request
        return unsent_bytes <= OUT_BYTES_MAX and self.owed_count < OWED_ANSWERS_MAX

    @property
    def is_congested(self) -> bool:
        """Whether the peer is too slow to be given more."""
        return len(self._out) + self._sending_bytes > OUT_BYTES_MAX

    @property
    def is_busy(self) -> bool:
        """Whether an answer is still owed, or on its way to the kernel."""
        return bool(self._out) or self._sending_bytes > 0 or self.owed_count > 0

    def note_kept(self) -> None:
        """Say how much is kept in memory for this connection, which may end it."""
        self._on_kept(self, self.unfinished_bytes + len(self._out) + self._sending_bytes)

    def note_refused(self, code: int) -> None:
        """Count a request that is answered with an error."""
        self.outbox.refused[code] += 1

    def write(self, frame: bytes | memoryview) -> None:
        """Add a frame, or the next part of one, to what will be sent.

        Never waits; a closed connection swallows it.
        """
        if self.is_closed:
            return
        self._out += frame
        if not self._in_outbox:
            self._in_outbox = True
            self.outbox.add(self)

    def write_now(self, frames: memoryview) -> None:
        """Send frames at once, as far as the kernel takes them and nothing waits before them.

        For what is large and good only now: `write` would copy it.
        """
        if self.is_closed:
            return
        if not self._out and not self._writing:
            try:
                sent = self.stream.send_nowait(frames)
            except ConnectionLost:
                self.close()
                return
            frames = frames[sent:]
        if frames:
            self.write(frames)

    def respond(
        self,
        request: RemotingCommand,
        response: RemotingCommand,
        body: Sequence[memoryview] = (),
    ) -> None:
        """Answer a request in its own encoding, unless it is one-way.

        The parts of `body` follow the response's own, which is then empty: they are copied once.
        """
        if self.when_answered and (told := self.when_answered.pop(request.opaque, None)):
            told(response.code, response.remark or "")
        if request.flag & ONEWAY_FLAG:
            return
        if not body:
            self.write(encode_frame(response))
            return
        self.write(encode_frame_head(response, sum(map(len, body))))
        for part in body:
            self.write(part)

    def when_drained(self, call: Callable[[], None]) -> None:
        """Call once `is_congested` no longer holds. Not called if the connection ends first."""
        self._when_drained.append(call)

    def owe(self, count: int = 1) -> OwedAnswers:
        """Promise answers that come later: the connection is not closed in order before them."""
        self.owed_count += count
        return OwedAnswers(self, count)

    def owe_puts(self, count: int) -> OwedAnswers:
        """Promise the answers to the puts of this round: with them its charges are released."""
        self.owed_count += count
        charges, self.charges = self.charges, ()
        return OwedAnswers(self, count, charges)

    def charge(self, charge: Charge) -> None:
        """Have a charge released with the puts of this round, or at its end if none waits."""
        self.charges = (*self.charges, charge)

    def note_read(self, size: int) -> None:
        """Count bytes of records that the request handled now gives to who has sent it."""
        if (share := self.caller.share) is not None:
            share.read(trio.current_time(), size)

    def answered(self, count: int) -> None:
        """That many answers owed have been written."""
        self.owed_count -= count
        self._wake()

    def give(self, frames: bytes, count: int) -> None:
        """Send answers that were counted in `owed_count`, after all that was written before."""
        self.owed_count -= count
        if self._in_outbox or self._writing:
            self.write(frames)  # who waits is woken when they are sent
            return
        if frames and not self.is_closed:
            try:
                sent = self.stream.send_nowait(frames)
            except ConnectionLost:
                self.close()
                return
            if sent < len(frames):
                self.write(frames[sent:])
                return
        self._changed.notify()

    def go_on(self) -> None:
        """Do the next piece of the request that takes long."""
        assert self.unfinished is not None, "asked for where there is such a request"
        if next(self.unfinished, _THROUGH) is _THROUGH:
            self.unfinished = None

    def leave_unfinished(self) -> None:
        """Do no more of a request that takes long. Its client asks again, here or elsewhere."""
        if self.unfinished is not None:
            self.unfinished.close()
            self.unfinished = None

    def at_round_end(self, call: Callable[[], None]) -> None:
        """Have something done when all requests that came together are handled."""
        self._at_round_end.append(call)

    def end_round(self) -> None:
        """Do what the handlers of this round have asked for."""
        calls, self._at_round_end = self._at_round_end, []
        for call in calls:
            call()
        if self.charges:
            for charge in self.charges:
                charge.release()
            self.charges = ()

    def flush(self) -> None:
        """Send what the kernel takes now and leave the rest to the writer."""
        self._in_outbox = False
        if self._writing or self.is_closed or not self._out:
            return
        try:
            sent = self.stream.send_nowait(self._out)
        except ConnectionLost:
            self.close()
            return
        del self._out[:sent]
        if self._out:
            if sent:
                self.last_active = trio.current_time()
            self.note_kept()
        if self._out or self._when_drained:
            self._writing = True
            self._writer_needed.notify()
        self._wake()

    def close(self) -> None:
        """End the connection; its reader sees it as lost. Harmless when repeated."""
        if not self.is_closed:
            self.is_closed = True
            self._out.clear()
            self.unfinished_bytes = self._sending_bytes = 0
            self.note_kept()
            self._when_drained.clear()
            for told in self.when_answered.values():
                told(NOT_ANSWERED, "the connection ended before the answer")
            self.when_answered.clear()
            self.stream.close_nowait()
            self._wake()

    async def run_writer(self) -> None:
        """Send what `flush` could not, until cancelled. The only task that waits to send."""
        while True:
            while not self._writing:
                await self._writer_needed.wait()
            try:
                await self._send_rest()
            except ConnectionLost:
                self.close()
                return

    async def wait_ready(self) -> None:
        """Wait until the peer may be given more work."""
        while not self.may_read and not self.is_closed:
            await self._wait_for_change()

    async def wait_idle(self) -> None:
        """Wait until every answer owed has been handed to the kernel."""
        while self.is_busy and not self.is_closed:
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        self._waits_count += 1
        try:
            await self._changed.wait()
        finally:
            self._waits_count -= 1

    async def _send_rest(self) -> None:
        while self._out or self._when_drained:
            batch, self._out = self._out, bytearray()
            self._sending_bytes = len(batch)
            with memoryview(batch) as view:
                await self._send_pieces(view)
            calls, self._when_drained = self._when_drained, []
            for call in calls:
                call()
            self._wake()
        self._writing = False

    async def _send_pieces(self, batch: memoryview) -> None:
        for start in range(0, len(batch), SEND_BYTES_MAX):
            await self.stream.send_all(batch[start : start + SEND_BYTES_MAX])
            self.last_active = trio.current_time()
            self._sending_bytes = max(0, len(batch) - start - SEND_BYTES_MAX)
        self.note_kept()

    def _wake(self) -> None:
        self._changed.notify()


def owe_each(connections: Sequence[Connection], counts: Sequence[int]) -> None:
    """Promise to each so many answers, for as many requests; `give_each` gives them."""
    for connection, count in zip(connections, counts, strict=True):
        connection.owed_count += count
        connection.has_asked = True


def overfull(connections: Sequence[Connection]) -> list[int]:
    """Return which of them may be given no more work."""
    if max(map(_owed_of, connections)) < OWED_ANSWERS_MAX and not any(map(_unsent_of, connections)):
        return []
    return [number for number, connection in enumerate(connections) if not connection.may_read]


_owed_of: Final = attrgetter("owed_count")
_unsent_of: Final = attrgetter("_out")


def give_each(
    connections: Sequence[Connection], counts: Sequence[int], frames: bytes, ends: Sequence[int]
) -> None:
    """Send to each its answers, up to its end in `frames`, as `give` does."""
    fds = [
        NO_SOCKET if one._in_outbox or one._writing or one.is_closed else one.stream.plain_fd  # noqa: SLF001
        for one in connections
    ]
    many = many_sockets()
    taken = [0] * len(fds) if many is None else many.send(fds, frames, ends)
    if taken is None:
        for connection, count in zip(connections, counts, strict=True):
            connection.owed_count -= count
            if connection._waits_count:  # noqa: SLF001
                connection._wake()  # noqa: SLF001
        return
    start = 0
    for connection, count, end, size in zip(connections, counts, ends, taken, strict=True):
        connection.give(frames[start + size : end], count)
        start = end


class OwedAnswers:
    """Answers to requests of one connection that are not known yet. Give them once."""

    def __init__(
        self, connection: Connection, count: int, charges: tuple[Charge, ...] = ()
    ) -> None:
        self._connection = connection
        self.outbox = connection.outbox
        """By which they are sent."""
        self._count = count
        self._charges = charges

    def write(self, frames: bytes) -> None:
        """Give all of them, encoded."""
        self._connection.write(frames)
        self._connection.answered(self._count)
        for charge in self._charges:
            charge.release()

    def respond(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """Give the only one, unless its request was one-way."""
        self._connection.respond(request, response)
        self._connection.answered(self._count)
        for charge in self._charges:
            charge.release()

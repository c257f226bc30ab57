"""Which pulls of some ranges are in flight, and what can be handed on: no I/O, no clock.

    next_pulls()  --->  found(), passed(), again()  --->  ready()

The ends of all ranges are known, so pulls are sent before the answers to earlier ones are there: a
pull asks for the `step` messages after those of the pull before it. A broker may give fewer; what
is left of that pull is then asked for first, and after two such answers in a row the next pulls are
as short as those were. Answers come in any order and are handed on in that of the ranges.

A broker gives 32 messages or 256 KiB at most. Source: RocketMQ 5.3.3, MessageStoreConfig
(maxTransferCountOnMessageInMemory, maxTransferBytesOnMessageInMemory); from disk 8 and 64 KiB.
"""

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from tandem.spark.live.ranges import QueueRange
from tandem.wire.store_layout import OFFSET_MAX

STEP_MAX: Final = 32
IN_FLIGHT_MAX: Final = 32
"""Pulls of one task. Their answers take up to 8 MiB."""

FULL_BEFORE_LONGER: Final = 32
"""How many pulls in a row have to come back full before longer ones are tried."""

SHORT_BEFORE_SHORTER: Final = 2
"""One alone is at the end of a file of the queue, where a broker's answer ends too."""


class Pull(msgspec.Struct, frozen=True, gc=False):
    """Messages of range number `place`, from offset `start` up to `end`."""

    place: int
    start: int
    end: int

    @property
    def count(self) -> int:
        """How many messages it asks for."""
        return self.end - self.start


class Piece(msgspec.Struct, frozen=True, gc=False):
    """What a pull brought: the records of range `place` from offset `start` up to `end`.

    Without a body, nothing is there any more.
    """

    place: int
    start: int
    end: int
    body: bytes


class PullWindow:
    """The pulls of one task.

    Invariant: every offset of the ranges that was not handed on is in exactly one of: a pull in
    `_waiting` or in flight, a piece in `_early`, or at or after the place where the next pull
    begins.
    """

    def __init__(self, ranges: Sequence[QueueRange], in_flight_max: int = IN_FLIGHT_MAX) -> None:
        self.ranges = ranges
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        self._waiting: deque[Pull] = deque()
        self._early: dict[tuple[int, int], Piece] = {}
        self._asked = _Cursor(ranges)
        self._given = _Cursor(ranges)
        self._step = STEP_MAX
        self._full_in_a_row = 0
        self._short_in_a_row = 0

    @property
    def is_done(self) -> bool:
        """Whether everything was handed on."""
        return self._given.at_end

    @property
    def unread(self) -> QueueRange:
        """The range that is being read; the last one if everything is."""
        return self.ranges[min(self._given.place, len(self.ranges) - 1)]

    @property
    def in_flight(self) -> int:
        """How many pulls have no answer yet."""
        return self._in_flight

    def next_pulls(self) -> list[Pull]:
        """Return the pulls to send now. They count as in flight."""
        pulls = []
        while self._in_flight + len(self._early) < self._in_flight_max or (
            self._waiting and not self._in_flight
        ):
            if self._waiting:
                pull = self._waiting.popleft()
            elif not self._asked.at_end:
                pull = self._asked.step(self._step)
            else:
                break
            self._in_flight += 1
            pulls.append(pull)
        return pulls

    def pulls_of(self, places: Collection[int]) -> list[Pull]:
        """Return what is left of these ranges, as far as it is their turn. Counts as in flight."""
        pulls = [pull for pull in self._waiting if pull.place in places]
        self._waiting = deque(pull for pull in self._waiting if pull.place not in places)
        while not self._asked.at_end and self._asked.place in places:
            pulls.append(self._asked.step(OFFSET_MAX))
        self._in_flight += len(pulls)
        return pulls

    def found(self, pull: Pull, next_offset: int, body: bytes) -> None:
        """The answer to a pull: records, and the offset after them."""
        self._learn(pull, next_offset)
        self._answered(pull, next_offset, body)

    def passed(self, pull: Pull, next_offset: int) -> None:
        """Nothing is at the offsets of a pull up to `next_offset`, and never will be."""
        self._answered(pull, next_offset, b"")

    def again(self, pull: Pull) -> None:
        """A pull came to nothing: ask again."""
        self._in_flight -= 1
        self._waiting.appendleft(pull)

    def ready(self) -> list[Piece]:
        """Return what can be handed on, in order."""
        pieces = []
        while not self._given.at_end:
            piece = self._early.pop((self._given.place, self._given.offset), None)
            if piece is None:
                break
            self._given.go_to(piece.end)
            pieces.append(piece)
        return pieces

    def _answered(self, pull: Pull, next_offset: int, body: bytes) -> None:
        if next_offset <= pull.start:
            raise AssertionError(f"an answer to {pull} that goes on at {next_offset}")
        end = min(next_offset, pull.end)
        self._in_flight -= 1
        self._early[pull.place, pull.start] = Piece(pull.place, pull.start, end, body)
        if end < pull.end:
            self._waiting.appendleft(Pull(pull.place, end, pull.end))

    def _learn(self, pull: Pull, next_offset: int) -> None:
        got = next_offset - pull.start
        if got < pull.count:
            self._full_in_a_row = 0
            self._short_in_a_row += 1
            if self._short_in_a_row >= SHORT_BEFORE_SHORTER:
                self._step = max(1, min(self._step, got))
        else:
            self._short_in_a_row = 0
            self._full_in_a_row += 1
            if self._full_in_a_row >= FULL_BEFORE_LONGER:
                self._step = min(2 * self._step, STEP_MAX)
                self._full_in_a_row = 0


class _Cursor:
    """A place in the ranges that moves forward; never in one that is empty."""

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        self._ranges = ranges
        self.place = 0
        self.offset = ranges[0].start if ranges else 0
        self._skip_empty()

    @property
    def at_end(self) -> bool:
        return self.place == len(self._ranges)

    def step(self, count: int) -> Pull:
        """Move over at most `count` messages; return them as a pull."""
        end = min(self.offset + count, self._ranges[self.place].end)
        pull = Pull(self.place, self.offset, end)
        self.go_to(end)
        return pull

    def go_to(self, offset: int) -> None:
        self.offset = offset
        self._skip_empty()

    def _skip_empty(self) -> None:
        while not self.at_end and self.offset >= self._ranges[self.place].end:
            self.place += 1
            if not self.at_end:
                self.offset = self._ranges[self.place].start

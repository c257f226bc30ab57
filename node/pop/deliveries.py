r"""Which messages are with which consumers: the whole state of POP of one broker.

A function of the records in `node/pop/changes.py`, in their order, and of nothing else: every
replica that has applied the same records has the same state. No I/O, no clock.

    offset of a queue   >= next  --Popped-->  invisible  --Acked-->    done
                                              |  ^    \
                                              +--+     --Revived-->  done; it is in a retry topic
                                              Moved

Invariants, for each group and queue of a real topic:

    I1  an offset is in exactly one place: not handed out (>= `next_offset`), invisible, or done
    I2  `floor` <= `next_offset`, and neither moves back without a `Reset` or a `Cut`
    I5  a handle whose pop time is not that of the entry changes nothing
    I6  `apply` is a pure function of state and record

I3 (no answer shows a message whose record a later master may lack) and I4 (a message that was put
again is in the log before its `Revived`) are kept by those who write records. docs/pop.md has all.

`floor` is the group's offset: everything below it is done. A pull consumer that goes on from there
skips nothing.

When the time of a message is over is not in here: see `node/pop/due_times.py`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from node.pop.changes import (
    Acked,
    Change,
    Cut,
    Moved,
    Popped,
    QueueKey,
    Reset,
    Revived,
    offsets_of,
    runs_of,
)
from tandem.wire.remoting_command import Int32, Int64

_HANDOUTS_PER_ROW: Final = 64
"""Of a snapshot, which is cut between rows: each of them has to fit into a record."""

_QUEUES_PER_STEP: Final = 256

_ROOM: Final = 1_024
"""Offsets that are done may stay in the order of a queue, before it is looked which are."""


class Handout(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Messages of one queue that were handed out together. Shared by copies of a state.

    Attributes:
        pop_time_ms: The master's wall clock, or later: with an offset, what tells this delivery
            from every other one.
        invisible_ms: For how long nobody else gets them, from `pop_time_ms` on.
        offsets: All of them, ascending; some may be done.
    """

    pop_time_ms: int
    invisible_ms: int
    offsets: tuple[int, ...]
    is_orderly: bool = False
    attempt_id: str = ""


class HandoutRow(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot says of a handout: what of it is not done."""

    pop_time_ms: Int64
    invisible_ms: Int64
    runs: list[Int64]
    is_orderly: bool = False
    attempt_id: str = ""


class QueueRow(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot says of a queue, or more of it, so that no row is large.

    `counts` are pairs: offset, times handed out.
    """

    group: str
    topic: str
    queue_id: Int32
    next_offset: Int64
    last_pop_ms: Int64
    handouts: list[HandoutRow]
    counts: list[tuple[Int64, Int32]] = []
    is_more: bool = False


class QueueDeliveries:
    """One queue for one group.

    Attributes:
        next_offset: The first one that was never handed out.
        last_pop_ms: No pop time of this queue was later.
        invisible: What is with consumers, by offset.
        counts: How often messages of an orderly group were handed out that are not done.
        owner: Of the state that may change it. Other states that have it copy it first.
    """

    __slots__ = ("_order", "counts", "invisible", "last_pop_ms", "next_offset", "owner")

    def __init__(self, owner: object = None, next_offset: int = 0, last_pop_ms: int = 0) -> None:
        self.owner = owner
        self.next_offset = next_offset
        self.last_pop_ms = last_pop_ms
        self.invisible: dict[int, Handout] = {}
        self.counts: dict[int, int] = {}
        self._order: deque[int] = deque()
        """What was handed out, ascending; some of it is done."""

    @property
    def floor(self) -> int:
        """The first offset that is not done: the group's offset."""
        order, invisible = self._order, self.invisible
        while order and order[0] not in invisible:
            order.popleft()
        return order[0] if order else self.next_offset

    def holds(self, offset: int, pop_time_ms: int) -> bool:
        """Whether this handle is good: its message is with its consumer still."""
        handout = self.invisible.get(offset)
        return handout is not None and handout.pop_time_ms == pop_time_ms

    def held_of(self, handout: Handout) -> list[int]:
        """Return the offsets of a handout that are with its consumer still."""
        get = self.invisible.get
        return [offset for offset in handout.offsets if get(offset) is handout]

    def forget_done(self) -> None:
        """Forget what is done behind one that is not: once for as much as is left."""
        if len(self._order) > 2 * len(self.invisible) + _ROOM:
            self._order = deque(each for each in self._order if each in self.invisible)

    def forget_from(self, offset: int) -> None:
        """Nothing from `offset` on was ever handed out, and nothing of it is invisible."""
        while self._order and self._order[-1] >= offset:
            self._order.pop()
        self.next_offset = offset

    def keep_handouts(self, earlier: QueueDeliveries) -> None:
        """Have the handouts of an earlier state where they say the same: each is one object."""
        known = {(each.pop_time_ms, each.invisible_ms): each for each in earlier.invisible.values()}
        kept: dict[Handout, Handout] = {}
        for offset, handout in self.invisible.items():
            same = kept.get(handout)
            if same is None:
                found = known.get((handout.pop_time_ms, handout.invisible_ms), handout)
                is_same = set(found.offsets).issuperset(handout.offsets)
                same = kept[handout] = found if is_same else handout
            self.invisible[offset] = same

    def copy(self, owner: object) -> QueueDeliveries:
        """Return one of the same content that changes on its own."""
        other = QueueDeliveries(owner, self.next_offset, self.last_pop_ms)
        other.invisible = self.invisible.copy()
        other.counts = self.counts.copy()
        other._order = self._order.copy()
        return other


class Deliveries:
    """All queues of one broker.

    A copy has the same queues, and each state copies one of them before it changes it: a copy of a
    hundred thousand queues is one of a dictionary.

    Attributes:
        queues: Those that something was popped of. For reading; see `own`.
        invisible_count: How many messages are with consumers.
        fresh: Handouts that were applied since somebody took them from here: what has to be given
            a time. Kept only if it was asked for.
    """

    def __init__(self, *, keeps_fresh: bool = False) -> None:
        self.queues: dict[QueueKey, QueueDeliveries] = {}
        self._owner = object()
        self.invisible_count = 0
        self.fresh: list[tuple[QueueKey, Handout]] | None = [] if keeps_fresh else None

    def of(self, key: QueueKey) -> QueueDeliveries | None:
        """Return a queue, None if nothing was ever popped of it."""
        return self.queues.get(key)

    def own(self, key: QueueKey) -> QueueDeliveries | None:
        """Return a queue to be changed, None if nothing was ever popped of it."""
        queue = self.queues.get(key)
        if queue is not None and queue.owner is not self._owner:
            queue = self.queues[key] = queue.copy(self._owner)
        return queue

    def holds(self, key: QueueKey, offset: int, pop_time_ms: int) -> bool:
        """Whether this handle is good."""
        queue = self.queues.get(key)
        return queue is not None and queue.holds(offset, pop_time_ms)

    # -- changing --------------------------------------------------------------------------------

    def apply(self, change: Change) -> None:
        """Take in one record. What does not fit the state changes nothing of it."""
        match change:
            case Popped():
                self._popped(change)
            case Acked() | Revived():
                self._done(change)
            case Moved():
                self._moved(change)
            case Reset():
                self._reset(change)
            case Cut():
                self._cut(change)

    def _popped(self, change: Popped) -> None:
        key = QueueKey(change.group, change.topic, change.queue_id)
        offsets = offsets_of(change.runs)
        queue = self.own(key)
        if queue is None:
            first = offsets[0] if offsets else 0
            queue = self.queues[key] = QueueDeliveries(self._owner, first)
        handout = Handout(
            change.pop_time_ms,
            change.invisible_ms,
            tuple(offsets),
            change.is_orderly,
            change.attempt_id,
        )
        if change.is_orderly:
            self._popped_in_order(queue, handout)
        else:
            invisible, begin = queue.invisible, queue.next_offset
            for offset in offsets:
                if offset >= begin:
                    invisible[offset] = handout
                    queue._order.append(offset)  # noqa: SLF001 - one of our own
                    self.invisible_count += 1
        queue.forget_done()
        queue.next_offset = max(queue.next_offset, change.next_offset)
        queue.last_pop_ms = max(queue.last_pop_ms, change.pop_time_ms)
        self._note_fresh(key, handout)

    def _popped_in_order(self, queue: QueueDeliveries, handout: Handout) -> None:
        """What was not done in time comes again in its place, and counts once more."""
        begin = queue.next_offset
        for offset in handout.offsets:
            earlier = queue.invisible.get(offset)
            if earlier is None and offset < begin:
                continue
            queue.invisible[offset] = handout
            if earlier is None:
                queue._order.append(offset)  # noqa: SLF001 - one of our own
                self.invisible_count += 1
                queue.counts[offset] = 1
            elif not handout.attempt_id or earlier.attempt_id != handout.attempt_id:
                queue.counts[offset] = queue.counts.get(offset, 1) + 1

    def _done(self, change: Acked | Revived) -> None:
        queue = self.own(QueueKey(change.group, change.topic, change.queue_id))
        if queue is None:
            return
        invisible, counts = queue.invisible, queue.counts
        for pop_time_ms, runs in change.done:
            for offset in offsets_of(runs):
                handout = invisible.get(offset)
                if handout is not None and handout.pop_time_ms == pop_time_ms:
                    del invisible[offset]
                    self.invisible_count -= 1
                    if counts:
                        counts.pop(offset, None)

    def done(self, key: QueueKey, offset: int) -> None:
        """A message is done: what `Acked` does to one whose handle is good."""
        queue = self.own(key)
        assert queue is not None, "its handle is good"
        del queue.invisible[offset]
        queue.counts.pop(offset, None)
        self.invisible_count -= 1

    def _moved(self, change: Moved) -> None:
        key = QueueKey(change.group, change.topic, change.queue_id)
        if not self.holds(key, change.offset, change.old_pop_time_ms):
            return
        queue = self.own(key)
        assert queue is not None, "it holds the message"
        earlier = queue.invisible[change.offset]
        handout = queue.invisible[change.offset] = Handout(
            change.pop_time_ms,
            change.invisible_ms,
            (change.offset,),
            earlier.is_orderly,
            earlier.attempt_id,
        )
        queue.last_pop_ms = max(queue.last_pop_ms, change.pop_time_ms)
        self._note_fresh(key, handout)

    def _reset(self, change: Reset) -> None:
        key = QueueKey(change.group, change.topic, change.queue_id)
        queue = self.queues.get(key)
        if queue is None:
            return
        self.invisible_count -= len(queue.invisible)
        # A message that is popped again must not have the handle that it had.
        self.queues[key] = QueueDeliveries(self._owner, change.offset, queue.last_pop_ms + 1)

    def _cut(self, change: Cut) -> None:
        queue = self.own(QueueKey(change.group, change.topic, change.queue_id))
        if queue is None or queue.next_offset <= change.offset:
            return
        gone = [offset for offset in queue.invisible if offset >= change.offset]
        for offset in gone:
            del queue.invisible[offset]
            queue.counts.pop(offset, None)
        self.invisible_count -= len(gone)
        queue.forget_from(change.offset)
        # As after a reset: another message has the offset now.
        queue.last_pop_ms += 1

    def _note_fresh(self, key: QueueKey, handout: Handout) -> None:
        if self.fresh is not None:
            self.fresh.append((key, handout))

    def forget(self, topics: Collection[str], groups: Collection[str]) -> None:
        """Forget deleted topics and groups."""
        for key in [key for key in self.queues if key.topic in topics or key.group in groups]:
            self.invisible_count -= len(self.queues.pop(key).invisible)

    # -- whole -----------------------------------------------------------------------------------

    def take_fresh(self) -> list[tuple[QueueKey, Handout]]:
        """Return `fresh`, which is empty after that."""
        fresh = self.fresh or []
        if fresh:
            self.fresh = []
        return fresh

    def handouts(self) -> Iterator[tuple[QueueKey, Handout]]:
        """Yield all that is with consumers."""
        for key, queue in self.queues.items():
            for handout in dict.fromkeys(queue.invisible.values()):
                yield key, handout

    def rows(self) -> list[QueueRow]:
        """Return everything, as a snapshot has it."""
        return [row for some in self.rows_in_steps() for row in some]

    def rows_in_steps(self) -> Iterator[list[QueueRow]]:
        """Yield the same, some at a time; nothing may change meanwhile, which a copy is for."""
        queues = list(self.queues.items())
        for at in range(0, len(queues), _QUEUES_PER_STEP):
            some = queues[at : at + _QUEUES_PER_STEP]
            yield [row for key, queue in some for row in _rows(key, queue)]

    def add(self, row: QueueRow) -> None:
        """Take in a queue of a snapshot, which replaces what was known of it; or more of it."""
        key = QueueKey(row.group, row.topic, row.queue_id)
        earlier = self.own(key)
        if earlier is not None:
            self.invisible_count -= len(earlier.invisible)
        if earlier is not None and row.is_more:
            queue = earlier
        else:
            queue = self.queues[key] = QueueDeliveries(
                self._owner, row.next_offset, row.last_pop_ms
            )
        for each in row.handouts:
            offsets = tuple(offsets_of(each.runs))
            handout = Handout(
                each.pop_time_ms, each.invisible_ms, offsets, each.is_orderly, each.attempt_id
            )
            queue.invisible.update(dict.fromkeys(offsets, handout))
            self._note_fresh(key, handout)
        queue.invisible = dict(sorted(queue.invisible.items()))
        queue._order = deque(queue.invisible)  # noqa: SLF001 - one of our own
        queue.counts.update(row.counts)
        self.invisible_count += len(queue.invisible)

    def copy(self, *, keeps_fresh: bool = False) -> Deliveries:
        """Return a state of the same content that changes on its own."""
        other = Deliveries(keeps_fresh=keeps_fresh)
        other.queues = self.queues.copy()
        self._owner = object()  # what both have belongs to nobody
        other.invisible_count = self.invisible_count
        return other


def _rows(key: QueueKey, queue: QueueDeliveries) -> Iterator[QueueRow]:
    handouts = []
    for handout, count in Counter(queue.invisible.values()).items():
        is_whole = count == len(handout.offsets)
        handouts.append(
            HandoutRow(
                handout.pop_time_ms,
                handout.invisible_ms,
                runs_of(handout.offsets if is_whole else queue.held_of(handout)),
                handout.is_orderly,
                handout.attempt_id,
            )
        )
    counts = list(queue.counts.items())
    for at in range(0, max(1, len(handouts)), _HANDOUTS_PER_ROW):
        some = handouts[at : at + _HANDOUTS_PER_ROW]
        yield QueueRow(
            *key, queue.next_offset, queue.last_pop_ms, some, [] if at else counts, at > 0
        )

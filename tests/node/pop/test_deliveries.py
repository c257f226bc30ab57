"""The engine against a model that is too simple to be wrong."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from node.pop.changes import (
    Acked,
    Change,
    Cut,
    Moved,
    Popped,
    QueueKey,
    Reset,
    Revived,
)
from node.pop.deliveries import Deliveries, QueueRow
from tests.node.pop.handed_out import KEY, acked, popped

OTHER = QueueKey("h", "T", 0)


def applied(*changes: Change) -> Deliveries:
    deliveries = Deliveries()
    for change in changes:
        deliveries.apply(change)
    return deliveries


def invisible(deliveries: Deliveries, key: QueueKey = KEY) -> dict[int, int]:
    queue = deliveries.of(key)
    assert queue is not None
    return {offset: handout.pop_time_ms for offset, handout in queue.invisible.items()}


def floor(deliveries: Deliveries) -> int:
    return deliveries.queues[KEY].floor


def test_what_is_handed_out_is_invisible_until_it_is_done() -> None:
    deliveries = applied(popped(range(5)), acked(1, 3))
    assert list(invisible(deliveries)) == [0, 2, 4]
    assert (floor(deliveries), deliveries.queues[KEY].next_offset) == (0, 5)
    deliveries.apply(acked(0, 2))
    assert floor(deliveries) == 4
    deliveries.apply(Revived(*KEY, [(1000, [4, 1])]))
    assert (floor(deliveries), deliveries.invisible_count) == (5, 0)


def test_a_handle_of_another_delivery_changes_nothing() -> None:
    deliveries = applied(popped(range(3)), Moved(*KEY, 1, 1000, 1500, 20_000))
    before = deliveries.rows()
    deliveries.apply(acked(1))
    deliveries.apply(acked(0, pop_time_ms=999))
    deliveries.apply(Moved(*KEY, 1, 1000, 1600, 20_000))
    deliveries.apply(acked(7))
    deliveries.apply(acked(0, key=OTHER))
    deliveries.apply(Reset(*OTHER, 3))
    deliveries.apply(Cut(*OTHER, 3))
    assert deliveries.rows() == before
    deliveries.apply(acked(1, pop_time_ms=1500))
    assert list(invisible(deliveries)) == [0, 2]


def test_what_was_handed_out_is_not_handed_out_again() -> None:
    deliveries = applied(popped(range(3)), acked(0), popped([0, 1, 3], 2000))
    assert invisible(deliveries) == {1: 1000, 2: 1000, 3: 2000}


def test_a_filter_moves_the_group_on() -> None:
    deliveries = applied(popped([], next_offset=9))
    assert (floor(deliveries), deliveries.queues[KEY].next_offset) == (9, 9)


def test_after_a_reset_nothing_is_with_anybody_and_handles_are_new() -> None:
    deliveries = applied(popped(range(3)), Reset(*KEY, 1))
    assert (invisible(deliveries), floor(deliveries), deliveries.invisible_count) == ({}, 1, 0)
    assert deliveries.queues[KEY].last_pop_ms == 1001
    deliveries.apply(popped([1, 2], 1001))
    deliveries.apply(acked(1, 2))
    assert list(invisible(deliveries)) == [1, 2]


def test_what_the_log_has_lost_is_not_with_anybody() -> None:
    deliveries = applied(popped(range(6)), acked(0, 4), Cut(*KEY, 3))
    assert list(invisible(deliveries)) == [1, 2]
    assert (floor(deliveries), deliveries.queues[KEY].next_offset) == (1, 3)
    assert deliveries.invisible_count == 2
    before = deliveries.rows()
    deliveries.apply(Cut(*KEY, 4))
    assert deliveries.rows() == before
    # What comes in its place at once, by the same clock, has another handle.
    assert deliveries.queues[KEY].last_pop_ms == 1001
    deliveries.apply(popped([3, 4], 1001))
    deliveries.apply(acked(3))
    assert list(invisible(deliveries)) == [1, 2, 3, 4]


def test_in_order_what_is_not_done_is_handed_out_again_and_counted() -> None:
    deliveries = applied(
        popped(range(3), is_orderly=True),
        acked(1),
        popped([0, 2], 2000, is_orderly=True, next_offset=3),
    )
    assert invisible(deliveries) == {0: 2000, 2: 2000}
    assert deliveries.queues[KEY].counts == {0: 2, 2: 2}
    deliveries.apply(acked(0, 2, pop_time_ms=2000))
    assert (deliveries.queues[KEY].counts, floor(deliveries)) == ({}, 3)


def test_the_same_attempt_does_not_count() -> None:
    deliveries = applied(
        popped([0], is_orderly=True, attempt_id="a"),
        popped([0], 2000, is_orderly=True, attempt_id="a"),
    )
    assert deliveries.queues[KEY].counts == {0: 1}
    deliveries.apply(popped([0], 3000, is_orderly=True, attempt_id="b"))
    assert deliveries.queues[KEY].counts == {0: 2}


def test_topics_and_groups_are_forgotten() -> None:
    deliveries = applied(popped(range(3)), popped(range(2), key=OTHER))
    deliveries.forget([], ["h"])
    assert (list(deliveries.queues), deliveries.invisible_count) == ([KEY], 3)
    deliveries.forget(["T"], [])
    assert (deliveries.queues, deliveries.invisible_count) == ({}, 0)


def test_fresh_handouts_are_kept_where_they_are_asked_for() -> None:
    deliveries = Deliveries(keeps_fresh=True)
    deliveries.apply(popped(range(3)))
    deliveries.apply(Moved(*KEY, 1, 1000, 1500, 20_000))
    fresh = deliveries.take_fresh()
    assert [(key, each.offsets) for key, each in fresh] == [(KEY, (0, 1, 2)), (KEY, (1,))]
    assert deliveries.take_fresh() == []
    assert applied(popped(range(3))).take_fresh() == []


def test_a_copy_changes_on_its_own() -> None:
    deliveries = applied(popped(range(3)))
    copy = deliveries.copy()
    copy.apply(acked(0))
    copy.apply(popped([3], 2000))
    assert (len(invisible(deliveries)), len(invisible(copy))) == (3, 3)
    assert (floor(deliveries), floor(copy)) == (0, 1)


@pytest.mark.parametrize(
    "change",
    [
        acked(1),
        popped([9], 5000),
        Moved(*KEY, 1, 1000, 3000, 60_000),
        Reset(*KEY, 0),
        Cut(*KEY, 1),
        Revived(*KEY, [(1000, [0, 2])]),
    ],
)
def test_neither_a_state_nor_its_copy_sees_what_changes_the_other(change: Change) -> None:
    for changes_first in (True, False):
        first = applied(popped(range(3)), popped([5], 2000, key=OTHER))
        before = first.rows()
        second = first.copy()
        changed, other = (first, second) if changes_first else (second, first)
        third = other.copy()
        changed.apply(change)
        assert changed.rows() != before
        assert (other.rows(), third.rows()) == (before, before)
        third.apply(change)
        assert (third.rows(), other.rows()) == (changed.rows(), before)
        assert third.invisible_count == changed.invisible_count
        changed.done(OTHER, 5)
        assert other.holds(OTHER, 5, 2000)


def test_a_copy_takes_no_queue_until_it_changes_one() -> None:
    first = applied(popped(range(3)), popped([5], 2000, key=OTHER))
    second = first.copy()
    assert second.queues[KEY] is first.queues[KEY]
    second.apply(acked(0))
    assert second.queues[KEY] is not first.queues[KEY]
    assert second.queues[OTHER] is first.queues[OTHER]
    own = second.queues[KEY]
    second.apply(acked(1))
    assert second.queues[KEY] is own, "it is copied once"


def test_a_state_of_a_snapshot_keeps_the_handouts_that_are_known() -> None:
    deliveries = applied(popped(range(3)), popped([5], 2000))
    other = Deliveries()
    for row in deliveries.rows():
        other.add(row)
    other.queues[KEY].keep_handouts(deliveries.queues[KEY])
    assert [*other.handouts()] == [*deliveries.handouts()]


PLACES = st.integers(0, 40)


class Model(RuleBasedStateMachine):
    """An offset is where it is: nothing else is known to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.deliveries = Deliveries()
        self.records: list[Change] = []
        self.place: dict[int, int | None] = {}
        """Pop time of what is invisible; None of what is done."""
        self.next_offset = 0
        self.now_ms = 1000

    def apply(self, change: Change) -> None:
        self.records.append(change)
        self.deliveries.apply(change)

    @rule(count=st.integers(1, 6), skipped=st.sets(st.integers(0, 6)), later=st.integers(0, 2))
    def pop(self, count: int, skipped: set[int], later: int) -> None:
        self.now_ms += later
        looked_at = range(self.next_offset, self.next_offset + count)
        offsets = [each for each in looked_at if each - looked_at.start not in skipped]
        self.apply(popped(offsets, self.now_ms, next_offset=looked_at.stop))
        for each in looked_at:
            self.place[each] = self.now_ms if each in offsets else None
        self.next_offset = looked_at.stop

    @rule(offset=PLACES, wrong=st.booleans(), again=st.booleans())
    def done(self, *, offset: int, wrong: bool, again: bool) -> None:
        pop_time_ms = self.place.get(offset) or 0
        handle = pop_time_ms - 1 if wrong else pop_time_ms
        kind = Revived if again else Acked
        self.apply(kind(*KEY, [(handle, [offset, 1])]))
        if not wrong and pop_time_ms:
            self.place[offset] = None

    @rule(offset=PLACES, wrong=st.booleans())
    def move(self, *, offset: int, wrong: bool) -> None:
        pop_time_ms = self.place.get(offset) or 0
        self.now_ms = max(self.now_ms, pop_time_ms + 1)
        handle = pop_time_ms - 1 if wrong else pop_time_ms
        self.apply(Moved(*KEY, offset, handle, self.now_ms, 5000))
        if not wrong and pop_time_ms:
            self.place[offset] = self.now_ms

    @rule(offset=PLACES)
    def reset(self, offset: int) -> None:
        if KEY not in self.deliveries.queues:
            return
        self.apply(Reset(*KEY, offset))
        self.place = dict.fromkeys(range(offset))
        self.next_offset = offset
        self.now_ms = max(self.now_ms, self.deliveries.queues[KEY].last_pop_ms)

    @rule(back=st.integers(1, 10))
    def cut(self, back: int) -> None:
        if KEY not in self.deliveries.queues:
            return
        offset = max(0, self.next_offset - back)
        self.apply(Cut(*KEY, offset))
        self.place = {each: at for each, at in self.place.items() if each < offset}
        self.next_offset = offset
        self.now_ms = max(self.now_ms, self.deliveries.queues[KEY].last_pop_ms)

    @rule()
    def restart(self) -> None:
        """A node that reads a snapshot, or all records, has the same state."""
        rows = msgspec.json.decode(msgspec.json.encode(self.deliveries.rows()), type=list[QueueRow])
        other = Deliveries()
        for row in rows:
            other.add(row)
        assert other.rows() == rows == applied(*self.records).rows()
        self.deliveries = other

    @invariant()
    def every_offset_is_in_one_place(self) -> None:
        queue = self.deliveries.of(KEY)
        if queue is None:
            assert not self.place
            return
        held = {offset: at for offset, at in self.place.items() if at is not None}
        assert invisible(self.deliveries) == held
        assert list(queue.invisible) == sorted(queue.invisible)
        assert queue.next_offset == self.next_offset
        assert queue.floor == min(held, default=self.next_offset)
        assert self.deliveries.invisible_count == len(held)


Model.TestCase.settings = settings(stateful_step_count=40, deadline=None)
TestModel = pytest.mark.slow(Model.TestCase)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30), st.integers(995, 1010))))
def test_no_record_breaks_a_state(parts: list[tuple[int, int, int]]) -> None:
    """Whatever comes in whatever order: applying never fails, and keeps the order and the count."""
    deliveries = Deliveries()
    for kind, offset, at in parts:
        changes: list[Change] = [
            popped(range(offset, offset + 3), at),
            popped(range(offset, offset + 3), at, is_orderly=True),
            Acked(*KEY, [(at, [offset, 2])]),
            Moved(*KEY, offset, at, at + 1, 10),
            Reset(*KEY, offset),
            Cut(*KEY, offset),
        ]
        deliveries.apply(changes[kind])
        for queue in deliveries.queues.values():
            assert queue.floor <= max(queue.next_offset, *queue.invisible, 0)
            assert deliveries.invisible_count == len(queue.invisible)
            assert set(queue.counts) <= set(queue.invisible)


def test_one_message_that_is_never_done_does_not_keep_those_behind_it() -> None:
    deliveries = Deliveries()
    deliveries.apply(Popped("g", "T", 0, 1, 1000, 1, [0, 1]))
    for offset in range(1, 10_000):
        deliveries.apply(Popped("g", "T", 0, 1, 1000, offset + 1, [offset, 1]))
        deliveries.apply(Acked("g", "T", 0, [(1, [offset, 1])]))
    (queue,) = deliveries.queues.values()
    assert queue.floor == 0
    assert len(queue._order) < 2_000


def test_a_queue_with_many_handouts_is_more_than_one_row() -> None:
    deliveries = Deliveries()
    for offset in range(1_000):
        deliveries.apply(Popped("g", "T", 0, offset, 1000, offset + 1, [offset, 1], attempt_id="a"))
    rows = deliveries.rows()
    assert max(len(msgspec.json.encode(each)) for each in rows) < 10_000
    other = Deliveries()
    for row in rows * 2:
        other.add(row)
    assert other.rows() == rows
    assert (other.invisible_count, other.queues[QueueKey("g", "T", 0)].floor) == (1_000, 0)

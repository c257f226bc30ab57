import math

from node.pop.changes import Acked, Moved, Popped, QueueKey, runs_of
from node.pop.deliveries import Deliveries
from node.pop.due_times import ROOM, DueTimes
from tests.node.pop.handed_out import KEY, acked, popped


class Known:
    """A node that counts."""

    def __init__(self) -> None:
        self.deliveries = Deliveries(keeps_fresh=True)
        self.due_times = DueTimes()

    def apply(self, change: object, now: float) -> None:
        self.deliveries.apply(change)  # type: ignore[arg-type]
        self.due_times.note(self.deliveries.take_fresh(), now, self.deliveries)

    def over(self, now: float, count_max: int = 100) -> list[list[int]]:
        found = self.due_times.take_over(now, self.deliveries, count_max)
        return [each.offsets for each in found]


def test_a_time_is_over_as_long_after_it_was_known_and_not_before() -> None:
    known = Known()
    known.apply(popped(range(3), invisible_ms=5000), 100.0)
    assert known.due_times.next_due == 105.0
    assert known.over(104.999) == []
    assert known.over(105.0) == [[0, 1, 2]]
    assert known.over(200.0) == []
    assert known.due_times.next_due == math.inf


def test_what_is_done_is_not_over() -> None:
    known = Known()
    known.apply(popped(range(3)), 0.0)
    known.apply(acked(1), 1.0)
    assert known.over(10.0) == [[0, 2]]
    known.apply(popped([3], 2000), 20.0)
    known.apply(acked(3, pop_time_ms=2000), 21.0)
    assert known.over(100.0) == []


def test_a_moved_message_counts_anew() -> None:
    known = Known()
    known.apply(popped(range(2)), 0.0)
    known.apply(Moved(*KEY, 0, 1000, 1001, 30_000), 5.0)
    assert known.over(10.0) == [[1]]
    assert known.over(34.9) == []
    assert known.over(35.0) == [[0]]


def test_what_could_not_be_put_again_is_said_again() -> None:
    known = Known()
    known.apply(popped(range(2)), 0.0)
    (over,) = known.due_times.take_over(10.0, known.deliveries, 100)
    known.apply(Acked(*KEY, [(1000, [0, 1])]), 10.0)
    known.due_times.again(over, 10.5)
    assert known.over(10.4) == []
    assert known.over(10.5) == [[1]]


def test_only_so_many_at_a_time() -> None:
    known = Known()
    for number in range(10):
        known.apply(popped(range(4 * number, 4 * number + 4), 1000 + number), 0.0)
    assert known.over(10.0, 7) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(known.over(10.0)) == 8


def test_a_queue_in_order_is_open_when_all_its_times_are_over() -> None:
    known = Known()
    known.apply(popped(range(2), is_orderly=True), 0.0)
    handouts = set(known.deliveries.queues[KEY].invisible.values())
    assert not known.due_times.is_open(KEY, handouts)
    assert known.over(10.0) == [[0, 1]]
    assert known.due_times.is_open(KEY, handouts)
    known.apply(Moved(*KEY, 1, 1000, 1000, 5000), 11.0)
    handouts = set(known.deliveries.queues[KEY].invisible.values())
    assert not known.due_times.is_open(KEY, handouts)
    known.over(16.0)
    assert known.due_times.is_open(KEY, handouts)


def test_an_attempt_is_known_until_all_of_it_is_done() -> None:
    known = Known()
    known.apply(popped(range(2), attempt_id="a"), 0.0)
    other = QueueKey("g", "T", 1)
    known.apply(popped(range(1), key=other, attempt_id="a"), 0.0)

    def attempt(group: str = "g") -> list[QueueKey]:
        found = known.due_times.of_attempt(group, "a", known.deliveries)
        return [key for key, _ in found]

    assert attempt() == [KEY, other]
    assert attempt("h") == []
    known.apply(acked(0, 1), 1.0)
    assert attempt() == [other]


def test_what_is_done_does_not_pile_up() -> None:
    known = Known()
    most = 0
    for number in range(10 * ROOM):
        known.apply(popped([number], 1000 + number, attempt_id=f"{number}"), 0.0)
        if number % 100:
            known.apply(Acked(*KEY, [(1000 + number, runs_of([number]))]), 0.0)
        most = max(most, known.due_times.kept_count)
    assert most < 3 * ROOM
    assert len(known.over(10.0, 10**9)) == 103
    assert known.due_times.kept_count == 0


def test_attempts_whose_time_is_over_are_forgotten() -> None:
    deliveries, times = Deliveries(keeps_fresh=True), DueTimes()
    for number in range(5 * ROOM):
        deliveries.apply(
            Popped("g", "T", 0, number, 1000, number + 1, [number, 1], attempt_id=f"a{number}")
        )
        times.note(deliveries.take_fresh(), number, deliveries)
        deliveries.apply(Acked("g", "T", 0, [(number, [number, 1])]))
        assert times.take_over(number + 1, deliveries, 64) == []
    assert len(times._attempts) <= 2 * ROOM

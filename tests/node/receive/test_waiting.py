import math

import pytest

from node.receive import waiting as module
from node.receive.waiting import Place, WaitingRequest, WaitingRequests

ALL = Place("g", "T", -1)


class Waiters:
    """Requests that wait, and what became of them."""

    def __init__(self) -> None:
        self.all = WaitingRequests()
        self.ran: list[tuple[str, bool]] = []

    def park(
        self,
        name: str,
        place: Place = ALL,
        deadline: float = 100.0,
        tags: frozenset[int] | None = None,
    ) -> WaitingRequest:
        def run(is_expired: bool) -> None:  # noqa: FBT001 - see `WaitingRequest.run`
            self.ran.append((name, is_expired))

        return self.all.park(place, deadline, tags, run)

    def arrive(self, topic: str, queue_id: int = 0, code: int | None = None) -> None:
        self.all.messages_arrived([(1000, topic, queue_id, 1, code)])

    def woken(self) -> list[str]:
        while self.all.ready:
            self.all.ready.popleft().run(False)  # noqa: FBT003
        ran, self.ran = self.ran, []
        return [name for name, _ in ran]


def test_a_message_wakes_the_oldest_of_each_group() -> None:
    waiters = Waiters()
    waiters.park("first")
    waiters.park("second")
    waiters.park("other", Place("h", "T", -1))
    waiters.park("elsewhere", Place("g", "U", -1))
    waiters.arrive("T")
    assert waiters.woken() == ["first", "other"]
    waiters.arrive("T")
    assert waiters.woken() == ["second"]
    waiters.arrive("T")
    assert waiters.woken() == []
    assert waiters.all.count == 1


def test_one_that_asks_for_all_queues_comes_before_one_that_asks_for_this_one() -> None:
    waiters = Waiters()
    waiters.park("queue 1", Place("g", "T", 1))
    waiters.park("queue 2", Place("g", "T", 2))
    waiters.park("all")
    waiters.arrive("T", 1)
    waiters.arrive("T", 1)
    assert waiters.woken() == ["all", "queue 1"]
    waiters.arrive("T", 1)
    assert waiters.woken() == []


def test_both_kinds_of_retry_topics_wake() -> None:
    for name in ("%RETRY%g_T", "%RETRY%g+T"):
        waiters = Waiters()
        waiters.park("queue 5", Place("g", "T", 5))
        waiters.park("other", Place("h", "T", -1))
        waiters.arrive(name)
        assert waiters.woken() == ["queue 5"]


def test_a_message_that_it_does_not_want_wakes_the_next_one() -> None:
    waiters = Waiters()
    waiters.park("a", tags=frozenset({1}))
    waiters.park("b", tags=frozenset({2}))
    waiters.arrive("T", code=2)
    assert waiters.woken() == ["b"]
    waiters.arrive("T", code=3)
    assert waiters.woken() == []
    waiters.arrive("T")
    assert waiters.woken() == ["a"]


def test_one_whose_time_is_up_does_not_wait_any_more() -> None:
    waiters = Waiters()
    waiters.park("late", deadline=20.0)
    waiters.park("soon", deadline=10.0)
    assert waiters.all.next_deadline == 10.0
    assert waiters.all.take_expired(9.9) == []
    (expired,) = waiters.all.take_expired(10.0)
    expired.run(True)  # noqa: FBT003
    assert waiters.ran == [("soon", True)]
    assert waiters.all.next_deadline == 20.0
    waiters.arrive("T")
    assert waiters.all.next_deadline == math.inf


def test_a_cancelled_one_is_forgotten() -> None:
    waiters = Waiters()
    request = waiters.park("gone")
    waiters.park("there")
    request.cancel()
    request.cancel()
    waiters.arrive("T")
    assert waiters.woken() == ["there"]
    assert (waiters.all.count, waiters.all.count_of(ALL)) == (0, 0)


def test_there_is_no_room_for_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 3)
    monkeypatch.setattr(module, "WAITING_PER_QUEUE_MAX", 2)
    waiters = Waiters()
    waiters.park("1")
    assert waiters.all.has_room(ALL)
    waiters.park("2")
    assert not waiters.all.has_room(ALL)
    other = Place("g", "T", 0)
    assert waiters.all.has_room(other)
    last = waiters.park("3", other)
    assert not waiters.all.has_room(Place("h", "T", 0))
    last.cancel()
    assert waiters.all.has_room(Place("h", "T", 0))


def test_those_that_were_woken_do_not_pile_up() -> None:
    waiters = Waiters()
    for number in range(20_000):
        waiters.park(str(number), deadline=1e9)
        waiters.arrive("T")
        waiters.woken()
    assert len(waiters.all._deadlines) < 5000


def test_one_that_was_woken_and_is_gone_has_one_woken_that_asks_for_the_same_queue() -> None:
    waiters = Waiters()
    gone = waiters.park("gone")
    for queue_id in (1, 2):
        waiters.park(f"queue {queue_id}", Place("g", "T", queue_id))
    waiters.arrive("T", 2)
    gone.cancel()
    waiters.all.run_ready()
    assert waiters.woken() == ["queue 2"]


def test_one_that_was_woken_by_a_retry_topic_and_is_gone_has_any_other_one_woken() -> None:
    waiters = Waiters()
    gone = waiters.park("gone", Place("g", "T", 1))
    waiters.park("queue 2", Place("g", "T", 2))
    waiters.arrive("%RETRY%g_T")
    gone.cancel()
    waiters.all.run_ready()
    assert waiters.woken() == ["queue 2"]


def test_a_queue_that_is_open_again_wakes_one_of_its_group_also_if_it_is_of_a_retry_topic() -> None:
    waiters = Waiters()
    waiters.park("other", Place("h", "T", -1))
    waiters.park("queue 2", Place("g", "T", 2))
    waiters.all.opened("g", "T", 1)
    assert waiters.woken() == []
    waiters.all.opened("g", "%RETRY%g_T", 0)
    assert waiters.woken() == ["queue 2"]

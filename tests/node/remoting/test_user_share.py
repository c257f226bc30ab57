"""What a user takes: decision tables, and promises for any run of requests."""

import heapq
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.remoting.user_share import (
    BURST_SECONDS,
    DELAY_SECONDS_MAX,
    IN_FLIGHT_SECONDS,
    PROMISE_SECONDS,
    REPORT_SECONDS,
    Bound,
    Charge,
    Over,
    Rate,
    UserShare,
)
from tandem.wire.user_quota import UserQuota

NOW = 1_000.0


def share_of(**bounds: int) -> UserShare:
    share = UserShare("alice")
    share.bound(UserQuota(**bounds))
    return share


def taken(share: UserShare, now: float, count: int, size: int = 0) -> int:
    """How many of some requests are taken, one after the other."""
    for number in range(count):
        if share.over(now, size) is not None:
            return number
        share.take(now, 1, size)
    return count


@pytest.mark.parametrize(
    ("bounds", "in_flight", "size", "bound"),
    [
        ({}, 10**9, 10**9, None),
        ({"requests_per_second": 0, "bytes_per_second": 0, "bytes_in_flight_max": 0}, 9, 9, None),
        ({"bytes_in_flight_max": 100}, 0, 100, None),
        ({"bytes_in_flight_max": 100}, 50, 50, None),
        ({"bytes_in_flight_max": 100}, 50, 51, Bound.IN_FLIGHT),
        ({"bytes_in_flight_max": 100}, 100, 1, Bound.IN_FLIGHT),
        # Larger than the bound: alone it is taken, or it never would be.
        ({"bytes_in_flight_max": 100}, 0, 10_000, None),
        # No message: nothing is in flight then.
        ({"bytes_in_flight_max": 100}, 500, 0, None),
    ],
)
def test_bytes_in_flight_bound_what_brings_messages(
    bounds: dict[str, int], in_flight: int, size: int, bound: Bound | None
) -> None:
    share = share_of(**bounds)
    share.enter("c").begin(in_flight)
    over = share.over(NOW, size)
    assert (over and over.bound) is bound
    assert share.room(NOW, [size]) == (bound is None)


@pytest.mark.parametrize(
    ("seconds_later", "more"), [(0.0, 0), (0.05, 1), (0.15, 2), (0.25, 3), (1.0, 10), (60.0, 10)]
)
def test_a_rate_gives_back_what_time_brings_and_saves_up_one_second(
    seconds_later: float, more: int
) -> None:
    share = share_of(requests_per_second=10)
    assert taken(share, NOW, 100) == 10
    assert taken(share, NOW + seconds_later, 100) == more


def test_what_is_larger_than_the_bound_is_taken_whole_and_paid_for_after() -> None:
    share = share_of(bytes_per_second=1_000)
    assert share.over(NOW, 5_000) is None
    share.take(NOW, 1, 5_000)
    over = share.over(NOW, 1)
    assert over is not None
    assert over.bound is Bound.BYTES
    assert over.wait_seconds == pytest.approx(4.001)
    assert share.over(NOW + 4.002, 1) is None


def test_what_a_pull_brings_is_paid_for_by_the_next_request() -> None:
    share = share_of(bytes_per_second=1_000)
    share.read(NOW, 3_000)
    assert share.over(NOW, 0) is not None
    share.read(NOW, 0)
    assert share.over(NOW + 2.002, 0) is None


def test_of_a_run_as_many_are_taken_as_one_by_one() -> None:
    share = share_of(requests_per_second=5, bytes_per_second=100, bytes_in_flight_max=90)
    assert share.room(NOW, [10] * 20) == 5
    assert share.room(NOW, [60, 30, 5]) == 2  # in flight
    assert share.room(NOW, [90, 20, 5]) == 1
    assert share_of(bytes_per_second=100).room(NOW, [60, 60, 1]) == 2
    assert UserShare("bob").room(NOW, [10] * 20) == 20


@pytest.mark.slow
@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.floats(0, 3), st.integers(1, 40)), min_size=1, max_size=60),
)
def test_in_no_span_is_more_taken_than_the_rate_and_one_second_of_it(
    per_second: int, steps: list[tuple[float, int]]
) -> None:
    share, now = share_of(requests_per_second=per_second), NOW
    history: list[float] = []
    for pause, wanted in steps:
        now += pause
        history += [now] * taken(share, now, wanted)
    for first, begin in enumerate(history):
        for last in range(first, len(history)):
            span = history[last] - begin
            assert last - first + 1 <= per_second * (span + BURST_SECONDS) + 1 + 1e-6


@pytest.mark.slow
@given(
    st.integers(1, 50),
    st.integers(1, 5_000),
    st.integers(1, 2_000),
    st.lists(st.tuples(st.floats(0, 1), st.lists(st.integers(0, 900), max_size=12)), max_size=20),
)
def test_runs_and_single_requests_are_bounded_alike(
    per_second: int, bytes_per_second: int, in_flight: int, runs: list[tuple[float, list[int]]]
) -> None:
    bounds = {
        "requests_per_second": per_second,
        "bytes_per_second": bytes_per_second,
        "bytes_in_flight_max": in_flight,
    }
    single, together, now = share_of(**bounds), share_of(**bounds), NOW
    for pause, sizes in runs:
        now += pause
        one, other = single.enter(now), together.enter(now)
        count = 0
        for size in sizes:
            if single.over(now, size) is not None:
                break
            single.take(now, 1, size)
            one.begin(size)
            count += 1
        assert together.room(now, sizes) == count
        for size in sizes[:count]:
            together.take(now, 1, size)
        other.begin(sum(sizes[:count]))
        single.leave(now)
        together.leave(now)


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(1, 99)), max_size=60))
def test_bytes_in_flight_come_to_nothing(steps: list[tuple[bool, int, int]]) -> None:
    share = share_of(bytes_in_flight_max=1)
    open_charges: dict[object, list[Charge]] = {}
    for begins, connection, size in steps:
        place = share.places.get(connection) or share.enter(connection)
        if begins:
            open_charges.setdefault(connection, []).append(place.begin(size))
        elif charges := open_charges.get(connection):
            charges.pop().release()
    left = {key: sum(each.size for each in charges) for key, charges in open_charges.items()}
    assert share.in_flight.size == sum(left.values())
    # What waits goes on to wait where a connection has ended: hanging up makes no room.
    for connection in list(share.places):
        share.leave(connection)
        share.leave(connection)
    assert share.in_flight.size == sum(left.values())
    for charge in [charge for charges in open_charges.values() for charge in charges]:
        charge.release()
    assert share.in_flight.size == 0


def test_connections_are_counted_until_they_leave() -> None:
    share, full = share_of(connections_max=2), []
    for step, connection in ((share.enter, "a"), (share.enter, "b"), (share.leave, "a")):
        step(connection)
        full.append(share.is_full)
    assert full == [False, True, False]
    assert not share_of().is_full


def refused_after(share: UserShare, now: float, key: int | None, size: int = 0) -> float:
    over = share.over(now, size, key)
    assert over is not None
    return share.refuse(now, over)


def test_refusals_are_answered_at_the_rate_and_none_too_late() -> None:
    share = share_of(requests_per_second=10)
    assert taken(share, NOW, 10) == 10
    delays = [refused_after(share, NOW, key) for key in range(20)]
    assert delays[:4] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert delays[-1] == pytest.approx(DELAY_SECONDS_MAX)
    assert share.refused == {Bound.REQUESTS: 20}
    # A flood does not make anything later for who comes after it.
    assert taken(share, NOW + 60, 20) == 10


def test_what_was_refused_finds_a_place_before_what_came_after_it() -> None:
    share = share_of(requests_per_second=10)
    assert taken(share, NOW, 10) == 10
    assert refused_after(share, NOW, 1) == pytest.approx(0.1)
    assert share.over(NOW + 0.05, 0, 1) is not None  # it has not waited
    # Another, at a time when there would be room without the promise; and one of nobody.
    assert refused_after(share, NOW + 0.08, 2) == pytest.approx(0.12)
    assert share.over(NOW + 0.09, 0) is not None
    assert share.over(NOW + 0.13, 0, 1) is None
    share.take(NOW + 0.13, 1, 0, 1)
    assert share.over(NOW + 0.2, 0, 1) is not None
    assert share.over(NOW + 0.2, 0, 2) is None


def test_a_place_that_nothing_comes_back_for_is_given_to_others() -> None:
    share = share_of(requests_per_second=10)
    assert taken(share, NOW, 10) == 10
    for key in range(5):
        refused_after(share, NOW, key)
    assert taken(share, NOW + 0.5 + PROMISE_SECONDS + 0.01, 20) == 10


def test_promises_are_bounded_and_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.remoting.user_share.PROMISES_MAX", 5)
    share = share_of(requests_per_second=100)
    share.take(NOW, 100, 0)
    for _ in range(2):
        for key in range(10):
            refused_after(share, NOW, key)
    # The others are answered one after the other all the same, and none too late.
    assert refused_after(share, NOW, -1) == pytest.approx(0.06 + 15 / 100)
    assert max(refused_after(share, NOW, 7) for _ in range(200)) == DELAY_SECONDS_MAX


@pytest.mark.slow
@given(st.integers(5, 60), st.integers(1, 12), st.integers(0, 30), st.integers(0, 1 << 32))
def test_senders_that_try_three_times_without_a_pause_get_everything_through(
    per_second: int, senders: int, way_ms: int, seed: int
) -> None:
    chance = random.Random(seed)
    senders = min(senders, int(per_second * DELAY_SECONDS_MAX / 2))
    share, now, numbers = share_of(requests_per_second=per_second), NOW, itertools.count()
    arrivals = [(now + chance.random() / 100, next(numbers), 1) for _ in range(senders)]
    heapq.heapify(arrivals)
    times: list[float] = []
    while len(times) < 6 * per_second:
        now, key, tries = heapq.heappop(arrivals)
        pause = way_ms / 1_000 * chance.random() + 1e-4
        over = share.over(now, 0, key)
        if over is None:
            share.take(now, 1, 0, key)
            times.append(now)
            heapq.heappush(arrivals, (now + pause, next(numbers), 1))
            continue
        assert tries < 2
        heapq.heappush(arrivals, (now + share.refuse(now, over) + pause, key, tries + 1))
    span = times[-1] - NOW
    assert len(times) <= per_second * (span + BURST_SECONDS) + 1


def test_refusals_for_what_is_in_flight_are_answered_soon_and_together() -> None:
    share = share_of(bytes_in_flight_max=1)
    share.enter("c").begin(1)
    over = share.over(NOW, 1)
    assert over is not None
    assert [share.refuse(NOW, over) for _ in range(3)] == pytest.approx([IN_FLIGHT_SECONDS] * 3)


def test_one_line_a_minute_for_each_bound_says_how_many_were_refused() -> None:
    share = share_of(requests_per_second=10)
    over = Over(Bound.REQUESTS, 10, 0.1, 1)
    share.refuse(NOW, over)
    assert share.to_report(NOW, Bound.REQUESTS) == 1
    for _ in range(5):
        share.refuse(NOW + 1, over)
        assert share.to_report(NOW + 1, Bound.REQUESTS) is None
    share.refuse(NOW + 1, over._replace(bound=Bound.BYTES))
    assert share.to_report(NOW + 1, Bound.BYTES) == 1
    share.refuse(NOW + REPORT_SECONDS, over)
    assert share.to_report(NOW + REPORT_SECONDS, Bound.REQUESTS) == 6


def test_other_bounds_count_at_once_and_equal_ones_change_nothing() -> None:
    share = share_of(requests_per_second=1)
    assert taken(share, NOW, 9) == 1
    share.bound(UserQuota(requests_per_second=1))
    assert taken(share, NOW, 9) == 0
    share.bound(UserQuota(requests_per_second=3))
    assert taken(share, NOW, 9) == 3
    share.bound(UserQuota())
    assert taken(share, NOW, 9) == 9


def test_a_rate_that_was_never_used_begins_with_a_second_of_it() -> None:
    assert Rate(4).room(NOW, [1] * 9) == 4

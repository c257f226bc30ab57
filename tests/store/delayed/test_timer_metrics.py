"""How many timers wait for each topic: counted one by one, or at once from the timer log."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from store.delayed.timer_log import RecoveredUnits
from store.delayed.timer_metrics import Metric, TimerMetrics
from tandem.wire.request_headers import DataVersion

T0 = 1_700_000_000_000


class Clock:
    """A millisecond later with each look."""

    def __init__(self) -> None:
        self.now_ms = T0

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


def counts(metrics: TimerMetrics) -> dict[str, int]:
    return {topic: metric.count for topic, metric in metrics.shown.timing_count.items()}


def test_what_begins_to_wait_counts_until_it_waits_no_more() -> None:
    metrics = TimerMetrics(Clock())
    assert metrics.shown.data_version == DataVersion(0, T0 + 1, 0)
    metrics.enter("A", "A", cancels=False)
    metrics.enter("B", "B", cancels=False)
    metrics.enter("A", "A", cancels=False)
    assert metrics.shown.timing_count == {"A": Metric(2, T0 + 4), "B": Metric(1, T0 + 3)}
    assert metrics.shown.data_version == DataVersion(0, T0 + 4, 3)
    metrics.leave("B", cancels=False)
    assert counts(metrics) == {"A": 2}
    assert metrics.shown.data_version == DataVersion(0, T0 + 5, 4)


def test_what_cancels_takes_one_away_and_gives_it_back_when_their_slot_is_empty() -> None:
    metrics = TimerMetrics(Clock())
    metrics.enter("A", "A", cancels=True)
    assert counts(metrics) == {}
    metrics.enter("A", "A", cancels=False)
    assert counts(metrics) == {}
    metrics.enter("A", "A", cancels=False)
    assert counts(metrics) == {"A": 1}
    metrics.leave("A", cancels=False)
    metrics.leave("A", cancels=False)
    assert counts(metrics) == {}
    metrics.leave("A", cancels=True)
    metrics.enter("A", "A", cancels=False)
    assert counts(metrics) == {"A": 1}


def test_a_topic_of_the_timer_log_is_shown_when_its_name_was_read() -> None:
    metrics = TimerMetrics(Clock())
    metrics.build(units([(0, 65, False), (0, 66, False), (0, 65, False)]), T0)
    assert counts(metrics) == {}
    assert metrics.nameless(1) == [(65, 2)]
    before = metrics.shown.data_version
    metrics.give_name(65, "A")
    metrics.give_name(66, "")
    assert metrics.nameless(9) == []
    assert counts(metrics) == {"A": 2}
    assert metrics.shown.data_version != before
    metrics.enter(66, "B", cancels=False)
    metrics.leave(65, cancels=False)
    assert counts(metrics) == {"A": 1, "B": 2}


def test_when_nothing_waits_nothing_counts() -> None:
    metrics = TimerMetrics(Clock())
    metrics.clear()
    assert metrics.shown.data_version.counter == 0
    metrics.build(units([(0, 65, False)]), T0)
    metrics.enter("B", "B", cancels=False)
    metrics.clear()
    metrics.give_name(65, "A")
    assert (counts(metrics), metrics.nameless(9)) == ({}, [])


def units(found: list[tuple[int, int, bool]]) -> RecoveredUnits:
    return RecoveredUnits(
        positions=np.arange(len(found), dtype=np.int64),
        due_ms=np.array([T0 + second * 1000 for second, _, _ in found], np.int64),
        offsets=np.zeros(len(found), np.int64),
        is_delete=np.array([cancels for _, _, cancels in found], np.bool_),
        topic_hashes=np.array([topic_hash for _, topic_hash, _ in found], np.int64),
    )


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([-1, 65, 66]), st.booleans())),
    st.integers(0, 5),
)
def test_building_at_once_is_the_same_as_counting_one_by_one(
    found: list[tuple[int, int, bool]], from_second: int
) -> None:
    one_by_one, at_once = TimerMetrics(Clock()), TimerMetrics(Clock())
    at_once.build(units(found), T0 + from_second * 1000)
    for key, _ in at_once.nameless(9):
        at_once.give_name(key, str(key))
    for second, key, cancels in found:
        if second >= from_second:
            one_by_one.enter(key, str(key), cancels=cancels)
    assert counts(at_once) == counts(one_by_one)

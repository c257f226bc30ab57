import pytest

from node.tables.stats_item import StatsItem, TpsHistory
from tandem.wire.stats_requests import BrokerStatsItem

SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000


def test_an_item_without_a_snapshot_reads_as_nothing() -> None:
    item = StatsItem(0)
    item.value += 7
    item.times += 1
    assert item.minute == item.hour == item.day == BrokerStatsItem()


def test_the_first_snapshot_is_preceded_by_a_zero() -> None:
    item = StatsItem(0)
    item.value, item.times = 5, 2
    item.snapshot(100 * SECOND, hour=False, day=False)
    assert item.minute == BrokerStatsItem(avgpt=2.5, sum=5, tps=0.5)
    assert item.hour == item.day == BrokerStatsItem()
    item.snapshot(110 * SECOND, hour=True, day=True)
    assert item.hour == BrokerStatsItem(avgpt=2.5, sum=5, tps=5 / 600)
    assert item.day == BrokerStatsItem(avgpt=2.5, sum=5, tps=5 / 3600)


def test_a_minute_is_seven_snapshots_of_ten_seconds() -> None:
    item = StatsItem(0)
    for number in range(20):
        item.value += 10
        item.times += 1
        item.snapshot(number * 10 * SECOND, hour=False, day=False)
    assert item.minute == BrokerStatsItem(avgpt=10.0, sum=60, tps=1.0)


def test_a_day_is_25_snapshots_of_an_hour() -> None:
    item = StatsItem(0)
    for number in range(60):
        item.value += 100
        item.times += 1
        item.snapshot(number * HOUR, hour=True, day=True)
    assert item.day.sum == 2400
    assert item.hour.sum == 600


def test_what_does_not_grow_any_more_is_gone_from_its_window_and_known_as_idle() -> None:
    item = StatsItem(0)
    item.value = item.times = 3
    item.snapshot(10 * SECOND, hour=False, day=False)
    for number in range(2, 10):
        item.snapshot(number * 10 * SECOND, hour=False, day=False)
    assert item.minute == BrokerStatsItem()
    assert item.changed_ms == 10 * SECOND


def test_a_clock_that_stands_still_or_goes_back_makes_no_rate() -> None:
    history = TpsHistory()
    for now_ms in (5000, 5000):
        history.add(now_ms, now_ms)
    assert history.tps()[0] == 0.0


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        (1, [None, None, None]),
        (2, [1.0, None, None]),
        (7, [1.0, 1.0, None]),
        (61, [1.0, 1.0, 1.0]),
        (500, [1.0, 1.0, 1.0]),
    ],
)
def test_a_rate_is_known_once_its_span_is_over(looks: int, expected: list[float | None]) -> None:
    history = TpsHistory()
    for number in range(looks):
        history.add(number * 10 * SECOND, number * 10)
    assert history.tps() == expected

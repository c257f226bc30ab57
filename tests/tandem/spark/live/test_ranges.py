import random

import pytest

from tandem.client.results import MessageQueue
from tandem.spark.live.ranges import (
    GATHERED_RECORDS_MAX,
    Patience,
    QueueRange,
    admitted,
    backlog_of,
    cut_ranges,
)


def queue(number: int, broker: str = "a") -> MessageQueue:
    return MessageQueue("t", broker, number)


def a_range(number: int, start: int, end: int, broker: str = "a") -> QueueRange:
    return QueueRange(queue(number, broker), start, end, "cluster")


def random_ranges(chance: random.Random) -> list[QueueRange]:
    return [
        a_range(number, start, start + chance.choice((0, 1, 7, 5000, 50_000)), chance.choice("ab"))
        for number in range(chance.randrange(12))
        for start in (chance.randrange(1000),)
    ]


@pytest.mark.parametrize("seed", range(100))
def test_every_message_is_in_exactly_one_partition(seed: int) -> None:
    chance = random.Random(seed)
    ranges = random_ranges(chance)
    partitions = cut_ranges(
        ranges,
        min_partitions=chance.choice((None, 1, 5, 40)),
        max_records=chance.choice((None, 1000, 10_000)),
    )
    for each in ranges:
        pieces = sorted(piece for part in partitions for piece in part if piece.queue == each.queue)
        assert all(piece.cluster_name == "cluster" for piece in pieces)
        covered = [(piece.start, piece.end) for piece in pieces]
        places = [each.start, *(end for _, end in covered)] if covered else [each.start]
        assert [start for start, _ in covered] == places[: len(covered)]
        assert places[-1] == max(each.start, each.end)


@pytest.mark.parametrize("seed", range(50))
def test_a_partition_is_at_one_broker(seed: int) -> None:
    for partition in cut_ranges(random_ranges(random.Random(seed))):
        assert len({each.queue.broker_name for each in partition}) == 1


def test_a_partition_is_read_from_files_or_from_brokers() -> None:
    ranges = [part for each in range(3) for part in a_range(each, 0, 30).parts(10, 20, "/store")]
    partitions = cut_ranges(ranges)
    assert [{each.store for each in part} for part in partitions] == [{""}, {"/store"}]
    assert [sum(map(len, part)) for part in partitions] == [60, 30]


def test_short_ranges_share_a_task_and_long_ones_do_not() -> None:
    short = [a_range(number, 0, 10) for number in range(64)]
    assert len(cut_ranges(short)) == 1
    long = [a_range(number, 0, GATHERED_RECORDS_MAX) for number in range(8)]
    assert len(cut_ranges(long)) == 8


def test_an_empty_range_is_no_partition() -> None:
    assert cut_ranges([a_range(0, 5, 5), a_range(1, 9, 3)]) == []


def test_min_partitions_cuts_the_longest_first() -> None:
    parts = cut_ranges([a_range(0, 0, 90), a_range(1, 0, 10)], min_partitions=4)
    assert [(part[0].queue.queue_id, len(part[0])) for part in parts] == [
        (0, 30),
        (0, 30),
        (0, 30),
        (1, 10),
    ]


def test_min_partitions_wants_no_more_than_there_are_messages() -> None:
    parts = cut_ranges([a_range(0, 7, 10)], min_partitions=100)
    assert [(part[0].start, part[0].end) for part in parts] == [(7, 8), (8, 9), (9, 10)]


def test_max_records_bounds_each_partition() -> None:
    parts = cut_ranges([a_range(0, 0, 2500)], max_records=1000)
    assert [len(part[0]) for part in parts] == [833, 833, 834]


def test_with_both_limits_both_hold() -> None:
    parts = cut_ranges([a_range(0, 0, 2500)], max_records=1000, min_partitions=5)
    assert len(parts) == 5


@pytest.mark.parametrize("seed", range(200))
def test_a_limited_batch_is_as_large_as_allowed_and_fair(seed: int) -> None:
    chance = random.Random(seed)
    start = {queue(number): chance.randrange(1000) for number in range(chance.randrange(1, 9))}
    latest = {each: offset + chance.choice((0, 1, 10, 9999)) for each, offset in start.items()}
    limit = chance.choice((1, 2, 7, 100, 20_000))
    end = admitted(start, latest, limit)
    taken = {each: end[each] - start[each] for each in start}
    backlog = backlog_of(start, latest)
    assert sum(taken.values()) == min(limit, backlog)
    assert all(start[each] <= end[each] <= latest[each] for each in start)
    if backlog > limit:
        for each, offset in start.items():
            fair = limit * (latest[each] - offset) / backlog
            assert abs(taken[each] - fair) < 1


def test_a_queue_without_a_start_is_not_counted() -> None:
    assert backlog_of({}, {queue(0): 5}) == 0
    assert admitted({}, {queue(0): 5, queue(1): 7}, 3) == {queue(0): 5, queue(1): 7}


class TestPatience:
    def test_the_first_batch_never_waits(self) -> None:
        assert Patience(100, 60.0, lambda: 0.0).is_over(0)

    def test_a_small_batch_waits_until_it_is_large_or_late(self) -> None:
        now = [0.0]
        patience = Patience(100, 60.0, lambda: now[0])
        assert patience.is_over(1)
        now[0] = 59.0
        assert not patience.is_over(99)
        assert patience.is_over(100)
        now[0] = 118.0
        assert not patience.is_over(99)
        now[0] = 119.0
        assert patience.is_over(99)

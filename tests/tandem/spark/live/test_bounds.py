from collections.abc import Iterable

import pytest

from tandem.client.results import MessageQueue
from tandem.spark.errors import DataLossError, LossCause, OptionError
from tandem.spark.live.bounds import check_assigned, ending_offsets, starting_offsets
from tandem.spark.live.offsets import Offsets
from tandem.spark.live.options import Bound
from tests.tandem.spark.live.live_world import assigned, options, queue

QUEUES = [queue(0), queue(1)]


class Asked:
    """Queues with offsets 10 to 20, of which the first has nothing stored after 500 ms."""

    def min_offsets(self, queues: Iterable[MessageQueue]) -> Offsets:
        return dict.fromkeys(queues, 10)

    def max_offsets(self, queues: Iterable[MessageQueue]) -> Offsets:
        return dict.fromkeys(queues, 20)

    def offsets_at(self, queues: Iterable[MessageQueue], time_ms: int) -> Offsets:
        return {each: 20 if time_ms > 500 and not each.queue_id else 15 for each in queues}


def start(bound: Bound, **given: str) -> list[int]:
    return list(starting_offsets(bound, QUEUES, Asked(), options(**given)).values())


def end(bound: Bound) -> list[int]:
    return list(ending_offsets(bound, QUEUES, Asked()).values())


def places(first: int, second: int) -> Bound:
    return Bound("offsets", dict(zip(QUEUES, (first, second), strict=True)))


def test_earliest_and_latest() -> None:
    assert start(Bound("earliest")) == [10, 10]
    assert start(Bound("latest")) == [20, 20]
    assert end(Bound("latest")) == [20, 20]


def test_offsets_and_the_two_words_among_them() -> None:
    assert start(places(12, -2)) == [12, 10]
    assert start(places(-1, 20)) == [20, 20]
    assert end(places(11, -1)) == [11, 20]


def test_queues_that_are_assigned_have_to_be_there() -> None:
    queues = [*QUEUES, queue(4, "broker-b")]

    def check(assign: str) -> None:
        check_assigned(assigned(assign), queues)

    check('{"orders": [0, 1, 4]}')
    check('{"orders": {"broker-a": [0], "broker-b": [4]}}')
    check_assigned(options(), [])
    for wrong, words in (
        ('{"orders": [0, 7]}', "'orders' that are not there: 7"),
        ('{"orders": {"broker-b": [4, 0]}}', "not there: 0 at broker-b"),
        ('{"orders": [0], "events": [0]}', "'events' that are not there: 0"),
    ):
        with pytest.raises(OptionError, match=words) as caught:
            check(wrong)
        assert caught.value.names == ("assign",)


def test_every_queue_has_to_be_named() -> None:
    with pytest.raises(OptionError, match="no offset of orders broker-a 1") as caught:
        start(Bound("offsets", {queue(0): 12}))
    assert caught.value.names == ("startingOffsets",)


def test_no_other_queue_may_be_named() -> None:
    bound = Bound("offsets", {queue(0): 12, queue(1): 12, queue(2): 5})
    with pytest.raises(OptionError, match="orders broker-a 2") as caught:
        end(bound)
    assert caught.value.names == ("endingOffsets",)


def test_an_offset_beyond_the_end_is_no_place() -> None:
    for where in (start, end):
        with pytest.raises(OptionError, match="21 of orders broker-a 1, which ends at 20"):
            where(places(12, 21))


def test_what_was_deleted_is_lost() -> None:
    with pytest.raises(DataLossError, match="3 to 10 of queue 0") as caught:
        start(places(3, 12))
    assert (caught.value.cause, caught.value.start) == (LossCause.DELETED, 3)
    assert start(places(3, 12), failOnDataLoss="false") == [10, 12]


def test_a_time_begins_at_the_first_message_after_it() -> None:
    assert start(Bound("time", time_ms=100)) == [15, 15]
    assert end(Bound("time", time_ms=501)) == [20, 15]


def test_a_time_after_the_last_message_is_an_error_or_the_end() -> None:
    with pytest.raises(OptionError, match="orders broker-a 0") as caught:
        start(Bound("time", time_ms=501))
    assert caught.value.names == ("startingTimestamp",)
    found = start(Bound("time", time_ms=501), startingOffsetsByTimestampStrategy="latest")
    assert found == [20, 15]

"""The driver of a stream over a cluster of dictionaries, with a clock that moves by sleeping."""

import json
import random

import pytest

from tandem.spark.errors import DataLossError, LossCause
from tandem.spark.live.offsets import StreamOffset, stream_offset
from tandem.spark.live.stream_plan import StreamPlan
from tests.support.logged import logged
from tests.tandem.spark.live.live_world import Asked, FakeTime, options, queue

PLAN = "tandem.spark.live.stream_plan"
LOSSES_OF = "tandem.spark.live.data_loss"


class Stream:
    """What Spark does with a plan: offsets go through JSON, batches follow one another."""

    def __init__(self, asked: Asked, **given: str) -> None:
        self.asked = asked
        self.time = FakeTime()
        self.given = given
        self.plan = self.restarted()
        self.at = self.json(self.plan.initial())

    def restarted(self) -> StreamPlan:
        parsed = options(**self.given)
        return StreamPlan(parsed, self.asked, clock=self.time.monotonic, sleep=self.time.sleep)

    def json(self, offset: StreamOffset) -> StreamOffset:
        return stream_offset(json.loads(json.dumps(offset.as_json())))

    def end(self, records_max: int | None = None) -> StreamOffset:
        return self.json(self.plan.next_end(self.at, records_max))

    def read(self, end: StreamOffset) -> dict[int, tuple[int, int]]:
        return {
            each.queue.queue_id: (each.start, each.end)
            for each in self.plan.ranges(self.at, end)
            if len(each)
        }

    def batch(self, records_max: int | None = None) -> dict[int, tuple[int, int]]:
        end = self.end(records_max)
        found = self.read(end)
        self.at = end
        return found

    def later(self, seconds: float = 5.0) -> None:
        self.time.now += seconds


def test_a_stream_begins_at_the_end_unless_told_otherwise() -> None:
    stream = Stream(Asked(q0=5, q1=7))
    assert stream.batch() == {}
    stream.asked.ends[queue(1)] = 9
    assert stream.batch() == {1: (7, 9)}
    assert stream.batch() == {}


def test_from_the_earliest_on() -> None:
    asked = Asked(q0=5, q1=7)
    asked.firsts[queue(1)] = 3
    assert Stream(asked, startingOffsets="earliest").batch() == {0: (0, 5), 1: (3, 7)}


def test_with_nothing_new_the_offset_stays_what_it_was() -> None:
    stream = Stream(Asked(q0=5))
    assert stream.end() == stream.at


def test_a_limited_batch_takes_a_share_of_each_queue() -> None:
    stream = Stream(Asked(q0=60, q1=30), startingOffsets="earliest")
    assert stream.batch(9) == {0: (0, 6), 1: (0, 3)}
    assert stream.batch(9) == {0: (6, 12), 1: (3, 6)}


def test_the_first_batch_is_the_same_when_it_is_made_again() -> None:
    """The process dies before Spark has noted that the first batch is done: "latest" has moved."""
    stream = Stream(Asked(q0=5))
    stream.asked.ends[queue(0)] = 8
    end = stream.end()
    assert stream.read(end) == {0: (5, 8)}
    stream.asked.ends[queue(0)] = 100
    stream.plan = stream.restarted()
    stream.at = stream.json(stream.plan.initial())
    assert stream.read(end) == {0: (5, 8)}
    stream.at = end
    assert stream.batch() == {0: (8, 100)}


def test_only_the_first_batch_says_where_it_began() -> None:
    stream = Stream(Asked(q0=5))
    stream.asked.ends[queue(0)] = 6
    stream.batch()
    assert stream.at.started_at == {queue(0): 5}
    stream.asked.ends[queue(0)] = 7
    stream.batch()
    assert stream.at.started_at is None


class TestQueuesThatComeAndGo:
    def test_a_new_one_is_read_from_its_earliest_message_on(self) -> None:
        stream = Stream(Asked(q0=5))
        stream.asked.ends[queue(1)] = 9
        stream.asked.firsts[queue(1)] = 2
        stream.later()
        assert stream.batch() == {1: (2, 9)}
        assert stream.batch() == {}

    def test_also_if_its_batch_is_limited(self) -> None:
        stream = Stream(Asked(q0=5))
        stream.asked.ends |= {queue(0): 15, queue(1): 10}
        stream.later()
        assert stream.batch(10) == {0: (5, 10), 1: (0, 5)}
        assert stream.batch(10) == {0: (10, 15), 1: (5, 10)}

    def test_queues_are_looked_for_every_two_seconds(self) -> None:
        stream = Stream(Asked(q0=5))
        stream.end()
        stream.asked.ends[queue(1)] = 9
        assert stream.batch() == {}
        stream.later()
        assert stream.batch() == {1: (0, 9)}

    def test_one_that_is_gone_is_an_error_after_a_while(self) -> None:
        stream = Stream(Asked(q0=5, q1=5))
        del stream.asked.ends[queue(1)]
        with pytest.raises(DataLossError, match="queue 1 ") as caught:
            stream.end()
        assert caught.value.cause is LossCause.GONE
        assert stream.time.now >= 1015

    def test_or_it_is_read_no_more(self) -> None:
        stream = Stream(Asked(q0=5, q1=5), failOnDataLoss="false")
        del stream.asked.ends[queue(1)]
        assert stream.batch() == {}
        assert list(stream.at.places) == [queue(0)]
        since = stream.time.now
        stream.batch()
        assert stream.time.now - since < 1

    def test_one_that_is_away_for_a_moment_is_not_lost(self) -> None:
        stream = Stream(Asked(q0=5, q1=5))
        del stream.asked.ends[queue(1)]
        sleep = stream.time.sleep

        def come_back(seconds: float) -> None:
            sleep(seconds)
            if stream.time.now > 1008:
                stream.asked.ends[queue(1)] = 6

        stream.plan._sleep = come_back
        assert stream.batch() == {1: (5, 6)}

    def test_one_that_is_shorter_is_an_error_after_a_while(self) -> None:
        stream = Stream(Asked(q0=5))
        stream.asked.ends[queue(0)] = 3
        with pytest.raises(DataLossError) as caught:
            stream.end()
        assert caught.value.cause is LossCause.CUT
        assert stream.time.now >= 1015

    def test_or_it_is_read_anew(self) -> None:
        stream = Stream(Asked(q0=50), failOnDataLoss="false")
        stream.asked.ends[queue(0)] = 3
        assert stream.batch() == {0: (0, 3)}
        stream.asked.ends[queue(0)] = 4
        assert stream.batch() == {0: (3, 4)}

    def test_one_line_says_that_one_is_missing_and_one_that_it_is_lost(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        stream = Stream(Asked(q0=5, q1=5, q2=5), failOnDataLoss="false")
        del stream.asked.ends[queue(1)], stream.asked.ends[queue(2)]
        for _ in range(20):
            stream.batch()
        assert len(logged(caplog, PLAN)) == 1
        assert [args[0] for args in logged(caplog, LOSSES_OF)] == [2]

    def test_and_one_that_it_is_there_again(self, caplog: pytest.LogCaptureFixture) -> None:
        stream = Stream(Asked(q0=5, q1=5), failOnDataLoss="false")
        away = stream.asked.ends.pop(queue(1))
        sleep = stream.time.sleep

        def come_back(seconds: float) -> None:
            sleep(seconds)
            if stream.time.now > 1008:
                stream.asked.ends[queue(1)] = away

        stream.plan._sleep = come_back
        for _ in range(20):
            stream.batch()
        assert len(logged(caplog, PLAN)) == 2
        assert logged(caplog, LOSSES_OF) == []

    def test_one_that_was_deleted_and_comes_again_is_read_from_its_first_message_on(self) -> None:
        stream = Stream(Asked(q0=5, q1=5), failOnDataLoss="false")
        del stream.asked.ends[queue(1)]
        assert stream.batch() == {}
        stream.asked.ends[queue(1)] = 40
        stream.later()
        assert stream.batch() == {1: (0, 40)}
        stream.asked.ends[queue(1)] = 41
        assert stream.batch() == {1: (40, 41)}

    def test_one_that_was_made_anew_and_has_as_many_messages_is_not_told_apart(self) -> None:
        """Offsets are all that a queue has; Kafka's source cannot tell them, either."""
        stream = Stream(Asked(q0=5))
        stream.asked.ends[queue(0)] = 9
        assert stream.batch() == {0: (5, 9)}


class TestAvailableNow:
    def test_nothing_that_comes_later_is_read(self) -> None:
        stream = Stream(Asked(q0=5), startingOffsets="earliest")
        stream.plan.fix_end()
        stream.asked.ends |= {queue(0): 9, queue(1): 5}
        stream.later()
        assert stream.batch() == {0: (0, 5)}
        assert stream.end() == stream.at

    def test_it_ends_also_with_a_limit_and_with_a_minimum(self) -> None:
        given = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "100"}
        stream = Stream(Asked(q0=5), **given)
        stream.plan.fix_end()
        assert [stream.batch(2) for _ in range(4)] == [{0: (0, 2)}, {0: (2, 4)}, {0: (4, 5)}, {}]

    def test_a_queue_of_the_checkpoint_that_is_gone_does_not_hold_it_up(self) -> None:
        stream = Stream(Asked(q0=5, q1=5), failOnDataLoss="false")
        del stream.asked.ends[queue(1)]
        stream.later()
        stream.plan.fix_end()
        assert stream.batch() == {}
        assert list(stream.at.places) == [queue(0)]
        assert stream.end() == stream.at

    @pytest.mark.parametrize("end", [None, 3])
    def test_a_queue_that_is_deleted_after_the_end_was_fixed_is_read_no_further(
        self, end: int | None
    ) -> None:
        stream = Stream(Asked(q0=5, q1=5), failOnDataLoss="false")
        stream.asked.ends |= {queue(0): 30, queue(1): 30}
        stream.plan.fix_end()
        del stream.asked.ends[queue(1)]
        if end is not None:
            stream.asked.ends[queue(1)] = end
        stream.later()
        expected = {0: (5, 30)} if end is None else {0: (5, 30), 1: (0, 3)}
        assert stream.batch() == expected
        assert stream.batch() == {}

    def test_a_queue_that_is_shorter_only_for_a_moment_is_not_lost(self) -> None:
        stream = Stream(Asked(q0=50))
        stream.asked.ends[queue(0)] = 3
        stream.plan.fix_end()
        stream.asked.ends[queue(0)] = 52
        assert stream.batch() == {0: (50, 52)}
        assert stream.end() == stream.at


MODES = {
    "live": (False, None, {}),
    "live, limited": (False, 10, {}),
    "live, with a minimum": (False, None, {"minOffsetsPerTrigger": "1000"}),
    "available now": (True, None, {}),
    "available now, limited": (True, 10, {}),
    "available now, with a minimum": (True, None, {"minOffsetsPerTrigger": "1000"}),
}

LOSSES = {
    "gone": (LossCause.GONE, None),
    "shorter": (LossCause.CUT, 3),
    "empty": (LossCause.CUT, 0),
}


@pytest.mark.parametrize("has_restarted", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", LOSSES)
def test_what_is_lost_is_noticed_in_every_mode(how: str, mode: str, *, has_restarted: bool) -> None:
    ends_now, records_max, given = MODES[mode]
    for fails in ("true", "false"):
        stream = Stream(Asked(q0=50, q1=50), failOnDataLoss=fails, **given)
        if has_restarted:
            stream.plan = stream.restarted()
        cause, end = LOSSES[how]
        if end is None:
            del stream.asked.ends[queue(1)]
        else:
            stream.asked.ends[queue(1)] = end
        stream.later()
        if ends_now:
            stream.plan.fix_end()
        if fails == "true":
            with pytest.raises(DataLossError, match="queue 1 ") as caught:
                stream.batch(records_max)
            assert caught.value.cause is cause
            continue
        read = [stream.batch(records_max) for _ in range(3)]
        assert [part[1] for part in read if 1 in part] == ([(0, 3)] if end == 3 else [])


def test_a_small_batch_waits_for_more_or_for_its_time() -> None:
    given = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "60s"}
    stream = Stream(Asked(q0=0), **given)
    stream.batch()
    stream.asked.ends[queue(0)] = 9
    assert stream.batch() == {}
    stream.asked.ends[queue(0)] = 10
    assert stream.batch() == {0: (0, 10)}
    stream.asked.ends[queue(0)] = 11
    assert stream.batch() == {}
    stream.later(61)
    assert stream.batch() == {0: (10, 11)}


def test_an_idle_stream_does_not_flood_the_brokers() -> None:
    stream = Stream(Asked(q0=5))
    for _ in range(100):
        stream.end()
    assert stream.time.now - 1000 >= 4.9


@pytest.mark.parametrize("seed", range(100))
def test_batches_follow_one_another_without_gap_or_repeat(seed: int) -> None:
    chance = random.Random(seed)
    asked = Asked(q0=chance.randrange(50), q1=chance.randrange(50))
    stream = Stream(asked, startingOffsets="earliest")
    read: dict[int, int] = {}
    for number in range(60):
        for each in asked.ends:
            asked.ends[each] += chance.choice((0, 0, 3, 40))
        if chance.random() < 0.1:
            asked.ends[queue(len(asked.ends))] = chance.randrange(20)
        stream.later(chance.choice((0.0, 3.0)))
        end = stream.end(chance.choice((None, 5, 30)))
        if chance.random() < 0.3:  # Spark makes the batch again in another process
            stream.plan = stream.restarted()
            if number == 0 or stream.at.is_initial:
                stream.at = stream.json(stream.plan.initial())
        for queue_id, (start, stop) in stream.read(end).items():
            assert read.get(queue_id, 0) == start
            read[queue_id] = stop
        stream.at = end
    stream.later()
    while (end := stream.end(30)) != stream.at:
        for queue_id, (start, stop) in stream.read(end).items():
            assert read.get(queue_id, 0) == start
            read[queue_id] = stop
        stream.at = end
    assert read == {each.queue_id: end for each, end in asked.ends.items() if end}


def test_a_queue_that_is_made_anew_is_read_from_where_it_begins_then() -> None:
    stream = Stream(Asked(q0=5), failOnDataLoss="false")
    stream.asked.ends[queue(1)], stream.asked.firsts[queue(1)] = 120, 100
    stream.later()
    assert stream.batch() == {1: (100, 120)}
    stream.asked.ends[queue(1)], stream.asked.firsts[queue(1)] = 50, 0
    stream.later()
    assert stream.batch() == {1: (0, 50)}

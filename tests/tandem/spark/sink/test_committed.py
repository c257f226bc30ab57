from collections import defaultdict
from types import SimpleNamespace

import pytest

from tandem.client.cluster_access import ClusterAccess
from tandem.client.errors import BrokerError, ClientError
from tandem.client.results import MessageQueue
from tandem.spark.errors import SparkSourceError
from tandem.spark.sink.committed import CommittedBatches, group_of_query
from tandem.spark.sink.options import SinkOptions

OPTIONS = SinkOptions(ClusterAccess("h:1"), "t", skip_committed=True)
A0, A1, B1, B2 = (MessageQueue("t", *place) for place in (("a", 0), ("a", 1), ("b", 1), ("b", 2)))


class Brokers:
    """Offsets of groups, as a consumer asks for them and sets them."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, MessageQueue], int] = {}
        self.down: set[str] = set()
        self.asked: dict[str, int] = defaultdict(int)

    def questions(self, core: None, group: str) -> "Questions":
        return Questions(self, group)


class Thread:
    """A client that has the answer to a question as soon as it is asked."""

    client = SimpleNamespace(core=None, shell=SimpleNamespace(run=None))

    @staticmethod
    def run(_: None, answer: object) -> object:
        return answer


class Questions:
    def __init__(self, brokers: Brokers, group: str) -> None:
        self._brokers = brokers
        self._group = group

    def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        assert topic == "t"
        return [B2, A1, B1, A0]

    def fetch_consume_offset(self, queue: MessageQueue) -> int | None:
        self._check(queue)
        return self._brokers.offsets.get((self._group, queue))

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        self._check(queue)
        self._brokers.offsets[self._group, queue] = offset

    def _check(self, queue: MessageQueue) -> None:
        if queue.broker_name in self._brokers.down:
            raise BrokerError(1, "down", "h:2")


def of(brokers: Brokers, query: str = "q") -> CommittedBatches:
    return CommittedBatches(OPTIONS, query, Thread(), brokers.questions)  # type: ignore[arg-type]


def test_the_number_of_written_batches_is_at_the_first_queue_of_each_broker() -> None:
    brokers = Brokers()
    assert of(brokers).count() == 0
    of(brokers).record(4)
    assert brokers.offsets == {("SPARK-SINK-q", A0): 5, ("SPARK-SINK-q", B1): 5}
    assert of(brokers).count() == 5
    assert of(brokers, "other").count() == 0


def test_each_batch_is_noted_and_one_that_comes_again_changes_nothing() -> None:
    brokers = Brokers()
    for batch in (0, 1, 1, 2):
        of(brokers).record(batch)
        assert of(brokers).count() == batch + 1
    of(brokers).record(0)
    assert of(brokers).count() == 3


def test_the_highest_number_counts_and_none_is_lowered() -> None:
    brokers = Brokers()
    brokers.offsets["SPARK-SINK-q", B1] = 9
    assert of(brokers).count() == 9
    of(brokers).record(4)
    assert brokers.offsets == {("SPARK-SINK-q", A0): 5, ("SPARK-SINK-q", B1): 9}


def test_what_no_broker_says_is_an_error_that_names_the_group() -> None:
    brokers = Brokers()
    brokers.down = {"a"}
    for ask in (lambda: of(brokers).count(), lambda: of(brokers).record(0)):
        with pytest.raises(SparkSourceError) as caught:
            ask()
        assert caught.value.args[1] == "SPARK-SINK-q"
        assert isinstance(caught.value.__cause__, ClientError)


def test_the_group_has_a_name_that_brokers_take() -> None:
    assert group_of_query("8f3b-1") == "SPARK-SINK-8f3b-1"
    assert group_of_query("a b/ü") == "SPARK-SINK-a-b--"

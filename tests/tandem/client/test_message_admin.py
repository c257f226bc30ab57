import msgspec
import pytest

from tandem.client.errors import (
    BrokerError,
    ConnectionCause,
    ConnectionLostError,
    MessageNotFoundError,
    RouteCause,
    RouteNotFoundError,
)
from tandem.client.message_admin import AGAIN, CONSUMED, DEAD, NOT_YET
from tandem.wire.message import Host, MessageExt, offset_msg_id
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import MessageQueueBody, OffsetResponseHeader, TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import encode_json_body
from tandem.wire.stats_requests import (
    ConsumeStats,
    GroupList,
    OffsetWrapper,
    TopicOffset,
    TopicStatsTable,
    queue_map,
)
from tandem.wire.system_topics import SCHEDULE_TOPIC
from tests.tandem.client.admin_bench import AdminBench, by_queue, records
from tests.tandem.client.fake_broker import MASTER, OTHER_MASTER, SLAVE, answer_to, message_ext

KEY = "7F0000012D2019C18436716E4DDC0000"
HOST = Host("10.0.0.1", 10_911)


def stored(topic: str = "T", offset: int = 0, *, at_ms: int = 0, **changes: object) -> MessageExt:
    message = message_ext(
        topic=topic, queue_offset=offset, properties={"UNIQ_KEY": KEY, "KEYS": "k1 k2"}
    )
    facts = {"store_host": HOST, "store_timestamp_ms": 1_000 + at_ms, **changes}
    return msgspec.structs.replace(message, **facts)


class World(AdminBench):
    """An index that has `messages` at broker-a, and a queue that group g has read up to `read`."""

    def __init__(self, *messages: MessageExt, read: int = 0, retried: int = 0) -> None:
        super().__init__()
        self.indexed = messages
        self.answer(RequestCode.QUERY_MESSAGE, self._query)
        self.answer(RequestCode.VIEW_MESSAGE_BY_ID, self._view)
        pull = self.brokers[MASTER].handlers[RequestCode.PULL_MESSAGE]
        self.answer(
            RequestCode.PULL_MESSAGE, lambda request, name: pull(request) or answer_to(request)
        )
        self.answer(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            lambda request, name: answer_to(request, ext=OffsetResponseHeader(0)),
        )
        self.bodies(RequestCode.GET_TOPIC_CONFIG, lambda _: TopicConfig("T"))
        self.bodies(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, lambda _: GroupList(["g"]))
        self.refuse(RequestCode.GET_CONSUMER_CONNECTION_LIST, ResponseCode.CONSUMER_NOT_ONLINE)
        progress = [
            (MessageQueueBody("broker-a", 0, "T"), OffsetWrapper(9, read, 0, read)),
            (MessageQueueBody("broker-a", 0, "%RETRY%g"), OffsetWrapper(9, retried, 0, retried)),
        ]
        self.bodies(RequestCode.GET_CONSUME_STATS, lambda _: ConsumeStats(0.0, queue_map(progress)))

    def _query(self, request: RemotingCommand, name: str) -> RemotingCommand:
        topic = request.ext_fields()["topic"]
        found = [each for each in self.indexed if each.topic == topic and name == "broker-a"]
        return records(request, *found)

    def _view(self, request: RemotingCommand, name: str) -> RemotingCommand:
        offset = int(request.ext_fields()["offset"])
        found = [each for each in self.indexed if each.physical_offset == offset]
        if not found:
            return answer_to(request, ResponseCode.SYSTEM_ERROR, remark="can not find message")
        return records(request, *found)

    def hold(self, *messages: MessageExt) -> None:
        """Have these in queue 0 of broker-a."""
        queue = self.brokers[MASTER].queues.setdefault((messages[0].topic, 0), [])
        queue += messages
        self.bodies(
            RequestCode.GET_TOPIC_STATS_INFO,
            lambda name: TopicStatsTable(
                by_queue(name, [(0, TopicOffset(0, len(messages) * (name == "broker-a"), 0))]), 0.0
            ),
        )


def test_a_message_is_found_by_its_place() -> None:
    message = stored(offset=3, physical_offset=77)
    world = World(message)
    found = world.run(world.messages.by_id(message.offset_msg_id, ""))
    assert found.queue_offset == 3
    # That a node of another group has something there proves nothing.
    assert world.shell.calls_to(RequestCode.VIEW_MESSAGE_BY_ID) == [MASTER, OTHER_MASTER]


def test_its_place_is_known_by_every_node_of_the_group() -> None:
    world = World(stored(physical_offset=77))
    world.shell.failures[MASTER] = [ConnectionLostError(MASTER, ConnectionCause.ENDED, "gone")]
    assert world.run(world.messages.by_id(offset_msg_id(HOST, 77), "")).physical_offset == 77
    assert world.shell.calls_to(RequestCode.VIEW_MESSAGE_BY_ID)[:2] == [MASTER, SLAVE]


@pytest.mark.parametrize(
    "message_id", ["x", KEY, offset_msg_id(Host("9.9.9.9", 1), 77), offset_msg_id(HOST, 78), ""]
)
def test_a_message_that_is_nowhere_is_an_error_with_a_remedy(message_id: str) -> None:
    world = World(stored(physical_offset=77))
    with pytest.raises(MessageNotFoundError) as caught:
        world.run(world.messages.by_id(message_id, ""))
    assert caught.value.needs_topic
    with pytest.raises(MessageNotFoundError):
        world.run(world.messages.by_id(message_id, "X"))


def test_a_refusal_is_not_taken_for_a_message_that_is_nowhere() -> None:
    world = World(stored(physical_offset=77))
    world.refuse(RequestCode.VIEW_MESSAGE_BY_ID, ResponseCode.NO_PERMISSION)
    with pytest.raises(BrokerError):
        world.run(world.messages.by_id(offset_msg_id(HOST, 77), ""))


def test_with_its_topic_a_message_is_found_by_its_unique_key() -> None:
    world = World(stored(offset=3))
    assert world.run(world.messages.by_id(KEY, "T")).queue_offset == 3
    _, request = world.requests(RequestCode.QUERY_MESSAGE)[0]
    assert request.ext_fields()["_UNIQUE_KEY_QUERY"] == "true"


def test_the_newest_messages_with_a_key_are_found() -> None:
    world = World(*(stored(offset=each, at_ms=each) for each in (2, 0, 1)))
    everything = {"begin_ms": 0, "end_ms": 10_000}
    found = world.run(world.messages.by_key("T", "k2", count_max=2, **everything))
    assert [each.queue_offset for each in found] == [1, 2]
    # Hashes are in an index: what has another key is not what was looked for.
    assert world.run(world.messages.by_key("T", "k", count_max=2, **everything)) == []


def test_messages_of_a_time_are_read_from_their_queues() -> None:
    world = World()
    world.hold(*(stored(offset=each, at_ms=each) for each in range(5)))
    found = world.run(world.messages.by_time("T", from_ms=1_001, to_ms=1_004, count_max=9))
    assert [each.queue_offset for each in found] == [1, 2, 3]
    found = world.run(world.messages.by_time("T", from_ms=1_000, to_ms=9_000, count_max=2))
    assert [each.queue_offset for each in found] == [0, 1]


def test_all_messages_of_a_topic_are_read() -> None:
    world = World()
    world.hold(*(stored("%DLQ%g", each) for each in range(3)))
    assert len(world.run(world.messages.all_of("%DLQ%g", count_max=100))) == 3
    assert len(world.run(world.messages.all_of("%DLQ%g", count_max=2))) == 2


def fate_of(world: World) -> tuple[str, int, list[str]]:
    world.hold(stored())
    (fate,) = world.run(world.messages.trace("T", KEY)).groups
    assert fate.group == "g"
    return fate.state, fate.times, [place.topic for place in fate.places]


RETRY = stored("%RETRY%g", 0, at_ms=5, reconsume_times=1)
LETTER = stored("%DLQ%g", 0, at_ms=9, reconsume_times=2)
WAITS = msgspec.structs.replace(
    stored(SCHEDULE_TOPIC, 0, at_ms=3),
    properties={"UNIQ_KEY": KEY, "REAL_TOPIC": "%RETRY%g"},
)


def test_what_became_of_a_message_is_told_by_offsets_retries_and_dead_letters() -> None:
    assert fate_of(World(stored(), read=0)) == (NOT_YET, 0, [])
    assert fate_of(World(stored(), read=1)) == (CONSUMED, 1, [])
    assert fate_of(World(stored(), WAITS, read=1)) == (AGAIN, 1, [])
    assert fate_of(World(stored(), WAITS, RETRY, read=1)) == (AGAIN, 1, ["%RETRY%g"])
    retried = World(stored(), WAITS, RETRY, read=1, retried=1)
    assert fate_of(retried) == (CONSUMED, 2, ["%RETRY%g"])
    dead = World(stored(), WAITS, RETRY, LETTER, read=1, retried=1)
    assert fate_of(dead) == (DEAD, 2, ["%RETRY%g", "%DLQ%g"])


class Queues(AdminBench):
    """A topic with queues of messages at two brokers, each a list of times of storing."""

    def __init__(self, queues: dict[tuple[str, int], list[int]], *, body: bytes = b"b") -> None:
        super().__init__()
        for (name, queue_id), times in queues.items():
            address = MASTER if name == "broker-a" else OTHER_MASTER
            self.brokers[address].queues["T", queue_id] = [
                stored(
                    offset=at, store_timestamp_ms=time, queue_id=queue_id, body=body,
                    physical_offset=100 * at + queue_id,
                )
                for at, time in enumerate(times)
            ]  # fmt: skip
        self.answer(
            RequestCode.GET_TOPIC_STATS_INFO,
            lambda request, name: answer_to(
                request,
                body=encode_json_body(
                    TopicStatsTable(
                        by_queue(
                            name,
                            [
                                (queue_id, TopicOffset(0, len(times), 0))
                                for (of, queue_id), times in queues.items()
                                if of == name
                            ],
                        ),
                        0.0,
                    )
                ),
            ),
        )

        def offset(request: RemotingCommand, name: str) -> RemotingCommand:
            fields = request.ext_fields()
            times = queues[name, int(fields["queueId"])]
            at = sum(each < int(fields["timestamp"]) for each in times)
            return answer_to(request, ext=OffsetResponseHeader(at))

        self.answer(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, offset)


SPREAD = {
    ("broker-a", 0): [10, 30, 30, 50, 70],
    ("broker-a", 1): [20, 30, 60],
    ("broker-b", 0): [15, 30, 40, 80],
}


def test_pages_of_a_time_have_each_message_once_in_order() -> None:
    world = Queues(SPREAD)
    times: list[int] = []
    from_ms, skip = 0, 0
    for _ in range(20):
        page = world.run(
            world.messages.page_by_time("T", from_ms=from_ms, to_ms=80, skip=skip, count_max=2)
        )
        times += [each.message.store_timestamp_ms for each in page.messages]
        if page.is_whole:
            break
        last = times[-1]
        of_page = [each.message.store_timestamp_ms for each in page.messages]
        skip = of_page.count(last) + (skip if last == from_ms else 0)
        from_ms = last
    assert times == [10, 15, 20, 30, 30, 30, 30, 40, 50, 60, 70]


def test_a_page_of_a_time_ends_with_its_bytes_and_has_one_message_at_least() -> None:
    world = Queues(SPREAD, body=b"x" * 100)
    page = world.run(world.messages.page_by_time("T", from_ms=0, count_max=9, bytes_max=150))
    assert (len(page.messages), page.is_whole) == (2, False)
    page = world.run(world.messages.page_by_time("T", from_ms=0, count_max=9, bytes_max=1))
    assert [each.broker_name for each in page.messages] == ["broker-a"]
    nothing = world.run(world.messages.page_by_time("T", from_ms=99))
    assert (nothing.messages, nothing.is_whole) == ([], True)


def test_a_queue_is_read_from_an_offset_on() -> None:
    world = Queues(SPREAD)
    page = world.run(world.messages.page_of_queue("T", 1, 1, count_max=1))
    assert [each.message.queue_offset for each in page.messages] == [1]
    assert not page.is_whole
    page = world.run(world.messages.page_of_queue("T", 1, 2, broker_name="broker-a"))
    assert [each.message.queue_offset for each in page.messages] == [2]
    assert page.is_whole
    assert world.run(world.messages.page_of_queue("T", 1, 3)).is_whole
    assert world.run(world.messages.page_of_queue("T", 1, -5, count_max=1)).messages


@pytest.mark.parametrize(("queue_id", "broker"), [(7, ""), (0, ""), (0, "broker-c")])
def test_a_queue_has_to_be_one(queue_id: int, broker: str) -> None:
    world = Queues(SPREAD)
    with pytest.raises(RouteNotFoundError) as caught:
        world.run(world.messages.page_of_queue("T", queue_id, 0, broker_name=broker))
    assert caught.value.cause is RouteCause.NO_QUEUE

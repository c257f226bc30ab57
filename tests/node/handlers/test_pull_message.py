import msgspec
import pytest
import trio
import trio.testing

from node.errors import RequestError
from node.handlers.pull_message import SUSPEND_MS_MAX, PullMessage
from node.remoting.caller import ANYBODY, Caller
from node.remoting.connection import OUT_BYTES_MAX
from store import PutMessage
from tandem.wire.access_control import Kind, Right
from tandem.wire.damaged_message import DamagedMessageHeader
from tandem.wire.message import decode_messages
from tandem.wire.remoting_command import RemotingCommand, SerializeType
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    ConsumerData,
    HeartbeatData,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    SubscriptionData,
    TopicConfig,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tests.node.doubles import NOW_MS, Broker, Client

PULL = RequestCode.PULL_MESSAGE
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4

HEADER = PullMessageRequestHeader(
    consumer_group="g",
    topic="T",
    queue_id=0,
    queue_offset=0,
    max_msg_nums=32,
    sys_flag=SUBSCRIPTION,
    commit_offset=0,
    suspend_timeout_millis=15_000,
    sub_version=0,
    subscription="*",
)


def header(**changes: object) -> PullMessageRequestHeader:
    return msgspec.structs.replace(HEADER, **changes)


def puller(broker: Broker) -> Client:
    pull = PullMessage(
        broker.store, broker.tables, broker.subscriptions, broker.holds, broker.resets, broker.stats
    )
    codes = (PULL, RequestCode.LITE_PULL_MESSAGE)
    return Client(dict.fromkeys(codes, pull.handle), broker.outbox)


def put(broker: Broker, *bodies: bytes, tag: str = "") -> None:
    properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
    for body in bodies:
        message = PutMessage("T", 0, body, properties, NOW_MS, b"\x0a\1\2\3\0\0\4\xd2")
        assert broker.store.puts.put_message(message).status == 0
    broker.store.announce()


def bodies(answer: RemotingCommand) -> list[bytes]:
    return [message.body for message in decode_messages(answer.body)]


def told(answer: RemotingCommand) -> tuple[int, int, int, int]:
    ext = answer.decode_header(PullMessageResponseHeader)
    return (ext.suggest_which_broker_id, ext.next_begin_offset, ext.min_offset, ext.max_offset)


@pytest.mark.parametrize("serialize_type", list(SerializeType))
@pytest.mark.parametrize("code", [PULL, RequestCode.LITE_PULL_MESSAGE])
async def test_records_come_as_stored(code: int, serialize_type: SerializeType) -> None:
    broker = Broker()
    put(broker, b"a", b"b", b"c")
    answer = puller(broker).call(code, header(queue_offset=1), serialize_type=serialize_type)
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert told(answer) == (0, 3, 0, 3)
    assert bodies(answer) == [b"b", b"c"]


STATUSES = {
    "at the end": (3, ResponseCode.PULL_NOT_FOUND, 3),
    "beyond the end": (9, ResponseCode.PULL_OFFSET_MOVED, 3),
    "below the start": (-2, ResponseCode.PULL_OFFSET_MOVED, 0),
}


@pytest.mark.parametrize(("offset", "code", "next_offset"), STATUSES.values(), ids=STATUSES.keys())
async def test_an_offset_outside_is_corrected(offset: int, code: int, next_offset: int) -> None:
    """PullMessageProcessor.composeResponseHeader."""
    broker = Broker()
    put(broker, b"a", b"b", b"c")
    answer = puller(broker).call(PULL, header(queue_offset=offset))
    assert answer.code == code
    assert told(answer) == (0, next_offset, 0, 3)


async def test_an_empty_queue_is_not_found_at_zero_and_moved_elsewhere() -> None:
    client = puller(Broker())
    assert client.call(PULL, HEADER).code == ResponseCode.PULL_NOT_FOUND
    answer = client.call(PULL, header(queue_offset=5))
    assert (answer.code, told(answer)[1]) == (ResponseCode.PULL_OFFSET_MOVED, 0)


async def test_what_no_tag_matches_is_skipped_for_good() -> None:
    broker = Broker()
    put(broker, b"a", b"b", tag="TagA")
    answer = puller(broker).call(PULL, header(subscription="TagB"))
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert told(answer)[1] == 2


async def test_tags_are_matched() -> None:
    broker = Broker()
    for tag in ("TagA", "TagB", "TagC"):
        put(broker, tag.encode(), tag=tag)
    answer = puller(broker).call(PULL, header(subscription="TagA || TagC"))
    assert bodies(answer) == [b"TagA", b"TagC"]


async def test_the_offset_that_comes_along_is_committed() -> None:
    broker = Broker()
    puller(broker).call(PULL, header(sys_flag=SUBSCRIPTION | COMMIT, commit_offset=7))
    assert broker.offsets.query("g", "T", 0) == 7
    puller(broker).call(PULL, header(commit_offset=9))
    assert broker.offsets.query("g", "T", 0) == 7


async def test_a_pull_that_may_wait_is_answered_when_a_message_comes(
    nursery: trio.Nursery,
) -> None:
    broker = Broker()
    nursery.start_soon(broker.holds.run)
    client = puller(broker)
    client.send(PULL, header(sys_flag=SUBSCRIPTION | SUSPEND))
    assert client.answers() == []
    put(broker, b"a", b"b")
    await trio.testing.wait_all_tasks_blocked()
    (answer,) = client.answers()
    assert bodies(answer) == [b"a", b"b"]
    nursery.cancel_scope.cancel()


async def test_a_pull_that_waited_in_vain_is_answered_empty_at_its_deadline(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    broker = Broker()
    nursery.start_soon(broker.holds.run)
    client = puller(broker)
    client.send(PULL, header(sys_flag=SUBSCRIPTION | SUSPEND))
    await trio.sleep(14.9)
    assert client.answers() == []
    await trio.sleep(0.2)
    (answer,) = client.answers()
    assert (answer.code, answer.body) == (ResponseCode.PULL_NOT_FOUND, b"")
    assert told(answer) == (0, 0, 0, 0)
    nursery.cancel_scope.cancel()


async def test_nobody_waits_longer_than_the_limit(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    broker = Broker()
    nursery.start_soon(broker.holds.run)
    client = puller(broker)
    for_ever = header(sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=1 << 60)
    client.send(PULL, for_ever)
    await trio.sleep(SUSPEND_MS_MAX / 1000 + 0.1)
    assert len(client.answers()) == 1
    nursery.cancel_scope.cancel()


async def test_a_pull_of_a_gone_client_is_dropped(nursery: trio.Nursery) -> None:
    broker = Broker()
    nursery.start_soon(broker.holds.run)
    client = puller(broker)
    client.send(PULL, header(sys_flag=SUBSCRIPTION | SUSPEND))
    client.connection.close()
    put(broker, b"a")
    await trio.testing.wait_all_tasks_blocked()
    assert client.answers() == []
    nursery.cancel_scope.cancel()


async def test_pulls_of_a_slow_client_are_run_as_it_reads(nursery: trio.Nursery) -> None:
    broker = Broker()
    nursery.start_soon(broker.holds.run)
    client = puller(broker)
    nursery.start_soon(client.connection.run_writer)
    client.stream.room = 0
    client.connection.write(bytes(OUT_BYTES_MAX + 1))
    client.send(PULL, header(sys_flag=SUBSCRIPTION | SUSPEND))
    put(broker, b"a")
    await trio.testing.wait_all_tasks_blocked()
    client.stream.make_room(OUT_BYTES_MAX + 1)
    await trio.testing.wait_all_tasks_blocked()
    assert len(client.stream.sent) == OUT_BYTES_MAX + 1
    client.stream.sent.clear()
    client.stream.make_room(1 << 20)
    await trio.testing.wait_all_tasks_blocked()
    (answer,) = client.stream.take_frames()
    assert bodies(answer) == [b"a"]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("offset", [0, 5])
async def test_a_slave_holds_what_it_does_not_have_yet(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, offset: int
) -> None:
    """RocketMQ's slave answers 20 at once, and the consumer spins while the master is dead."""
    broker = Broker(is_slave=True)
    nursery.start_soon(broker.holds.run)
    client = puller(broker)
    waiting = header(
        sys_flag=SUBSCRIPTION | SUSPEND, queue_offset=offset, suspend_timeout_millis=1000
    )
    client.send(PULL, waiting)
    await trio.sleep(0.9)
    assert client.answers() == []
    await trio.sleep(0.2)
    (answer,) = client.answers()
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert told(answer)[1] == offset
    nursery.cancel_scope.cancel()


REFUSED = {
    "unknown topic": (header(topic="nope"), ResponseCode.TOPIC_NOT_EXIST),
    "queue out of range": (header(queue_id=4), ResponseCode.INVALID_PARAMETER),
    "negative queue": (header(queue_id=-1), ResponseCode.INVALID_PARAMETER),
    "write-only topic": (header(topic="W"), ResponseCode.NO_PERMISSION),
    "bad SQL": (
        header(expression_type="SQL92", subscription="a >"),
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    ),
    "no tag": (header(subscription="||"), ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    "no heartbeat": (header(sys_flag=0), ResponseCode.SUBSCRIPTION_NOT_EXIST),
}


@pytest.mark.parametrize(("ext", "code"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_cannot_be_pulled_is_refused(
    ext: PullMessageRequestHeader, code: ResponseCode
) -> None:
    broker = Broker()
    broker.topics.update(TopicConfig(topic_name="W", perm=2))
    assert puller(broker).call(PULL, ext).code == code


async def test_the_subscription_of_the_heartbeat_is_used() -> None:
    broker = Broker()
    put(broker, b"a", tag="TagA")
    put(broker, b"b", tag="TagB")
    client = puller(broker)
    wanted = SubscriptionData("T", "TagB", 5)
    beat = HeartbeatData("c", consumer_data_set=[ConsumerData("g", subscription_data_set=[wanted])])
    broker.clients.heartbeat(beat, client.connection, 0)
    assert bodies(client.call(PULL, header(sys_flag=0, sub_version=5))) == [b"b"]
    too_new = client.call(PULL, header(sys_flag=0, sub_version=6))
    assert too_new.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    other = client.call(PULL, header(sys_flag=0, topic="TBW102"))
    assert other.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_what_is_set_for_a_group_decides_who_reads() -> None:
    broker = Broker()
    put(broker, b"a")
    client, tables = puller(broker), broker.tables
    tables.change_groups(SubscriptionGroupConfig("g", consume_enable=False))
    answer = client.call(PULL, header())
    assert answer.code == ResponseCode.NO_PERMISSION
    tables.change_groups(SubscriptionGroupConfig("g"))
    tables.forbid("g", "T", 1)
    answer = client.call(PULL, header())
    assert answer.code == ResponseCode.NO_PERMISSION
    tables.forbid("g", "T", 0)
    assert client.call(PULL, header()).code == 0
    assert client.call(PULL, header(consumer_group="a b")).code == 26


async def test_a_group_may_not_be_allowed_to_read_everything_everywhere() -> None:
    broker = Broker()
    put(broker, b"a")
    client = puller(broker)
    subscriptions = [SubscriptionData("T")]
    data = ConsumerData("g", message_model="BROADCASTING", subscription_data_set=subscriptions)
    beat = HeartbeatData("c1", consumer_data_set=[data])
    broker.clients.heartbeat(beat, client.connection, 0)
    assert client.call(PULL, header(sys_flag=0)).code == 0
    broker.tables.change_groups(SubscriptionGroupConfig("g", consume_broadcast_enable=False))
    answer = client.call(PULL, header(sys_flag=0))
    assert answer.code == ResponseCode.NO_PERMISSION


def put_numbers(broker: Broker, *numbers: int) -> None:
    for number in numbers:
        properties = f"n\x01{number}\x02".encode()
        message = PutMessage("T", 0, b"%d" % number, properties, NOW_MS, b"\x0a\1\2\3\0\0\4\xd2")
        assert broker.store.puts.put_message(message).status == 0
    broker.store.announce()


SQL = header(subscription="n > 5", expression_type="SQL92")


@pytest.mark.parametrize("is_fenced", [False, True])
async def test_an_expression_is_put_to_the_properties(*, is_fenced: bool) -> None:
    broker = Broker(is_fenced=is_fenced)
    put_numbers(broker, *range(10))
    if is_fenced:
        broker.store.confirm(broker.store.max_physical_offset)
    client = puller(broker)
    answer = client.call(PULL, SQL)
    assert (answer.code, bodies(answer)) == (0, [b"6", b"7", b"8", b"9"])
    assert told(answer) == (0, 10, 0, 10)


async def test_messages_that_nobody_wants_are_passed_over_at_once() -> None:
    broker = Broker()
    put_numbers(broker, *range(5))
    client = puller(broker)
    waits = msgspec.structs.replace(SQL, sys_flag=SUBSCRIPTION | SUSPEND)
    answer = client.call(PULL, waits)
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert told(answer) == (0, 5, 0, 5)


async def test_a_held_pull_by_properties_waits_for_a_message_it_wants(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    broker = Broker()
    put_numbers(broker, 1)
    client = puller(broker)
    waits = msgspec.structs.replace(SQL, sys_flag=SUBSCRIPTION | SUSPEND, queue_offset=1)
    nursery.start_soon(broker.holds.run)
    client.send(PULL, waits)
    for number in (2, 3):
        put_numbers(broker, number)
        await trio.sleep(1)
        assert client.answers() == []
        assert broker.holds.held_count == 1
    put_numbers(broker, 7)
    await trio.sleep(1)
    (answer,) = client.answers()
    assert (bodies(answer), told(answer)) == ([b"7"], (0, 4, 0, 4))
    client.send(PULL, msgspec.structs.replace(waits, queue_offset=4))
    put_numbers(broker, 1)
    await trio.sleep(20)
    (answer,) = client.answers()
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert told(answer) == (0, 5, 0, 5), "what was looked at is not looked at again"
    nursery.cancel_scope.cancel()


async def test_what_is_handed_out_is_counted_and_so_is_a_pull_in_vain() -> None:
    broker = Broker()
    client = puller(broker)
    put(broker, b"a", b"b", b"c")
    client.call(PULL, header(max_msg_nums=2))
    client.call(PULL, header(queue_offset=3, sys_flag=SUBSCRIPTION))
    nums, size = (broker.stats.find(f"GROUP_GET_{what}", "T@g") for what in ("NUMS", "SIZE"))
    assert nums is not None
    assert size is not None
    assert (nums.value, nums.times) == (2, 1)
    assert size.value * 3 == broker.store.max_physical_offset * 2
    assert broker.stats.pull_offset("g", "T", 0) == 2
    assert (broker.stats.found, broker.stats.missed) == (1, 1)


def damaged(broker: Broker, number: int) -> int:
    """Note the record of a message as bad; return where it is in the log."""
    queue = broker.store.queues.find("T", 0)
    assert queue is not None
    at, size, _ = queue.unit(number)
    broker.store.commit_log.damage.note(at, at + size, "its block differs")
    return at


async def test_a_damaged_record_is_an_error_that_clients_try_again() -> None:
    """5.3.3 hands it out. With an error its consumers come again in three seconds."""
    broker = Broker()
    put(broker, b"a", b"b", b"c")
    at = damaged(broker, 1)
    client = puller(broker)
    assert bodies(client.call(PULL, header(queue_offset=0))) == [b"a"]
    for sys_flag in (SUBSCRIPTION, SUBSCRIPTION | SUSPEND):
        answer = client.call(PULL, header(queue_offset=1, sys_flag=sys_flag))
        assert (answer.code, answer.body) == (ResponseCode.SERVICE_NOT_AVAILABLE, b"")
        assert answer.decode_header(DamagedMessageHeader) == DamagedMessageHeader(1, at)
        assert "nextBeginOffset" not in answer.ext_fields()
        for said in ("message 1 of queue 0 of topic 'T'", f"at {at}", "its block differs", "reset"):
            assert said in (answer.remark or "")
    broker.store.commit_log.damage.healed(0, at + 1000)
    assert bodies(client.call(PULL, header(queue_offset=1))) == [b"b", b"c"]


async def test_a_held_pull_that_meets_a_damaged_record_gets_the_error(
    nursery: trio.Nursery,
) -> None:
    broker = Broker()
    nursery.start_soon(broker.holds.run)
    put(broker, b"a")
    client = puller(broker)
    client.send(PULL, header(queue_offset=1, sys_flag=SUBSCRIPTION | SUSPEND))
    put(broker, b"b")
    damaged(broker, 1)
    broker.holds.run_again("T", 0)
    await trio.testing.wait_all_tasks_blocked()
    (answer,) = client.answers()
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_how_long_the_store_took_at_most_is_noted(
    mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    client = puller(broker)
    put(broker, b"x")
    get_message = broker.store.reads.get_message

    def slow(*arguments: object, **named: object) -> object:
        mock_clock.jump(seconds.pop())
        return get_message(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(broker.store.reads, "get_message", slow)
    seconds = [0.25, 0.5, 0.125]
    for _ in range(3):
        assert client.call(PULL, header()).code == 0
    assert broker.stats.longest_get_seconds == pytest.approx(0.5)


class Leaver(Caller):
    """Who may everything until their rights are taken."""

    may = True

    @property
    def is_current(self) -> bool:
        return self.may

    def check(self, kind: Kind, name: str, *rights: Right) -> None:
        if not self.may:
            raise RequestError(ResponseCode.NO_PERMISSION, "no more")


async def test_a_pull_that_is_held_once_more_is_still_of_who_has_sent_it(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """Not of who was the last to send anything on their connection."""
    broker = Broker()
    nursery.start_soon(broker.holds.run)
    client = puller(broker)
    put_numbers(broker, 1)
    client.connection.caller = leaver = Leaver("leaver")
    client.send(PULL, msgspec.structs.replace(SQL, sys_flag=SUBSCRIPTION | SUSPEND, queue_offset=1))
    client.connection.caller = ANYBODY
    put_numbers(broker, 2)  # it is run, and waits on
    await trio.sleep(1)
    assert client.answers() == []
    leaver.may = False
    put_numbers(broker, 7)
    await trio.sleep(1)
    (answer,) = client.answers()
    assert answer.code == ResponseCode.NO_PERMISSION
    nursery.cancel_scope.cancel()

"""Where a group goes on, and how its consumers learn of it."""

from unittest.mock import patch

import pytest
import trio
import trio.testing

from node.errors import RequestError
from store import PutMessage
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import PullMessageResponseHeader
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import NOW_MS, Broker, Client, handlers_of, request_table

RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
CLONE = RequestCode.CLONE_GROUP_OFFSET
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET
PULL = RequestCode.PULL_MESSAGE


def client_of(broker: Broker) -> Client:
    return Client(request_table(handlers_of(broker)), broker.outbox)


def put(broker: Broker, count: int, queue_id: int = 0) -> None:
    message = PutMessage("T", queue_id, b"x", b"", NOW_MS, b"\x0a\1\2\3\0\0\4\xd2")
    for _ in range(count):
        assert broker.store.puts.put_message(message).status == 0
    broker.store.announce()


def reset(**changes: object) -> dict[str, str]:
    fields = {"topic": "T", "group": "g", "timestamp": -1, "isForce": "true", **changes}
    return {name: str(value) for name, value in fields.items()}


def pull(offset: int, *, queue_id: int = 0, suspend_ms: int = 0) -> dict[str, str]:
    fields = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 7,
        "commitOffset": offset,
        "suspendTimeoutMillis": suspend_ms,
        "subVersion": 0,
        "subscription": "*",
    }
    return {name: str(value) for name, value in fields.items()}


async def test_a_running_consumer_is_moved_by_its_next_pull_and_does_not_undo_it() -> None:
    broker = Broker()
    put(broker, 10)
    client = client_of(broker)
    broker.offsets.commit("g", "T", 0, 3)
    answer = client.call(RESET, reset())
    assert answer.code == 0
    queue = b'{"brokerName":"broker-a","queueId":%d,"topic":"T"}:%d'
    wanted = b",".join(queue % pair for pair in ((0, 10), (1, 0), (2, 0), (3, 0)))
    assert answer.body == b'{"offsetTable":{%b}}' % wanted
    assert broker.offsets.query("g", "T", 0) == 10
    commit = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "4"}
    assert client.call(COMMIT, commit).code == 0
    assert broker.offsets.query("g", "T", 0) == 10
    moved = client.call(PULL, pull(4))
    assert (moved.code, moved.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    ext = moved.decode_header(PullMessageResponseHeader)
    assert (ext.next_begin_offset, ext.min_offset, ext.max_offset) == (10, 0, 10)
    assert broker.offsets.query("g", "T", 0) == 10
    assert client.call(PULL, pull(4)).code == 0
    assert client.call(COMMIT, commit).code == 0
    assert broker.offsets.query("g", "T", 0) == 4


async def test_a_held_pull_is_answered_at_once(autojump_clock: trio.testing.MockClock) -> None:
    broker = Broker()
    put(broker, 2)
    client = client_of(broker)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.holds.run)
        client.send(PULL, pull(2, suspend_ms=15_000))
        await trio.sleep(1)
        assert client.answers() == []
        began = trio.current_time()
        client.send(RESET, reset(queueId=0, offset=1))
        await trio.testing.wait_all_tasks_blocked()
        codes = sorted(answer.code for answer in client.answers())
        assert (codes, trio.current_time() - began) == ([0, ResponseCode.PULL_OFFSET_MOVED], 0)
        nursery.cancel_scope.cancel()


async def test_one_queue_goes_to_an_offset_or_to_a_time() -> None:
    broker = Broker()
    put(broker, 10, queue_id=1)
    client = client_of(broker)
    assert client.call(RESET, reset(queueId=1, offset=7)).code == 0
    assert broker.offsets.offsets() == {"T@g": {1: 7}}
    assert client.call(RESET, reset(queueId=1, timestamp=NOW_MS - 1)).code == 0
    assert broker.offsets.query("g", "T", 1) == 0
    assert client.call(RESET, reset(queueId=1, offset=-1, timestamp=NOW_MS + 1)).code == 0
    assert broker.offsets.query("g", "T", 1) == 10


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "nope"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": 0, "offset": 3}, ResponseCode.SYSTEM_ERROR),
        ({"group": "a b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"timestamp": "x"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_what_cannot_be_is_refused_and_changes_nothing(
    changes: dict[str, object], code: int
) -> None:
    broker = Broker()
    put(broker, 2)
    answer = client_of(broker).call(RESET, reset(**changes))
    assert answer.code == code
    assert broker.offsets.offsets() == {}
    assert not broker.resets.is_pending("g", "T", 0)


async def test_a_group_gets_the_offsets_of_another() -> None:
    broker = Broker(topics=("T", "U"))
    client = client_of(broker)
    for topic in ("T", "U", "%RETRY%g"):
        broker.offsets.commit("g", topic, 0, 5)
    assert client.call(CLONE, {"srcGroup": "g", "destGroup": "h", "topic": "T"}).code == 0
    assert broker.offsets.topics_of("h") == ["T"]
    assert client.call(CLONE, {"srcGroup": "g", "destGroup": "i"}).code == 0
    assert broker.offsets.topics_of("i") == ["T", "U"]
    assert broker.offsets.query("i", "U", 0) == 5


async def test_nothing_moves_where_the_tables_take_no_change() -> None:
    broker = Broker()
    client = client_of(broker)
    with patch.object(broker.tables, "check_change", side_effect=RequestError(14, "no master")):
        answers = [
            client.call(RESET, reset()),
            client.call(CLONE, {"srcGroup": "g", "destGroup": "h"}),
        ]
    assert [(answer.code, answer.remark) for answer in answers] == [(14, "no master")] * 2
    assert broker.offsets.offsets() == {}

"""What becomes of popped messages: done, later, or again."""

import json
from pathlib import Path

import msgspec
import pytest
import trio

from node.security.request import REQUESTS
from tandem.wire.batch_ack import BatchAck, BatchAckMessageRequestBody, encode_bits
from tandem.wire.pop_headers import ChangeInvisibleTimeResponseHeader
from tandem.wire.receipt_handle import ReceiptHandle, TopicMark, encode_receipt_handle
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import encode_json_body
from tests.node.handlers.inspected import put
from tests.node.handlers.pop_world import ACK, CHANGE, PopWorld, handles_in, messages

DATA = Path(__file__).parents[2] / "data/rocketmq-5.3.3/requests/pop-live.json"
LIVE = {each["name"]: each for each in reversed(json.loads(DATA.read_text()))}
BATCH_ACK = RequestCode.BATCH_ACK_MESSAGE
STALE = {"isStale": "true"}


def committed(world: PopWorld, queue_id: int = 0) -> int | None:
    return world.broker.offsets.query("CG", "T", queue_id)


async def test_what_is_acknowledged_is_done_and_the_offset_follows() -> None:
    world = PopWorld()
    put(world.broker, 3)
    first, second, third = (handle for _, handle in world.popped())
    assert world.ack(second).ext_fields() == {}
    assert committed(world) == 0
    assert world.ack(first).code == LIVE["ack"]["rc"]
    assert committed(world) == 2
    world.ack(third)
    assert committed(world) == 3


async def test_a_handle_that_is_used_up_changes_nothing_and_is_said() -> None:
    world = PopWorld()
    put(world.broker, 2)
    first, _ = (handle for _, handle in world.popped())
    world.ack(first)
    again = world.ack(first)
    assert (again.code, again.ext_fields()) == (LIVE["ack-again"]["rc"], STALE)
    assert committed(world) == 1


@pytest.mark.parametrize("changes", [{"pop_time_ms": 1}, {"start_offset": 7}, {"broker_name": "z"}])
async def test_what_counts_in_a_handle_is_its_pop_time(changes: dict[str, object]) -> None:
    world = PopWorld()
    put(world.broker)
    ((_, handle),) = world.popped()
    answer = world.ack(msgspec.structs.replace(handle, **changes))
    assert answer.code == LIVE["ack-nogroup"]["rc"]
    assert answer.ext_fields() == (STALE if "pop_time_ms" in changes else {})


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"offset": 99}, "ack-badoff"),
        ({"queue_id": 7}, "ack-badq"),
        ({"topic": "TX"}, "ack-notopic"),
        ({"extra_info": "1 2 3"}, "ack-badextra"),
    ],
)
async def test_what_rocketmq_refuses_is_refused(changes: dict[str, object], name: str) -> None:
    world = PopWorld()
    put(world.broker)
    ((_, handle),) = world.popped()
    assert world.ack(handle, **changes).code == LIVE[name]["rc"]
    if "extra_info" not in changes:
        refused = world.change(handle, 1000, **changes)
        assert refused.code == LIVE[name]["rc"]
    assert world.ack(handle).ext_fields() == {}


@pytest.mark.parametrize("changes", [{"queue_id": -1}, {"offset": -1}, {"extra_info": "x" * 5000}])
async def test_what_makes_no_sense_is_refused(changes: dict[str, object]) -> None:
    world = PopWorld()
    put(world.broker)
    ((_, handle),) = world.popped()
    assert world.ack(handle, **changes).code != 0
    assert world.change(handle, 1000, **changes).code != 0


async def test_an_acknowledgement_is_of_one_group() -> None:
    world = PopWorld()
    put(world.broker)
    ((_, handle),) = world.popped()
    world.popped(consumer_group="Other")
    assert world.ack(handle, consumer_group="Other").ext_fields() in ({}, STALE)
    assert world.ack(handle).ext_fields() == {}


@pytest.mark.parametrize("code", [ACK, CHANGE])
@pytest.mark.parametrize(
    ("topic", "asked"),
    [("T", "T"), ("%RETRY%CG_T", "T"), ("%RETRY%CG+T", "T"), ("%RETRY%Other_T", "%RETRY%Other_T")],
)
async def test_who_may_read_a_topic_may_acknowledge_what_comes_again_of_it(
    code: RequestCode, topic: str, asked: str
) -> None:
    fields = {"consumerGroup": "CG", "topic": topic, "queueId": "0", "offset": "0"}
    fields |= {"extraInfo": "0 1 1 0 1 broker-a 0 0", "invisibleTime": "1"}
    of_topic, of_group = REQUESTS[code].touches
    command = RemotingCommand(code, ext=fields)
    assert list(of_topic.names(command, fields)) == [asked]
    assert list(of_group.names(command, fields)) == ["CG"]


async def test_each_entry_of_a_batch_is_asked_about() -> None:
    entries = [
        {"b": "AQ==", "c": group, "t": topic, "r": mark}
        for group, topic, mark in (("g", "T", "0"), ("g", "T", "1"), ("h", "U", "2"))
    ]
    command = RemotingCommand(BATCH_ACK, body=json.dumps({"acks": entries}).encode())
    of_topic, of_group = REQUESTS[BATCH_ACK].touches
    assert list(of_topic.names(command, {})) == ["T", "U"]
    assert list(of_group.names(command, {})) == ["g", "h"]


def batch(handles: list[ReceiptHandle], **changes: object) -> bytes:
    """Acknowledge handles of one pop of one queue."""
    first = handles[0]
    ack = BatchAck(
        encode_bits(handle.queue_offset - first.start_offset for handle in handles),
        "CG",
        first.invisible_ms,
        first.pop_time_ms,
        first.queue_id,
        str(first.mark.value),
        first.revive_queue_id,
        first.start_offset,
        "T",
    )
    ack = msgspec.structs.replace(ack, **changes)
    return encode_json_body(BatchAckMessageRequestBody([ack], "broker-a"))


async def test_many_are_acknowledged_at_once() -> None:
    world = PopWorld()
    put(world.broker, 5)
    handles = [handle for _, handle in world.popped()]
    answer = world.client.call(BATCH_ACK, body=batch([*handles[:2], *handles[3:]]))
    assert (answer.code, answer.ext_fields()) == (LIVE["batchack"]["rc"], {})
    assert committed(world) == 2
    answer = world.client.call(BATCH_ACK, body=batch(handles))
    assert (answer.code, answer.ext_fields()) == (0, STALE)
    assert committed(world) == 5


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"acks":[]}', LIVE["batchack-empty"]["rc"]),
        (b"", ResponseCode.SYSTEM_ERROR),
        (b"[", ResponseCode.SYSTEM_ERROR),
        (b'{"acks":[{"b":"*","c":"CG","t":"T","r":"0"}]}', ResponseCode.SYSTEM_ERROR),
        (b'{"acks":[{"b":"AQ==","c":"CG","t":"T","r":"3"}]}', ResponseCode.SYSTEM_ERROR),
        (b'{"acks":[{"b":"AQ==","c":"CID_RMQ_SYS_TRANS","t":"T"}]}', ResponseCode.NO_PERMISSION),
    ],
)
async def test_what_is_no_batch_is_refused(body: bytes, code: int) -> None:
    assert PopWorld().client.call(BATCH_ACK, body=body).code == code


@pytest.mark.parametrize(
    "changes", [{"queue_id": 99}, {"queue_id": -1}, {"topic": "TX"}, {"start_offset": 1 << 40}]
)
async def test_entries_of_what_is_not_there_are_left_out(changes: dict[str, object]) -> None:
    world = PopWorld()
    put(world.broker)
    ((_, handle),) = world.popped()
    assert world.client.call(BATCH_ACK, body=batch([handle], **changes)).code == 0
    assert world.ack(handle).ext_fields() == {}


async def test_a_request_acknowledges_so_many_and_no_more() -> None:
    world = PopWorld()
    put(world.broker)
    entry = {"b": "AQ==", "c": "CG", "t": "T"}
    body = json.dumps({"acks": [entry] * 4097}).encode()
    assert world.client.call(BATCH_ACK, body=body).code == ResponseCode.INVALID_PARAMETER
    body = json.dumps({"acks": [entry] * 4096}).encode()
    assert world.client.call(BATCH_ACK, body=body).code == ResponseCode.SUCCESS


async def test_a_message_whose_time_is_changed_has_another_handle() -> None:
    world = PopWorld()
    put(world.broker)
    ((_, handle),) = world.popped()
    world.broker.now_ms += 500
    answer = world.change(handle, 3000)
    expected = dict(
        each.partition("=")[::2] for each in LIVE["changeInvisible"]["respExt"].split(", ")
    )
    assert (answer.code, set(answer.ext_fields())) == (0, set(expected))
    ext = answer.decode_header(ChangeInvisibleTimeResponseHeader)
    assert (ext.invisible_time, ext.revive_qid) == (3000, handle.revive_queue_id)
    assert ext.pop_time == handle.pop_time_ms + 500
    assert world.ack(handle).ext_fields() == STALE
    assert world.change(handle, 3000).code == ResponseCode.NO_MESSAGE
    moved = msgspec.structs.replace(handle, pop_time_ms=ext.pop_time, invisible_ms=3000)
    assert world.ack(moved).ext_fields() == {}


async def test_the_offset_after_the_last_cannot_be_changed() -> None:
    world = PopWorld()
    put(world.broker, 3)
    handle = world.popped()[0][1]
    assert world.change(handle, 3000, offset=3).code == LIVE["change-badoff"]["rc"]
    assert world.change(handle, -1).code == ResponseCode.INVALID_PARAMETER
    assert world.change(handle, 1 << 62).code == ResponseCode.INVALID_PARAMETER


async def test_in_order_the_pop_time_stays() -> None:
    world = PopWorld()
    put(world.broker, 2)
    handle = world.popped(order=True, queue_id=0, attempt_id="a")[0][1]
    world.broker.now_ms += 22
    answer = world.change(handle, 1000).decode_header(ChangeInvisibleTimeResponseHeader)
    assert (answer.pop_time, answer.invisible_time, answer.revive_qid) == (
        handle.pop_time_ms,
        1022,
        999,
    )
    assert world.ack(handle).ext_fields() == {}
    assert committed(world) == 1


async def test_what_is_not_acknowledged_comes_again_under_its_own_topic(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = PopWorld()
    put(world.broker, 2)
    acked, handle = (handle for _, handle in world.popped(invisible_time=8_000))
    world.ack(acked)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.broker.pop.run, world.broker.store.announce)
        await trio.sleep(12)
        assert world.ack(handle).ext_fields() == STALE
        answer = world.pop(exp="*")
        (message,) = messages(answer)
        assert (message.topic, message.reconsume_times) == ("T", 1)
        ((_, again),) = handles_in(answer)
        assert (again.mark, again.queue_id) == (TopicMark.RETRY_V1, 0)
        assert message.properties["POP_CK"] == encode_receipt_handle(again)
        assert answer.ext_fields()["startOffsetInfo"] == "1 0 0"
        assert world.change(again, 3000).code == 0
        await trio.sleep(6)
        ((_, third),) = handles_in(world.pop())
        assert third.queue_offset == 1
        assert world.ack(third).ext_fields() == {}
        body = batch([third])
        assert world.client.call(BATCH_ACK, body=body).ext_fields() == STALE
        nursery.cancel_scope.cancel()


async def test_what_comes_again_is_acknowledged_with_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = PopWorld()
    put(world.broker, 3)
    world.pop(invisible_time=1_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.broker.pop.run, world.broker.store.announce)
        await trio.sleep(4)
        handles = [handle for _, handle in world.popped()]
        assert {handle.mark for handle in handles} == {TopicMark.RETRY_V1}
        answer = world.client.call(BATCH_ACK, body=batch(handles))
        assert (answer.code, answer.ext_fields()) == (0, {})
        nursery.cancel_scope.cancel()

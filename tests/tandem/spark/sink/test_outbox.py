"""Requests to brokers that refuse, fall silent, or answer that messages are not safe."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pyarrow as pa
import pytest

from tandem.client.ack import Ack
from tandem.client.cluster_access import ClusterAccess
from tandem.client.errors import RouteNotFoundError
from tandem.spark.sink.columns import SinkColumns
from tandem.spark.sink.errors import SendFailedError, Stored
from tandem.spark.sink.kept import SinkClient
from tandem.spark.sink.options import SinkOptions
from tandem.spark.sink.outbox import REQUESTS_MAX, Outbox
from tandem.spark.sink.packed_rows import RowPacker
from tandem.spark.sink.unique_key import RowKeys
from tandem.wire.batch_body import decode_batch_body
from tandem.wire.message import Message
from tandem.wire.message_properties import decode_properties
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.either_loop import EitherNetwork, under_either_loop
from tests.tandem.client.fake_broker import MASTER, NAME_SERVER, FakeBroker, answer_to

SEND = RequestCode.SEND_MESSAGE_V2
SEND_BATCH = RequestCode.SEND_BATCH_MESSAGE


@asynccontextmanager
async def outbox(broker: FakeBroker, **given: object) -> AsyncIterator[Outbox]:
    options = SinkOptions(ClusterAccess(NAME_SERVER), "orders", **given)  # type: ignore[arg-type]
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {NAME_SERVER: broker, MASTER: broker})
        client = SinkClient(options, network.open_stream)
        await client.open()
        is_over = False
        try:
            yield Outbox(options, "partition 0", client)
            is_over = True
        finally:
            await client.close(politely=is_over)
        tasks.cancel_scope.cancel()


async def send(to: Outbox, messages: list[Message]) -> None:
    await to.know({each.topic for each in messages if each.sharding_key})
    for parcel in [*to.packer.add(messages), *to.packer.rest()]:
        await to.put(parcel)
    await to.finish()


def messages(count: int, **fields: str) -> list[Message]:
    return [
        Message("orders", b"%05d" % n, properties={"UNIQ_KEY": f"{n:032X}"}, **fields)  # type: ignore[arg-type]
        for n in range(count)
    ]


async def send_packed(to: Outbox, count: int, batch_max_bytes: int = 1000) -> None:
    """Send the same bodies with keys and a tag, put together by columns."""
    options = SinkOptions(ClusterAccess(NAME_SERVER), "orders", batch_max_bytes=batch_max_bytes)
    table = {
        "body": pa.array([b"%05d" % n for n in range(count)]),
        "keys": pa.array([f"key{n}" for n in range(count)]),
        "tags": pa.array(["new"] * count),
    }
    packed = RowPacker(options, SinkColumns(tuple(table))).packed(table, count, RowKeys("q", 0, 0))
    assert packed is not None
    for rows in packed:
        for parcel in rows.parcels(batch_max_bytes):
            await to.put(parcel)
    await to.finish()


def stored(broker: FakeBroker) -> list[bytes]:
    return sorted(each.body for queue in broker.queues.values() for each in queue)


def sends_of(broker: FakeBroker) -> int:
    return sum(request.code in {SEND, SEND_BATCH} for request in broker.requests)


def keys_sent(broker: FakeBroker) -> list[str]:
    return [
        decode_properties(entry.properties)["UNIQ_KEY"]
        for request in broker.requests
        if request.code == SEND_BATCH
        for entry in decode_batch_body(request.body)
    ]


@under_either_loop
async def test_everything_is_stored_and_counted() -> None:
    broker = FakeBroker()
    async with outbox(broker, batch_max_bytes=1000) as opened:
        await send(opened, messages(500))
        assert (opened.messages, opened.body_bytes) == (500, 2500)
    assert stored(broker) == [b"%05d" % n for n in range(500)]
    assert sorted(keys_sent(broker)) == [f"{n:032X}" for n in range(500)]


@under_either_loop
async def test_what_is_not_safe_is_sent_again_with_the_same_key_until_it_is() -> None:
    broker = FakeBroker()
    store = broker.handlers[SEND_BATCH]
    left = [ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT]

    def unsafe(request: RemotingCommand) -> RemotingCommand | None:
        answer = store(request)
        assert answer is not None
        return msgspec.structs.replace(answer, code=left.pop()) if left else answer

    broker.handlers[SEND_BATCH] = unsafe
    async with outbox(broker) as opened:
        await send(opened, messages(3))
        assert opened.messages == 3
    assert keys_sent(broker) == [f"{n:032X}" for n in range(3)] * 3


@under_either_loop
async def test_what_never_becomes_safe_is_an_error_in_words() -> None:
    broker = FakeBroker()
    store = broker.handlers[SEND_BATCH]

    def unsafe(request: RemotingCommand) -> RemotingCommand | None:
        answer = store(request)
        assert answer is not None
        return msgspec.structs.replace(answer, code=ResponseCode.SLAVE_NOT_AVAILABLE)

    broker.handlers[SEND_BATCH] = unsafe
    async with outbox(broker, send_ms=1_000) as opened:
        with pytest.raises(
            SendFailedError, match=r"partition 0: .*SLAVE_NOT_AVAI.*ack=repl"
        ) as caught:
            await send(opened, messages(3))
        assert caught.value.stored is Stored.UNSAFE


@under_either_loop
async def test_a_refusal_is_an_error_in_words() -> None:
    broker = FakeBroker()
    broker.handlers[SEND_BATCH] = lambda request: answer_to(
        request, ResponseCode.NO_PERMISSION, remark="read only"
    )
    async with outbox(broker, send_ms=500) as opened:
        with pytest.raises(SendFailedError, match="read only") as caught:
            await send(opened, messages(3))
        assert caught.value.stored is Stored.NOTHING
        with pytest.raises(SendFailedError):
            await send(opened, messages(1))


@under_either_loop
async def test_no_answer_says_that_messages_may_be_stored() -> None:
    broker = FakeBroker()
    broker.handlers[SEND_BATCH] = lambda _: None
    async with outbox(broker, send_ms=300, attempt_ms=100) as opened:
        with pytest.raises(SendFailedError) as caught:
            await send(opened, messages(3))
        assert caught.value.stored is Stored.UNKNOWN


@under_either_loop
async def test_a_topic_without_a_route_is_an_error_in_words() -> None:
    async with outbox(FakeBroker(), send_ms=300) as opened:
        with pytest.raises(SendFailedError) as caught:
            await send(opened, [Message("nowhere", b"", sharding_key="k")])
        assert caught.value.stored is Stored.NOTHING
        assert isinstance(caught.value.__cause__, RouteNotFoundError)


@under_either_loop
async def test_what_is_under_way_is_bounded() -> None:
    broker = FakeBroker()
    broker.handlers[SEND] = broker.handlers[SEND_BATCH] = lambda _: None
    for given, most in (({"in_flight_max_bytes": 2000}, 4), ({}, REQUESTS_MAX)):
        broker.requests.clear()
        async with outbox(broker, batch_max_bytes=600, **given) as opened:
            delayed = [Message("orders", bytes(100), delay_time_level=1) for _ in range(500)]
            async with anyio.create_task_group() as sending:
                sending.start_soon(send, opened, delayed if not given else messages(500))
                while sends_of(broker) < 2:
                    await anyio.sleep(0.01)
                await anyio.sleep(0.2)
                sending.cancel_scope.cancel()
            assert 2 <= sends_of(broker) <= most


@under_either_loop
async def test_batches_of_a_sharding_key_go_one_after_the_other() -> None:
    broker = FakeBroker()
    store = broker.handlers[SEND_BATCH]
    turns: list[int] = []

    def busy_at_times(request: RemotingCommand) -> RemotingCommand | None:
        turns.append(len(turns))
        if len(turns) % 3 == 0:
            return answer_to(request, ResponseCode.SYSTEM_BUSY)
        return store(request)

    broker.handlers[SEND_BATCH] = busy_at_times
    async with outbox(broker, batch_max_bytes=500) as opened:
        await send(opened, messages(60, sharding_key="ada"))
    ((_, queue),) = broker.queues.items()
    assert [each.body for each in queue] == [b"%05d" % n for n in range(60)]


@under_either_loop
async def test_a_broker_without_batches_gets_messages_with_their_own_sharding_keys() -> None:
    broker = FakeBroker()
    broker.handlers[SEND_BATCH] = lambda request: answer_to(request, ResponseCode.MESSAGE_ILLEGAL)
    async with outbox(broker) as opened:
        some = [Message("orders", b"", sharding_key=f"key {n}") for n in range(40)]
        await send(opened, some)
        assert opened.messages == 40
    headers = [
        each.decode_header(SendMessageRequestHeaderV2)
        for each in broker.requests
        if each.code == SEND
    ]
    keys = [
        decode_properties((each.properties or "").encode())["__SHARDINGKEY"] for each in headers
    ]
    assert sorted(keys) == sorted(each.sharding_key for each in some)


@under_either_loop
async def test_packed_rows_are_stored_and_counted() -> None:
    broker = FakeBroker()
    async with outbox(broker) as opened:
        await send_packed(opened, 500)
        assert (opened.messages, opened.body_bytes) == (500, 2500)
    assert stored(broker) == [b"%05d" % n for n in range(500)]
    assert sorted(keys_sent(broker)) == sorted(RowKeys("q", 0, 0).take(500))


@under_either_loop
async def test_packed_rows_go_one_by_one_where_a_broker_takes_no_batch_of_them() -> None:
    for count in (1, 40):
        broker = FakeBroker()
        broker.handlers[SEND_BATCH] = lambda request: answer_to(
            request, ResponseCode.MESSAGE_ILLEGAL
        )
        async with outbox(broker) as opened:
            await send_packed(opened, count)
            assert (opened.messages, opened.body_bytes) == (count, 5 * count)
        sent = {}
        for request in broker.requests:
            if request.code == SEND:
                header = request.decode_header(SendMessageRequestHeaderV2)
                properties = decode_properties((header.properties or "").encode())
                sent[properties["UNIQ_KEY"]] = (request.body, properties)
        assert stored(broker) == [b"%05d" % n for n in range(count)]
        for number, key in enumerate(RowKeys("q", 0, 0).take(count)):
            body, properties = sent[key]
            assert bytes(body) == b"%05d" % number
            assert (properties["KEYS"], properties["TAGS"]) == (f"key{number}", "new")


@under_either_loop
async def test_a_refusal_of_packed_rows_is_an_error_in_words() -> None:
    broker = FakeBroker()
    broker.handlers[SEND_BATCH] = lambda request: answer_to(
        request, ResponseCode.NO_PERMISSION, remark="read only"
    )
    async with outbox(broker, send_ms=500) as opened:
        with pytest.raises(SendFailedError, match="read only") as caught:
            await send_packed(opened, 3)
        assert caught.value.stored is Stored.NOTHING


@under_either_loop
async def test_messages_that_go_one_by_one_have_the_time_of_one_batch() -> None:
    broker = FakeBroker()
    store = broker.handlers[SEND]
    broker.handlers[SEND_BATCH] = lambda request: answer_to(request, ResponseCode.MESSAGE_ILLEGAL)

    def unsafe(request: RemotingCommand) -> RemotingCommand | None:
        answer = store(request)
        assert answer is not None
        return msgspec.structs.replace(answer, code=ResponseCode.SLAVE_NOT_AVAILABLE)

    broker.handlers[SEND] = unsafe
    async with outbox(broker, send_ms=300) as opened:
        with anyio.fail_after(10), pytest.raises(SendFailedError, match="smaller batchMaxBytes"):
            await send(opened, messages(100))


@under_either_loop
async def test_the_contract_is_that_of_the_option() -> None:
    for ack, wait in ((Ack.ASYNC, "false"), (Ack.REPLICATED, "true")):
        broker = FakeBroker()
        async with outbox(broker, ack=ack) as opened:
            await send(opened, messages(2))
        (request,) = (each for each in broker.requests if each.code == SEND_BATCH)
        header = request.decode_header(SendMessageRequestHeaderV2)
        assert decode_properties((header.properties or "").encode())["WAIT"] == wait

"""Requests and replies, under trio and under asyncio."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest

from tandem.client.broker_request import BrokerRequest
from tandem.client.cluster_access import ClusterAccess
from tandem.client.errors import BrokerError, ReplyTimeoutError, SendTimeoutError
from tandem.client.producer import Producer
from tandem.client.request_reply import (
    PendingReplies,
    received_reply,
    reply_message,
    reply_seconds,
)
from tandem.wire.errors import ArgumentError
from tandem.wire.message import Host, Message
from tandem.wire.message_properties import decode_properties, encode_properties
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.reply_headers import ReplyMessageRequestHeader
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeaderV2
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.either_loop import EitherNetwork, under_either_loop
from tests.tandem.client.fake_broker import (
    IDENTITY,
    MASTER,
    NAME_SERVER,
    FakeBroker,
    answer_to,
    message_ext,
    route_of,
)

MESSAGE = Message("orders", b"ping", keys="k")
SEND = RequestCode.SEND_MESSAGE_V2
ASKED = {"CLUSTER": "Cl", "CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "me", "TTL": "900", "a": "b"}


def pushed(properties: dict[str, str], body: bytes = b"pong", sys_flag: int = 0) -> RemotingCommand:
    header = ReplyMessageRequestHeader(
        "PG",
        "Cl_REPLY_TOPIC",
        "TBW102",
        4,
        0,
        sys_flag,
        1,
        0,
        "10.0.0.7:5000",
        "/10.0.0.1:10911",
        2,
        encode_properties(properties).decode(),
    )
    ext = {
        name: str(value) for name, value in msgspec.to_builtins(header).items() if value is not None
    }
    return RemotingCommand(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, 77, ext=ext, body=body)


@asynccontextmanager
async def world() -> AsyncIterator[tuple[Producer, EitherNetwork, FakeBroker]]:
    broker = FakeBroker()
    broker.routes["Cl_REPLY_TOPIC"] = route_of(("broker-a", {0: MASTER}))
    async with anyio.create_task_group() as tasks:
        network = EitherNetwork(tasks, {NAME_SERVER: broker, MASTER: broker})
        async with Producer(
            ClusterAccess(NAME_SERVER, identity=IDENTITY), "PG", open_stream=network.open_stream
        ) as producer:
            yield producer, network, broker
        tasks.cancel_scope.cancel()


def sent_properties(broker: FakeBroker, code: int) -> dict[str, str]:
    request = [each for each in broker.requests if each.code == code][-1]
    header = request.decode_header(SendMessageRequestHeaderV2)
    return decode_properties((header.properties or "").encode())


@under_either_loop
async def test_a_request_returns_its_own_reply() -> None:
    async with world() as (producer, network, broker), anyio.create_task_group() as tasks:
        bodies: list[bytes] = []

        async def ask() -> None:
            reply = await producer.request(MESSAGE, timeout_ms=60_000)
            bodies.append(reply.body)

        tasks.start_soon(ask)
        while SEND not in broker.codes():
            await anyio.sleep(0.001)
        codes = broker.codes()
        assert codes.index(RequestCode.HEART_BEAT) < codes.index(SEND), "replies must find it"
        said = sent_properties(broker, SEND)
        assert (said["REPLY_TO_CLIENT"], said["TTL"], said["KEYS"]) == (
            IDENTITY.client_id,
            "60000",
            "k",
        )
        await network.say(MASTER, pushed({"CORRELATION_ID": "of another"}, b"wrong"))
        await network.say(MASTER, pushed({"CORRELATION_ID": said["CORRELATION_ID"]}))
    assert bodies == [b"pong"]


@under_either_loop
async def test_a_request_without_a_reply_ends_in_time() -> None:
    async with world() as (producer, _, _):
        with pytest.raises(ReplyTimeoutError) as caught:
            await producer.request(MESSAGE, timeout_ms=20)
    error = caught.value
    assert (error.topic, error.timeout_ms, error.outcome_unknown) == ("orders", 20, True)


@under_either_loop
async def test_a_request_says_if_no_broker_has_taken_it() -> None:
    async with world() as (producer, _, broker):
        await producer.send(MESSAGE)
        with pytest.raises(ReplyTimeoutError) as caught:
            await producer.request(MESSAGE, timeout_ms=200)
        assert caught.value.is_stored
        broker.handlers[SEND] = lambda _: None
        with pytest.raises(ReplyTimeoutError) as caught:
            await producer.request(MESSAGE, timeout_ms=50)
        assert not caught.value.is_stored


@under_either_loop
async def test_a_reply_goes_to_the_topic_of_the_cluster_that_asked() -> None:
    async with world() as (producer, _, broker):
        broker.handlers[RequestCode.SEND_REPLY_MESSAGE_V2] = broker.handlers[SEND]
        await producer.reply(message_ext(b"ping", properties=ASKED), b"pong", properties={"x": "y"})
        (stored,) = [each for queue in broker.queues.values() for each in queue]
        said = sent_properties(broker, RequestCode.SEND_REPLY_MESSAGE_V2)
    assert (stored.topic, stored.body) == ("Cl_REPLY_TOPIC", b"pong")
    kept = {"CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "me", "TTL": "900"}
    assert said.items() >= (kept | {"MSG_TYPE": "reply", "x": "y"}).items()
    assert "a" not in said


def test_a_reply_is_tried_as_long_as_somebody_waits_and_at_least_a_second() -> None:
    request = message_ext(properties={"TTL": "5000"})
    stored_ms = request.store_timestamp_ms
    assert reply_seconds(request, stored_ms + 1_000) == 4.0
    assert reply_seconds(request, stored_ms + 60_000) == 1.0
    assert reply_seconds(message_ext(), stored_ms) == 3.0


@pytest.mark.slow
@under_either_loop
async def test_a_reply_that_nobody_takes_is_given_up() -> None:
    async with world() as (producer, _, broker):
        code = RequestCode.SEND_REPLY_MESSAGE_V2
        broker.handlers[code] = lambda request: answer_to(request, ResponseCode.SYSTEM_ERROR)
        # The last try may have no time left for its answer.
        given_up = pytest.raises((BrokerError, SendTimeoutError))
        with anyio.fail_after(8), given_up:
            await producer.reply(message_ext(properties=ASKED), b"pong")


def test_what_nobody_waits_for_cannot_be_replied_to() -> None:
    with pytest.raises(ArgumentError) as caught:
        reply_message(message_ext(properties={"CLUSTER": "Cl"}), b"", {})
    assert caught.value.names == ("CORRELATION_ID", "REPLY_TO_CLIENT")


def test_a_pushed_reply_is_read_and_answered_whoever_waits() -> None:
    answers: list[RemotingCommand] = []
    replies = PendingReplies()
    took: list[bytes] = []
    replies.wait_for("c-1", lambda message: took.append(message.body))
    replies.wait_for("c-2", lambda message: took.append(message.body))
    replies.forget("c-2")
    for name in ("c-1", "c-1", "c-2"):
        replies.deliver(BrokerRequest(MASTER, pushed({"CORRELATION_ID": name}), answers.append))
    replies.deliver(
        BrokerRequest(
            MASTER,
            RemotingCommand(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, 1, body=b"?"),
            answers.append,
        )
    )
    assert took == [b"pong"]
    assert [(each.code, each.opaque) for each in answers] == [(0, 77)] * 3 + [(0, 1)]


def test_hosts_of_a_reply_are_read_as_java_writes_them() -> None:
    request = BrokerRequest(MASTER, pushed({"CORRELATION_ID": "c"}, sys_flag=0x301), print)
    correlation_id, message = received_reply(request)
    assert correlation_id == "c"
    assert (message.born_host, message.store_host) == (
        Host("10.0.0.7", 5000),
        Host("10.0.0.1", 10911),
    )
    assert message.sys_flag == 0x301

"""Requests and answers of brokers that make no sense: clients go on, or say a `ClientError`."""

import logging
import random
from collections.abc import Callable, Iterator

import anyio
import pytest

from tandem.client import group_reader
from tandem.client.cluster_access import ClusterAccess
from tandem.client.producer import Producer
from tandem.wire.message import Message
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tests.support.virtual_loops import LOOPS, run_virtually
from tests.tandem.client.consumer_world import World, a_world, until
from tests.tandem.client.fake_broker import IDENTITY, MASTER, NAME_SERVER, answer_to

CODES = (39, 40, 220, 221, 307, 309, 326, 0, -1, 99_999)
NAMES = (
    *("topic", "group", "timestamp", "consumerGroup", "clientId", "msgId", "transactionId"),
    *("offsetMsgId", "tranStateTableOffset", "commitLogOffset", "bornHost", "bornTimestamp"),
    *("queueId", "sysFlag", "properties", "flag", "pushReplyId", "correlationId"),
)
WORDS = ("", "x", "\x00", "-1", "9" * 400, "1e999", "\ufffd", "orders", "true", "0", "{")
BODIES: tuple[Callable[[random.Random], bytes], ...] = (
    lambda _: b"",
    lambda chance: chance.randbytes(chance.randrange(200)),
    lambda _: b"[" * 50_000,
    lambda _: b'{"offsetTable":' + b"{" * 2000,
    lambda _: b"{x}:5,{}:6" * 50,
    lambda chance: (200).to_bytes(4, "big") + chance.randbytes(196),
    lambda chance: (
        b'{"brokerName":"broker-a","queueId":%d,"topic":"orders"}:%d'
        % (chance.randrange(-1, 3), chance.randrange(10**19))
    ),
)


@pytest.fixture(autouse=True)
def quiet_and_quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(group_reader, "REBALANCE_AGAIN_SECONDS", 0.01)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


async def pester(world: World, chance: random.Random) -> None:
    for number in range(200):
        ext = {chance.choice(NAMES): chance.choice(WORDS) for _ in range(chance.randrange(8))}
        request = RemotingCommand(
            chance.choice(CODES),
            chance.randrange(2**31),
            chance.choice((0, 1, 2, 3)),
            ext=ext,
            body=chance.choice(BODIES)(chance),
        )
        await world.network.say(MASTER, request)
        if number % 20 == 0:
            await anyio.sleep(0.002)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("seed", range(3))
def test_no_request_of_a_broker_ends_a_client(loop: str, seed: int) -> None:
    async def run() -> None:
        async with a_world() as world:
            producer = Producer(
                ClusterAccess(NAME_SERVER, identity=IDENTITY),
                "PG",
                open_stream=world.network.open_stream,
                transaction_check=lambda _: "unknown",
            )
            async with producer, world.consumer() as consumer:
                consumer.subscribe("orders")
                await producer.send(Message("orders", b"before"))
                await until(lambda: consumer.assignment)
                await pester(world, random.Random(seed))
                with anyio.fail_after(30):
                    await producer.send(Message("orders", b"after"))
                    await until(lambda: len(consumer.assignment) == 3)

    run_virtually(loop, run)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 50_000, b'{"consumerIdList":5}'])
@pytest.mark.parametrize(
    "code", [RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.LOCK_BATCH_MQ]
)
def test_an_answer_that_makes_no_sense_is_asked_for_again(body: bytes, code: RequestCode) -> None:
    async def run() -> None:
        async with a_world() as world, world.consumer(orderly=True) as consumer:
            right = world.broker.handlers[code]
            world.broker.handlers[code] = lambda request: answer_to(request, body=body)
            consumer.subscribe("orders")
            await until(lambda: code in world.broker.codes())
            await anyio.sleep(0.01)
            assert consumer.assignment == []
            world.broker.handlers[code] = right
            with anyio.fail_after(30):
                await until(lambda: len(consumer.assignment) == 3)

    run_virtually("asyncio", run)

import re

import anyio
import msgspec
import pytest

from tandem.client.results import MessageQueue
from tandem.wire.remoting_command import ONEWAY_FLAG, RemotingCommand
from tandem.wire.request_code import RequestCode
from tests.support.patience import PATIENCE_SECONDS
from tests.support.virtual_loops import run_virtually
from tests.tandem.client.consumer_world import World, a_world, until
from tests.tandem.client.either_loop import under_either_loop
from tests.tandem.client.fake_broker import MASTER, NAME_SERVER

QUEUE = MessageQueue("orders", "broker-a", 0)


async def asked(world: World, code: int) -> RemotingCommand:
    await world.network.say(MASTER, RemotingCommand(code, 99))
    answers = [each for each in world.broker.requests if each.is_response]
    while not answers:
        await anyio.sleep(0.002)
        answers = [each for each in world.broker.requests if each.is_response]
    return answers[-1]


@under_either_loop
async def test_the_running_info_has_what_is_read_and_how_far() -> None:
    async with a_world() as world:
        world.broker.store("orders", 1, b"c")
        world.broker.queue("orders", 1)[0].properties["TAGS"] = "x"
        async with world.consumer(orderly=True) as consumer:
            consumer.subscribe("orders", tags="x || y")
            await until(lambda: len(consumer.assignment) == 3)
            body = (await asked(world, RequestCode.GET_CONSUMER_RUNNING_INFO)).body
    # An object as a key is what Java writes; here each becomes the number of its queue.
    plain = re.sub(
        rb'\{"brokerName":"broker-a","queueId":(\d),"topic":"(.*?)"\}', rb'"\2 \1"', body
    )
    info = msgspec.json.decode(plain)
    assert info["properties"]["PROP_CONSUMEORDERLY"] == "true"
    assert info["properties"]["PROP_NAMESERVER_ADDR"] == NAME_SERVER
    assert set(info["mqTable"]) == {"%RETRY%billing 0", "orders 0", "orders 1"}
    assert info["mqTable"]["orders 1"]["commitOffset"] == 0
    assert {each["topic"]: each["subString"] for each in info["subscriptionSet"]} == {
        "%RETRY%billing": "*",
        "orders": "x || y",
    }


@under_either_loop
async def test_the_status_has_the_offsets() -> None:
    async with a_world() as world, world.consumer() as consumer:
        world.broker.offsets["orders", 0] = 7
        consumer.subscribe("orders")
        await until(lambda: len(consumer.assignment) == 3)
        body = (await asked(world, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)).body
    assert b'{"brokerName":"broker-a","queueId":0,"topic":"orders"}:7' in body


@under_either_loop
async def test_a_broker_of_4x_moves_a_member() -> None:
    async with a_world() as world:
        world.broker.store("orders", 0, b"a", b"b", b"c")
        body = (
            b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:1,'
            b'{"brokerName":"elsewhere","queueId":0,"topic":"orders"}:2}}'
        )
        reset = RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, 9, ONEWAY_FLAG, body=body)
        seen = []
        async with world.consumer() as consumer:
            async for message in consumer.subscribe("orders"):
                seen.append(message.body)
                if len(seen) == 3:
                    await world.network.say(MASTER, reset)
                if len(seen) == 5:
                    consumer.stop()
        assert seen == [b"a", b"b", b"c", b"b", b"c"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{" * 1_000_000,
        b"{}:1" * 100_000,
        b'{"brokerName":1}:5',
        b"\xff\x00{}:99999999999999999999999",
        b'{"brokerName":"broker-a","queueId":0,"topic":"orders"}:' + b"9" * 400,
        b"x" * 2_000_000,
    ],
)
def test_a_list_of_offsets_that_is_none_changes_nothing(body: bytes) -> None:
    async def run() -> None:
        async with a_world() as world, world.consumer() as consumer:
            consumer.subscribe("orders")
            await until(lambda: len(consumer.assignment) == 3)
            code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
            with anyio.fail_after(PATIENCE_SECONDS):
                await world.network.say(MASTER, RemotingCommand(code, 9, body=body))
                while not any(each.is_response for each in world.broker.requests):
                    await anyio.sleep(0.002)
            assert (await consumer.lag())[QUEUE] == 0

    run_virtually("asyncio", run)

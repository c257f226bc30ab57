from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio
from trio.testing import MockClock

from node.name_server.name_server import NameServer
from node.name_server.readiness import NOT_READY_SECONDS_MAX
from node.simulated.network import Machine
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    GetRouteInfoRequestHeader,
    RegisterBrokerBody,
    RegisterBrokerRequestHeader,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import encode_json_body
from tests.node.world import Caller, fenced_cluster, open_caller, open_name_server

BROKER = "10.0.0.2:10911"
SERVER, PORT = "10.0.0.1", 9876


async def register(caller: Caller, *, address: str = BROKER, broker_id: int = 2) -> None:
    header = RegisterBrokerRequestHeader("broker-a", address, "C", "10.0.0.2:10912", broker_id)
    header = msgspec.structs.replace(header, enable_acting_master=False)
    topics = {name: TopicConfig(topic_name=name) for name in ("T", "U")}
    body = encode_json_body(RegisterBrokerBody(TopicConfigSerializeWrapper(topics)))
    code = RequestCode.REGISTER_BROKER
    assert (await caller.call_signed(code, header, body, target=f"{SERVER}:10911")).code == 0


@asynccontextmanager
async def open_names(directory: Path) -> AsyncIterator[tuple[NameServer, Machine]]:
    config = fenced_cluster(directory).node("a1")
    async with open_name_server(config) as (names, network):
        yield names, network.machine("10.0.0.9")


async def test_a_broker_is_known_as_long_as_its_connection_lives(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_names(tmp_path) as (names, machine):
        async with open_caller(machine, SERVER, PORT) as caller:
            await register(caller)
            assert names.routes.is_live(BROKER)
        await trio.sleep(0.1)
        assert not names.routes.is_live(BROKER)


async def test_a_silent_broker_is_forgotten(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with (
        open_names(tmp_path) as (names, machine),
        open_caller(machine, SERVER, PORT) as caller,
    ):
        await register(caller)
        await trio.sleep(22)
        assert not names.routes.is_live(BROKER)


async def route_code(caller: Caller) -> int:
    header = GetRouteInfoRequestHeader("T")
    return (await caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)).code


async def test_one_that_has_just_started_waits_a_while_for_a_master(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with (
        open_names(tmp_path) as (_, machine),
        open_caller(machine, SERVER, PORT) as caller,
    ):
        await register(caller)
        assert await route_code(caller) == ResponseCode.SYSTEM_ERROR
        await trio.sleep(NOT_READY_SECONDS_MAX)
        assert await route_code(caller) == 0


async def test_once_a_master_was_there_it_answers_also_without_one(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with (
        open_names(tmp_path) as (_, machine),
        open_caller(machine, SERVER, PORT) as caller,
    ):
        await register(caller)
        async with open_caller(machine, SERVER, PORT) as master:
            await register(master, address="10.0.0.3:10911", broker_id=0)
        await trio.sleep(0.1)
        assert await route_code(caller) == 0

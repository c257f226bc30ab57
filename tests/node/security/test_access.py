"""Every request code, by a stranger and by somebody who knows the secret, at whole nodes."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import trio

from node.security.access import Action, Resource, Standing, needed
from node.security.request import REQUESTS
from tandem.wire.ha_status import FencedCommand, FencedCommandResult
from tandem.wire.peer_log import LogRangeHeader
from tandem.wire.remoting_command import Ext, RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CreateTopicRequestHeader,
    DataVersion,
    RegisterBrokerBody,
    RegisterBrokerRequestHeader,
    SendMessageRequestHeaderV2,
    TopicConfig,
    TopicConfigSerializeWrapper,
    UnregisterBrokerRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import ClusterInfo, decode_json_body, encode_json_body
from tandem.wire.system_topics import JOURNAL_TOPIC, is_system_topic
from tests.node.world import NAMES, Caller, World, fenced_cluster, open_world
from tests.support.patience import PATIENCE_SECONDS

HOSTILE: Final = "10.0.0.9:6666"
CLIENT_PORT, NAME_SERVER_PORT = 10911, 9876

Request = tuple["Ext", bytes]


def registration(broker_id: int) -> Request:
    """All messages to us: a version that no node will ever have."""
    header = RegisterBrokerRequestHeader(
        "broker-a", HOSTILE, "DefaultCluster", HOSTILE, broker_id, enable_acting_master=False
    )
    topics = TopicConfigSerializeWrapper(
        {name: TopicConfig(topic_name=name) for name in ("T", "TBW102", "mine")},
        DataVersion(state_version=10**9, counter=10**9, timestamp=10**9),
    )
    return header, encode_json_body(RegisterBrokerBody(topics))


def creation(topic: str) -> Request:
    header = CreateTopicRequestHeader(topic, "TBW102", 1, 1, 0, "SINGLE_TAG", 0, order=False)
    return header, b""


def message(topic: str) -> Request:
    return SendMessageRequestHeaderV2(
        "PG", topic, "TBW102", 1, 0, 0, 1, 0, "WAIT\x01true\x02"
    ), b"x"


def order(command: str, node: str, *, accept_loss: bool) -> Request:
    body: dict[str, Any] = {"command": command, "node": node, "accept_loss": accept_loss}
    return None, msgspec.json.encode(body)


BAD_FIELDS: Final[dict[int, list[dict[str, str]]]] = {
    RequestCode.DELETE_TOPIC_IN_BROKER: [
        {"topic": topic} for topic in ("TBW102", "DefaultCluster", "broker-a", JOURNAL_TOPIC)
    ],
    RequestCode.DELETE_TOPIC_IN_NAMESRV: [{"topic": topic} for topic in ("T", "TBW102")],
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: [{"brokerName": "broker-a"}],
    RequestCode.ADD_WRITE_PERM_OF_BROKER: [{"brokerName": "broker-a"}],
}


def worst(code: int, master: str, other: str) -> Iterator[Request]:
    """The worst that can be asked by a code; of most codes there is nothing worse than nothing."""
    match code:
        case RequestCode.REGISTER_BROKER:
            yield from map(registration, (0, 1, 2, 3, 9))
        case RequestCode.UNREGISTER_BROKER:
            for broker_id in range(4):
                for node in (master, other):
                    address = f"{node}:{CLIENT_PORT}"
                    yield (
                        UnregisterBrokerRequestHeader(
                            "broker-a", address, "DefaultCluster", broker_id
                        ),
                        b"",
                    )
        case RequestCode.FENCED_COMMAND:
            for accept_loss, command in product((False, True), ("promote", "resign", "rejoin")):
                yield order(command, "a1", accept_loss=accept_loss)
                yield order(command, "a2", accept_loss=accept_loss)
        case RequestCode.LOG_FINGERPRINTS | RequestCode.LOG_BYTES | RequestCode.LOG_DAMAGED:
            yield LogRangeHeader(0, 10), b""
        case RequestCode.UPDATE_AND_CREATE_TOPIC:
            names = ("TBW102", "DefaultCluster", "broker-a", JOURNAL_TOPIC, "rmq_sys_mine")
            yield from map(creation, names)
        case RequestCode.SEND_MESSAGE_V2:
            yield from map(message, (JOURNAL_TOPIC, "SCHEDULE_TOPIC_XXXX", "rmq_sys_mine"))
    yield from ((fields, b"") for fields in BAD_FIELDS.get(code, ()))
    yield None, b""


async def seen(world: World) -> list[object]:
    """Routes, epochs, replicas and topics of the system, as every node has them."""
    found: list[object] = []
    for name in NAMES:
        status = await world.status(name)
        found += [status.role, status.epoch, status.isr, status.incarnation, status.master]
        for port in (CLIENT_PORT, NAME_SERVER_PORT):
            async with world.client(world.address(name), port) as client:
                answer = await client.call(RequestCode.GET_BROKER_CLUSTER_INFO)
                found.append(decode_json_body(answer.body, ClusterInfo))
                found.append(await client.route("T"))
        async with world.client(world.address(name)) as client:
            answer = await client.call(RequestCode.GET_ALL_TOPIC_CONFIG)
            topics = decode_json_body(answer.body, TopicConfigSerializeWrapper).topic_config_table
            system = {"DefaultCluster", "broker-a"}
            found.append(
                {n: each for n, each in topics.items() if is_system_topic(n) or n in system}
            )
    return found


async def settled(world: World) -> list[object]:
    """Wait until nothing of it moves any more."""
    before: list[object] = []
    while before != (before := await seen(world)):
        await trio.sleep(8)
    return before


async def ask(client: Caller, code: int, request: Request) -> RemotingCommand | None:
    with trio.move_on_after(5):
        return await client.call(code, *request)
    return None


@pytest.mark.slow
async def test_a_stranger_changes_no_route_epoch_replica_or_topic_of_the_system(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        async with world.client(world.address(master)) as client:
            assert (await client.send(b"x")).code == 0
        before = await settled(world)
        other = next(name for name in NAMES if name != master)
        for name in NAMES:
            for port in (CLIENT_PORT, NAME_SERVER_PORT):
                for code in REQUESTS:
                    async with world.client(world.address(name), port) as client:
                        for request in worst(code, world.address(master), world.address(other)):
                            answer = await ask(client, code, request)
                            if (
                                needed(REQUESTS[code].access) >= Standing.OPERATOR
                                and answer is not None
                            ):
                                refused = {ResponseCode.NO_PERMISSION}
                                if port == NAME_SERVER_PORT:
                                    refused.add(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
                                assert answer.code in refused
                                if answer.code != ResponseCode.NO_PERMISSION:
                                    continue
                                assert "--config" in (answer.remark or "")
            assert await seen(world) == before, name
        assert await settled(world) == before


@pytest.mark.slow
async def test_who_knows_the_secret_is_obeyed(tmp_path: Path, autojump_clock: object) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        target = f"{world.address(master)}:{CLIENT_PORT}"
        async with world.client(world.address(master)) as client:
            assert (await client.send(b"x")).code == 0
            answer = await client.call_signed(
                RequestCode.UPDATE_AND_CREATE_TOPIC, *creation("TBW102"), target=target
            )
            assert answer.code == 0, answer.remark
            answer = await client.call_signed(
                RequestCode.REGISTER_BROKER, *registration(9), target=target
            )
            assert answer.code == 0, answer.remark
            assert (await client.route("T"))[9] == HOSTILE
            answer = await client.call_signed(
                RequestCode.UNREGISTER_BROKER,
                UnregisterBrokerRequestHeader("broker-a", HOSTILE, "DefaultCluster", 9),
                target=target,
            )
            assert answer.code == 0
            assert 9 not in await client.route("T")
        before = (await world.status(master)).epoch
        async with world.client(world.address(master)) as client:
            body = msgspec.json.encode(FencedCommand(command="resign"))
            # Others have to have followed for a while, and to have said so.
            with trio.fail_after(PATIENCE_SECONDS):
                is_done = False
                while not is_done:
                    await trio.sleep(0.1)
                    answer = await client.call_signed(
                        RequestCode.FENCED_COMMAND, body=body, target=target
                    )
                    is_done = msgspec.json.decode(answer.body, type=FencedCommandResult).done
        await world.master(*(name for name in NAMES if name != master), after=before)


async def test_a_code_without_declaration_is_not_served(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start("a1")
        async with world.client("10.0.0.1") as client:
            for code in RequestCode:
                if code in REQUESTS or code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                    continue
                answer = await client.call(code)
                assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, code


def test_an_admitted_broker_may_register_itself_and_nothing_else() -> None:
    registering = {RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER}
    above_strangers = {
        code for code, each in REQUESTS.items() if needed(each.access) > Standing.STRANGER
    }
    of_operators = {
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        *(code for code in RequestCode if code.name.startswith("AUTH_")),
    }
    of_nodes = {
        RequestCode.GET_ALL_USERS,
        RequestCode.FENCED_COMMAND,
        RequestCode.LOG_FINGERPRINTS,
        RequestCode.LOG_BYTES,
        RequestCode.LOG_DAMAGED,
    }
    assert above_strangers == registering | of_operators | of_nodes
    assert {needed(REQUESTS[code].access) for code in of_operators} == {Standing.OPERATOR}
    assert {needed(REQUESTS[code].access) for code in registering} == {Standing.ADMITTED}
    assert {needed(REQUESTS[code].access) for code in of_nodes} == {Standing.NODE}
    assert needed((Resource.SYSTEM_TOPICS, Action.WRITE)) is Standing.OPERATOR


@pytest.mark.parametrize("resource", list(Resource))
def test_every_resource_is_one_that_a_request_is_about(resource: Resource) -> None:
    known = {each.access[0] for each in REQUESTS.values()}
    assert resource in known | {Resource.SYSTEM_TOPICS}

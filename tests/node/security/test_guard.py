from __future__ import annotations

import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from node.name_server.name_server import NameServer
from node.remoting.remoting_client import open_client
from node.security.guard import CHALLENGES_MAX, Guard
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    DataVersion,
    RegisterBrokerBody,
    RegisterBrokerRequestHeader,
    TopicConfig,
    TopicConfigSerializeWrapper,
    UnregisterBrokerRequestHeader,
)
from tandem.wire.request_signature import ChallengeBody, signed
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import decode_json_body, encode_json_body
from tandem.wire.secret_keys import Purpose, key_of
from tests.node.fenced_world import fenced_cluster
from tests.node.world import Caller
from tests.support.secret import SECRET
from tests.support.simulated_network import SimulatedNetwork
from tests.support.virtual_clock import Timeline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from node.remoting.remoting_client import RemotingClient
    from tandem.wire.remoting_command import RemotingCommand

SERVER, PORT, TARGET = "10.0.0.1", 9876, "10.0.0.1:10911"
LEARNER = "10.0.0.7"
KEY = key_of(SECRET, Purpose.REQUEST)


class Server:
    """A name server of a cluster that admits a learner, and machines to ask it from."""

    def __init__(self, names: NameServer, network: SimulatedNetwork) -> None:
        self.names = names
        self._machines = {ip: network.machine(ip) for ip in ("10.0.0.9", LEARNER)}

    @asynccontextmanager
    async def client(self, ip: str = "10.0.0.9") -> AsyncIterator[RemotingClient]:
        async with open_client(
            self._machines[ip], SERVER, PORT, source=None, timeout_seconds=5
        ) as client:
            yield client


@asynccontextmanager
async def open_server(directory: Path) -> AsyncIterator[Server]:
    timeline = Timeline()
    network = SimulatedNetwork(timeline, random.Random(1))
    config = fenced_cluster(directory, learners=LEARNER).node("a1")
    names = NameServer(config, Guard(config, random.Random(2)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timeline.run)
        await nursery.start(names.run, network.machine(SERVER))
        yield Server(names, network)
        nursery.cancel_scope.cancel()


def registration(
    address: str = f"{LEARNER}:10911", broker_id: int = 9, *, cluster: str = "DefaultCluster"
) -> tuple[RegisterBrokerRequestHeader, bytes]:
    header = RegisterBrokerRequestHeader(
        "broker-a", address, cluster, address, broker_id, enable_acting_master=True
    )
    topics = {name: TopicConfig(topic_name=name) for name in ("T", "U")}
    version = DataVersion(state_version=99, counter=9, timestamp=9)
    return header, encode_json_body(
        RegisterBrokerBody(TopicConfigSerializeWrapper(topics, version))
    )


async def call(client: RemotingClient, *arguments: object, **named: object) -> RemotingCommand:
    return await Caller(client).call(*arguments, **named)  # type: ignore[arg-type]


async def challenge(client: RemotingClient) -> str:
    answer = await client.request(RequestCode.NODE_CHALLENGE)
    return decode_json_body(answer.body, ChallengeBody).challenge


async def give(
    client: RemotingClient, number: str, *, key: bytes = KEY, target: str = TARGET, spoil: str = ""
) -> str:
    """Send a registration signed with that number; return "" or why it was refused."""
    header, body = registration("10.0.0.2:10911", 2)
    fields = {
        "brokerName": "broker-a",
        "brokerAddr": header.broker_addr,
        "clusterName": header.cluster_name,
        "haServerAddr": "",
        "brokerId": "2",
    }
    code = RequestCode.REGISTER_BROKER
    own = signed(key, code, fields, body, challenge=number, target=target)
    if spoil == "body":
        body += b" "
    elif spoil:
        own[spoil] = "3"
    answer = await call(client, code, own, body)
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION)
    return answer.remark or ""


async def test_a_number_is_good_for_one_signature_on_its_connection(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with open_server(tmp_path) as server, server.client() as client:
        number = await challenge(client)
        assert await give(client, number) == ""
        assert "used up" in await give(client, number)
        number = await challenge(client)
        async with server.client() as other:
            assert "of another connection" in await give(other, number)
        assert "used up" in await give(client, "")
        # A peer cannot make us remember more and more of them.
        first, *others = [await challenge(client) for _ in range(CHALLENGES_MAX + 1)]
        assert len({first, *others}) == CHALLENGES_MAX + 1
        assert "used up" in await give(client, first)
        assert await give(client, others[0]) == ""


async def test_what_is_signed_cannot_be_changed_or_meant_for_another_node(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with open_server(tmp_path) as server, server.client() as client:
        for spoil in ("brokerId", "clusterName", "tandemTarget", "tandemSignature", "more", "body"):
            words = await give(client, await challenge(client), spoil=spoil)
            assert "another secret" in words, spoil
            assert "secret_file" in words
        other = key_of(SECRET, Purpose.LINK)
        assert "another secret" in await give(client, await challenge(client), key=other)
        words = await give(client, await challenge(client), target="10.0.0.3:10911")
        assert "signed for '10.0.0.3:10911', and this is a1" in words
        assert server.names.routes.cluster_info().broker_addr_table == {}


async def test_a_learner_registers_itself_and_nothing_else(
    tmp_path: Path, autojump_clock: object
) -> None:
    code = RequestCode.REGISTER_BROKER
    async with open_server(tmp_path) as server:
        routes = server.names.routes
        async with server.client() as stranger:
            answer = await call(stranger, code, *registration())
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "security.rocketmq_brokers" in (answer.remark or "")
        async with server.client(LEARNER) as learner:
            for wrong, words in (
                (registration(broker_id=0), "broker id 0 belongs to a node"),
                (registration(broker_id=2), "broker id 2 belongs to a node"),
                (registration("10.0.0.1:10911"), "not the one that it dials from"),
                (registration("10.0.0.8:10911"), "not the one that it dials from"),
                (registration(cluster="other"), "is not this one"),
            ):
                answer = await call(learner, code, *wrong)
                assert answer.code == ResponseCode.NO_PERMISSION
                assert words in (answer.remark or "")
            assert routes.cluster_info().broker_addr_table == {}
            assert (await call(learner, code, *registration())).code == 0
            assert routes.is_live(f"{LEARNER}:10911")
            # What the group's topics are, its own nodes say.
            assert routes.topics() == []
            leaving = UnregisterBrokerRequestHeader(
                "broker-a", f"{LEARNER}:10911", "DefaultCluster", 9
            )
            assert (await call(learner, RequestCode.UNREGISTER_BROKER, leaving)).code == 0
            assert not routes.is_live(f"{LEARNER}:10911")

"""A name server whose guard is asked, and requests to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from node.name_server.name_server import NameServer
from node.remoting.remoting_client import RemotingClient, open_client
from node.simulated.network import SimulatedNetwork
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_headers import (
    DataVersion,
    RegisterBrokerBody,
    RegisterBrokerRequestHeader,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tandem.wire.route import encode_json_body
from tandem.wire.secret_keys import Purpose, key_of
from tests.node.world import Caller, fenced_cluster, open_name_server
from tests.support.secret import SECRET

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
    config = fenced_cluster(directory, learners=LEARNER).node("a1")
    async with open_name_server(config) as (names, network):
        yield Server(names, network)


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

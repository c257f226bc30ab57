import pytest
import trio
from trio.testing import MockClock

from tandem.client import Admin
from tandem.client.errors import RouteNotFoundError
from tandem.views.discovery import Discovery
from tandem.wire.request_code import RequestCode
from tandem.wire.route import BrokerData, ClusterInfo, encode_json_body
from tests.tandem.client.fake_broker import FakeBroker, FakeNetwork, answer_to
from tests.tandem.views.fake_group import Nodes
from tests.tandem.views.group_samples import MEMBERS

CLASSIC = "10.0.0.9:10911"
ADDRESSES = [member.address for member in MEMBERS]
INFO = ClusterInfo(
    {
        "g": BrokerData(broker_name="g", broker_addrs=dict(enumerate(ADDRESSES))),
        "old": BrokerData(broker_name="old", broker_addrs={0: CLASSIC, 1: "10.0.0.8:1"}),
    },
    {"C": ["g", "old"]},
)


async def test_nodes_are_found_and_stay_known_when_they_end(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    brokers = {**nodes.brokers, CLASSIC: FakeBroker()}
    known = INFO
    for broker in brokers.values():
        broker.handlers[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda request: answer_to(
            request, body=encode_json_body(known)
        )
    async with trio.open_nursery() as nursery:
        network = FakeNetwork(nursery, brokers)
        async with Admin(ADDRESSES, open_stream=network.open_stream) as admin:
            found = Discovery()
            await found.look(admin)
            assert found.cluster == "C"
            assert found.fenced == {"g": MEMBERS}
            (classic,) = found.classic.values()
            assert (classic.name, classic.role, classic.address) == ("old-0", "MASTER", "10.0.0.9")
            assert "10.0.0.8:1" in found.addresses
            known = ClusterInfo({}, {})
            await found.look(admin)
            assert (found.cluster, found.fenced) == ("C", {"g": MEMBERS})
            brokers.clear()
            await network.cut()
            with pytest.raises(RouteNotFoundError):
                await found.look(admin)
        nursery.cancel_scope.cancel()

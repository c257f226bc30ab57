from __future__ import annotations

from typing import TYPE_CHECKING

from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import UnregisterBrokerRequestHeader
from tandem.wire.response_code import ResponseCode
from tests.node.security.guarded_server import LEARNER, call, open_server, registration

if TYPE_CHECKING:
    from pathlib import Path


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

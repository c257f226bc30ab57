from pathlib import Path

import pytest
from trio.testing import MockClock

from node.grpc.protocol import messages as pb
from tandem.wire.request_code import RequestCode
from tests.node.grpc.grpc_world import endpoints, make_topic, with_grpc
from tests.node.grpc.h2_client import Client, open_client
from tests.node.world import MASTER, SLAVE_1, cluster_config, open_world

pytestmark = pytest.mark.slow


async def route(client: Client, topic: str, *hosts: str) -> pb.QueryRouteResponse:
    request = pb.QueryRouteRequest(endpoints=endpoints(*hosts))
    request.topic.name = topic
    found: pb.QueryRouteResponse = await client.call("QueryRoute", request)
    return found


async def assignment(client: Client, topic: str, group: str) -> pb.QueryAssignmentResponse:
    request = pb.QueryAssignmentRequest(endpoints=endpoints())
    request.topic.name, request.group.name = topic, group
    found: pb.QueryAssignmentResponse = await client.call("QueryAssignment", request)
    return found


async def test_routes_name_the_addresses_that_the_client_has_dialled(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = with_grpc(cluster_config(tmp_path, role="ASYNC_MASTER"))
    async with open_world(config) as world:
        await world.start("a0")
        async with world.client(MASTER) as caller, open_client(world._client, MASTER) as client:
            await make_topic(caller, "T", "FIFO", queues=3)
            found = await route(client, "T", MASTER, SLAVE_1)
            assert found.status.code == pb.OK
            assert [queue.id for queue in found.message_queues] == [0, 1, 2]
            for queue in found.message_queues:
                assert queue.broker.endpoints == endpoints(MASTER, SLAVE_1)
                assert (queue.broker.name, queue.broker.id) == ("broker-a", 0)
                assert queue.permission == pb.READ_WRITE
                assert list(queue.accept_message_types) == [pb.FIFO]
            for topic, code in (
                ("Unknown", pb.TOPIC_NOT_FOUND),
                ("a b!", pb.ILLEGAL_TOPIC),
                ("SCHEDULE_TOPIC_XXXX", pb.ILLEGAL_TOPIC),
            ):
                assert (await route(client, topic)).status.code == code


async def test_every_client_of_a_group_is_assigned_everything(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = with_grpc(cluster_config(tmp_path, role="ASYNC_MASTER"))
    async with open_world(config) as world:
        await world.start("a0")
        async with world.client(MASTER) as caller, open_client(world._client, MASTER) as client:
            await make_topic(caller, "T", queues=3)
            body = b'{"groupName": "fifo", "consumeMessageOrderly": true}'
            made = await caller.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
            assert made.code == 0
            for group, ids in (("g", [-1]), ("fifo", [0, 1, 2])):
                found = await assignment(client, "T", group)
                assert [each.message_queue.id for each in found.assignments] == ids
            for topic, group, code in (
                ("T", "", pb.ILLEGAL_CONSUMER_GROUP),
                ("T", "CID_RMQ_SYS_x", pb.ILLEGAL_CONSUMER_GROUP),
                ("Unknown", "g", pb.TOPIC_NOT_FOUND),
            ):
                assert (await assignment(client, topic, group)).status.code == code

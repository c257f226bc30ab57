from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from node.grpc.call import Call
from node.grpc.http2 import Http2
from node.grpc.protocol import messages as pb
from node.grpc.renewals import Renewals
from node.grpc.session import Session
from node.grpc.telemetry import Telemetry
from node.grpc.transaction_ids import read_transaction_id
from node.grpc.ways import Ways
from node.remoting.caller import ANYBODY, Caller
from tandem.cluster_file.choices import ClientAccess
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.route import QueueData, TopicRouteData
from tests.node.grpc.grpc_world import endpoints, make_topic, message, publishing, send, with_grpc
from tests.node.grpc.h2_client import open_client
from tests.node.grpc.signed import signature
from tests.node.security.users_world import (
    ALICE,
    BOB,
    OPERATOR,
    as_user,
    entry,
    make_user,
    operators_master,
)
from tests.node.world import MASTER, NAMES, cluster_config, fenced_cluster, open_world

pytestmark = pytest.mark.slow


def subscribing(group: str, kind: int = pb.PUSH_CONSUMER) -> pb.TelemetryCommand:
    command = pb.TelemetryCommand()
    command.settings.client_type = kind  # type: ignore[assignment]
    command.settings.subscription.group.name = group
    return command


async def test_settings_come_back_with_all_that_clients_need(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = with_grpc(cluster_config(tmp_path, role="ASYNC_MASTER"))
    async with open_world(config) as world:
        await world.start("a0")
        async with open_client(world._client, MASTER) as client:
            command = publishing("T")
            command.settings.request_timeout.seconds = 7
            command.settings.access_point.CopyFrom(endpoints())
            stream = await client.begin("Telemetry", command, is_end=False)
            reply = await client.until(stream, 1)
            answer = pb.TelemetryCommand.FromString(reply.messages()[0])
            assert answer.status.code == pb.OK
            settings = answer.settings
            assert settings.request_timeout.seconds == 7
            assert settings.access_point == endpoints()
            assert settings.publishing.max_body_size == 100_000
            assert settings.publishing.validate_message_type
            assert settings.backoff_policy.max_attempts == 3
            assert settings.backoff_policy.exponential_backoff.max.seconds == 1
            assert settings.HasField("metric")
            stream = await client.begin("Telemetry", subscribing("g"), is_end=False)
            reply = await client.until(stream, 1)
            settings = pb.TelemetryCommand.FromString(reply.messages()[0]).settings
            assert settings.backoff_policy.max_attempts == 17
            pauses = [each.seconds for each in settings.backoff_policy.customized_backoff.next]
            assert (pauses[0], pauses[-1], len(pauses)) == (1, 7200, 18)
            assert settings.subscription.receive_batch_size == 32
            assert settings.subscription.long_polling_timeout.seconds == 20
            assert settings.subscription.HasField("fifo")


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (pb.TelemetryCommand(settings=pb.Settings()), 3),
        (publishing("a b"), 3),
        (subscribing(""), 3),
        (subscribing("CID_RMQ_SYS_TRANS"), 3),
        (subscribing("g", pb.PULL_CONSUMER), 13),
        (subscribing("g", pb.LITE_PUSH_CONSUMER), 12),
        (subscribing("g", pb.LITE_SIMPLE_CONSUMER), 12),
    ],
)
async def test_settings_that_cannot_be_end_the_stream(
    command: pb.TelemetryCommand, status: int, tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = with_grpc(cluster_config(tmp_path, role="ASYNC_MASTER"))
    async with open_world(config) as world:
        await world.start("a0")
        async with open_client(world._client, MASTER) as client:
            reply = await client.until(await client.begin("Telemetry", command, is_end=False))
            assert reply.status == status
            beat = await client.call("Heartbeat", pb.HeartbeatRequest(client_type=pb.PRODUCER))
            assert beat.status.code == pb.OK, "the connection has to go on"


async def test_heartbeats_of_clients_whose_stream_is_gone_are_good(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = with_grpc(cluster_config(tmp_path, role="ASYNC_MASTER"))
    async with open_world(config) as world:
        await world.start("a0")
        async with open_client(world._client, MASTER) as client:
            for kind, group, code in (
                (pb.PRODUCER, "", pb.OK),
                (pb.SIMPLE_CONSUMER, "g", pb.OK),
                (pb.PUSH_CONSUMER, "", pb.ILLEGAL_CONSUMER_GROUP),
                (pb.PULL_CONSUMER, "g", pb.UNRECOGNIZED_CLIENT_TYPE),
                (pb.LITE_PUSH_CONSUMER, "g", pb.UNRECOGNIZED_CLIENT_TYPE),
            ):
                request = pb.HeartbeatRequest(client_type=kind)
                request.group.name = group
                assert (await client.call("Heartbeat", request)).status.code == code
            bye = pb.NotifyClientTerminationRequest()
            assert (await client.call("NotifyClientTermination", bye)).status.code == pb.OK


@pytest.mark.parametrize("is_asked_at_master", [True, False])
async def test_a_producer_is_asked_about_what_it_left_open_at_whatever_node_it_is(
    is_asked_at_master: bool,  # noqa: FBT001
    tmp_path: Path,
    autojump_clock: MockClock,
) -> None:
    config = with_grpc(
        fenced_cluster(tmp_path),
        transaction_check_interval_ms=2_000,
        transaction_timeout_ms=1_000,
    )
    async with open_world(config) as world:
        await world.start("a1", "a2", "a3")
        master = await world.master()
        other = next(name for name in NAMES if name != master)
        async with world.client(world.address(master)) as caller:
            await make_topic(caller, "X", "TRANSACTION", queues=1)
        await trio.sleep(1)
        host = world.address(master if is_asked_at_master else other)
        async with open_client(world._client, host) as client:
            stream = await client.begin("Telemetry", publishing("X"), is_end=False)
            half = message("X", b"half", message_type=pb.TRANSACTION, tag="t")
            answer = await send(client, half)
            assert answer.status.code == pb.OK, answer.status
            reply = await client.until(stream, 2)
            asked = pb.TelemetryCommand.FromString(reply.messages()[1])
            command = asked.recover_orphaned_transaction_command
            # A half is put again before its producer is asked: it is another place.
            where = read_transaction_id(command.transaction_id)
            assert where.broker_name == "broker-a"
            assert where.message_id == half.system_properties.message_id
            assert (command.message.body, command.message.topic.name) == (b"half", "X")
            system = command.message.system_properties
            assert (system.tag, system.message_type) == ("t", pb.TRANSACTION)
            assert system.message_id == half.system_properties.message_id
            ended = pb.EndTransactionRequest(
                message_id="m",
                transaction_id=command.transaction_id,
                resolution=pb.COMMIT,
                source=pb.SOURCE_SERVER_CHECK,
            )
            ended.topic.name = "X"
            assert (await client.call("EndTransaction", ended)).status.code == pb.OK
            async with world.client(world.address(master)) as caller:
                assert (await caller.pull(topic="X")).code == 0


@pytest.mark.parametrize("is_asked_at_master", [True, False])
async def test_nobody_is_shown_halves_of_a_topic_they_may_not_write(
    is_asked_at_master: bool,  # noqa: FBT001
    tmp_path: Path,
    autojump_clock: MockClock,
) -> None:
    config = with_grpc(
        fenced_cluster(tmp_path, clients=ClientAccess.AUTHORIZED),
        transaction_check_interval_ms=2_000,
        transaction_timeout_ms=1_000,
    )
    async with open_world(config) as world:
        await world.start("a1", "a2", "a3")
        master = await operators_master(world)
        other = next(name for name in NAMES if name != master)
        async with world.client(world.address(master)) as caller:
            await make_user(caller, ALICE, entry("Allow", "Topic:X", "Pub"))
            await make_user(caller, BOB, entry("Allow", "Topic:Y", "Pub"))
            await make_topic(as_user(caller, OPERATOR), "X", "TRANSACTION", queues=1)
        await trio.sleep(1)
        host = world.address(master if is_asked_at_master else other)
        network = world._client
        async with (
            open_client(network, host, signature(ALICE)) as alice,
            open_client(network, host, signature(BOB)) as bob,
        ):
            spying = await bob.begin("Telemetry", publishing("X"), is_end=False)
            await bob.until(spying, 1)
            half = message("X", b"half", message_type=pb.TRANSACTION)
            answer = await send(alice, half)
            assert answer.status.code == pb.OK, answer.status
            await trio.sleep(20)
            assert len(bob.engine.replies[spying].messages()) == 1
            stream = await alice.begin("Telemetry", publishing("X"), is_end=False)
            reply = await alice.until(stream, 2)
            assert reply.messages()[1]
            await trio.sleep(20)
            assert len(bob.engine.replies[spying].messages()) == 1


async def test_streams_end_well_when_their_node_stops(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = with_grpc(cluster_config(tmp_path, role="ASYNC_MASTER"))
    async with open_world(config) as world:
        await world.start("a0")
        async with open_client(world._client, MASTER) as client:
            stream = await client.begin("Telemetry", publishing("T"), is_end=False)
            await client.until(stream, 1)
            await world.stop("a0")
            reply = await client.until(stream)
            assert reply.status == 0
            assert client.engine.went_away == 0


class _Asked:
    """A session whose brokers answer when the test says so."""

    def __init__(self) -> None:
        self.answers: list[Callable[[RemotingCommand], None]] = []

    def ask(self, *args: Any, body: bytes) -> Caller:  # noqa: ANN401
        self.answers.append(args[-1])
        return ANYBODY


class _Ways:
    def to(self, _broker_name: str) -> None:
        pass


def test_who_has_left_is_not_asked_though_a_broker_hears_of_it_late() -> None:
    """While its broker has no master, for instance: a stream that is kept is never let go."""
    data = QueueData(broker_name="broker-a", read_queue_nums=1, write_queue_nums=1, perm=6)
    route = TopicRouteData(queue_datas=[data], broker_datas=[])
    telemetry = Telemetry(
        cast("Ways", _Ways()), lambda _: route, lambda _: None, Renewals(), "broker-a", 1 << 22
    )
    asked = _Asked()
    call = Call(Http2(), 1, "Telemetry", {"x-mq-client-id": "c"}, 0.0)
    session = cast("Session", asked)
    telemetry.telemetry(session, call, publishing("T", "Other"))
    (before,) = asked.answers
    telemetry.telemetry(session, call, publishing("Other"))
    before(RemotingCommand(0))
    assert list(telemetry._by_topic) == ["Other"]
    call.gone()
    assert (telemetry.count, telemetry._by_topic) == (0, {})

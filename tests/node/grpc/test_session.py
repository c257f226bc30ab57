"""Connections of gRPC at whole nodes: detection, bounds, hostile peers, and who is served."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from node.grpc import entrance, session
from node.grpc.call import MESSAGE_BYTES_MAX
from node.grpc.call_counts import CallCounts
from node.grpc.frames import ENHANCE_YOUR_CALM, PREFACE, frame, settings_frame
from node.grpc.protocol import messages as pb
from node.grpc.session import Session
from node.remoting.server import IDLE_SCAN_SECONDS, IDLE_SECONDS_MAX
from store.machine.network import ConnectionLost
from tandem.cluster_file.choices import ClientAccess
from tandem.wire.frame_seal import Signatures
from tests.node.figures.seen import by_name
from tests.node.grpc.grpc_world import (
    endpoints,
    make_topic,
    message,
    publishing,
    receiving,
    send,
    with_grpc,
)
from tests.node.grpc.h2_client import Client, open_client
from tests.node.grpc.signed import signature
from tests.node.security.users_world import (
    ALICE,
    BOB,
    OPERATOR,
    STRANGER,
    as_user,
    entry,
    make_user,
)
from tests.node.world import MASTER, World, cluster_config, open_world

pytestmark = pytest.mark.slow


@pytest.fixture
async def world(tmp_path: Path, autojump_clock: MockClock) -> AsyncIterator[World]:
    config = with_grpc(cluster_config(tmp_path, role="ASYNC_MASTER"))
    async with open_world(config) as world:
        await world.start("a0")
        async with world.client(MASTER) as caller:
            await make_topic(caller, "T", queues=1)
        yield world


async def test_both_protocols_are_served_at_one_port_also_byte_by_byte(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.client(MASTER) as caller, open_client(world._client, MASTER) as client:
        assert (await caller.send(b"remoting")).code == 0
        assert (await send(client, message())).status.code == pb.OK
    stream = await world._client.connect(MASTER, 10911, source=None)
    client = Client(stream, {})
    stream_id = client.engine.begin("Heartbeat")
    request = pb.HeartbeatRequest(client_type=pb.PRODUCER)
    client.engine.send(stream_id, request.SerializeToString())
    for byte in client.engine.h2.data_to_send():
        await stream.send_all(bytes([byte]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.run)
        assert (await client.until(stream_id)).status == 0
        nursery.cancel_scope.cancel()
    stream.close_nowait()


async def test_a_node_that_does_not_serve_it_ends_the_connection(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path, role="ASYNC_MASTER")) as world:
        await world.start("a0")
        stream = await world._client.connect(MASTER, 10911, source=None)
        await stream.send_all(PREFACE + settings_frame({}))
        with pytest.raises(ConnectionLost):
            while await stream.receive_some(100):
                pass
            raise ConnectionLost("ended in order")


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/apache.rocketmq.v2.MessagingService/Nothing", {}, 12),
        ("/other.Service/SendMessage", {}, 12),
        ("PullMessage", {}, 12),
        ("SyncLiteSubscription", {}, 12),
        ("SendMessage", {"content_type": "text/html"}, 3),
    ],
)
async def test_what_is_not_served_is_refused_by_a_status_of_grpc(
    path: str, headers: dict[str, str], status: int, world: World, autojump_clock: MockClock
) -> None:
    async with open_client(world._client, MASTER, headers) as client:
        reply = await client.until(await client.begin(path, pb.HeartbeatRequest()))
        assert reply.status == status


async def test_a_client_without_an_id_is_refused(world: World, autojump_clock: MockClock) -> None:
    async with open_client(world._client, MASTER, {"x_mq_client_id": " "}) as client:
        assert (await send(client, message())).status.code == pb.CLIENT_ID_REQUIRED


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 13),
        (b"\0\0\0\0", 13),
        (b"\0\0\0\0\2\xff\xff", 13),
        (b"\1\0\0\0\1x", 12),
        (b"\0\0\0\0\0" * 2, 13),
        (b"\0" + (MESSAGE_BYTES_MAX + 1).to_bytes(4, "big") + b"x", 8),
    ],
)
async def test_a_message_that_cannot_be_read_ends_its_call_alone(
    data: bytes, status: int, world: World, autojump_clock: MockClock
) -> None:
    async with open_client(world._client, MASTER) as client:
        stream_id = client.engine.begin("SendMessage")
        client.engine.h2.send_data(stream_id, data, end_stream=True)
        await client.flush()
        assert (await client.until(stream_id)).status == status
        assert (await send(client, message())).status.code == pb.OK


async def test_a_reset_call_is_forgotten_and_others_are_answered(
    world: World, autojump_clock: MockClock
) -> None:
    async with open_client(world._client, MASTER) as client:
        for _ in range(50):
            stream_id = client.engine.begin("SendMessage")
            client.engine.h2.reset_stream(stream_id)
        assert (await send(client, message())).status.code == pb.OK


async def test_hostile_bytes_end_their_connection_and_a_canary_is_served(
    world: World, autojump_clock: MockClock
) -> None:
    chance = random.Random(5)
    async with open_client(world._client, MASTER) as canary:
        for _ in range(150):
            stream = await world._client.connect(MASTER, 10911, source=None)
            kind, flags = chance.randrange(11), chance.randrange(256)
            data = PREFACE + settings_frame({})
            for _ in range(chance.randrange(6)):
                payload = chance.randbytes(chance.randrange(60))
                data += frame(kind, flags, chance.randrange(6), payload)
            await stream.send_all(data + chance.randbytes(chance.randrange(40)))
            if chance.random() < 0.5:
                stream.close_nowait()
            assert (await send(canary, message())).status.code == pb.OK


async def test_a_slow_reader_keeps_nobody_up(world: World, autojump_clock: MockClock) -> None:
    stream = await world._client.connect(MASTER, 10911, source=None)
    client = Client(stream, {})
    async with open_client(world._client, MASTER) as canary:
        route = pb.QueryRouteRequest(endpoints=endpoints())
        route.topic.name = "T"
        for _ in range(100):
            stream_id = client.engine.begin("QueryRoute")
            client.engine.send(stream_id, route.SerializeToString())
        await stream.send_all(client.engine.h2.data_to_send())
        for _ in range(20):
            assert (await send(canary, message())).status.code == pb.OK
    stream.close_nowait()


async def make_users(world: World) -> None:
    async with world.client(MASTER) as caller:
        await make_user(caller, ALICE, entry("Allow", "Topic:T", "Pub"))
        await make_user(caller, BOB, entry("Allow", "Topic:Other", "Pub", "Sub"))
        await make_topic(as_user(caller, OPERATOR), "T", queues=1)


@pytest.mark.parametrize("clients", [ClientAccess.AUTHENTICATED, ClientAccess.AUTHORIZED])
async def test_users_are_asked_for_as_on_the_other_protocol(
    clients: ClientAccess, tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = with_grpc(cluster_config(tmp_path, role="ASYNC_MASTER", clients=clients))
    is_authorized = clients is ClientAccess.AUTHORIZED
    async with open_world(config) as world:
        await world.start("a0")
        await make_users(world)
        good, wrong = signature(ALICE), signature((ALICE[0], "another secret"))
        upper = good | {"authorization": good["authorization"].replace("alice", "alice//Rocketmq")}
        name, _, digest = upper["authorization"].rpartition("=")
        upper["authorization"] = f"{name}={digest.upper()}"
        for headers, code in (
            (good, pb.OK),
            (upper, pb.OK),
            (signature(ALICE, "19990101T000000Z"), pb.OK),
            (wrong, pb.UNAUTHORIZED),
            (signature(STRANGER), pb.UNAUTHORIZED),
            (signature(OPERATOR), pb.UNAUTHORIZED),
            ({}, pb.UNAUTHORIZED),
            ({"authorization": good["authorization"]}, pb.UNAUTHORIZED),
            ({"authorization": "oneword", "x_mq_date_time": "x"}, pb.UNAUTHORIZED),
            (signature(("", "")), pb.UNAUTHORIZED),
            (good | {"x_mq_date_time": "20261125T183839Z"}, pb.UNAUTHORIZED),
            (signature(BOB), pb.FORBIDDEN if is_authorized else pb.OK),
        ):
            async with open_client(world._client, MASTER, headers) as client:
                answer = await send(client, message())
                found = answer.entries[0].status if answer.entries else answer.status
                assert found.code == code, (headers, answer)
                route = pb.QueryRouteRequest(endpoints=endpoints())
                route.topic.name = "T"
                seen = await client.call("QueryRoute", route)
                assert seen.status.code == code


async def test_a_signature_that_can_be_sent_again_is_not_taken_where_that_is_asked(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = with_grpc(
        cluster_config(tmp_path, role="ASYNC_MASTER", clients=ClientAccess.AUTHENTICATED)
    )
    security = msgspec.structs.replace(config.security, signatures=Signatures.REPLAY_PROOF)
    async with open_world(msgspec.structs.replace(config, security=security)) as world:
        await world.start("a0")
        async with open_client(world._client, MASTER, signature(ALICE)) as client:
            route = pb.QueryRouteRequest(endpoints=endpoints())
            route.topic.name = "T"
            seen = await client.call("QueryRoute", route)
            assert seen.status.code in (pb.FORBIDDEN, pb.TOO_MANY_REQUESTS)


async def test_a_connection_that_is_idle_for_long_is_said_goodbye_to(
    world: World, autojump_clock: MockClock
) -> None:
    async with open_client(world._client, MASTER) as client:
        assert (await send(client, message())).status.code == pb.OK
        await trio.sleep(IDLE_SECONDS_MAX + 2 * IDLE_SCAN_SECONDS)
        assert client.engine.went_away == 0


async def test_a_client_that_is_there_keeps_its_stream_though_it_says_nothing(
    world: World, autojump_clock: MockClock
) -> None:
    """A client that takes its addresses by turns has its heartbeats at other nodes, by chance."""
    async with open_client(world._client, MASTER) as client:
        stream = await client.begin("Telemetry", publishing("T"), is_end=False)
        await client.until(stream, 1)
        await trio.sleep(2 * IDLE_SECONDS_MAX)
        assert client.engine.went_away is None
        assert not client.engine.replies[stream].is_over


async def test_a_client_that_gives_no_sign_of_life_loses_its_stream(
    world: World, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with open_client(world._client, MASTER) as client:
        stream = await client.begin("Telemetry", publishing("T"), is_end=False)
        await client.until(stream, 1)
        monkeypatch.setattr(client, "flush", trio.lowlevel.checkpoint)
        await trio.sleep(IDLE_SECONDS_MAX + 4 * IDLE_SCAN_SECONDS)
        assert client.engine.went_away == 0
        reply = client.engine.replies[stream]
        assert (reply.is_over, reply.status) == (True, 0)


async def test_who_has_too_much_kept_for_it_is_ended(
    world: World, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Messages that are not whole on many streams, each within the bounds of one."""
    monkeypatch.setattr(session, "KEPT_BYTES_MAX", 100_000)
    async with (
        open_client(world._client, MASTER) as client,
        open_client(world._client, MASTER) as canary,
    ):
        for _ in range(10):
            assert client.engine.went_away is None
            stream_id = client.engine.begin("SendMessage")
            client.engine.h2.send_data(stream_id, b"\0\0\1\0\0" + b"x" * 10_000)
            await client.flush()
            assert (await send(canary, message())).status.code == pb.OK
        await trio.sleep(1)
        assert client.engine.went_away == ENHANCE_YOUR_CALM


async def test_what_is_kept_of_headers_counts(
    world: World, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    made: list[Session] = []

    def make(*given: Any) -> Session:  # noqa: ANN401 - what it is made of
        made.append(Session(*given))
        return made[-1]

    monkeypatch.setattr(entrance, "Session", make)
    headers = {"authorization": "a" * 5_000, "x_mq_date_time": "b" * 5_000}
    async with open_client(world._client, MASTER, headers) as client:
        for _ in range(9):
            await client.begin("SendMessage", pb.SendMessageRequest(), is_end=False)
        await trio.sleep(1)
        (found,) = made
        assert found.kept_bytes >= 90_000
        assert found.connection.unfinished_bytes == found.kept_bytes
        for stream_id in list(client.engine.replies):
            client.engine.h2.reset_stream(stream_id)
        await client.flush()
        await trio.sleep(1)
        assert (found.kept_bytes, found.connection.unfinished_bytes) == (0, 0)


async def test_calls_are_counted_by_how_they_ended(
    world: World, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    made: list[CallCounts] = []
    began = CallCounts.began

    def noted(counts: CallCounts, method: str) -> None:
        made.append(counts)
        began(counts, method)

    monkeypatch.setattr(CallCounts, "began", noted)
    async with open_client(world._client, MASTER) as client:
        await send(client, message())
        await send(client, message("Unknown"))
        await client.until(await client.begin("Nothing", pb.HeartbeatRequest()))
        request = receiving(poll_seconds=20, expression="nothing")
        waiting = await client.begin("ReceiveMessage", request)
        stream = await client.begin("Telemetry", publishing("T"), is_end=False)
        await client.until(stream, 1)
        found = by_name(made[0].figures())
        assert found["tandem_grpc_connections"] == [({}, 1)]
        is_open = {labels["method"]: count for labels, count in found["tandem_grpc_open_calls"]}
        assert is_open == {"SendMessage": 0, "ReceiveMessage": 1, "Telemetry": 1}
        client.engine.h2.reset_stream(waiting)
        await client.flush()
        await trio.sleep(1)
    await trio.sleep(1)
    found = by_name(made[0].figures())
    ended = {tuple(labels.values()): n for labels, n in found["tandem_grpc_calls_total"]}
    assert ended == {
        ("SendMessage", "ok"): 1,
        ("SendMessage", "message_property_conflict_with_type"): 1,
        ("other", "grpc_unimplemented"): 1,
        ("ReceiveMessage", "given_up"): 1,
        ("Telemetry", "ok"): 1,
    }
    assert found["tandem_grpc_connections"] == [({}, 0)]
    assert {count for _, count in found["tandem_grpc_open_calls"]} == {0}

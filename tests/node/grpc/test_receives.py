import logging
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio
from h2.settings import SettingCodes
from trio.testing import MockClock

from node.grpc.frames import DATA, frame
from node.grpc.protocol import messages as pb
from node.grpc.receives import Receives
from tandem.cluster_file.choices import ClientAccess
from tandem.wire.request_code import RequestCode
from tests.node.grpc.grpc_world import (
    acknowledge,
    all_of,
    begun,
    make_topic,
    message,
    receive,
    receiving,
    send,
    with_grpc,
)
from tests.node.grpc.h2_client import Client, open_client
from tests.node.grpc.signed import signature
from tests.node.security.users_world import ALICE, BOB, OPERATOR, as_user, entry, make_user
from tests.node.world import (
    MASTER,
    NAMES,
    Caller,
    World,
    cluster_config,
    fenced_cluster,
    open_world,
)
from tests.support.logged import logged

pytestmark = [pytest.mark.slow, pytest.mark.sim]


@pytest.fixture
async def world(tmp_path: Path, autojump_clock: MockClock) -> AsyncIterator[World]:
    config = with_grpc(cluster_config(tmp_path, role="ASYNC_MASTER"), enable_property_filter=True)
    async with open_world(config) as world:
        await world.start("a0")
        async with world.client(MASTER) as caller:
            await make_topic(caller, "T", queues=2)
        yield world


async def test_messages_come_with_all_they_had_and_not_again_once_acknowledged(
    world: World,
    autojump_clock: MockClock,
) -> None:
    async with open_client(world._client, MASTER) as client:
        await begun(client)
        sent = [message("T", b"%d" % number, number, tag="a", keys=["k"]) for number in range(8)]
        for each in sent:
            each.user_properties["p"] = "v"
            assert (await send(client, each)).status.code == pb.OK
        found = await all_of(client, 8, receiving())
        assert sorted(each.body for each in found) == [b"%d" % number for number in range(8)]
        for each in found:
            system = each.system_properties
            assert (system.tag, list(system.keys), system.delivery_attempt) == ("a", ["k"], 1)
            assert dict(each.user_properties) == {"p": "v"}
            assert each.topic.name == "T"
        handles = [each.system_properties.receipt_handle for each in found]
        answer = await acknowledge(client, *handles)
        assert answer.status.code == pb.OK
        assert [entry.status.code for entry in answer.entries] == [pb.OK] * 8
        await trio.sleep(60)
        assert (await receive(client, receiving())).messages == []


async def test_a_body_that_has_changed_in_the_log_is_not_sent_and_comes_when_it_is_whole(
    world: World, tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_client(world._client, MASTER) as client:
        await begun(client)
        assert (await send(client, message("T", b"the body"))).status.code == pb.OK
        log = world.disks["a0"].open(f"{tmp_path}/data/a0/commitlog/{0:020d}")
        at = bytes(log.buffer).index(b"the body")
        log.buffer[at] ^= 1
        assert (await receive(client, receiving(invisible_seconds=10))).messages == []
        warned = logged(caplog, "node.grpc.receives", logging.WARNING)
        assert len(warned) == 1
        log.buffer[at] ^= 1
        await trio.sleep(11)
        (again,) = await all_of(client, 1, receiving())
        assert (again.body, again.system_properties.delivery_attempt) == (b"the body", 2)


async def test_a_receive_waits_for_a_message_and_ends_before_its_client_gives_up(
    world: World,
    autojump_clock: MockClock,
) -> None:
    async with open_client(world._client, MASTER, {"grpc_timeout": "8S"}) as client:
        await begun(client)
        began = trio.current_time()
        empty = await receive(client, receiving(poll_seconds=20))
        assert empty.status.code == pb.MESSAGE_NOT_FOUND
        assert 6 <= trio.current_time() - began < 7
        stream = await client.begin("ReceiveMessage", receiving())
        await trio.sleep(2)
        async with open_client(world._client, MASTER) as producer:
            await send(producer, message("T", b"at last"))
        began = trio.current_time()
        reply = await client.until(stream)
        assert trio.current_time() - began < 0.5
        assert len(reply.messages()) == 3


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": ""}, pb.ILLEGAL_CONSUMER_GROUP),
        ({"group": "CID_RMQ_SYS_x"}, pb.ILLEGAL_CONSUMER_GROUP),
        ({"topic": "a b"}, pb.ILLEGAL_TOPIC),
        ({"topic": "Unknown"}, pb.TOPIC_NOT_FOUND),
        ({"invisible_seconds": 9}, pb.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_seconds": 43_201}, pb.ILLEGAL_INVISIBLE_TIME),
        ({"filter_type": pb.SQL, "expression": "a >"}, pb.INTERNAL_SERVER_ERROR),
    ],
)
async def test_what_cannot_be_received_is_refused_by_code_with_the_time_at_the_end(
    fields: dict[str, Any], code: int, world: World, autojump_clock: MockClock
) -> None:
    async with open_client(world._client, MASTER) as client:
        batch = await receive(client, receiving(**fields))
        assert (batch.status.code, batch.messages) == (code, [])


async def test_too_short_a_deadline_is_refused(world: World, autojump_clock: MockClock) -> None:
    async with open_client(world._client, MASTER, {"grpc_timeout": "3S"}) as client:
        assert (await receive(client, receiving())).status.code == pb.ILLEGAL_POLLING_TIME


async def test_filters_by_tag_and_by_sql_give_what_matches_alone(
    world: World, autojump_clock: MockClock
) -> None:
    async with open_client(world._client, MASTER) as client:
        for group in ("tags", "sql"):
            await begun(client, group=group)
        for number in range(10):
            each = message("T", b"%d" % number, number, tag="even" if number % 2 == 0 else "odd")
            each.user_properties["k"] = str(number)
            await send(client, each)
        even = await all_of(client, 5, receiving(group="tags", expression="even || other"))
        assert sorted(each.body for each in even) == [b"0", b"2", b"4", b"6", b"8"]
        request = receiving(group="sql", filter_type=pb.SQL, expression="k > 5")
        large = await all_of(client, 4, request)
        assert sorted(each.body for each in large) == [b"6", b"7", b"8", b"9"]


async def test_tags_of_one_hash_are_told_apart(world: World, autojump_clock: MockClock) -> None:
    async with open_client(world._client, MASTER) as client:
        await begun(client)
        for number, tag in enumerate(("Aa", "BB")):  # Java's hash of both is 2112
            await send(client, message("T", tag.encode(), number, tag=tag))
        found = await all_of(client, 1, receiving(expression="BB"))
        assert [each.body for each in found] == [b"BB"]
        handle = found[0].system_properties.receipt_handle
        assert (await acknowledge(client, handle)).status.code == pb.OK
        await trio.sleep(60)
        assert (await receive(client, receiving())).messages == [], "what was not wanted is done"


async def make_fifo_group(caller: Caller, group: str) -> None:
    body = msgspec.json.encode({"groupName": group, "consumeMessageOrderly": True})
    made = await caller.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    assert made.code == 0


async def test_messages_of_a_group_come_in_order_one_after_the_other(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.client(MASTER) as caller, open_client(world._client, MASTER) as client:
        await make_topic(caller, "F", "FIFO")
        await make_fifo_group(caller, "fifo")
        await begun(client, "F", "fifo")
        for number in range(6):
            each = message("F", b"%d" % number, number, message_group="m", message_type=pb.FIFO)
            assert (await send(client, each)).status.code == pb.OK
        found: list[bytes] = []
        while len(found) < 6:
            batch = await receive(client, receiving("F", "fifo", batch_size=1))
            for each in batch.messages:
                found.append(each.body)
                assert each.system_properties.message_group == "m"
                again = await receive(client, receiving("F", "fifo", batch_size=1))
                assert again.messages == [], "the one before is not done"
                handle = each.system_properties.receipt_handle
                await acknowledge(client, handle, topic="F", group="fifo")
        assert found == [b"%d" % number for number in range(6)]


async def test_a_receive_that_is_repeated_with_its_attempt_gets_the_same_messages(
    world: World,
    autojump_clock: MockClock,
) -> None:
    async with world.client(MASTER) as caller, open_client(world._client, MASTER) as client:
        await make_topic(caller, "F", "FIFO", queues=1)
        await make_fifo_group(caller, "fifo")
        await begun(client, "F", "fifo")
        await send(client, message("F", b"1", message_group="m", message_type=pb.FIFO))
        request = receiving("F", "fifo", attempt_id="one")
        first = await receive(client, request)
        assert first.bodies == [b"1"]
        again = await receive(client, request)
        assert again.bodies == [b"1"]


async def test_what_a_client_that_left_would_have_got_is_not_taken_from_others(
    world: World,
    autojump_clock: MockClock,
) -> None:
    async with open_client(world._client, MASTER) as client:
        await begun(client)
        stream = await client.begin("ReceiveMessage", receiving(poll_seconds=20))
        await trio.sleep(1)
        client.engine.h2.reset_stream(stream)
        await client.flush()
        await trio.sleep(1)
        async with open_client(world._client, MASTER) as other:
            await send(other, message("T", b"x"))
            assert [each.body for each in await all_of(other, 1, receiving())] == [b"x"]


async def test_a_thousand_receives_that_wait_get_a_message_each(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.client(MASTER) as caller, open_client(world._client, MASTER) as client:
        await make_topic(caller, "Many", queues=1)
        await begun(client, "Many")
        request = receiving("Many", batch_size=1, poll_seconds=20)
        streams = [await client.begin("ReceiveMessage", request) for _ in range(1_000)]
        async with open_client(world._client, MASTER) as producer:
            for number in range(0, 1_000, 100):
                sent = [message("Many", b"%d" % (number + at), at) for at in range(100)]
                assert (await send(producer, *sent)).status.code == pb.OK
        found = []
        for stream in streams:
            reply = await client.until(stream)
            parts = [pb.ReceiveMessageResponse.FromString(each) for each in reply.messages()]
            found += [each.message.body for each in parts if each.HasField("message")]
        assert sorted(found, key=int) == [b"%d" % number for number in range(1_000)]


async def test_messages_of_the_other_protocol_come_here_and_back(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.client(MASTER) as caller, open_client(world._client, MASTER) as client:
        await begun(client)
        assert (await caller.send(b"from remoting")).code == 0
        found = await all_of(client, 1, receiving())
        assert [each.body for each in found] == [b"from remoting"]
        assert found[0].system_properties.message_id


async def test_messages_received_through_any_node_are_acknowledged_through_any_other(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(with_grpc(fenced_cluster(tmp_path))) as world:
        await world.start("a1", "a2", "a3")
        old = await world.master()
        async with world.client(world.address(old)) as caller:
            await make_topic(caller, "T", queues=2)
        await trio.sleep(1)
        others = [name for name in NAMES if name != old]
        network = world._client
        async with (
            open_client(network, world.address(others[0])) as one,
            open_client(network, world.address(others[1])) as other,
        ):
            await begun(one)
            for number in range(10):
                answer = await send(one, message("T", b"%d" % number, number))
                assert answer.status.code == pb.OK
            found = await all_of(one, 10, receiving(invisible_seconds=60))
            await world.kill(old)
            await world.master(*others)
            handles = [each.system_properties.receipt_handle for each in found]
            acked = await acknowledge(other, *handles[:5])
            assert acked.status.code == pb.OK, acked
            await trio.sleep(75)
            again = await all_of(other, 5, receiving())
            done = {each.body for each in found[:5]}
            assert {each.body for each in again} == {b"%d" % n for n in range(10)} - done
            assert {each.system_properties.delivery_attempt for each in again} == {2}


async def test_rights_to_topic_and_group_are_asked_for(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = with_grpc(
        cluster_config(tmp_path, role="ASYNC_MASTER", clients=ClientAccess.AUTHORIZED)
    )
    async with open_world(config) as world:
        await world.start("a0")
        async with world.client(MASTER) as caller:
            rights = entry("Allow", "Topic:T", "Sub"), entry("Allow", "Group:g", "Sub")
            await make_user(caller, ALICE, *rights)
            await make_user(caller, BOB, rights[0])
            await make_topic(as_user(caller, OPERATOR), "T", queues=1)
        for keys, code in ((ALICE, pb.MESSAGE_NOT_FOUND), (BOB, pb.FORBIDDEN)):
            async with open_client(world._client, MASTER, signature(keys)) as client:
                assert (await receive(client, receiving())).status.code == code
        async with open_client(world._client, MASTER) as client:
            assert (await receive(client, receiving())).status.code == pb.UNAUTHORIZED


async def test_what_waits_for_the_windows_of_a_client_that_ends_is_given_back(
    world: World, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with open_client(world._client, MASTER) as client:
        await begun(client)
        for number in range(3):
            await send(client, message("T", b"%d" % number * 2_000, number))
    stream = await world._client.connect(MASTER, 10911, source=None)
    slow = Client(stream, {})
    slow.engine.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 3_000})
    monkeypatch.setattr(slow.engine.h2, "acknowledge_received_data", lambda *_: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow.run)
        request = receiving(auto_renew=True)
        first = await slow.begin("ReceiveMessage", request)
        await trio.sleep(1)
        slow.engine.h2.reset_stream(first)
        await slow.flush()
        began = trio.current_time()
        async with open_client(world._client, MASTER) as other:
            found = await all_of(other, 2, receiving())
        assert trio.current_time() < began + 10, "not only when the time of the first one is over"
        assert {each.system_properties.delivery_attempt for each in found} == {2}
        nursery.cancel_scope.cancel()
    stream.close_nowait()


async def test_what_waits_for_the_windows_of_a_connection_that_ends_is_given_back(
    world: World,
    autojump_clock: MockClock,
) -> None:
    async with open_client(world._client, MASTER) as client:
        await begun(client)
        for number in range(3):
            await send(client, message("T", b"%d" % number * 2_000, number))
    stream = await world._client.connect(MASTER, 10911, source=None)
    slow = Client(stream, {})
    slow.engine.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow.run)
        await slow.begin("ReceiveMessage", receiving(auto_renew=True))
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    stream.close_nowait()
    began = trio.current_time()
    async with open_client(world._client, MASTER) as other:
        assert len(await all_of(other, 3, receiving())) == 3
    assert trio.current_time() < began + 10


async def test_who_breaks_the_protocol_gets_nothing_of_what_it_waited_for(
    world: World, autojump_clock: MockClock
) -> None:
    stream = await world._client.connect(MASTER, 10911, source=None)
    bad = Client(stream, {})
    async with open_client(world._client, MASTER) as other, trio.open_nursery() as nursery:
        await begun(other)
        nursery.start_soon(bad.run)
        await bad.begin("ReceiveMessage", receiving(poll_seconds=20))
        await trio.sleep(1)
        await stream.send_all(frame(DATA, 0, 0, b"of no stream"))
        await trio.sleep(0.1)
        began = trio.current_time()
        await send(other, message("T", b"x"))
        found = await all_of(other, 1, receiving())
        assert [each.body for each in found] == [b"x"]
        assert found[0].system_properties.delivery_attempt == 1
        assert trio.current_time() < began + 1
        nursery.cancel_scope.cancel()
    stream.close_nowait()


class NotedWays:
    """A way to a master, and until when it may answer."""

    def __init__(self) -> None:
        self.deadline = 0.0

    def knows(self, _broker_name: str) -> bool:
        return True

    def to(self, _broker_name: str, call_deadline: float) -> None:
        self.deadline = call_deadline


class NotedSession:
    """What is asked of a master."""

    now = 100.0

    def __init__(self) -> None:
        self.polls_seconds = 0.0

    def ask(self, *given: Any, **_: object) -> None:  # noqa: ANN401
        *_rest, header, _done = given
        self.polls_seconds = header.poll_time / 1000


@pytest.mark.parametrize(
    ("fields", "deadline", "poll_seconds", "late_seconds"),
    [
        ({"poll_seconds": 5}, 108.0, 5, 3),  # Java's and Python's: 5 s, and 3 s of a request
        ({"poll_seconds": 20}, 108.0, 6.8, 1.2),
        (None, 120.0, 17, 3),  # Go says nothing but its deadline
        ({"poll_seconds": 5}, None, 5, 5),
    ],
)
def test_a_master_may_be_late_with_its_answer_by_what_is_left_of_the_call(
    fields: dict[str, Any] | None,
    deadline: float | None,
    poll_seconds: float,
    late_seconds: float,
) -> None:
    ways, session = NotedWays(), NotedSession()
    request = receiving(**(fields or {}))
    if fields is None:
        request.ClearField("long_polling_timeout")
    call = SimpleNamespace(deadline=deadline)
    receives: Any = Receives(ways, lambda _group: None, None, lambda: 0)  # type: ignore[arg-type]
    receives.receive(session, call, request)
    assert session.polls_seconds == pytest.approx(poll_seconds)
    assert ways.deadline - session.now - session.polls_seconds == pytest.approx(late_seconds)

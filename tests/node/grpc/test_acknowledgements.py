from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from node.grpc.protocol import messages as pb
from node.grpc.session import Session
from tandem.wire.message import decode_messages
from tests.node.grpc.grpc_world import (
    acknowledge,
    all_of,
    begun,
    change,
    make_topic,
    message,
    receive,
    receiving,
    send,
    with_grpc,
)
from tests.node.grpc.h2_client import open_client
from tests.node.world import MASTER, World, cluster_config, open_world

pytestmark = [pytest.mark.slow, pytest.mark.sim]


@pytest.fixture
async def world(tmp_path: Path, autojump_clock: MockClock) -> AsyncIterator[World]:
    async with open_world(with_grpc(cluster_config(tmp_path, role="ASYNC_MASTER"))) as world:
        await world.start("a0")
        async with world.client(MASTER) as caller:
            await make_topic(caller, "T", queues=1)
        yield world


async def test_handles_that_are_none_or_over_or_of_nobody_have_their_codes(
    world: World, autojump_clock: MockClock
) -> None:
    async with open_client(world._client, MASTER) as client:
        await begun(client)
        await send(client, message("T", b"x"))
        (found,) = await all_of(client, 1, receiving(invisible_seconds=10))
        handle = found.system_properties.receipt_handle
        other_broker = handle.replace("broker-a", "broker-z")
        answer = await acknowledge(client, "zzz", other_broker)
        codes = [entry.status.code for entry in answer.entries]
        assert codes == [pb.INTERNAL_SERVER_ERROR, pb.INVALID_RECEIPT_HANDLE]
        assert answer.status.code == pb.MULTIPLE_RESULTS
        assert (await acknowledge(client)).status.code == pb.INTERNAL_SERVER_ERROR
        await trio.sleep(30)
        assert (await acknowledge(client, handle)).status.code == pb.INVALID_RECEIPT_HANDLE
        again = await receive(client, receiving())
        assert again.bodies == [b"x"]
        assert again.messages[0].system_properties.delivery_attempt == 2


async def test_an_acknowledgement_whose_answer_was_lost_is_good_when_it_is_said_again(
    world: World,
    autojump_clock: MockClock,
) -> None:
    async with open_client(world._client, MASTER) as client:
        await begun(client)
        await send(client, message("T", b"x"))
        (found,) = await all_of(client, 1, receiving())
        handle = found.system_properties.receipt_handle
        for _ in range(2):
            assert (await acknowledge(client, handle)).status.code == pb.OK


async def test_a_message_that_is_moved_has_another_handle_and_comes_again_then(
    world: World,
    autojump_clock: MockClock,
) -> None:
    async with open_client(world._client, MASTER) as client:
        await begun(client)
        await send(client, message("T", b"x"))
        (found,) = await all_of(client, 1, receiving(invisible_seconds=60))
        first = found.system_properties.receipt_handle
        moved = await change(client, first, 10)
        assert moved.status.code == pb.OK
        assert moved.receipt_handle != first
        stale = await change(client, first, 10)
        assert stale.status.code == pb.INVALID_RECEIPT_HANDLE
        began = trio.current_time()
        (found,) = await all_of(client, 1, receiving(invisible_seconds=60))
        assert 9 < trio.current_time() - began < 21
        again = found.system_properties.receipt_handle
        assert (await acknowledge(client, again)).status.code == pb.OK
        assert (await change(client, again, 43_201)).status.code == pb.ILLEGAL_INVISIBLE_TIME


async def test_a_message_that_is_given_up_is_with_the_dead_letters_once(
    world: World, autojump_clock: MockClock
) -> None:
    async with open_client(world._client, MASTER) as client, world.client(MASTER) as caller:
        await begun(client)
        await send(client, message("T", b"x"))
        (found,) = await all_of(client, 1, receiving())
        request = pb.ForwardMessageToDeadLetterQueueRequest(
            receipt_handle=found.system_properties.receipt_handle,
            message_id=found.system_properties.message_id,
            delivery_attempt=4,
            max_delivery_attempts=4,
        )
        request.group.name, request.topic.name = "g", "T"
        answer = await client.call("ForwardMessageToDeadLetterQueue", request)
        assert answer.status.code == pb.OK
        (letter,) = decode_messages((await caller.pull(topic="%DLQ%g")).body)
        assert letter.body == b"x"
        await trio.sleep(60)
        assert (await receive(client, receiving())).messages == []
        request.receipt_handle = "zzz"
        answer = await client.call("ForwardMessageToDeadLetterQueue", request)
        assert answer.status.code == pb.INTERNAL_SERVER_ERROR


async def test_a_message_that_is_given_up_too_late_is_not_given_up_again_and_again(
    world: World, autojump_clock: MockClock
) -> None:
    """Java's client tries until it hears that it is done."""
    async with open_client(world._client, MASTER) as client, world.client(MASTER) as caller:
        await begun(client)
        await send(client, message("T", b"x"))
        (found,) = await all_of(client, 1, receiving(invisible_seconds=10))
        await trio.sleep(11)
        request = pb.ForwardMessageToDeadLetterQueueRequest(
            receipt_handle=found.system_properties.receipt_handle,
            message_id=found.system_properties.message_id,
        )
        request.group.name, request.topic.name = "g", "T"
        answer = await client.call("ForwardMessageToDeadLetterQueue", request)
        assert answer.status.code == pb.OK, answer
        letters = decode_messages((await caller.pull(topic="%DLQ%g")).body)
        assert [each.body for each in letters] == [b"x"]


async def test_many_entries_are_worked_on_piece_by_piece_and_answered_together(
    world: World, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """A turn ends after an entry if its time is over: others are served in between."""
    turns = 0
    handle_some = Session.handle_some

    def one_step(session: Session, _is_enough: Callable[[], bool]) -> bool:
        nonlocal turns
        turns += 1
        return handle_some(session, lambda: True)

    monkeypatch.setattr(Session, "handle_some", one_step)
    async with open_client(world._client, MASTER) as client:
        await begun(client)
        messages = [message("T", b"%d" % number, number) for number in range(20)]
        before = turns
        answer = await send(client, *messages)
        assert turns >= before + 20
        assert [each.status.code for each in answer.entries] == [pb.OK] * 20
        found = await all_of(client, 20, receiving())
        handles = [each.system_properties.receipt_handle for each in found]
        given = [*handles[:10], "none", *handles[10:]]
        before = turns
        codes = [each.status.code for each in (await acknowledge(client, *given)).entries]
        assert turns >= before + 21
        assert codes == [*[pb.OK] * 10, pb.INTERNAL_SERVER_ERROR, *[pb.OK] * 10]
        stream = await client.begin("AckMessage", _entries(handles))
        client.engine.h2.reset_stream(stream)
        await client.flush()
        assert (await send(client, message())).status.code == pb.OK


def _entries(handles: list[str]) -> pb.AckMessageRequest:
    request = pb.AckMessageRequest()
    request.group.name, request.topic.name = "g", "T"
    for handle in handles:
        request.entries.add(message_id="m", receipt_handle=handle)
    return request

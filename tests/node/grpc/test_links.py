"""Calls that a node passes on: to a master, through a change of master, with users and without."""

from pathlib import Path
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from node.grpc import links
from node.grpc.links import Link
from node.grpc.protocol import messages as pb
from node.grpc.transaction_ids import read_transaction_id
from store.machine.network import ConnectionLost, Network, Stream
from tandem.cluster_file.choices import ClientAccess
from tandem.wire.message import decode_messages
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.node.grpc.grpc_world import (
    begun,
    make_topic,
    message,
    receive,
    receiving,
    send,
    with_grpc,
)
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
from tests.node.world import NAMES, fenced_cluster, open_world

pytestmark = [pytest.mark.slow, pytest.mark.sim]


async def test_no_send_fails_while_the_master_is_killed(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(with_grpc(fenced_cluster(tmp_path))) as world:
        await world.start("a1", "a2", "a3")
        old = await world.master()
        other = next(name for name in NAMES if name != old)
        async with world.client(world.address(old)) as caller:
            await make_topic(caller, "T", queues=1)
        await trio.sleep(1)
        headers = {"grpc_timeout": "30S"}
        async with open_client(world._client, world.address(other), headers) as client:
            sent = []
            for number in range(60):
                if number == 20:
                    await world.kill(old)
                body = b"%d" % number
                answer = await send(client, message("T", body, number % 256))
                assert answer.status.code == pb.OK, (number, answer)
                sent.append(body)
                await trio.sleep(0.05)
        new = await world.master(*[name for name in NAMES if name != old])
        async with world.client(world.address(new)) as caller:
            found: list[bytes] = []
            while (pulled := await caller.pull(len(found))).code == 0:
                found += [each.body for each in decode_messages(pulled.body)]
        assert set(found) == set(sent)


async def test_who_waits_for_a_master_in_vain_is_asked_to_wait(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(with_grpc(fenced_cluster(tmp_path))) as world:
        await world.start("a1", "a2", "a3")
        master = await world.master()
        others = [name for name in NAMES if name != master]
        async with world.client(world.address(master)) as caller:
            await make_topic(caller, "T", queues=1)
        await trio.sleep(1)
        host = world.address(others[0])
        async with open_client(world._client, host, {"grpc_timeout": "3S"}) as client:
            assert (await send(client, message())).status.code == pb.OK
            await world.kill(master)
            await world.kill(others[1])
            began = trio.current_time()
            answer = await send(client, message())
            assert answer.entries[0].status.code in (
                pb.TOO_MANY_REQUESTS,
                pb.INTERNAL_SERVER_ERROR,
            )
            assert trio.current_time() - began < 3, "its client has given up before"


async def test_rights_are_asked_for_where_a_call_comes_in(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = with_grpc(fenced_cluster(tmp_path, clients=ClientAccess.AUTHORIZED))
    async with open_world(config) as world:
        await world.start("a1", "a2", "a3")
        master = await operators_master(world)
        async with world.client(world.address(master)) as caller:
            await make_user(caller, ALICE, entry("Allow", "Topic:T", "Pub"))
            await make_user(caller, BOB, entry("Allow", "Topic:Other", "Pub"))
            await make_topic(as_user(caller, OPERATOR), "T", queues=1)
        await trio.sleep(1)
        for name in NAMES:
            for keys, code in ((ALICE, pb.OK), (BOB, pb.FORBIDDEN)):
                host = world.address(name)
                async with open_client(world._client, host, signature(keys)) as client:
                    answer = await send(client, message())
                    assert answer.entries[0].status.code == code, (name, keys, answer)


async def test_nobody_ends_a_transaction_or_gives_up_a_message_of_a_topic_that_is_not_theirs(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Bob may write and read Other, at whatever node, and says that halves and messages are of it.

    Nodes pass on as the operator, who may do everything.
    """
    config = with_grpc(fenced_cluster(tmp_path, clients=ClientAccess.AUTHORIZED))
    async with open_world(config) as world:
        await world.start("a1", "a2", "a3")
        master = await operators_master(world)
        async with world.client(world.address(master)) as caller:
            await make_user(caller, ALICE, entry("Allow", "Topic:T", "Pub"))
            rights = entry("Allow", "Topic:Other", "Pub", "Sub"), entry("Allow", "Group:g", "Sub")
            await make_user(caller, BOB, *rights)
            for topic in ("T", "Other"):
                await make_topic(as_user(caller, OPERATOR), topic, "MIXED", queues=1)
        await trio.sleep(1)
        network = world._client
        async with open_client(network, world.address(master), signature(ALICE)) as alice:
            half = message("T", b"half", message_type=pb.TRANSACTION)
            answer = await send(alice, half)
            assert answer.status.code == pb.OK, answer
            transaction_id = answer.entries[0].transaction_id
        where = read_transaction_id(transaction_id)
        for name in NAMES:
            async with open_client(network, world.address(name), signature(BOB)) as bob:
                for topic in ("T", "Other"):
                    ending = pb.EndTransactionRequest(
                        message_id="m", transaction_id=transaction_id, resolution=pb.COMMIT
                    )
                    ending.topic.name = topic
                    ended = await bob.call("EndTransaction", ending)
                    assert ended.status.code == pb.FORBIDDEN, (name, topic, ended)
                    giving_up = pb.ForwardMessageToDeadLetterQueueRequest(
                        receipt_handle=f"0 1 60000 1 0 broker-a 0 0 {where.physical_offset}",
                        message_id="m",
                    )
                    giving_up.group.name, giving_up.topic.name = "g", topic
                    given = await bob.call("ForwardMessageToDeadLetterQueue", giving_up)
                    assert given.status.code == pb.FORBIDDEN, (name, topic, given)


class _NoMachine:
    """No node can be dialled."""

    async def connect(self, host: str, port: int, *, source: str | None) -> Stream:
        raise ConnectionLost(f"{host}:{port} is not there, not even from {source}")


@pytest.mark.parametrize(("most", "body"), [("WAITING_MAX", b""), ("WAITING_BYTES_MAX", b"x")])
async def test_no_more_wait_for_a_master_than_there_is_room_for(
    most: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, most, 5)
    link = Link(
        "broker-b",
        cast("Network", _NoMachine()),
        "10.0.0.1",
        lambda _: None,
        lambda _: None,
        lambda _: None,
        lambda: None,
    )
    answers: list[int] = []
    command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, body=body)
    for _ in range(7):
        link.ask(command, 10.0, lambda answer: answers.append(answer.code))
    assert answers == [ResponseCode.SYSTEM_BUSY] * 2
    link.look(11.0)
    assert answers == [ResponseCode.SYSTEM_BUSY] * 7
    link.ask(command, 20.0, lambda answer: answers.append(answer.code))
    assert len(answers) == 7, "there is room again"


async def test_a_receive_that_a_change_of_master_interrupts_takes_no_message_after_its_end(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The new master holds it for what is left of its time, and not once more as long."""
    async with open_world(with_grpc(fenced_cluster(tmp_path))) as world:
        await world.start("a1", "a2", "a3")
        old = await world.master()
        others = [name for name in NAMES if name != old]
        async with world.client(world.address(old)) as caller:
            await make_topic(caller, "T", queues=1)
        await trio.sleep(1)
        host = world.address(others[0])
        async with open_client(world._client, host, {"grpc_timeout": "30S"}) as client:
            await begun(client)
            began = trio.current_time()
            stream = await client.begin("ReceiveMessage", receiving(poll_seconds=20))
            await trio.sleep(12)
            await world.kill(old)
            reply = await client.until(stream)
            first = pb.ReceiveMessageResponse.FromString(reply.messages()[0])
            assert first.status.code == pb.MESSAGE_NOT_FOUND, first
            assert trio.current_time() - began < 25
            assert (await send(client, message())).status.code == pb.OK
            batch = await receive(client, receiving())
            assert batch.bodies == [b"hello"]

"""Transactions of a fenced group while masters come and go."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from node.simulated.virtual_clock import WallClock
from store import PutMessage, PutMessageResult
from store.messages.put_message import MessagePuts
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    EndTransactionRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from tests.node.world import NAMES, Caller, World, bodies, fenced_cluster, open_world

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COMMIT, ROLLBACK = 8, 12


async def prepare(client: Caller, number: int) -> EndTransactionRequestHeader:
    """Send a half; return what commits it."""
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01U{number}\x02"
    born_ms = WallClock().now_ms()
    header = SendMessageRequestHeaderV2("PG", "T", "TBW102", 4, 0, 4, born_ms, 0, properties)
    answer = await client.call(RequestCode.SEND_MESSAGE_V2, header, b"%d" % number)
    assert answer.code == 0, answer.remark
    told = answer.decode_header(SendMessageResponseHeader)
    return EndTransactionRequestHeader(
        "PG", told.queue_offset, int(told.msg_id[16:], 16), COMMIT, from_transaction_check=False
    )


async def end(
    client: Caller, header: EndTransactionRequestHeader, outcome: int = COMMIT
) -> RemotingCommand:
    header = msgspec.structs.replace(header, commit_or_rollback=outcome)
    return await client.call(RequestCode.END_TRANSACTION, header)


async def delivered(client: Caller) -> list[bytes]:
    answer = await client.pull()
    return [] if answer.code else bodies(answer)


@asynccontextmanager
async def open_group(directory: Path) -> AsyncIterator[tuple[World, str]]:
    """A fenced group of three; yields it with its master."""
    async with open_world(fenced_cluster(directory)) as world:
        for name in NAMES:
            await world.start(name)
        yield world, await world.master()


async def next_master(world: World, master: str) -> str:
    epoch = (await world.status(master)).epoch
    await world.kill(master)
    return await world.master(*(name for name in NAMES if name != master), after=epoch)


@pytest.mark.slow
async def test_a_half_can_be_ended_at_the_next_master(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_group(tmp_path) as (world, master):
        async with world.client(world.address(master)) as client:
            ends = [await prepare(client, number) for number in range(3)]
            assert await delivered(client) == []
        second = await next_master(world, master)
        async with world.client(world.address(second)) as client:
            assert (await end(client, ends[0])).code == 0
            assert (await end(client, ends[1], ROLLBACK)).code == 0
            assert await delivered(client) == [b"0"]


@pytest.mark.slow
async def test_what_has_ended_stays_ended_at_every_later_master(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """RocketMQ delivers the message again for each of these commits."""
    async with open_group(tmp_path) as (world, master):
        async with world.client(world.address(master)) as client:
            ends = [await prepare(client, number) for number in range(2)]
            assert (await end(client, ends[0])).code == 0
            assert (await end(client, ends[1], ROLLBACK)).code == 0
        before = master
        for _ in range(3):
            later = await next_master(world, before)
            await world.start(before)
            before = later
            async with world.client(world.address(later)) as client:
                for header in ends:
                    answer = await end(client, header)
                    assert "has ended" in (answer.remark or "")
                assert await delivered(client) == [b"0"]
            await trio.sleep(5)


@pytest.mark.slow
async def test_a_commit_whose_answer_was_lost_can_be_said_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The master dies in the step after the commit: it is in its log alone, or in all."""
    for is_sent in (False, True):
        directory = tmp_path / str(is_sent)
        directory.mkdir()
        async with open_group(directory) as (world, master):
            async with world.client(world.address(master)) as client:
                header = await prepare(client, 7)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(end, client, header)
                    await trio.sleep(0.05 if is_sent else 0)
                    nursery.cancel_scope.cancel()
            second = await next_master(world, master)
            async with world.client(world.address(second)) as client:
                await end(client, header)
                await end(client, header)
                assert await delivered(client) == [b"7"]
                await world.start(master)
                await trio.sleep(5)
                assert await delivered(client) == [b"7"]


@pytest.mark.slow
async def test_the_check_goes_on_at_the_next_master(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Copies of a half, progress and ends are in the log."""
    async with open_group(tmp_path) as (world, master):
        async with world.client(world.address(master)) as client:
            ends = [await prepare(client, number) for number in range(2)]
            assert (await end(client, ends[1])).code == 0
            await trio.sleep(70)
            copies = bodies(await client.pull(topic=HALF))
            assert copies == [b"0", b"1", b"0", b"0"]
        second = await next_master(world, master)
        async with world.client(world.address(second)) as client:
            await trio.sleep(35)
            assert bodies(await client.pull(topic=HALF)) == [*copies, b"0"]
            assert (await end(client, ends[0])).code == 0, "by the offsets of the first copy"
            await trio.sleep(60)
            assert len(bodies(await client.pull(topic=HALF))) == 5
            assert await delivered(client) == [b"1", b"0"]


async def test_a_master_that_is_cut_off_commits_nothing(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_group(tmp_path) as (world, master):
        followers = [name for name in NAMES if name != master]
        async with world.client(world.address(master)) as client:
            header = await prepare(client, 1)
            for name in followers:
                await world.kill(name)
            await trio.sleep(10)
            answer = await end(client, header)
            assert answer.code != 0
        for name in followers:
            await world.start(name)
        second = await world.master()
        async with world.client(world.address(second)) as client:
            assert (await end(client, header)).code == 0
            await end(client, header)
            assert await delivered(client) == [b"1"]


@pytest.mark.slow
async def test_the_next_master_puts_the_op_that_its_log_lacks(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas confirm the message of a commit, and its op dies with the master."""
    lacks_ops = True
    whole = MessagePuts.put_pair

    def put_pair(puts: MessagePuts, first: PutMessage, second: PutMessage) -> PutMessageResult:
        return puts.put_message(first, hooks=False) if lacks_ops else whole(puts, first, second)

    monkeypatch.setattr(MessagePuts, "put_pair", put_pair)
    async with open_group(tmp_path) as (world, master):
        async with world.client(world.address(master)) as client:
            header = await prepare(client, 1)
            assert (await end(client, header)).code == 0
            assert await delivered(client) == [b"1"]
        lacks_ops = False
        before = master
        for _ in range(2):
            later = await next_master(world, before)
            await world.start(before)
            before = later
            async with world.client(world.address(later)) as client:
                assert bodies(await client.pull(topic=OP)) == [b"0,"]
                assert "has ended" in ((await end(client, header)).remark or "")
                await trio.sleep(70)
                assert bodies(await client.pull(topic=HALF)) == [b"1"], "nobody is asked"
                assert await delivered(client) == [b"1"]

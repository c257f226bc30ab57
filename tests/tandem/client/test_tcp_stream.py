from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from tandem.client.tcp_stream import CALLS_WITHOUT_YIELDING_MAX, TcpStream, open_tcp


@asynccontextmanager
async def connected_pair() -> AsyncIterator[tuple[TcpStream, trio.SocketStream]]:
    """Ours, and trio's at the other end."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        port = listener.socket.getsockname()[1]
        ours = await open_tcp("127.0.0.1", port)
        theirs = await listener.accept()
    try:
        yield ours, theirs
    finally:
        await ours.aclose()
        await theirs.aclose()


async def test_bytes_arrive_in_both_directions() -> None:
    async with connected_pair() as (ours, theirs):
        await ours.send_all(b"ping")
        assert await theirs.receive_some() == b"ping"
        await theirs.send_all(b"pong")
        assert await ours.receive_some(2) == b"po"
        assert await ours.receive_some(100) == b"ng"


async def test_the_end_of_the_stream_is_nothing() -> None:
    async with connected_pair() as (ours, theirs):
        await theirs.aclose()
        assert await ours.receive_some(100) == b""


async def test_more_than_the_kernel_takes_is_sent_piece_by_piece() -> None:
    data = bytes(range(256)) * 40_000
    received = bytearray()
    async with connected_pair() as (ours, theirs), trio.open_nursery() as nursery:
        nursery.start_soon(ours.send_all, data)
        while len(received) < len(data):
            received += await theirs.receive_some()
    assert received == data


async def test_a_receiver_waits_and_can_be_cancelled_without_loss() -> None:
    async with connected_pair() as (ours, theirs):
        with trio.move_on_after(0) as scope:
            await ours.receive_some(100)
        assert scope.cancelled_caught
        await theirs.send_all(b"late")
        assert await ours.receive_some(100) == b"late"


async def test_closing_wakes_the_receiver() -> None:
    async with connected_pair() as (ours, _), trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await ours.receive_some(100)

        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        await ours.aclose()
        await ours.aclose()


async def test_a_broken_connection_is_an_os_error() -> None:
    async with connected_pair() as (ours, theirs):
        await theirs.aclose()
        with pytest.raises(ConnectionError):
            while True:
                await ours.send_all(b"x" * 100_000)


async def test_nobody_there_is_an_os_error() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    with pytest.raises(OSError, match="127"):
        await open_tcp("127.0.0.1", port)


async def test_a_peer_that_always_has_bytes_does_not_starve_other_tasks() -> None:
    async with connected_pair() as (ours, theirs):
        await theirs.send_all(b"x" * 10 * CALLS_WITHOUT_YIELDING_MAX)
        turns = []

        async def count_turns() -> None:
            while True:
                turns.append(1)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count_turns)
            for _ in range(10 * CALLS_WITHOUT_YIELDING_MAX):
                await ours.receive_some(1)
            nursery.cancel_scope.cancel()
        assert len(turns) >= 9

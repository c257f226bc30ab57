import asyncio
import contextvars
from collections.abc import Awaitable, Callable

import pytest

from tandem.client.asyncio_loop import RECEIVED_BYTES_MAX, AsyncioLoop, AsyncioParked
from tandem.client.event_loop import ByteStream
from tests.support.patience import PATIENCE_SECONDS

Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def over_a_connection(test: Callable[[ByteStream, Peer], Awaitable[None]]) -> Callable[[], None]:
    """Run `test` with ours, and asyncio's at the other end."""

    async def connected() -> None:
        peers: asyncio.Queue[Peer] = asyncio.Queue()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await peers.put((reader, writer))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        ours = await AsyncioLoop().open_tcp("127.0.0.1", server.sockets[0].getsockname()[1])
        peer = await peers.get()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await test(ours, peer)
        finally:
            await ours.aclose()
            peer[1].close()
            server.close()
            await asyncio.sleep(0)

    def run() -> None:
        asyncio.run(connected())

    run.__name__ = run.__qualname__ = test.__name__
    run.__module__ = test.__module__
    return run


@over_a_connection
async def test_bytes_arrive_in_both_directions(ours: ByteStream, peer: Peer) -> None:
    await ours.send_all(b"ping")
    assert await peer[0].readexactly(4) == b"ping"
    peer[1].write(b"pong")
    assert await ours.receive_some(2) == b"po"
    assert await ours.receive_some(100) == b"ng"


@over_a_connection
async def test_the_end_of_the_stream_is_nothing(ours: ByteStream, peer: Peer) -> None:
    peer[1].write(b"last words")
    peer[1].close()
    assert await ours.receive_some(100) == b"last words"
    assert await ours.receive_some(100) == b""
    assert await ours.receive_some(100) == b""


@over_a_connection
async def test_a_reset_is_an_error_for_both_directions(ours: ByteStream, peer: Peer) -> None:
    peer[1].transport.abort()
    waiting = asyncio.create_task(ours.receive_some(100))
    outcome = (await asyncio.wait([waiting]))[0].pop()
    assert outcome.exception() is not None or outcome.result() == b""
    with pytest.raises(ConnectionError):
        for _ in range(100):
            await ours.send_all(b"x" * 1_000_000)
            await asyncio.sleep(0.001)


@over_a_connection
async def test_a_sender_waits_for_a_peer_that_does_not_read(ours: ByteStream, peer: Peer) -> None:
    data = bytes(range(256)) * 80_000
    sending = asyncio.create_task(ours.send_all(data))
    done, _ = await asyncio.wait([sending], timeout=0.05)
    assert not done
    assert await peer[0].readexactly(len(data)) == data
    await sending


@over_a_connection
async def test_a_peer_that_sends_faster_than_is_read_has_to_wait(
    ours: ByteStream, peer: Peer
) -> None:
    data = bytes(range(256)) * 160_000
    peer[1].write(data)
    sent = asyncio.create_task(peer[1].drain())
    await asyncio.sleep(0.05)
    assert ours._received_bytes <= 3 * RECEIVED_BYTES_MAX  # type: ignore[attr-defined]
    received = bytearray()
    while len(received) < len(data):
        received += await ours.receive_some(100_000)
    assert received == data
    await sent


@over_a_connection
async def test_cancelling_a_receiver_loses_nothing(ours: ByteStream, peer: Peer) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await ours.receive_some(100)
    peer[1].write(b"late")
    assert await ours.receive_some(100) == b"late"


@over_a_connection
async def test_closing_wakes_the_receiver_and_stops_the_sender(
    ours: ByteStream, peer: Peer
) -> None:
    receiving = asyncio.create_task(ours.receive_some(100))
    await asyncio.sleep(0)
    await ours.aclose()
    assert await receiving == b""
    with pytest.raises(OSError, match="closed"):
        await ours.send_all(b"too late")
    assert await peer[0].read() == b""


async def _refused() -> None:
    with pytest.raises(ConnectionRefusedError):
        await AsyncioLoop().open_tcp("127.0.0.1", 1)


def test_a_refused_connection_is_an_os_error() -> None:
    asyncio.run(_refused())


async def waiting_for(parked: AsyncioParked, forget: Callable[[], object] = bool) -> object:
    """Wait in a task of its own."""
    return await parked.wait(forget)


async def _woken_while_cancelled() -> None:
    parked = AsyncioLoop().parked()
    forgotten = []
    task = asyncio.create_task(waiting_for(parked, lambda: forgotten.append(1)))
    await asyncio.sleep(0)
    task.cancel()
    parked.wake("too late")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert forgotten == [1]


def test_an_answer_for_a_task_that_was_just_cancelled_is_dropped() -> None:
    asyncio.run(_woken_while_cancelled())


async def _cancelled_with_a_word() -> None:
    parked = AsyncioLoop().parked()
    task = asyncio.create_task(waiting_for(parked))
    await asyncio.sleep(0)
    assert task.cancel("enough")
    assert not parked.cancel("again")
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert caught.value.args == ("enough",)


def test_a_cancelled_task_gets_the_word_of_the_one_who_cancels() -> None:
    asyncio.run(_cancelled_with_a_word())


async def _cancelled_after_it_was_woken() -> None:
    parked = AsyncioLoop().parked()
    forgotten: list[int] = []
    task = asyncio.create_task(waiting_for(parked, lambda: forgotten.append(1)))
    await asyncio.sleep(0)
    parked.wake("the answer")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert forgotten == [1]


def test_a_woken_task_that_is_cancelled_before_its_turn_is_cancelled() -> None:
    asyncio.run(_cancelled_after_it_was_woken())


async def _woken_in_order() -> None:
    loop = AsyncioLoop()
    parked = [loop.parked() for _ in range(4)]
    order: list[object] = []

    async def one(index: int) -> None:
        assert await parked[index].wait(bool) == -index
        order.append(index)
        if index == 2:
            # In the same turn as others: its own comes after what is in the loop's line by now.
            asyncio.get_running_loop().call_soon(order.append, "called")
            parked[3].wake(-3)

    tasks = [asyncio.create_task(one(index)) for index in range(4)]
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(order.append, "before")
    for index in (2, 0, 1):
        parked[index].wake(-index)
    await asyncio.gather(*tasks)
    assert order == ["before", 2, 0, 1, "called", 3]


def test_woken_tasks_go_on_in_order_in_the_next_turn() -> None:
    asyncio.run(_woken_in_order())


def test_who_was_woken_goes_on_although_a_step_before_ended_the_loop() -> None:
    loop = asyncio.new_event_loop()
    over: list[int] = []

    async def park(parked: AsyncioParked, index: int) -> None:
        await parked.wait(bool)
        if index == 0:
            raise KeyboardInterrupt
        over.append(index)

    tasks: list[asyncio.Task[None]] = []

    async def wake_all() -> None:
        here = AsyncioLoop()
        parked = [here.parked() for _ in range(3)]
        tasks.extend(asyncio.create_task(park(each, i)) for i, each in enumerate(parked))
        await asyncio.sleep(0)
        for each in parked:
            each.wake(None)
        await asyncio.sleep(0)

    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(wake_all())
        loop.run_until_complete(asyncio.wait(tasks[1:]))
        assert over == [1, 2]
        with pytest.raises(KeyboardInterrupt):
            tasks[0].result()
    finally:
        loop.close()


async def _context_of_its_own() -> None:
    of_task: contextvars.ContextVar[int] = contextvars.ContextVar("of_task")
    loop = AsyncioLoop()
    parked = [loop.parked() for _ in range(2)]

    async def one(index: int) -> int:
        of_task.set(index)
        await parked[index].wait(bool)
        assert asyncio.current_task() is tasks[index]
        return of_task.get()

    tasks = [asyncio.create_task(one(index)) for index in range(2)]
    await asyncio.sleep(0)
    for each in parked:
        each.wake(None)
    assert await asyncio.gather(*tasks) == [0, 1]


def test_a_woken_task_is_in_its_own_context() -> None:
    asyncio.run(_context_of_its_own())


async def _opened_here_closed_there() -> None:
    background = AsyncioLoop().background()
    group = await asyncio.create_task(background.open())
    ended = []

    async def live() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(1)

    group.start_soon(live)
    await asyncio.sleep(0)
    await asyncio.create_task(background.close())
    assert ended == [1]


def test_the_background_may_be_opened_by_one_task_and_closed_by_another() -> None:
    asyncio.run(_opened_here_closed_there())

import pytest
import trio
import trio.testing

from store.machine.network import AddressInUseError, ClosedHere, ConnectionLost, Listener, Stream
from store.machine.tcp_network import READS_PER_CHECKPOINT, TCPNetwork
from tests.support.patience import PATIENCE_SECONDS

LOCAL = "127.0.0.1"


async def pair() -> tuple[Stream, Stream, Listener]:
    network = TCPNetwork()
    listener = await network.listen(LOCAL, 0)
    client = await network.connect(LOCAL, listener.port, source=None)
    server = await listener.accept()
    return client, server, listener


async def test_bytes_arrive_and_the_end_is_empty() -> None:
    client, server, listener = await pair()
    await client.send_all(b"hello")
    assert await server.receive_some(100) == b"hello"
    await client.aclose()
    assert await server.receive_some(100) == b""
    await server.aclose()
    await listener.aclose()


async def test_both_ends_know_their_peer_and_the_source_address() -> None:
    network = TCPNetwork()
    listener = await network.listen(LOCAL, 0)
    client = await network.connect(LOCAL, listener.port, source="127.0.0.7")
    server = await listener.accept()
    assert server.peer.ip == "127.0.0.7"
    assert (client.peer.ip, client.peer.port) == (LOCAL, listener.port)
    for end in (client, server, listener):
        await end.aclose()


async def test_a_busy_port_names_address_and_remedy() -> None:
    network = TCPNetwork()
    listener = await network.listen(LOCAL, 0)
    with pytest.raises(AddressInUseError) as caught:
        await network.listen(LOCAL, listener.port)
    assert (caught.value.host, caught.value.port) == (LOCAL, listener.port)
    # The text has to say what to do.
    assert "stop the process" in str(caught.value)
    await listener.aclose()


async def test_a_foreign_address_cannot_be_listened_on() -> None:
    with pytest.raises(ConnectionLost):
        await TCPNetwork().listen("192.0.2.1", 0)


async def test_a_refused_connection_is_lost() -> None:
    network = TCPNetwork()
    listener = await network.listen(LOCAL, 0)
    port = listener.port
    await listener.aclose()
    with pytest.raises(ConnectionLost):
        await network.connect(LOCAL, port, source=None)


async def test_a_source_that_is_not_ours_is_lost() -> None:
    with pytest.raises(ConnectionLost):
        await TCPNetwork().connect(LOCAL, 9, source="192.0.2.1")


async def test_send_nowait_takes_what_fits_and_says_zero_when_full() -> None:
    client, server, listener = await pair()
    block = bytes(1 << 20)
    sent = 0
    while (count := client.send_nowait(block)) > 0:
        sent += count
    received = 0
    with trio.fail_after(PATIENCE_SECONDS):
        while received < sent:
            received += len(await server.receive_some(1 << 20))
    assert received == sent
    for end in (client, server, listener):
        await end.aclose()


async def test_send_all_waits_for_a_slow_reader() -> None:
    client, server, listener = await pair()
    total = 16 << 20
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, bytes(total))
        received = 0
        while received < total:
            received += len(await server.receive_some(1 << 18))
    assert received == total
    for end in (client, server, listener):
        await end.aclose()


async def test_closing_wakes_the_reader_with_connection_lost() -> None:
    client, server, listener = await pair()

    async def read() -> None:
        with pytest.raises(ClosedHere):
            await server.receive_some(10)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        server.close_nowait()
    with pytest.raises(ClosedHere):
        server.send_nowait(b"x")
    server.close_nowait()
    for end in (client, listener):
        await end.aclose()


async def test_closing_the_listener_wakes_accept() -> None:
    network = TCPNetwork()
    listener = await network.listen(LOCAL, 0)

    async def accept() -> None:
        with pytest.raises(ClosedHere):
            await listener.accept()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        await trio.testing.wait_all_tasks_blocked()
        await listener.aclose()
    await listener.aclose()


async def test_a_stream_that_always_has_data_lets_others_run() -> None:
    client, server, listener = await pair()
    await client.send_all(bytes(READS_PER_CHECKPOINT * 4))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for _ in range(READS_PER_CHECKPOINT * 4):
            assert await server.receive_some(1) == b"\0"
        nursery.cancel_scope.cancel()
    assert turns >= 3
    for end in (client, server, listener):
        await end.aclose()


async def test_a_cancelled_connect_leaves_nothing_open() -> None:
    with trio.move_on_after(0) as scope:
        await TCPNetwork().connect(LOCAL, 9, source=None)
    assert scope.cancelled_caught

"""The proxy between two ends on this machine, each with an address of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from tandem.drill import fault_proxy
from tandem.drill.fault_proxy import ANY_PORT, FaultProxy, FlowRules, pairs_of
from tandem.drill.proxied_pair import FlowRule, ProxiedPair
from tests.support.loopback import own_network
from tests.support.patience import PATIENCE_SECONDS, until

A, B = "a", "b"
SHORT = 0.15


@pytest.fixture(autouse=True)
def _patient_with_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_proxy, "DIAL_SECONDS_MAX", PATIENCE_SECONDS)


class Echo:
    """Node b: answers every chunk, and notes from where it was dialled."""

    def __init__(self) -> None:
        self.peers: list[str] = []
        self.ends = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        self.peers.append(stream.socket.getpeername()[0])
        async with stream:
            async for chunk in stream:
                await stream.send_all(chunk)
        self.ends += 1


class Bench:
    """A proxied pair with node b behind it."""

    def __init__(self, proxy: FaultProxy, echo: Echo, port: int) -> None:
        self.proxy = proxy
        self.echo = echo
        self.port = port

    async def dial(self) -> trio.SocketStream:
        return await trio.open_tcp_stream(self.proxy.pairs[0].listen_address, self.port)


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    network = own_network()
    echo = Echo()
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, echo.serve, 0, host=f"{network}.2")
        (listener,) = await nursery.start(serve)
        port = listener.socket.getsockname()[1]
        pair = ProxiedPair(
            source=A,
            source_address=f"{network}.1",
            target=B,
            target_address=f"{network}.2",
            listen_address=f"{network}.3",
            ports=(port,),
        )
        proxy = FaultProxy([pair])
        await nursery.start(proxy.run)
        yield Bench(proxy, echo, port)
        nursery.cancel_scope.cancel()


async def answer(stream: trio.SocketStream, seconds: float = PATIENCE_SECONDS) -> bytes | None:
    """What arrives within a time; None if nothing does."""
    with trio.move_on_after(seconds):
        return bytes(await stream.receive_some(100))
    return None


async def test_bytes_pass_both_ways_and_the_dialler_is_seen_at_its_own_address() -> None:
    async with bench() as world, await world.dial() as stream:
        await stream.send_all(b"hello")
        assert await answer(stream) == b"hello"
        assert world.echo.peers == [world.proxy.pairs[0].source_address]


async def test_a_stalled_flow_holds_its_bytes_and_gives_them_up_when_it_heals() -> None:
    async with bench() as world, await world.dial() as stream:
        await stream.send_all(b"1")
        assert await answer(stream) == b"1"
        world.proxy.rules.change(A, B, FlowRule(stalled=True))
        await stream.send_all(b"2")
        assert await answer(stream, SHORT) is None
        world.proxy.rules.heal()
        assert await answer(stream) == b"2"


async def test_one_direction_can_be_stalled_alone() -> None:
    async with bench() as world, await world.dial() as stream:
        world.proxy.rules.change(B, A, FlowRule(stalled=True))
        await stream.send_all(b"there")
        assert await answer(stream, SHORT) is None
        # What was sent arrives; only the answer waits.
        await until(lambda: bool(world.echo.peers))
        world.proxy.rules.heal()
        assert await answer(stream) == b"there"


async def test_a_connection_dialled_while_cut_is_held_and_not_refused() -> None:
    async with bench() as world:
        world.proxy.rules.change(A, B, FlowRule(stalled=True))
        async with await world.dial() as stream:
            await stream.send_all(b"late")
            assert await answer(stream, SHORT) is None
            assert world.echo.peers == []
            world.proxy.rules.heal()
            assert await answer(stream) == b"late"


async def test_the_end_of_a_stream_does_not_pass_a_cut() -> None:
    async with bench() as world:
        async with await world.dial() as stream:
            await stream.send_all(b"1")
            assert await answer(stream) == b"1"
            world.proxy.rules.change(A, B, FlowRule(stalled=True))
        await trio.sleep(SHORT)
        assert world.echo.ends == 0
        world.proxy.rules.heal()
        await until(lambda: world.echo.ends > 0)


async def test_a_delay_is_added_and_does_not_grow_with_the_number_of_bytes() -> None:
    async with bench() as world, await world.dial() as stream:
        world.proxy.rules.change(A, B, FlowRule(delay_seconds=0.5))
        chunks = 50
        started = trio.current_time()
        for _ in range(chunks):
            await stream.send_all(b"x")
            await trio.sleep(0.01)
        got = b""
        while len(got) < chunks:
            got += await stream.receive_some(100)
        assert 0.5 <= trio.current_time() - started < chunks * 0.5


async def test_a_limit_of_bytes_a_second_is_kept() -> None:
    async with bench() as world, await world.dial() as stream:
        world.proxy.rules.change(A, B, FlowRule(bytes_per_second=400_000))
        started = trio.current_time()
        got = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, bytes(100_000))
            while got < 100_000:
                got += len(await stream.receive_some(100_000))
        # The pause comes after a chunk: at most the last one is not paid for.
        assert trio.current_time() - started >= 0.08


async def test_connections_of_a_node_are_reset() -> None:
    async with bench() as world, await world.dial() as stream:
        await stream.send_all(b"1")
        assert await answer(stream) == b"1"
        assert world.proxy.reset(B) == 1
        assert await answer(stream) == b""
        assert world.proxy.reset("nobody") == 0


async def test_a_node_that_is_not_there_ends_the_dialled_connection() -> None:
    network = own_network()
    pair = ProxiedPair(
        source=A,
        source_address="",
        target=B,
        target_address=f"{network}.9",
        listen_address=f"{network}.3",
        ports=(10911,),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(FaultProxy([pair]).run)
        async with await trio.open_tcp_stream(pair.listen_address, 10911) as stream:
            assert await answer(stream) == b""
        nursery.cancel_scope.cancel()


def test_a_port_may_be_cut_alone_and_the_stronger_rule_holds() -> None:
    rules = FlowRules()
    rules.change(A, B, FlowRule(stalled=True), port=10913)
    assert rules.of(A, B, 10913).stalled
    assert not rules.of(A, B, 10911).stalled
    assert not rules.of(B, A, 10913).stalled
    rules.change(A, B, FlowRule(delay_seconds=1), ANY_PORT)
    assert rules.of(A, B, 10913) == FlowRule(stalled=True, delay_seconds=1)
    rules.heal()
    assert rules.of(A, B, 10913) == FlowRule()


def test_every_pair_has_an_address_of_its_own() -> None:
    nodes = [("a", "127.0.0.1", (1, 2)), ("b", "127.0.0.2", (3,))]
    pairs = list(pairs_of("127.7", nodes, ("127.0.0.9", (9,))))
    assert {(p.source, p.target, p.listen_address, p.ports) for p in pairs} == {
        ("a", "b", "127.7.1.2", (3,)),
        ("b", "a", "127.7.2.1", (1, 2)),
        ("a", "coordinator", "127.7.1.254", (9,)),
        ("b", "coordinator", "127.7.2.254", (9,)),
    }
    assert FaultProxy(pairs).nodes == {"a", "b", "coordinator"}

"""The simulated network keeps the contract of real sockets, and its faults look like TCP's."""

import random

import pytest
import trio
from trio.testing import MockClock

from node.simulated.network import (
    STREAM_BYTES_MAX,
    Machine,
    NetworkSettings,
    SimulatedNetwork,
)
from node.simulated.trio_stream import TrioStream
from node.simulated.virtual_clock import Timeline
from store.machine.network import ConnectionLost, Stream
from store.machine.tcp_network import TCPNetwork
from tests.support.contracts import NETWORK_CONTRACTS, Ends, keep_sending, open_ends

HERE = "127.0.0.1"
THERE = "127.0.0.2"


class Pair:
    """Two machines on a simulated network, and one connection from HERE to THERE."""

    def __init__(
        self, network: SimulatedNetwork, here: Machine, there: Machine, ends: Ends
    ) -> None:
        self.network = network
        self.here = here
        self.there = there
        self.dialled = ends.dialled
        self.accepted = ends.accepted


async def _pair(nursery: trio.Nursery, seed: int = 1) -> Pair:
    timeline = Timeline()
    nursery.start_soon(timeline.run)
    network = SimulatedNetwork(timeline, random.Random(seed))
    here, there = network.machine(HERE), network.machine(THERE)
    return Pair(network, here, there, await open_ends(here, there, THERE))


@pytest.mark.parametrize("name", NETWORK_CONTRACTS)
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_the_simulated_network_keeps_the_contract(
    name: str, seed: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    timeline = Timeline()
    nursery.start_soon(timeline.run)
    network = SimulatedNetwork(timeline, random.Random(seed))
    machine = network.machine(HERE)
    await NETWORK_CONTRACTS[name](await open_ends(machine, machine, HERE))


@pytest.mark.parametrize("name", NETWORK_CONTRACTS)
async def test_real_sockets_keep_the_contract(name: str) -> None:
    network = TCPNetwork()
    ends = await open_ends(network, network, HERE)
    try:
        await NETWORK_CONTRACTS[name](ends)
    finally:
        await ends.listener.aclose()
        await ends.dialled.aclose()
        await ends.accepted.aclose()


async def _read(stream: Stream, seconds: float = 1.0) -> bytes:
    """Return what arrives within `seconds`; the end of the stream reads as b"END"."""
    data = b""
    with trio.move_on_after(seconds):
        while piece := await stream.receive_some(1000):
            data += piece
        return data + b"END"
    return data


async def test_a_stalled_direction_holds_everything_back_and_the_other_does_not(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pair = await _pair(nursery)
    pair.network.stall(HERE, THERE)
    await pair.dialled.send_all(b"one")
    await pair.accepted.send_all(b"answer")
    assert await _read(pair.accepted) == b""
    assert await _read(pair.dialled) == b"answer"
    await pair.dialled.send_all(b"two")
    pair.network.heal(HERE, THERE)
    await pair.dialled.send_all(b"three")
    assert await _read(pair.accepted) == b"onetwothree"


async def test_a_stalled_stream_fills_up(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    pair = await _pair(nursery)
    pair.network.stall(HERE, THERE)
    with trio.move_on_after(1.0) as scope:
        await pair.dialled.send_all(bytes(STREAM_BYTES_MAX + 1))
    assert scope.cancelled_caught
    assert pair.dialled.send_nowait(b"x") == 0


async def test_connecting_over_a_stalled_link_waits_and_can_be_given_up(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pair = await _pair(nursery)
    listener = await pair.there.listen(THERE, 999)
    pair.network.stall(THERE, HERE)
    with trio.move_on_after(1.0) as scope:
        await pair.here.connect(THERE, 999, source=None)
    assert scope.cancelled_caught
    accepted = await listener.accept()
    pair.network.heal(THERE, HERE)
    with pytest.raises(ConnectionLost), trio.fail_after(1.0):
        await keep_sending(accepted)


async def test_a_cut_leaves_a_handshake_alone(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pair = await _pair(nursery)
    pair.network.stall(HERE, THERE)
    listener = await pair.there.listen(THERE, 999)

    async def dial() -> None:
        stream = await pair.here.connect(THERE, 999, source=None)
        await stream.send_all(b"hello")

    nursery.start_soon(dial)
    await trio.sleep(1.0)
    pair.network.cut(HERE, THERE, half_open=True)
    pair.network.heal(HERE, THERE)
    with trio.fail_after(1.0):
        accepted = await listener.accept()
        assert await accepted.receive_some(5) == b"hello"


async def test_a_cut_resets_both_ends_and_later_connections_work(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pair = await _pair(nursery)
    await pair.dialled.send_all(b"lost on the way")
    pair.network.cut(HERE, THERE)
    for stream in (pair.dialled, pair.accepted):
        with pytest.raises(ConnectionLost):
            await stream.receive_some(1)
    again = await open_ends(pair.here, pair.there, THERE)
    await again.dialled.send_all(b"fine")
    assert await _read(again.accepted) == b"fine"


async def test_a_half_open_end_learns_of_the_cut_when_it_sends(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pair = await _pair(nursery)
    pair.network.cut(HERE, THERE, half_open=True)
    with pytest.raises(ConnectionLost):
        await pair.dialled.receive_some(1)
    assert await _read(pair.accepted, seconds=60.0) == b""
    await pair.accepted.send_all(b"still there?")
    with pytest.raises(ConnectionLost), trio.fail_after(1.0):
        await pair.accepted.receive_some(1)


async def test_a_killed_process_closes_its_sockets_and_is_deaf_and_mute(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pair = await _pair(nursery)
    await pair.accepted.send_all(b"before")
    await pair.there.listen(THERE, 999)
    pair.there.kill()
    assert await _read(pair.dialled) == b"beforeEND"
    with pytest.raises(ConnectionLost):
        pair.accepted.send_nowait(b"after")
    with pytest.raises(ConnectionLost):
        await pair.accepted.receive_some(1)
    with pytest.raises(ConnectionLost):
        await pair.there.listen(THERE, 1000)
    with pytest.raises(ConnectionLost):
        await pair.there.connect(HERE, 1000, source=None)
    with pytest.raises(ConnectionLost, match="refused"):
        await pair.here.connect(THERE, 999, source=None)


async def test_a_machine_without_power_says_nothing_and_resets_once_it_is_back(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pair = await _pair(nursery)
    pair.there.power_off()
    await pair.dialled.send_all(b"hello?")
    assert await _read(pair.dialled, seconds=60.0) == b""
    with trio.move_on_after(60.0) as scope:
        await pair.here.connect(THERE, 999, source=None)
    assert scope.cancelled_caught
    pair.network.machine(THERE)
    with pytest.raises(ConnectionLost), trio.fail_after(1.0):
        await pair.dialled.receive_some(1)
    with pytest.raises(ConnectionLost, match="refused"):
        await pair.here.connect(THERE, 999, source=None)


async def test_power_and_partitions_are_independent(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pair = await _pair(nursery)
    pair.network.stall(HERE, THERE)
    pair.there.power_off()
    pair.network.heal_all()
    await pair.dialled.send_all(b"x")
    assert await _read(pair.dialled) == b""
    pair.network.stall(THERE, HERE)
    pair.network.machine(THERE)
    assert await _read(pair.dialled) == b""
    pair.network.heal_all()
    with pytest.raises(ConnectionLost):
        await _read(pair.dialled)


async def test_a_slow_link_takes_its_time(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    pair = await _pair(nursery)
    pair.network.slow(HERE, THERE, delay_seconds=1.0, bytes_per_second=1_000.0)
    start = trio.current_time()
    async with trio.open_nursery() as sending:
        sending.start_soon(pair.dialled.send_all, bytes(3_000))
        received = b""
        while len(received) < 3_000:
            received += await pair.accepted.receive_some(5_000)
    assert 4.0 < trio.current_time() - start < 4.1


async def test_healing_a_slow_link_delivers_what_was_under_way_in_order(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pair = await _pair(nursery)
    pair.network.slow(HERE, THERE, delay_seconds=100.0, bytes_per_second=10.0)
    for word in (b"one ", b"two ", b"three "):
        await pair.dialled.send_all(word)
    pair.network.heal(HERE, THERE)
    await pair.dialled.send_all(b"four")
    assert await _read(pair.accepted) == b"one two three four"


async def test_sent_bytes_can_be_watched(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    pair = await _pair(nursery)
    seen: list[tuple[str, int, bytes]] = []
    pair.network.on_sent = lambda source, target, data: seen.append((source.ip, target.port, data))
    assert pair.dialled.send_nowait(b"r") == 1
    assert seen == [(HERE, pair.dialled.peer.port, b"r")]


async def test_another_seed_means_other_delays_and_pieces(autojump_clock: MockClock) -> None:
    def settings() -> NetworkSettings:
        return NetworkSettings(split_chance=0.9)

    async def pieces(seed: int) -> tuple[float, list[int]]:
        async with trio.open_nursery() as nursery:
            timeline = Timeline()
            nursery.start_soon(timeline.run)
            network = SimulatedNetwork(timeline, random.Random(seed), settings=settings())
            machine = network.machine(HERE)
            start = trio.current_time()
            ends = await open_ends(machine, machine, HERE)
            await ends.dialled.send_all(bytes(1_000))
            await ends.dialled.aclose()
            sizes = []
            while piece := await ends.accepted.receive_some(1_000):
                sizes.append(len(piece))
            nursery.cancel_scope.cancel()
        return round(trio.current_time() - start, 9), sizes

    assert len({str(await pieces(seed)) for seed in range(6)}) > 3


async def test_the_client_sees_trio_errors(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pair = await _pair(nursery)
    assert isinstance(pair.here, Machine)
    again = await open_ends(pair.here, pair.there, THERE)
    stream = TrioStream(again.dialled)  # type: ignore[arg-type]  # a machine opens simulated ones
    await stream.send_all(b"x")
    await again.accepted.send_all(b"y")
    assert await stream.receive_some() == b"y"
    again.accepted.close_nowait()
    await trio.sleep(1.0)
    with pytest.raises(trio.BrokenResourceError):
        await stream.send_all(b"x")
    await stream.aclose()


async def test_a_channel_is_stalled_by_itself(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pair = await _pair(nursery)
    pair.network.channels[pair.dialled.peer.port] = "/ha"
    pair.network.stall(f"{HERE}/ha", f"{THERE}/ha")
    await pair.dialled.send_all(b"x")
    with trio.move_on_after(1.0) as scope:
        await pair.accepted.receive_some(10)
    assert scope.cancelled_caught
    pair.network.heal_all()
    assert await pair.accepted.receive_some(10) == b"x"


async def test_a_wire_can_garble_what_is_sent(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pair = await _pair(nursery)
    pair.network.garble = lambda _from, _to, data: data.upper()
    await pair.dialled.send_all(b"x")
    assert await pair.accepted.receive_some(10) == b"X"

"""What is sent over TLS arrives once, whatever the stream below takes."""

import random

import pytest
import trio
from trio.testing import MockClock

from node.simulated.network import NetworkSettings, SimulatedNetwork
from node.simulated.virtual_clock import Timeline
from store.machine.tls_network import TLSNetwork
from tests.support.tls import HERE, open_ends, terms


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_is_taken_of_a_piece_arrives_once(
    nursery: trio.Nursery, autojump_clock: MockClock, seed: int
) -> None:
    """The stream below takes any part of what is sent, and a sender goes on where it was."""
    timeline = Timeline()
    nursery.start_soon(timeline.run)
    chance = random.Random(seed)
    settings = NetworkSettings(short_send_chance=0.7)
    machine = SimulatedNetwork(timeline, chance, settings=settings).machine(HERE)
    ends = await open_ends(TLSNetwork(machine, terms()))
    text = chance.randbytes(700_000)
    received = bytearray()

    def take(data: bytes) -> bool:
        received.extend(data)
        return len(received) < len(text)

    async def receive() -> None:
        assert await ends.accepted.receive_while(chance.choice([5000, 300_000]), take)

    async def send() -> None:
        sent = 0
        while sent < len(text):
            size = chance.choice([1, 2, 3, 1000, 17_000, 200_000])
            with memoryview(text)[sent : sent + size] as piece:
                taken = ends.dialled.send_nowait(piece)
                if taken < len(piece) and chance.random() < 0.5:
                    await ends.dialled.send_all(piece[taken:])
                    taken = len(piece)
            sent += taken
            await trio.sleep(0 if taken else 0.001)
        # One byte is not held back, so it may still be kept here.
        await ends.dialled.send_all(b"")

    async with trio.open_nursery() as both:
        both.start_soon(receive)
        both.start_soon(send)
    assert received == text

import random

import pytest
import trio

from node.simulated.deterministic_trio import run
from node.simulated.network import SimulatedNetwork
from node.simulated.trio_stream import TrioStream
from node.simulated.virtual_clock import Timeline


def test_bytes_go_through_and_a_loss_is_trios_error() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            timeline = Timeline()
            nursery.start_soon(timeline.run)
            network = SimulatedNetwork(timeline, random.Random(1))
            server, client = network.machine("10.0.0.1"), network.machine("10.0.0.2")
            listener = await server.listen("10.0.0.1", 80)
            one = TrioStream(await client.connect("10.0.0.1", 80, source=None))
            other = TrioStream(await listener.accept())
            await one.send_all(b"hello")
            received = b""
            while len(received) < 5:
                received += await other.receive_some()
            assert received == b"hello"
            server.kill()
            with pytest.raises(trio.BrokenResourceError):
                await other.send_all(b"late")
            await one.aclose()
            nursery.cancel_scope.cancel()

    run(1, main)

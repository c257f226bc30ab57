"""Dialling the other end: from where, and for how long."""

import pytest
import trio
from trio.testing import MockClock

from ha.link.dial import dial
from store.machine.errors import ConnectionLost
from store.machine.network import Listener, Stream
from tandem.wire.message import Host

PEER = Host("127.0.0.1", 10912)


class SilentNetwork:
    """Nobody answers."""

    def __init__(self) -> None:
        self.dialled: list[tuple[str, int, str | None]] = []

    async def connect(self, host: str, port: int, *, source: str | None) -> Stream:
        self.dialled.append((host, port, source))
        await trio.sleep_forever()
        raise AssertionError

    async def listen(self, host: str, port: int) -> Listener:
        raise NotImplementedError


async def test_a_node_that_does_not_answer_is_given_up_in_time(autojump_clock: MockClock) -> None:
    network = SilentNetwork()
    start = trio.current_time()
    with pytest.raises(ConnectionLost, match="no answer within 3 seconds"):
        await dial(network, PEER, source="127.0.0.2", seconds=3.0)
    assert trio.current_time() - start == 3.0
    assert network.dialled == [("127.0.0.1", 10912, "127.0.0.2")]


async def test_whoever_dials_can_be_cancelled() -> None:
    with trio.move_on_after(0) as scope:
        await dial(SilentNetwork(), PEER, source="127.0.0.2", seconds=3.0)
    assert scope.cancelled_caught

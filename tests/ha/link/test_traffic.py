"""What went over a link, and when."""

import pytest
import trio
from trio.testing import MockClock

from ha.link.traffic import LinkTraffic
from store.machine.errors import ConnectionLost
from store.machine.network import ReceivesSome
from tandem.wire.message import Host


class ScriptedStream(ReceivesSome):
    """Has each piece so many seconds after the one before; at the end it is silent."""

    peer = Host("127.0.0.2", 1)

    def __init__(self, *script: tuple[float, bytes]) -> None:
        self._pieces: list[tuple[float, bytes]] = []
        at = trio.current_time()
        for seconds, data in script:
            at += seconds
            self._pieces.append((at, data))

    async def receive_some(self, bytes_max: int) -> bytes:
        if not self._pieces:
            await trio.sleep_forever()
        await trio.sleep_until(self._pieces[0][0])
        return self._pieces.pop(0)[1]

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        raise AssertionError(data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        raise AssertionError(data)

    async def aclose(self) -> None:
        """Nothing to close."""

    def close_nowait(self) -> None:
        """Nothing to close."""


async def receive_all(traffic: LinkTraffic, stream: ScriptedStream, taken: list[bytes]) -> None:
    await traffic.receive_until_silent(
        stream, 100, "it", silence_seconds=3.0, silence="no report", take=taken.append
    )


async def test_silence_is_counted_from_the_last_read(autojump_clock: MockClock) -> None:
    traffic, taken = LinkTraffic(), list[bytes]()
    stream = ScriptedStream((2.5, b"a"), (2.5, b"b"), (0.0, b"c"))
    with pytest.raises(ConnectionLost, match="no report for 3 seconds"):
        await receive_all(traffic, stream, taken)
    assert taken == [b"a", b"b", b"c"]
    assert trio.current_time() - traffic.since == 8.0
    assert traffic.last_read - traffic.since == 5.0


async def test_the_end_of_a_stream_is_a_lost_connection(autojump_clock: MockClock) -> None:
    traffic, taken = LinkTraffic(), list[bytes]()
    with pytest.raises(ConnectionLost, match=r"^it closed the connection$"):
        await receive_all(traffic, ScriptedStream((1.0, b"a"), (1.0, b"")), taken)
    assert taken == [b"a"]


async def test_a_heartbeat_is_due_when_nothing_was_written_for_so_long(
    autojump_clock: MockClock,
) -> None:
    traffic = LinkTraffic()
    await trio.sleep(1.0)
    traffic.last_write = trio.current_time()
    await trio.sleep(1.5)
    assert traffic.wrote_nothing_for(1.5)
    assert not traffic.wrote_nothing_for(1.6)

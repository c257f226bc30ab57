"""Sending over a link: nothing lost, nothing twice, and nobody waited for too long."""

from collections import deque

import pytest
import trio
from trio.testing import MockClock

from ha.link.sending import (
    BURST_BYTES,
    JOINED_BODY_BYTES_MAX,
    say_good_bye,
    send_frame,
    send_in_time,
    send_until_blocked,
)
from ha.link.traffic import LinkTraffic
from store.machine.errors import ConnectionLost
from store.machine.signal import Signal
from tandem.wire.message import Host


class NarrowStream:
    """Takes as much as it was told to with each call."""

    peer = Host("127.0.0.2", 1)

    def __init__(self, *takes: int) -> None:
        self._takes = deque(takes)
        self.taken: list[bytes] = []

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        self.taken.append(bytes(data)[: self._takes.popleft()])
        return len(self.taken[-1])

    async def receive_some(self, bytes_max: int) -> bytes:
        raise AssertionError(bytes_max)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        raise AssertionError(data)

    async def aclose(self) -> None:
        """Nothing to close."""

    def close_nowait(self) -> None:
        """Nothing to close."""


def test_a_small_frame_leaves_in_one_call_and_a_large_one_without_a_copy() -> None:
    stream = NarrowStream(1 << 30, 1 << 30, 1 << 30)
    assert send_frame(stream, b"head", memoryview(b"body")) == b""
    assert stream.taken == [b"headbody"]
    large = bytes(JOINED_BODY_BYTES_MAX + 1)
    assert send_frame(stream, b"head", memoryview(large)) == b""
    assert stream.taken[1:] == [b"head", large]


def test_whatever_the_stream_takes_nothing_is_lost_and_nothing_is_sent_twice() -> None:
    for body in (b"body" * 10, bytes(range(256)) * 300):
        for takes in ((0, 0), (2, 9), (4, 0), (4, 7), (44, 9)):
            stream = NarrowStream(*takes)
            rest = send_frame(stream, b"head", memoryview(body))
            assert b"".join(stream.taken) + bytes(rest) == b"head" + body


class Log:
    """Frames of four bytes, as many as there are."""

    def __init__(self, frames: int) -> None:
        self.frames = frames
        self.is_open = True
        self.grown = Signal()
        self.asked = 0

    def next_frame(self) -> tuple[bytes, memoryview] | None:
        self.asked += 1
        if not self.frames:
            return None
        self.frames -= 1
        return b"head", memoryview(b"body")

    async def send(self, stream: NarrowStream, traffic: LinkTraffic) -> bytes:
        rest = await send_until_blocked(
            stream,
            traffic,
            next_frame=self.next_frame,
            is_sending=lambda: self.is_open,
            grown=self.grown,
        )
        return bytes(rest)


async def test_frames_are_sent_until_the_stream_is_full(autojump_clock: MockClock) -> None:
    log, traffic = Log(5), LinkTraffic()
    await trio.sleep(1.0)
    stream = NarrowStream(8, 8, 3)
    assert await log.send(stream, traffic) == b"dbody"
    assert log.frames == 2
    assert traffic.last_write - traffic.since == 1.0
    assert traffic.rate.in_last_second(trio.current_time() + 1) == 12


async def test_a_dry_log_is_waited_for(autojump_clock: MockClock) -> None:
    log, stream, traffic = Log(0), NarrowStream(8, 0), LinkTraffic()

    async def grow() -> None:
        for _ in range(2):
            await trio.sleep(1.0)
            log.frames += 1
            log.grown.notify()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(grow)
        assert await log.send(stream, traffic) == b"headbody"
    assert traffic.last_write - traffic.since == 2.0


async def test_a_link_that_ended_while_its_sender_slept_sends_nothing_more(
    autojump_clock: MockClock,
) -> None:
    log, stream = Log(0), NarrowStream()

    async def end() -> None:
        await trio.sleep(1.0)
        log.frames, log.is_open = 1, False
        log.grown.notify()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        assert await log.send(stream, LinkTraffic()) == b""
    assert stream.taken == []
    assert log.asked == 1


async def test_others_get_a_turn_after_a_burst() -> None:
    frames = BURST_BYTES // 4
    log, stream = Log(frames), NarrowStream(*[8] * frames)
    with trio.move_on_after(0) as scope:
        await log.send(stream, LinkTraffic())
    assert scope.cancelled_caught
    assert log.frames == 0


class FullStream(NarrowStream):
    """Takes nothing."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.sleep_forever()


class LeavingStream(NarrowStream):
    """Takes everything, gives what was under way, and hangs up: with an end, or with a reset."""

    def __init__(self, *, with_a_reset: bool) -> None:
        super().__init__()
        self.sent = b""
        self.pieces = 3
        self._with_a_reset = with_a_reset

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        self.sent += bytes(data)

    async def receive_some(self, bytes_max: int) -> bytes:
        await trio.lowlevel.checkpoint()
        if self.pieces:
            self.pieces -= 1
            return b"late"
        if self._with_a_reset:
            raise ConnectionLost("reset")
        return b""


async def test_a_peer_that_takes_nothing_is_lost_in_time(autojump_clock: MockClock) -> None:
    start = trio.current_time()
    with pytest.raises(ConnectionLost, match="the master took no report for 3 seconds"):
        await send_in_time(
            FullStream(), b"report", seconds=3.0, refusal="the master took no report"
        )
    assert trio.current_time() - start == 3.0


@pytest.mark.parametrize("with_a_reset", [False, True])
async def test_the_other_side_hangs_up_after_the_last_word(*, with_a_reset: bool) -> None:
    stream = LeavingStream(with_a_reset=with_a_reset)
    await say_good_bye(stream, b"good-bye")
    assert stream.sent == b"good-bye"
    assert stream.pieces == 0

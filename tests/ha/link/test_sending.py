"""Sending over a link: nothing lost, nothing twice, and nobody waited for too long."""

from collections import deque

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from ha.link.sending import (
    BURST_BYTES,
    JOINED_BODY_BYTES_MAX,
    FrameSender,
    say_good_bye,
    send_frame,
    send_in_time,
)
from ha.link.traffic import LinkTraffic
from store.machine.errors import ConnectionLost
from store.machine.network import ReceivesSome
from store.machine.signal import Signal
from tandem.wire.message import Host


class NarrowStream(ReceivesSome):
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
        self.has_arrived = True
        self.grown = Signal()
        self.asked = 0

    def next_frame(self) -> tuple[bytes, memoryview] | None:
        self.asked += 1
        if not self.frames:
            return None
        self.frames -= 1
        return b"head", memoryview(b"body")

    def grow(self, frames: int = 1) -> None:
        self.frames += frames
        self.grown.notify()

    def sender(self, stream: NarrowStream, traffic: LinkTraffic | None = None) -> FrameSender:
        return FrameSender(
            stream,
            traffic or LinkTraffic(),
            next_frame=self.next_frame,
            is_sending=lambda: self.is_open,
            has_arrived=lambda: self.has_arrived,
        )

    async def send(self, stream: NarrowStream, traffic: LinkTraffic) -> bytes:
        sender = self.sender(stream, traffic)
        await sender.send_until_blocked(self.grown)
        rest = bytes(sender.take_rest())
        assert not sender.rest
        return rest


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
    log, stream = Log(2 * frames), NarrowStream(*[8] * frames)
    with trio.move_on_after(0) as scope:
        await log.send(stream, LinkTraffic())
    assert scope.cancelled_caught
    assert log.frames == frames


async def test_what_is_new_leaves_in_the_step_in_which_the_log_grows() -> None:
    log, stream = Log(0), NarrowStream(8, 8, 3)
    sender = log.sender(stream)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.send_until_blocked, log.grown)
        await trio.testing.wait_all_tasks_blocked()
        log.grow(2)
        assert len(stream.taken) == 2
        log.grow()
        assert stream.taken[2] == b"hea"
        assert sender.rest == b"dbody"
        log.grow()
        assert len(stream.taken) == 3, "nothing may follow a frame that is half sent"
    assert sender.take_rest() == b"dbody"


async def test_while_the_other_end_is_at_work_frames_gather_for_the_next_turn() -> None:
    log, stream = Log(0), NarrowStream(8, 8)
    log.has_arrived = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.sender(stream).send_until_blocked, log.grown)
        await trio.testing.wait_all_tasks_blocked()
        log.grow()
        log.grow()
        assert stream.taken == []
        await trio.testing.wait_all_tasks_blocked()
        assert len(stream.taken) == 2
        nursery.cancel_scope.cancel()


async def test_what_grows_after_the_sender_was_cancelled_is_not_lost() -> None:
    log, stream = Log(0), NarrowStream(3)
    sender = log.sender(stream)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.send_until_blocked, log.grown)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        log.grow()  # before the task has run and noticed
    sent = b"".join(stream.taken) + bytes(sender.take_rest())
    assert sent == (b"headbody" if log.frames == 0 else b"")
    log.grow()
    assert len(stream.taken) <= 1, "a sender that has gone sends nothing"


class BrokenStream(NarrowStream):
    """Is lost."""

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        raise ConnectionLost(f"{len(data)} bytes too many")


async def test_whoever_makes_the_log_grow_does_not_hear_that_the_link_is_lost() -> None:
    log = Log(0)
    sender = log.sender(BrokenStream())

    async def expect_lost() -> None:
        with pytest.raises(ConnectionLost, match="8 bytes too many"):
            await sender.send_until_blocked(log.grown)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_lost)
        await trio.testing.wait_all_tasks_blocked()
        log.grow()
        log.grow()


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

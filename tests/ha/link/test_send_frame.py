from ha.link.send_frame import JOINED_BODY_BYTES_MAX, send_frame
from tandem.wire.message import Host


class NarrowStream:
    """Takes as much as it was told to with each call."""

    peer = Host("127.0.0.2", 1)

    def __init__(self, *takes: int) -> None:
        self._takes = list(takes)
        self.taken: list[bytes] = []

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        self.taken.append(bytes(data)[: self._takes.pop(0)])
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

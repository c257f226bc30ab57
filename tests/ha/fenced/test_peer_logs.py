"""A part of a peer's log of any size is asked for in answers of a bounded one."""

from ha.fenced.peer_logs import all_of
from tandem.wire.peer_log import BYTES_MAX, PeerLogPart


class FakeSession:
    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    async def part(self, start: int, end: int) -> PeerLogPart:
        raise NotImplementedError

    async def data(self, start: int, end: int) -> bytes:
        self.asked.append((start, end))
        return bytes([len(self.asked)]) * (end - start)

    async def doubt(self, start: int, end: int) -> None:
        raise NotImplementedError


async def test_it_is_put_together() -> None:
    session = FakeSession()
    data = await all_of(session, 7, 7 + 2 * BYTES_MAX + 5)
    assert data == b"\1" * BYTES_MAX + b"\2" * BYTES_MAX + b"\3" * 5
    assert [end - start for start, end in session.asked] == [BYTES_MAX, BYTES_MAX, 5]
    assert await all_of(session, 7, 7) == b""

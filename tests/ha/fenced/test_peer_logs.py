"""A part of a peer's log of any size is asked for in answers of a bounded one."""

from ha.fenced.history import history_of
from ha.fenced.peer_logs import all_of
from tandem.wire.peer_log import BYTES_MAX, EpochPart, PeerLogPart


class FakeSession:
    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.histories: list[str] = []

    async def part(self, start: int, end: int) -> PeerLogPart:
        raise NotImplementedError

    async def data(self, start: int, end: int, history: str = "") -> bytes:
        self.histories.append(history)
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


async def test_each_piece_is_asked_for_by_its_own_history() -> None:
    session = FakeSession()
    epochs = (EpochPart(1, 0, "x"), EpochPart(2, BYTES_MAX + 9, "y"))
    await all_of(session, 7, 7 + 2 * BYTES_MAX, epochs)
    await all_of(session, 7, 9)
    first, second, unknown = session.histories
    assert first == history_of(epochs[:1], 7, 7 + BYTES_MAX)
    assert second == history_of(epochs, 7 + BYTES_MAX, 7 + 2 * BYTES_MAX)
    assert first != second
    assert unknown == ""

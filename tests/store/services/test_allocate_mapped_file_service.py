"""The next file and its pages are there in time, unless nobody knows where the log begins."""

import pytest
import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store.files import touched_pages
from store.files.mapped_file_queue import MappedFileQueue
from store.files.touched_pages import RATE_SECONDS
from store.services.allocate_mapped_file_service import RETRY_SECONDS, AllocateMappedFileService
from tests.support.logged import logged

SIZE = 4096


class Allocation:
    """A service at work on an empty log."""

    def __init__(
        self, nursery: trio.Nursery, *, may_begin: bool = True, file_bytes: int = SIZE
    ) -> None:
        self.disk = SimulatedDisk()
        self.files = MappedFileQueue("/log", file_bytes, self.disk)
        self.may_begin = may_begin
        self.rooms = 0
        service = AllocateMappedFileService(
            self.files, may_begin=lambda: self.may_begin, on_room=self._found_room
        )
        self.wake = service.wake
        nursery.start_soon(service.run)

    def _found_room(self) -> None:
        self.rooms += 1

    async def write(self, size: int) -> None:
        self.files.last_or_create(0).wrote_position += size
        self.wake()
        await trio.sleep(1)

    def names(self) -> list[int]:
        return [int(name) for name, _ in self.disk.list_files("/log")]


async def test_a_file_is_made_each_time_a_quarter_of_the_last_one_is_used(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        log = Allocation(nursery)
        await trio.sleep(1)
        assert log.names() == [0]
        await log.write(SIZE // 4)
        assert log.names() == [0]
        await log.write(SIZE - SIZE // 4)
        assert (log.names(), log.rooms) == ([0, SIZE], 2)
        nursery.cancel_scope.cancel()


async def test_pages_of_the_last_file_are_touched_before_it_is_written(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        log = Allocation(nursery)
        await trio.sleep(1)
        path = f"/log/{0:020d}"
        assert log.disk.touched == {path: [(0, SIZE)]}
        await log.write(1)
        assert log.disk.touched[path][1:] == [(0, SIZE)], "as the last file, from its first page on"
        await log.write(1)
        assert len(log.disk.touched[path]) == 2
        nursery.cancel_scope.cancel()


async def test_pages_are_brought_in_once_a_busy_log_is_calm(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(touched_pages, "LEAD_BYTES", SIZE)
    monkeypatch.setattr(touched_pages, "STEP_BYTES_MIN", SIZE)
    async with trio.open_nursery() as nursery:
        log = Allocation(nursery, file_bytes=32 * SIZE)
        for _ in range(16):
            log.files.last_or_create(0).wrote_position += SIZE
            log.wake()
            assert not log.disk.brought_in
            await trio.sleep(RATE_SECONDS / 2)
        assert not log.disk.brought_in
        await trio.sleep(2 * RATE_SECONDS)
        path = f"/log/{0:020d}"
        assert log.disk.brought_in[path][-1][1] > log.disk.touched[path][-1][1]
        count = len(log.disk.brought_in[path])
        await trio.sleep(100)
        assert len(log.disk.brought_in[path]) == count
        nursery.cancel_scope.cancel()


async def test_the_first_file_of_a_log_that_begins_elsewhere_is_not_made(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        log = Allocation(nursery, may_begin=False)
        await trio.sleep(1)
        log.wake()
        await trio.sleep(1)
        assert log.names() == []
        log.files.last_or_create(8 * SIZE)
        await log.write(SIZE)
        assert log.names() == [8 * SIZE, 9 * SIZE]
        nursery.cancel_scope.cancel()


async def test_without_room_it_is_logged_and_tried_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio.open_nursery() as nursery:
        log = Allocation(nursery)
        await trio.sleep(1)
        capacity, log.disk.capacity_bytes = log.disk.capacity_bytes, log.disk.used_bytes
        await log.write(SIZE)
        assert len(logged(caplog, "store.services.allocate_mapped_file_service")) == 1
        assert (log.names(), log.rooms) == ([0], 1)
        log.disk.capacity_bytes = capacity
        await trio.sleep(RETRY_SECONDS)
        assert (log.names(), log.rooms) == ([0, SIZE], 2)
        nursery.cancel_scope.cancel()

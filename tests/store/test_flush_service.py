"""When what reaches the disk, and what those who wait are told."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from store import FlushDiskType, MessageStore, PutMessageStatus
from store.disk import DiskFile
from tests.store.store_world import (
    DIRECTORY,
    Clock,
    a_message,
    check_store,
    files_of,
    open_store,
    put,
    put_many,
    recover_and_check,
)
from tests.support.simulated_disk import SimulatedDisk, SimulatedFile

SYNC, ASYNC = FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH
LOG = f"{DIRECTORY}/commitlog/{0:020d}"
OK, TIMEOUT = PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_DISK_TIMEOUT


class ScriptedDisk(SimulatedDisk):
    """Notes every sync with its time; fails those of a path that is in `failing`."""

    def __init__(self, seconds: float = 0.5) -> None:
        super().__init__(sync_seconds=lambda: self.seconds)
        self.seconds = seconds
        self.synced: list[tuple[float, str]] = []
        self.failing = ""

    async def sync(self, file: DiskFile) -> None:
        self.synced.append((round(trio.current_time() - self.start, 3), file.path))
        if self.failing and self.failing in file.path:
            raise OSError(errno.EIO, "Input/output error")
        await super().sync(file)

    def start_noting(self) -> None:
        self.start = trio.current_time()
        self.synced.clear()

    def synced_paths(self, folder: str = "commitlog") -> list[float]:
        return [at for at, path in self.synced if f"/{folder}" in path]


class Answers:
    """What waiting puts were told, and when."""

    def __init__(self, store: MessageStore) -> None:
        self.told: list[tuple[int, str, float]] = []
        self.reasons: list[str] = []
        self.releases = 0
        self._store = store
        self._start = trio.current_time()
        store.flush_service.after_release = self._released

    def put(self, number: int, timeout_seconds: float = 5.0, *, body_bytes: int = 0) -> int:
        """Put message `number` and wait for the disk."""
        end = self._store.put_message(a_message(number, body_bytes=body_bytes)).end_offset

        def done(status: PutMessageStatus, reason: str) -> None:
            self.told.append((number, status.name, round(trio.current_time() - self._start, 3)))
            self.reasons.append(reason)

        self._store.flush_service.submit(end, trio.current_time() + timeout_seconds, done)
        return end

    def _released(self) -> None:
        self.releases += 1


@asynccontextmanager
async def running(
    flush_disk_type: FlushDiskType, seconds: float = 0.5, *, is_slave: bool = False
) -> AsyncIterator[tuple[MessageStore, ScriptedDisk]]:
    disk = ScriptedDisk(seconds)
    disk.start_noting()
    clock = Clock()
    store = open_store(disk, flush_disk_type=flush_disk_type, clock=clock, is_slave=is_slave)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await trio.sleep(0.01)
        disk.start_noting()
        yield store, disk
        nursery.cancel_scope.cancel()


async def test_one_sync_answers_all_who_came_before_it(autojump_clock: MockClock) -> None:
    """CommitLog.GroupCommitService: those who come during a sync wait for the next one."""
    async with running(SYNC) as (store, disk):
        answers = Answers(store)
        for number in range(3):
            answers.put(number)
        store.announce()
        await trio.sleep(0.1)
        for number in range(3, 6):
            answers.put(number)
        store.announce()
        await trio.sleep(2)
        assert answers.told == [
            *((n, "PUT_OK", 0.5) for n in range(3)),
            *((n, "PUT_OK", 1.0) for n in range(3, 6)),
        ]
        assert set(answers.reasons) == {""}
        assert disk.synced_paths() == [0.0, 0.5]
        assert answers.releases == 2
        assert store.flushed_where == store.max_physical_offset


async def test_a_put_is_answered_only_when_it_is_durable(autojump_clock: MockClock) -> None:
    async with running(SYNC) as (store, disk):
        answers = Answers(store)
        ends = [answers.put(number, body_bytes=3000) for number in range(6)]
        store.announce()
        while len(answers.told) < 6:
            await trio.sleep(0.05)
            for number, _, _ in answers.told:
                lost = disk.crashed()
                for path in files_of(lost):
                    file = lost.open(path)
                    file.buffer[:] = file.durable
                kept = recover_and_check(lost)
                assert len(kept.messages) > number
        assert store.flushed_where == ends[-1]


async def test_a_slow_disk_ends_in_a_time_out_and_the_message_stays(
    autojump_clock: MockClock,
) -> None:
    """FlushDiskWatcher: FLUSH_DISK_TIMEOUT at the deadline; later ones may still make it."""
    async with running(SYNC, seconds=3.0) as (store, _):
        answers = Answers(store)
        answers.put(0, 1.0)
        answers.put(1, 2.5)
        answers.put(2, 5.0)
        store.announce()
        await trio.sleep(10)
        assert answers.told == [
            (0, "FLUSH_DISK_TIMEOUT", 1.0),
            (1, "FLUSH_DISK_TIMEOUT", 2.5),
            (2, "PUT_OK", 3.0),
        ]
        assert "too slow" in answers.reasons[0]
        assert len(check_store(store)) == 3


async def test_deadlines_are_kept_after_quiet_times_too(autojump_clock: MockClock) -> None:
    async with running(SYNC, seconds=0.1) as (store, disk):
        answers = Answers(store)
        for number in range(3):
            disk.seconds = (0.1, 9.0, 0.1)[number]
            answers.put(number, 5.0)
            store.announce()
            await trio.sleep(20)
        assert answers.told == [
            (0, "PUT_OK", 0.1),
            (1, "FLUSH_DISK_TIMEOUT", 25.0),
            (2, "PUT_OK", 40.1),
        ]


@pytest.mark.parametrize("flush_disk_type", [SYNC, ASYNC])
@pytest.mark.parametrize("is_slave", [False, True])
async def test_what_nobody_waits_for_is_flushed_too(
    flush_disk_type: FlushDiskType, autojump_clock: MockClock, *, is_slave: bool
) -> None:
    """GroupCommitService flushes in every empty turn; WAIT=false, and all a slave receives."""
    with open_store(SimulatedDisk()) as master:
        put_many(master, 5)
        data = bytes(master.read_log(0, 1 << 20))
    async with running(flush_disk_type, is_slave=is_slave) as (store, _):
        if is_slave:
            store.append_data(0, data)
        else:
            store.put_message(a_message(0))
        store.announce()
        await trio.sleep(12)
        assert store.flushed_where == store.max_physical_offset > 0
        assert store.checkpoint.confirm_physical_offset == store.max_physical_offset
        assert store.checkpoint.physic_msg_timestamp_ms > 0


async def test_asynchronous_flushes_wait_for_four_pages_or_ten_seconds(
    autojump_clock: MockClock,
) -> None:
    """FlushRealTimeService: every 500 ms, 4 pages, thoroughly after 10 s; a full file at once."""
    disk = ScriptedDisk(0.0)
    disk.start_noting()
    store = open_store(disk, commit_log_bytes=1 << 16, consume_queue_bytes=6000)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        put(store, a_message(0))
        await trio.sleep(9.9)
        assert disk.synced_paths() == []
        await trio.sleep(0.2)
        assert disk.synced_paths() == [10.0]
        put(store, a_message(1, body_bytes=4 * 4096))
        await trio.sleep(0.5)
        assert disk.synced_paths() == [10.0, 10.5]
        nursery.cancel_scope.cancel()
    store.close()


async def test_a_failed_sync_makes_the_store_read_only_and_is_never_tried_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel may have dropped the dirty pages: a second try would succeed without them."""
    async with running(SYNC) as (store, disk):
        answers = Answers(store)
        answers.put(0)
        store.announce()
        await trio.sleep(1)
        disk.failing = "commitlog"
        disk.start_noting()
        for number in (1, 2):
            answers.put(number)
        store.announce()
        await trio.sleep(1)
        disk.failing = ""
        answers.put(3)  # too late: it is refused, and whoever waits is told at once
        store.announce()
        await trio.sleep(60)
        assert [status for _, status, _ in answers.told] == ["PUT_OK"] + ["FLUSH_DISK_TIMEOUT"] * 3
        for reason in answers.reasons[1:]:
            assert f"{LOG}: sync failed" in reason
            assert "restart this node on a sound disk" in reason
        assert disk.synced_paths() == [0.0]
        result = store.put_message(a_message(4))
        assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert result.reason == store.refusal == answers.reasons[1]
        assert "the store takes no more writes" in caplog.text
        assert len(check_store(store)) == 3
        assert store.flushed_where == store.checkpoint.confirm_physical_offset > 0
        assert store.flushed_where < store.max_physical_offset
    store.close()
    assert disk.exists(f"{DIRECTORY}/abort")
    assert store.flushed_where == 0  # closed: nothing was synced any more
    assert disk.synced_paths() == [0.0]


@pytest.mark.parametrize("path", ["consumequeue", "checkpoint"])
async def test_every_failed_sync_counts(path: str, autojump_clock: MockClock) -> None:
    async with running(ASYNC) as (store, disk):
        disk.failing = path
        put_many(store, 60)
        await trio.sleep(30)
        assert "sync failed" in store.refusal
        assert path in store.refusal
        assert store.put_message(a_message(0)).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        tried = len([1 for _, synced in disk.synced if path in synced])
        await trio.sleep(60)
        assert len([1 for _, synced in disk.synced if path in synced]) == tried


async def test_a_slave_with_a_failed_disk_takes_no_more_bytes(autojump_clock: MockClock) -> None:
    with open_store(SimulatedDisk()) as master:
        put_many(master, 5)
        data = bytes(master.read_log(0, 1 << 20))
    async with running(ASYNC, is_slave=True) as (store, disk):
        disk.failing = "commitlog"
        store.append_data(0, data)
        store.announce()
        await trio.sleep(15)
        with pytest.raises(Exception, match="sync failed"):
            store.append_data(len(data), data)


@pytest.mark.parametrize("flush_disk_type", [SYNC, ASYNC])
@pytest.mark.parametrize("seconds", [0.0, 0.3, 2.7])
async def test_the_checkpoint_never_claims_what_is_not_durable(
    flush_disk_type: FlushDiskType, seconds: float, autojump_clock: MockClock
) -> None:
    """StoreCheckpoint's times move behind the syncs; RocketMQ's logicsMsgTimestamp at the put."""
    async with running(flush_disk_type, seconds) as (store, disk):
        times: list[tuple[int, int]] = []
        for number in range(150):
            await trio.sleep(0.23)
            result = store.put_message(a_message(number, body_bytes=700))
            store.announce()
            times.append((result.store_timestamp_ms, result.end_offset))
            _check_claims(store, disk, times)


def _check_claims(store: MessageStore, disk: SimulatedDisk, times: list[tuple[int, int]]) -> None:
    checkpoint = store.checkpoint
    durable = _durable_end(store, disk)
    assert checkpoint.confirm_physical_offset <= store.flushed_where <= durable
    for stored_ms, end in times:
        if stored_ms <= checkpoint.physic_msg_timestamp_ms:
            assert end <= durable
    units = _durable_units(disk)
    queued = sum(ms <= checkpoint.logics_msg_timestamp_ms for ms, _ in times)
    assert queued <= units


def _durable_end(store: MessageStore, disk: SimulatedDisk) -> int:
    end = 0
    for file in store.commit_log.files.files:
        durable = _durable(disk, file.file.path)
        written = bytes(file.buffer[: file.wrote_position])
        if durable[: len(written)] != written:
            same = next(i for i, (a, b) in enumerate(zip(durable, written, strict=False)) if a != b)
            return file.file_from_offset + same
        end = file.end_offset
    return end


def _durable_units(disk: SimulatedDisk) -> int:
    folder = f"{DIRECTORY}/consumequeue/TopicA/0"
    units = 0
    for name, _ in disk.list_files(folder):
        data = _durable(disk, f"{folder}/{name}")
        units += sum(data[at : at + 20] != bytes(20) for at in range(0, len(data), 20))
    return units


def _durable(disk: SimulatedDisk, path: str) -> bytes:
    file = disk.open(path)
    assert isinstance(file, SimulatedFile)
    return file.durable


async def test_a_clock_that_was_set_back_takes_the_checkpoint_with_it(
    autojump_clock: MockClock,
) -> None:
    """Else messages of the new time would count as synced before they are."""
    disk = SimulatedDisk()
    clock = Clock(1_000_000)
    store = open_store(disk, clock=clock)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        put(store, a_message(0))
        await trio.sleep(21)
        assert store.checkpoint.min_timestamp_ms > 990_000
        clock.now_ms = 500_000
        put(store, a_message(1))
        await trio.sleep(21)
        assert store.checkpoint.physic_msg_timestamp_ms == 500_001
        assert store.checkpoint.min_timestamp_ms < 500_001
        nursery.cancel_scope.cancel()
    store.close()


async def test_too_many_waiting_puts_are_an_overload(autojump_clock: MockClock) -> None:
    async with running(SYNC, seconds=1.0) as (store, _):
        assert not store.flush_service.is_overloaded
        for _ in range(100_000):
            store.flush_service.submit(1 << 40, trio.current_time() + 1, lambda *_: None)
        assert store.flush_service.is_overloaded

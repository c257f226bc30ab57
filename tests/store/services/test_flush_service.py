"""When what reaches the disk, and what those who wait are told."""

import errno
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Final, cast

import pytest
import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from node.simulated.file import SimulatedFile
from store import FlushDiskType, MessageStore, PutMessageStatus, StoreConfig
from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.files.open_files import OpenFiles
from store.files.store_checkpoint import StoreCheckpoint
from store.files.transient_store_pool import TransientStorePool
from store.index.index_service import IndexService
from store.log.commit_log import CommitLog
from store.machine.disk import DiskFile
from store.machine.errors import StoreClosedError
from store.queue.awake_queues import AwakeQueues
from store.queue.consume_queue_store import ConsumeQueueStore
from store.running_flags import RunningFlag
from store.services.flush_service import DirtyFiles, FlushService, Synced, dirty_index_files
from tests.store.store_world import (
    BORN_MS,
    DIRECTORY,
    STORE_HOST,
    Clock,
    a_message,
    check_store,
    files_of,
    open_store,
    put,
    put_many,
    recover_and_check,
)
from tests.support.listening import Listener
from tests.support.logged import logged
from tests.support.reasons import words

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
        self.trees_fail = False
        self.after_tree: Callable[[], object] = lambda: None

    async def sync_tree(self, directory: str) -> bool:
        if self.trees_fail:
            await trio.lowlevel.checkpoint()
            return False
        done = await super().sync_tree(directory)
        self.after_tree()
        self.after_tree = lambda: None
        return done

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
        store.arrivals.listen(Listener(lambda _: None, self._released))

    def put(self, number: int, timeout_seconds: float = 5.0, *, body_bytes: int = 0) -> int:
        """Put message `number` and wait for the disk."""
        end = self._store.puts.put_message(a_message(number, body_bytes=body_bytes)).end_offset

        def done(status: PutMessageStatus, reason: str) -> None:
            self.told.append((number, status.name, round(trio.current_time() - self._start, 3)))
            self.reasons.append(reason)

        self._store.flush_service.submit(end, trio.current_time() + timeout_seconds, done)
        return end

    def _released(self) -> None:
        self.releases += 1


@asynccontextmanager
async def running(
    flush_disk_type: FlushDiskType,
    seconds: float = 0.5,
    *,
    is_slave: bool = False,
    open_queue_files_max: int = 4096,
) -> AsyncIterator[tuple[MessageStore, ScriptedDisk]]:
    disk = ScriptedDisk(seconds)
    disk.start_noting()
    clock = Clock()
    store = open_store(
        disk,
        flush_disk_type=flush_disk_type,
        clock=clock,
        is_slave=is_slave,
        open_queue_files_max=open_queue_files_max,
    )
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
            store.puts.put_message(a_message(0))
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
        result = store.puts.put_message(a_message(4))
        assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert result.reason == words(store.refusal) == answers.reasons[1]
        assert logged(caplog, "store.services.flush_service", logging.ERROR) == [(result.reason,)]
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
        assert store.refusal is not None
        assert store.refusal.flags == RunningFlag.NOT_WRITEABLE
        assert path in store.refusal.text
        assert store.puts.put_message(a_message(0)).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        tried = len([1 for _, synced in disk.synced if path in synced])
        await trio.sleep(60)
        assert len([1 for _, synced in disk.synced if path in synced]) == tried


async def test_a_file_that_is_gone_before_its_sync_is_a_failed_one(
    autojump_clock: MockClock,
) -> None:
    async with running(ASYNC, open_queue_files_max=64) as (store, disk):
        disk.many_files = 1000  # each is synced, and opened for it
        for queue_id in range(300):
            put(store, a_message(queue_id=queue_id))
        queue = store.queues.find("TopicA", 0)
        assert queue is not None
        (file,) = queue.files.files
        assert not file.is_open
        disk.remove(file.path)
        await trio.sleep(30)
        assert file.path in words(store.refusal)


def put_in_queues(store: MessageStore, count: int) -> None:
    """Put one message into each of some queues."""
    for queue_id in range(count):
        put(store, a_message(queue_id=queue_id))


async def test_many_queues_are_synced_by_one_call_and_fall_asleep(
    autojump_clock: MockClock,
) -> None:
    async with running(ASYNC) as (store, disk):
        put_in_queues(store, 30)
        await trio.sleep(15)
        assert disk.synced_paths("consumequeue") == []
        assert store.queues.awake.count == 0
        path = f"{DIRECTORY}/consumequeue/TopicA/7/{0:020d}"
        written = disk.read(path)
        assert written is not None
        assert (disk.powered_off(Random(1)).read(path) or b"")[:20] == written[:20]


async def test_queues_are_synced_one_by_one_where_their_file_system_has_had_an_error(
    autojump_clock: MockClock,
) -> None:
    """It may be an error of somebody else's file; one of ours is found then."""
    async with running(ASYNC) as (store, disk):
        disk.trees_fail = True
        put_in_queues(store, 30)
        await trio.sleep(60)
        assert len({path for _, path in disk.synced if "consumequeue" in path}) == 30
        assert store.refusal is None
        assert store.queues.awake.count == 0


async def test_what_is_written_while_many_are_synced_is_synced_after_that(
    autojump_clock: MockClock,
) -> None:
    async with running(ASYNC) as (store, disk):
        put_in_queues(store, 30)
        disk.after_tree = lambda: put(store, a_message(30, queue_id=3))
        await trio.sleep(15)
        assert [path for _, path in disk.synced if "consumequeue" in path] == [
            f"{DIRECTORY}/consumequeue/TopicA/3/{0:020d}"
        ]


async def test_a_slave_with_a_failed_disk_takes_no_more_bytes(autojump_clock: MockClock) -> None:
    with open_store(SimulatedDisk()) as master:
        put_many(master, 5)
        data = bytes(master.read_log(0, 1 << 20))
    async with running(ASYNC, is_slave=True) as (store, disk):
        disk.failing = "commitlog"
        store.append_data(0, data)
        store.announce()
        await trio.sleep(15)
        with pytest.raises(StoreClosedError) as caught:
            store.append_data(len(data), data)
        assert caught.value.flags == RunningFlag.NOT_WRITEABLE


@pytest.mark.slow
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
            result = store.puts.put_message(a_message(number, body_bytes=700))
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


# -- with a transient store pool, and with files beside log and queues -----------------------------

LOG_BYTES: Final = 16 * 4096
PAGE: Final = 4096


class Queues:
    """Consume queues: one file queue, as far as the flush service looks."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.files = MappedFileQueue("/w/consumequeue", 4 * PAGE, disk)
        self.open_files = OpenFiles(disk)
        self.awake: AwakeQueues[object] = AwakeQueues()

    def dirty_files(self, least_pages: int) -> list[list[MappedFile]]:
        return [self.files.dirty_files(least_pages)]


class FlushWorld:
    """A log with or without a pool, its flush service, and nothing else of a store."""

    def __init__(
        self,
        flush_disk_type: FlushDiskType = ASYNC,
        *,
        seconds: float = 0.0,
        buffers: int = 2,
        queued_timestamp_ms: Callable[[], int] | None = None,
        other_files: tuple[DirtyFiles, ...] = (),
    ) -> None:
        self.disk = ScriptedDisk(seconds)
        self.pool = TransientStorePool(buffers, LOG_BYTES, self.disk, fast_fail=True)
        self.log = CommitLog(
            "/w/commitlog",
            LOG_BYTES,
            self.disk,
            STORE_HOST,
            pool=self.pool if buffers else None,
        )
        self.queues = Queues(self.disk)
        self.checkpoint = StoreCheckpoint("/w/checkpoint", self.disk)
        self.failures: list[str] = []
        self.commits: list[tuple[float, int]] = []
        self.service = FlushService(
            self.log,
            cast("ConsumeQueueStore", self.queues),
            self.checkpoint,
            self.disk,
            StoreConfig(
                directory="/w",
                flush_disk_type=flush_disk_type,
                flush_interval_commit_log_ms=500,
                flush_commit_log_least_pages=4,
                flush_commit_log_thorough_interval_ms=10_000,
                flush_interval_consume_queue_ms=1000,
                commit_interval_commit_log_ms=200,
                commit_commit_log_least_pages=4,
                commit_commit_log_thorough_interval_ms=200,
            ),
            after_release=lambda: None,
            on_failure=self.failures.append,
            after_commit=self._committed,
            queued_timestamp_ms=queued_timestamp_ms,
            other_files=other_files,
        )

    def _committed(self) -> None:
        at = round(trio.current_time() - self.disk.start, 3)
        self.commits.append((at, self.log.files.committed_where))

    def put(self, data: bytes, stored_ms: int = 1) -> int:
        """Append `data`; return its end offset."""
        self.log.append_data(self.log.files.max_offset, data)
        self.log.last_store_timestamp_ms = stored_ms
        self.service.wake()
        return self.log.files.max_offset

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.service.run)
            await trio.testing.wait_all_tasks_blocked()
            self.disk.start_noting()
            yield
            nursery.cancel_scope.cancel()


async def test_four_pages_are_committed_at_once_and_less_after_the_interval(
    autojump_clock: MockClock,
) -> None:
    """CommitRealTimeService: commitCommitLogLeastPages, ThoroughInterval, wakeCommitWhenPut."""
    world = FlushWorld()
    async with world.running():
        await trio.sleep(1.05)
        world.put(b"a" * 100)
        await trio.sleep(1)
        assert [end for _, end in world.commits] == [100]
        assert 1.05 <= world.commits[0][0] <= 1.25
        world.commits.clear()
        start = trio.current_time() - world.disk.start
        for number in range(6):
            await trio.sleep(0.01)
            world.put(bytes([65 + number]) * PAGE)
        assert world.log.files.committed_where < 6 * PAGE
        await trio.sleep(1)
        assert world.commits[0] == (round(start + 0.04, 3), 100 + 4 * PAGE)
        assert world.log.files.committed_where == world.log.files.max_offset


async def test_a_commit_wakes_the_flush(autojump_clock: MockClock) -> None:
    world = FlushWorld()
    async with world.running():
        await trio.sleep(0.6)
        world.put(b"a" * 5 * PAGE)
        await trio.sleep(0.01)
        assert world.disk.synced_paths() == [0.6]
        assert world.log.files.flushed_where == 5 * PAGE


async def test_a_put_is_answered_when_it_is_committed_and_durable(
    autojump_clock: MockClock,
) -> None:
    """GroupCommitService with a pool: it commits itself, for it can only flush what is there."""
    world = FlushWorld(SYNC, seconds=0.05)
    told: list[tuple[str, float, int]] = []
    async with world.running():
        await trio.sleep(1)

        def done(status: PutMessageStatus, _: str) -> None:
            durable = world.disk.open(f"/w/commitlog/{0:020d}").durable.rstrip(b"\0")
            told.append((status.name, round(trio.current_time() - start, 3), len(durable)))

        start = trio.current_time()
        end = world.put(b"a" * 100)
        world.service.submit(end, start + 5, done)
        world.service.wake()
        await trio.sleep(1)
    assert told == [("PUT_OK", 0.05, 100)]


async def test_a_full_file_returns_its_buffer_while_the_log_goes_on(
    autojump_clock: MockClock,
) -> None:
    world = FlushWorld(buffers=2)
    async with world.running():
        for number in range(40):
            world.put(bytes([65 + number]) * (LOG_BYTES // 4))
            await trio.sleep(0.001)
        await trio.sleep(11)
        assert world.log.files.flushed_where == 10 * LOG_BYTES
        assert world.pool.available_buffer_nums == 2
    found = b"".join(world.disk.read(file.file.path) or b"" for file in world.log.files.files)
    assert found == b"".join(bytes([65 + n]) * (LOG_BYTES // 4) for n in range(40))


async def test_a_failed_commit_makes_the_store_read_only_and_is_never_tried_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """RocketMQ logs it and counts the bytes as written."""
    world = FlushWorld(SYNC)
    told: list[str] = []
    async with world.running():
        world.put(b"a" * 100)
        await trio.sleep(1.3)  # the checkpoint has its turn at full seconds
        world.disk.sync_fails = True
        end = world.put(b"b" * 100)
        deadline = trio.current_time() + 5
        world.service.submit(end, deadline, lambda status, reason: told.append(reason))
        world.service.wake()
        await trio.sleep(1)
        world.disk.sync_fails = False
        world.put(b"c" * 100)
        await trio.sleep(30)
        assert world.log.files.committed_where == world.log.files.flushed_where == 100
        assert world.checkpoint.confirm_physical_offset == 100
    assert len(world.failures) == 1
    assert f"/w/commitlog/{0:020d}: commit failed" in world.failures[0]
    assert told == world.failures
    assert logged(caplog, "store.services.flush_service", logging.ERROR) == [(told[0],)]


async def test_after_a_failed_sync_everything_can_still_be_read(autojump_clock: MockClock) -> None:
    world = FlushWorld()
    async with world.running():
        world.disk.failing = "commitlog"
        world.put(b"a" * 5 * PAGE)
        await trio.sleep(1)
        world.put(b"b" * 100)
        await trio.sleep(1)
        assert len(world.failures) == 1
        assert world.log.files.committed_where == world.log.files.max_offset == 5 * PAGE + 100
        assert world.log.files.flushed_where == 0


@pytest.mark.parametrize("flush_disk_type", [SYNC, ASYNC])
@pytest.mark.parametrize("seconds", [0.0, 0.3, 2.7])
async def test_with_a_pool_the_checkpoint_claims_only_what_is_durable(
    flush_disk_type: FlushDiskType, seconds: float, autojump_clock: MockClock
) -> None:
    world = FlushWorld(flush_disk_type, seconds=seconds)
    ends: list[tuple[int, int]] = []
    async with world.running():
        for number in range(120):
            await trio.sleep(0.23)
            ends.append((1000 + number, world.put(b"x" * 1024, 1000 + number)))
            log = b"".join(
                cast("SimulatedFile", file.file).durable for file in world.log.files.files
            )
            durable = len(log.rstrip(b"\0"))
            files = world.log.files
            assert world.checkpoint.confirm_physical_offset <= files.flushed_where <= durable
            assert files.flushed_where <= files.committed_where <= files.max_offset
            for stored_ms, end in ends:
                if stored_ms <= world.checkpoint.physic_msg_timestamp_ms:
                    assert end <= durable
        assert world.checkpoint.physic_msg_timestamp_ms > 1000


async def test_a_killed_process_loses_what_was_put_since_the_last_commit_and_no_more(
    autojump_clock: MockClock,
) -> None:
    world = FlushWorld()
    async with world.running():
        sent = b""
        for number in range(200):
            data = bytes([1 + number]) * 700
            world.put(data)
            sent += data
            await trio.sleep(0.013)
            dead = world.disk.crashed()
            found = b"".join(
                dead.read(f"/w/commitlog/{name}") or b""
                for name, _ in dead.list_files("/w/commitlog")
            ).rstrip(b"\0")
            assert found == sent[: world.log.files.committed_where]
            assert len(sent) - len(found) < 4 * PAGE + 700
        await trio.sleep(0.3)
        assert world.log.files.committed_where == len(sent)


@pytest.mark.parametrize("pause", [0.0, 0.1, 0.2, 0.25, 0.5, 0.51, 1.0, 1.1])
async def test_a_pool_that_is_stopped_at_any_moment_loses_nothing(
    pause: float, autojump_clock: MockClock
) -> None:
    """CommitRealTimeService.run, its end; here the close of the log does it."""
    world = FlushWorld(seconds=0.3)
    async with world.running():
        world.put(b"a" * 3 * PAGE)
        await trio.sleep(pause)
        world.put(b"b" * 3 * PAGE)
    world.log.files.sync_all()
    world.log.files.close()
    durable = world.disk.open(f"/w/commitlog/{0:020d}").durable
    assert durable.rstrip(b"\0") == b"a" * 3 * PAGE + b"b" * 3 * PAGE
    assert world.pool.available_buffer_nums == 2


async def test_a_file_is_not_deleted_while_it_is_synced(autojump_clock: MockClock) -> None:
    """DefaultMappedFile.flush holds the file; one that is about to be deleted is not synced."""
    world = FlushWorld(seconds=1.0, buffers=0)
    files = world.log.files
    async with world.running():
        world.put(b"a" * LOG_BYTES)
        world.put(b"b" * LOG_BYTES)
        await trio.sleep(1.0)
        first, last = files.files
        assert not first.destroy(world.disk, 0, 120_000)
        assert world.disk.exists(first.file.path)
        await trio.sleep(1.0)
        assert first.is_cleanup_over
        assert first.destroy(world.disk, 0, 120_000)
        assert not last.destroy(world.disk, 0, 120_000)
        await trio.sleep(1.0)
        assert last.is_cleanup_over
        world.put(b"c" * LOG_BYTES)
        held = files.files[-1]
        assert held.hold()
        held.shutdown(0, 120_000)
        world.disk.start_noting()
        await trio.sleep(3)
        assert world.disk.synced_paths() == []
        assert held.flushed_position == LOG_BYTES
    assert world.failures == []


async def test_queues_are_promised_up_to_what_was_dispatched(autojump_clock: MockClock) -> None:
    """With a pool, puts enter their queue only when they can be read."""
    queued_ms = 0
    world = FlushWorld(queued_timestamp_ms=lambda: queued_ms)
    async with world.running():
        world.put(b"a", 1000)
        await trio.sleep(15)
        assert world.checkpoint.logics_msg_timestamp_ms == 0
        queued_ms = 900
        await trio.sleep(15)
        assert world.checkpoint.logics_msg_timestamp_ms == 900
        assert world.checkpoint.physic_msg_timestamp_ms == 1000


class Others:
    """Files that somebody else writes to, and what was said of them when."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.synced: list[str] = []
        self.files: list[DiskFile] = []

    def __call__(self, least_pages: int) -> list[tuple[DiskFile, Synced]]:
        self.asked.append(least_pages)
        return [(file, partial(self.synced.append, file.path)) for file in self.files]


async def test_other_files_are_synced_in_the_background_one_by_one(
    autojump_clock: MockClock,
) -> None:
    first, second = Others(), Others()
    world = FlushWorld(seconds=0.1, other_files=(first, second))
    first.files = [world.disk.create(f"/w/index/{n}", PAGE) for n in range(2)]
    second.files = [world.disk.create("/w/other/0", PAGE)]
    async with world.running():
        await trio.sleep(1.25)
        assert (first.synced, second.synced) == (["/w/index/0", "/w/index/1"], [])
        await trio.sleep(9.5)
        assert second.synced[:1] == ["/w/other/0"]
    assert set(first.asked) == set(second.asked) == {0, 2}


async def test_nothing_is_said_of_other_files_after_a_failed_sync(
    autojump_clock: MockClock,
) -> None:
    others = Others()
    world = FlushWorld(other_files=(others,))
    others.files = [world.disk.create(f"/w/index/{n}", PAGE) for n in range(3)]
    world.disk.failing = "index/1"
    async with world.running():
        await trio.sleep(30)
    assert others.synced == ["/w/index/0"]
    assert len(world.failures) == 1
    assert "/w/index/1: sync failed" in world.failures[0]
    assert [path for _, path in world.disk.synced if "index" in path][2:] == []


async def test_index_files_move_the_checkpoint_behind_their_sync(
    autojump_clock: MockClock,
) -> None:
    """IndexService.flush: a full file is synced, then indexMsgTimestamp moves."""
    world = FlushWorld()
    index = IndexService(
        "/w/index",
        4,
        3,
        disk=world.disk,
        wall_clock_ms=lambda: BORN_MS,
        checkpoint=world.checkpoint,
        max_msgs_num_batch=64,
    )
    dirty = dirty_index_files(index)
    assert dirty(0) == []
    for number in range(3):
        index.dispatch("T", b"KEYS\x01k\x02", 100 * number, 1000 + number, 0)
    full = index.files[0]
    assert full.is_full
    ((file, synced),) = dirty(2)
    assert file is full.file
    assert world.checkpoint.index_msg_timestamp_ms == 0
    synced()
    assert full.is_flushed
    assert world.checkpoint.index_msg_timestamp_ms > 0
    assert dirty(0) == []


@pytest.mark.parametrize("flush_disk_type", [SYNC, ASYNC])
async def test_a_flush_that_is_wanted_begins_at_once(
    flush_disk_type: FlushDiskType, autojump_clock: MockClock
) -> None:
    async with running(flush_disk_type, seconds=0.1) as (store, disk):
        end = put(store, a_message(0))
        flush = store.flush_service
        disk.start_noting()
        flush.want_flush(end)
        await flush.flushed.wait()
        assert store.flushed_where == end
        assert disk.synced_paths() == [0.0]


@pytest.mark.parametrize("flush_disk_type", [SYNC, ASYNC])
async def test_a_flush_that_is_wanted_during_another_follows_it(
    flush_disk_type: FlushDiskType, autojump_clock: MockClock
) -> None:
    async with running(flush_disk_type, seconds=0.1) as (store, disk):
        flush = store.flush_service
        disk.start_noting()
        flush.want_flush(put(store, a_message(0)))
        await trio.sleep(0.05)
        flush.want_flush(put(store, a_message(1)))
        await flush.flushed.wait()
        await flush.flushed.wait()
        assert store.flushed_where == store.max_physical_offset
        assert disk.synced_paths() == [0.0, 0.1]


@pytest.mark.parametrize("flush_disk_type", [SYNC, ASYNC])
async def test_what_is_wanted_before_it_comes_is_flushed_when_it_comes(
    flush_disk_type: FlushDiskType, autojump_clock: MockClock
) -> None:
    async with running(flush_disk_type, seconds=0.1) as (store, disk):
        store.flush_service.want_flush(1 << 20)
        await trio.sleep(0.25)
        disk.start_noting()
        for number in range(2):
            put(store, a_message(number))
            await trio.sleep(0.15)
            assert store.flushed_where == store.max_physical_offset
        assert disk.synced_paths() == [0.0, 0.15]


@pytest.mark.parametrize("flush_disk_type", [SYNC, ASYNC])
async def test_what_is_wanted_and_not_there_keeps_nobody_busy(
    flush_disk_type: FlushDiskType, autojump_clock: MockClock
) -> None:
    async with running(flush_disk_type, seconds=0.1) as (store, _):
        put(store, a_message(0))
        store.flush_service.want_flush(1 << 40)
        rounds = 0

        async def count() -> None:
            nonlocal rounds
            while True:
                await store.flush_service.flushed.wait()
                rounds += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            await trio.sleep(10)
            nursery.cancel_scope.cancel()
        assert rounds <= 22  # every half second, as without


@pytest.mark.parametrize("flush_disk_type", [SYNC, ASYNC])
async def test_who_waits_for_a_flush_that_fails_is_woken(
    flush_disk_type: FlushDiskType, autojump_clock: MockClock
) -> None:
    async with running(flush_disk_type, seconds=0.1) as (store, disk):
        disk.failing = "commitlog"
        flush = store.flush_service
        flush.want_flush(put(store, a_message(0)))
        await flush.flushed.wait()
        assert store.flushed_where == 0
        assert "sync failed" in words(store.disk_trouble)
        flush.want_flush(store.max_physical_offset)
        await trio.sleep(5)

import errno
import logging
import os
from collections.abc import Callable
from typing import Final

import pytest
import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store import MessageStore, StoreConfig
from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.running_flags import RunningFlag, RunningFlags
from store.services.clean_policy import HOUR_MS
from store.services.clean_service import (
    CHECK_SELF_INTERVAL_SECONDS,
    CleanCommitLogService,
    CleanConsumeQueueService,
    CleanService,
)
from tests.store.step_disk import Interrupted, StepDisk, die_at
from tests.store.store_world import (
    COMMIT_LOG_BYTES,
    CONSUME_QUEUE_BYTES,
    DIRECTORY,
    STORE_HOST,
    check_store,
    put_many,
)
from tests.support.logged import logged
from tests.support.reasons import words

DAY_MS: Final = 24 * HOUR_MS
MIDNIGHT_MS: Final = 20_000 * DAY_MS
PUTS_FOR_FIVE_FILES: Final = 75
"""Three topics' queues of 25 units each, in files of ten."""


class FakeIndex:
    def __init__(self) -> None:
        self.calls: list[int] = []

    def delete_expired_files(self, min_physical_offset: int) -> int:
        self.calls.append(min_physical_offset)
        return 1


class FakeWall:
    """A wall clock that goes with trio's, and can be set."""

    def __init__(self) -> None:
        self.offset_ms = MIDNIGHT_MS

    def __call__(self) -> int:
        return self.offset_ms + round(1000 * trio.current_time())


class World:
    """A store of five log files, and the services that clean it."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        *,
        keep_from: Callable[[], int | None] = lambda: None,
        messages: int = PUTS_FOR_FIVE_FILES,
        **settings: int | tuple[int, ...],
    ) -> None:
        self.wall = FakeWall()
        self.disk = disk or SimulatedDisk()
        self.disk.now_ms = self.wall
        self.config = StoreConfig(
            directory=DIRECTORY,
            mapped_file_size_commit_log_bytes=COMMIT_LOG_BYTES,
            mapped_file_size_consume_queue_bytes=CONSUME_QUEUE_BYTES,
            **settings,  # type: ignore[arg-type] # numbers and hours only
        )
        self.store = self.open()
        put_many(self.store, messages, body_bytes=350)
        self.flags = RunningFlags()
        self.index = FakeIndex()
        files, queues = self.store.commit_log.files, self.store.queues
        self.commit_log = CleanCommitLogService(
            files,
            self.flags,
            self.disk,
            self.config,
            wall_clock_ms=self.wall,
            keep_from=keep_from,
        )
        self.consume_queue = CleanConsumeQueueService(
            files, queues, self.index, self.config, wall_clock_ms=self.wall
        )
        self.problems: list[str] = []
        self.service = CleanService(self.commit_log, self.consume_queue, lambda: self.problems)

    def open(self) -> MessageStore:
        return MessageStore.open(
            self.config,
            disk=self.disk,
            wall_clock_ms=self.wall,
            store_host=STORE_HOST,
            is_slave=False,
        )

    @property
    def files(self) -> list[MappedFile]:
        return self.store.commit_log.files.files

    @property
    def count(self) -> int:
        return len(self.files)

    def age(self, hours: float) -> None:
        """Let every file of the log have been written to that long ago."""
        for file in self.files:
            self.disk._files[file.file.path].modified_ms = self.wall() - round(hours * HOUR_MS)

    def fill(self, percent: int) -> None:
        """Make the disk that full."""
        self.disk.capacity_bytes = -(-self.disk.used_bytes * 100 // percent)

    async def run_for(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.service.run()

    def queue_files(self) -> list[int]:
        """How many files each queue has."""
        queues = [self.store.queues.find(*key) for key in self.store.list_queues()]
        return [len(queue.files.files) for queue in queues if queue is not None]


async def test_the_first_run_is_a_minute_after_the_start(autojump_clock: MockClock) -> None:
    clean = World(delete_when=(0,))
    clean.age(hours=73)
    await clean.run_for(59.9)
    assert clean.count == 5
    await clean.run_for(61)
    assert clean.count == 1
    await clean.consume_queue.clean()
    check_store(clean.store)


async def test_old_files_go_at_their_hour_and_not_before(autojump_clock: MockClock) -> None:
    clean = World(delete_when=(4,))
    clean.age(hours=100)
    clean.wall.offset_ms = MIDNIGHT_MS + 3 * HOUR_MS
    await clean.run_for(3590)
    assert clean.count == 5
    await clean.run_for(3600)
    assert clean.count == 1


async def test_a_file_goes_on_the_millisecond_its_time_is_up(autojump_clock: MockClock) -> None:
    clean = World(delete_when=(0,), file_reserved_time_hours=1)
    clean.age(hours=0)
    first = clean.files[0].file.path
    clean.disk._files[first].modified_ms -= HOUR_MS - 1
    await clean.commit_log.clean()
    assert clean.count == 5
    clean.wall.offset_ms += 1
    await clean.commit_log.clean()
    assert clean.count == 4


async def test_no_file_in_the_middle_goes(autojump_clock: MockClock) -> None:
    clean = World(delete_when=(0,))
    clean.age(hours=100)
    clean.disk._files[clean.files[1].file.path].modified_ms = clean.wall()
    await clean.commit_log.clean()
    assert clean.count == 4


async def test_above_the_first_watermark_expired_files_go_at_any_hour(
    autojump_clock: MockClock,
) -> None:
    clean = World(delete_when=(12,))
    clean.age(hours=71)
    clean.disk._files[clean.files[0].file.path].modified_ms -= 2 * HOUR_MS
    clean.fill(80)
    await clean.commit_log.clean()
    assert clean.count == 4
    assert not clean.flags.refusal


async def test_above_the_second_watermark_age_does_not_count(autojump_clock: MockClock) -> None:
    clean = World(delete_when=(12,), delete_file_batch_max=2)
    clean.fill(88)
    await clean.commit_log.clean()
    assert clean.count == 3
    assert not clean.flags.refusal


async def test_a_run_pauses_between_files_and_ends_with_its_batch(
    autojump_clock: MockClock,
) -> None:
    clean = World(
        delete_when=(0,), delete_file_batch_max=3, delete_commit_log_files_interval_ms=250
    )
    clean.age(hours=100)
    start = trio.current_time()
    await clean.commit_log.clean()
    assert clean.count == 2
    assert trio.current_time() - start == pytest.approx(0.75)


async def test_a_full_disk_refuses_messages_and_takes_them_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    clean = World(delete_when=(12,), messages=10)
    clean.fill(95)
    await clean.commit_log.clean()
    assert clean.flags.is_set(RunningFlag.DISK_FULL)
    assert clean.flags.is_set(RunningFlag.LOGIC_DISK_FULL)
    assert not clean.flags.may_dispatch
    clean.fill(87)
    await clean.commit_log.clean()
    assert words(clean.flags.refusal), "between the marks it stays as it is"
    clean.fill(85)
    await clean.commit_log.clean()
    assert clean.flags.refusal is None
    assert len(logged(caplog, "store.services.clean_service", logging.ERROR)) == 2


async def test_a_full_disk_of_the_queues_only_stops_dispatch(autojump_clock: MockClock) -> None:
    clean = World(delete_when=(12,))
    clean.disk.volumes["/store/consumequeue"] = 3 * 3 * CONSUME_QUEUE_BYTES
    await clean.commit_log.clean()
    assert clean.flags.is_set(RunningFlag.LOGIC_DISK_FULL)
    assert not clean.flags.is_set(RunningFlag.DISK_FULL)
    assert clean.count == 1, "whose files only go when the log's have"
    await clean.consume_queue.clean()
    await clean.commit_log.clean()
    assert not clean.flags.refusal


@pytest.mark.parametrize("messages", [0, 1, 10])
async def test_the_file_being_written_never_goes(
    autojump_clock: MockClock, messages: int, caplog: pytest.LogCaptureFixture
) -> None:
    clean = World(delete_when=(0,), messages=messages)
    clean.age(hours=1000)
    clean.disk.capacity_bytes = max(1, clean.disk.used_bytes)
    before = clean.count
    assert before == (1 if messages else 0)
    for _ in range(3):
        await clean.commit_log.clean()
    assert clean.count == before
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == before, "and that is told, once"


async def test_every_deletion_is_told_with_its_reason(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clean = World(delete_when=(0,), delete_file_batch_max=1)
    clean.age(hours=73)
    await clean.commit_log.clean()
    clean.fill(95)
    await clean.commit_log.clean()
    told = [r.getMessage() for r in caplog.records if " is deleted, last" in r.getMessage()]
    assert told == [
        "/store/commitlog/00000000000000000000 is deleted, last written to 73.0 h ago:"
        " it is the hour 0 of delete_when",
        "/store/commitlog/00000000000000008192 is deleted, last written to 73.0 h ago:"
        " it is the hour 0 of delete_when, the disk of /store/commitlog is 95 % full,"
        " the disk of /store/consumequeue is 95 % full (whatever its age)",
    ]


async def test_files_are_deleted_by_hand(autojump_clock: MockClock) -> None:
    clean = World(delete_when=(12,))
    clean.age(hours=73)
    clean.commit_log.delete_manually()
    await clean.commit_log.clean()
    assert clean.count == 1


async def test_a_file_that_is_held_is_not_read_any_more_and_goes_when_it_is_released(
    autojump_clock: MockClock,
) -> None:
    clean = World(delete_when=(0,))
    clean.age(hours=73)
    first = clean.files[0]
    assert first.hold()
    await clean.commit_log.clean()
    assert clean.count == 5
    assert clean.store.min_physical_offset == COMMIT_LOG_BYTES
    first.release()
    clean.wall.offset_ms += 12 * HOUR_MS
    await trio.sleep(120.1)
    await clean.commit_log.clean()
    assert clean.count == 4
    assert not clean.disk.exists(first.file.path)


async def test_a_file_that_is_held_for_too_long_is_closed_by_force(
    autojump_clock: MockClock,
) -> None:
    """CleanCommitLogService.reDeleteHangedFile."""
    clean = World(delete_when=(0,))
    clean.age(hours=73)
    first = clean.files[0]
    assert first.hold()
    with memoryview(first.buffer) as view:
        await clean.run_for(60 + 119)
        assert clean.disk.exists(first.file.path)
        await clean.run_for(60 + 130)
        assert not clean.disk.exists(first.file.path)
        assert bytes(view[4:8]) == b"\xda\xa3\x20\xa7", "who reads it still has its bytes"
    assert clean.count == 1


async def test_queues_and_index_follow_the_log(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clean = World(delete_when=(0,), delete_file_batch_max=3)
    clean.age(hours=73)
    assert clean.queue_files() == [3, 3, 3]
    await clean.consume_queue.clean()
    assert clean.index.calls == []
    await clean.commit_log.clean()
    await clean.consume_queue.clean()
    assert clean.index.calls == [3 * COMMIT_LOG_BYTES]
    assert clean.queue_files() == [2, 2, 2]
    messages = check_store(clean.store)
    assert messages[0].physical_offset == 3 * COMMIT_LOG_BYTES
    lines = logged(caplog, "store.services.clean_service", logging.INFO)
    assert (1, 3 * COMMIT_LOG_BYTES) in lines, "the index"
    assert (1, 1, "TopicA", 3 * COMMIT_LOG_BYTES) in lines, "a queue"
    await clean.consume_queue.clean()
    assert clean.index.calls == [3 * COMMIT_LOG_BYTES], "only when the log has lost more"


async def test_a_pause_is_made_behind_each_queue_that_lost_a_file(
    autojump_clock: MockClock,
) -> None:
    clean = World(delete_when=(0,), delete_consume_queue_files_interval_ms=200)
    clean.age(hours=73)
    await clean.commit_log.clean()
    start = trio.current_time()
    await clean.consume_queue.clean()
    assert trio.current_time() - start == pytest.approx(0.6)


async def test_without_an_index_only_the_queues_follow(autojump_clock: MockClock) -> None:
    clean = World(delete_when=(0,))
    clean.age(hours=73)
    service = CleanConsumeQueueService(
        clean.store.commit_log.files,
        clean.store.queues,
        None,
        clean.config,
        wall_clock_ms=clean.wall,
    )
    await clean.commit_log.clean()
    await service.clean()
    check_store(clean.store)


async def test_files_are_kept_from_an_offset_on(autojump_clock: MockClock) -> None:
    clean = World(delete_when=(0,), keep_from=lambda: 2 * COMMIT_LOG_BYTES + 5)
    clean.age(hours=73)
    await clean.commit_log.clean()
    assert clean.store.min_physical_offset == 2 * COMMIT_LOG_BYTES


@pytest.mark.parametrize("step", range(1, 10))
async def test_a_crash_between_two_deletions_loses_nothing_that_is_left(
    autojump_clock: MockClock, step: int
) -> None:
    disk = StepDisk()
    clean = World(disk, delete_when=(0,), delete_file_batch_max=3)
    clean.age(hours=73)
    whole = {m.physical_offset: m for m in check_store(clean.store)}
    disk.on_step = die_at(step)
    try:
        await clean.commit_log.clean()
        await clean.consume_queue.clean()
    except Interrupted:
        pass
    else:
        pytest.fail("there are fewer steps than that")
    clean.disk = disk.crashed()
    clean.disk.now_ms = clean.wall
    clean.store = clean.open()
    left = check_store(clean.store)
    gone = min((step - 1) // 2, 3)  # before each file the note where the log begins
    assert left == [m for o, m in whole.items() if o >= gone * COMMIT_LOG_BYTES]
    follower = CleanConsumeQueueService(
        clean.store.commit_log.files,
        clean.store.queues,
        clean.index,
        clean.config,
        wall_clock_ms=clean.wall,
    )
    await follower.clean()
    assert check_store(clean.store) == left
    assert clean.queue_files() == [3 if gone < 2 else 2] * 3


async def test_cancelled_between_two_files_it_leaves_a_whole_store(
    autojump_clock: MockClock,
) -> None:
    clean = World(delete_when=(0,))
    clean.age(hours=73)
    with trio.move_on_after(0.15):
        await clean.commit_log.clean()
    assert clean.count == 3
    with trio.move_on_after(0.15):
        await clean.consume_queue.clean()
    await clean.consume_queue.clean()
    check_store(clean.store)


class StubbornDisk(SimulatedDisk):
    """Refuses to delete files of which the path begins like that."""

    refuses = ""

    def remove(self, path: str) -> None:
        if self.refuses and path.startswith(self.refuses):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        super().remove(path)


@pytest.mark.parametrize("directory", ["/store/commitlog", "/store/consumequeue"])
async def test_a_deletion_that_the_disk_refuses_is_told_once_and_tried_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, directory: str
) -> None:
    disk = StubbornDisk()
    clean = World(disk, delete_when=(0,))
    clean.age(hours=73)
    disk.refuses = directory
    async with trio.open_nursery() as nursery:
        nursery.start_soon(clean.service.run)
        await trio.sleep(200)
        assert clean.count == (5 if directory == "/store/commitlog" else 1)
        assert clean.queue_files() == [3, 3, 3]
        assert len(logged(caplog, "store.services.clean_service")) == 1
        disk.refuses = ""
        await trio.sleep(30)
        nursery.cancel_scope.cancel()
    assert clean.count == 1
    assert clean.queue_files() == [1, 1, 1]
    check_store(clean.store)


async def test_the_rows_of_files_are_looked_at_every_ten_minutes(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    clean = World(messages=1)
    clean.problems.append("b does not follow a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(clean.service.run)
        await trio.sleep(61)
        problem = ("b does not follow a",)
        assert logged(caplog, "store.services.clean_service", logging.ERROR) == [problem]
        await trio.sleep(CHECK_SELF_INTERVAL_SECONDS)
        assert logged(caplog, "store.services.clean_service", logging.ERROR) == [problem] * 2
        nursery.cancel_scope.cancel()


async def test_of_several_directories_the_full_ones_are_named(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    disk.volumes = {"/a": 10_000, "/b": 10_000}
    disk.create("/a/log/old", 9_000)
    disk.create("/b/log/old", 5_000)
    config = StoreConfig(directory="/store", store_path_commit_log=("/a/log", "/b/log"))
    flags = RunningFlags()
    service = CleanCommitLogService(
        MappedFileQueue(config.commit_log_directories, 4096, disk),
        flags,
        disk,
        config,
        wall_clock_ms=lambda: 0,
    )
    await service.clean()
    assert service.full_directories == {"/a/log"}
    assert not flags.refusal

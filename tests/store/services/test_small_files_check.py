import logging
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.delayed.timer_checkpoint import TimerCheckpoint, TimerProgress
from store.machine.checked_file import replace_with_checked_json
from store.machine.table_file import TableFile
from store.services.small_files_check import TRIES_MAX, SmallFilesCheck
from tandem.wire.request_headers import ConsumerOffsetTableBody
from tests.store.store_world import Clock, open_store, put_many
from tests.support.logged import logged

ROOT = "/store"
PATH = f"{ROOT}/small.json"
TABLE = f"{ROOT}/config/consumerOffset.json"


async def go_on(_: float) -> bool:
    await trio.lowlevel.checkpoint()
    return True


def rot(disk: SimulatedDisk, path: str, at: int = 20) -> bytes:
    """Change a bit on the disk, under the page cache; return what was there."""
    file = disk.open(path)
    whole = file.content
    file.rot(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    return whole


def flip(disk: SimulatedDisk, path: str, at: int = 20) -> bytes:
    """Change a bit in the page cache as well; the time of the file stays."""
    file = disk.open(path)
    whole = file.content
    file.buffer[at] ^= 1
    file.durable = file.content
    return whole


def as_on_disk(disk: SimulatedDisk, path: str) -> bytes:
    return disk.open(path).as_on_disk() if disk.read(path) else b""


def a_table(count: int) -> ConsumerOffsetTableBody:
    return ConsumerOffsetTableBody(offset_table={f"T{n}@g": {0: n} for n in range(count)})


def running_store(disk: SimulatedDisk) -> MessageStore:
    store = open_store(disk, confirm_bounds_reads=True, clock=Clock())
    put_many(store, 40)
    store.confirm(store.max_physical_offset)
    end = store.max_physical_offset
    store.commit_log.damage.note(end - 10, end, "a test")
    store.checkpoint.flush_blocking()
    return store


STORE_FILES = ("abort", "checkpoint", "damage.json", "log-start.json", "scrub.json")


@pytest.mark.parametrize("damage", [rot, flip])
@pytest.mark.parametrize("name", STORE_FILES)
async def test_each_small_file_of_a_running_store_is_written_anew_from_memory(
    name: str,
    damage: Callable[[SimulatedDisk, str], bytes],
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk(now_ms=Clock())
    store = running_store(disk)
    store.scrub_service.scrub_now()
    await store.scrub_service.scrub_pass()
    store.scrub_service._save()
    path = f"{ROOT}/{name}"
    whole = disk.read(path)
    if name == "abort":
        disk._files.pop(path)
    else:
        damage(disk, path)

    store.scrub_service.scrub_now()
    await store.scrub_service.scrub_pass()

    assert as_on_disk(disk, path) == (whole if name != "scrub.json" else disk.read(path))
    (line,) = logged(caplog, "store.services.small_files_check", logging.ERROR)
    assert line[0] == path
    progress = store.scrub_service.progress
    assert progress.rewritten_files == 1
    assert "1 small files written anew" in progress.in_words()
    store.scrub_service.scrub_now()
    await store.scrub_service.scrub_pass()
    assert store.scrub_service.progress.rewritten_files == 0


async def test_a_file_that_is_gone_comes_back(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    replace_with_checked_json(disk, PATH, {"a": 1})
    whole = disk.read(PATH)
    del disk._files[PATH]
    assert await SmallFilesCheck(disk, ROOT).run(go_on) == 1
    assert disk.read(PATH) == whole


@pytest.mark.parametrize("is_longer", [True, False])
async def test_a_file_of_another_length_is_wrong(
    is_longer: bool,  # noqa: FBT001
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    replace_with_checked_json(disk, PATH, {"a": 1})
    whole = disk.read(PATH) or b""
    disk._files[PATH] = disk._file(PATH, whole + b"x" if is_longer else whole[:-1])
    assert await SmallFilesCheck(disk, ROOT).run(go_on) == 1
    assert disk.read(PATH) == whole


async def test_a_file_that_is_being_replaced_is_not_damaged(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its owner is faster than the disk, again and again."""
    disk = SimulatedDisk()
    replace_with_checked_json(disk, PATH, 0)
    read = disk.read_from_disk
    reads = 0

    async def read_old(path: str, start: int, size: int) -> bytes:
        nonlocal reads
        reads += 1
        data = await read(path, start, size)
        replace_with_checked_json(disk, PATH, reads)
        return data

    disk.read_from_disk = read_old  # type: ignore[method-assign]
    check = SmallFilesCheck(disk, ROOT)
    assert await check.run(go_on) == 0
    assert reads == TRIES_MAX
    assert not check.bad
    assert caplog.text == ""


async def test_a_file_that_its_owner_removes_meanwhile_stays_away(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    replace_with_checked_json(disk, PATH, 0)
    read = disk.read_from_disk

    async def read_then_remove(path: str, start: int, size: int) -> bytes:
        data = await read(path, start, size)
        disk.remove(path)
        return data[:-1]

    disk.read_from_disk = read_then_remove  # type: ignore[method-assign]
    assert await SmallFilesCheck(disk, ROOT).run(go_on) == 0
    assert not disk.exists(PATH)


async def test_what_the_disk_refuses_is_said_once_and_shown_until_it_is_right(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    replace_with_checked_json(disk, PATH, {"a": 1})
    whole = rot(disk, PATH, 3)
    disk.writes_fail = True
    check = SmallFilesCheck(disk, ROOT)
    for _ in range(3):
        assert await check.run(go_on) == 0
    assert list(check.bad) == [PATH]
    (told,) = caplog.records
    assert "replace the disk" in told.message
    disk.writes_fail = False
    assert await check.run(go_on) == 1
    assert as_on_disk(disk, PATH) == whole
    assert not check.bad


async def test_a_table_that_somebody_has_written_is_left_alone_and_a_rotten_one_is_not(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk(now_ms=Clock())
    table = TableFile(disk, TABLE)
    table.save(a_table(3))
    table.save(a_table(5))
    check = SmallFilesCheck(disk, ROOT)
    assert await check.run(go_on) == 0
    for path in (TABLE, f"{TABLE}.bak", f"{TABLE}.crc"):
        whole = flip(disk, path)
        assert await check.run(go_on) == 1
        assert disk.read(path) == whole
    # It has a new time now, and its checksum knows of it: what rots next is not taken for written.
    flip(disk, TABLE)
    assert _topics_of_the_next_process(disk) == 3  # those of the backup
    assert await check.run(go_on) == 1
    caplog.clear()
    other = (disk.read(TABLE) or b"").replace(b"T1", b"T9")
    disk._files[TABLE] = disk._file(TABLE, other)
    for _ in range(2):
        assert await check.run(go_on) == 0
    assert disk.read(TABLE) == other
    assert len(logged(caplog, "store.services.small_files_check")) == 1


def _topics_of_the_next_process(disk: SimulatedDisk) -> int:
    found = TableFile(disk.crashed(), TABLE).load(ConsumerOffsetTableBody)
    assert found is not None
    return len(found.offset_table)


async def test_a_table_that_was_only_read_is_looked_at_with_its_backup(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk(now_ms=Clock())
    table = TableFile(disk, TABLE)
    table.save(a_table(3))
    table.save(a_table(5))
    disk = disk.crashed()
    assert TableFile(disk, TABLE).load(ConsumerOffsetTableBody) is not None
    wholes = [rot(disk, path) for path in (TABLE, f"{TABLE}.bak")]
    rot(disk, f"{TABLE}.crc")
    # The checksums are written with each of the two.
    assert await SmallFilesCheck(disk, ROOT).run(go_on) == 2
    assert as_on_disk(disk, TABLE) == wholes[0]
    assert as_on_disk(disk, f"{TABLE}.bak") == wholes[1]
    assert await SmallFilesCheck(disk, ROOT).run(go_on) == 0


async def test_the_progress_of_timers_is_written_anew_and_goes_on(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    path = f"{ROOT}/config/timercheck"
    checkpoint = TimerCheckpoint(path, disk)
    check = SmallFilesCheck(disk, ROOT)
    assert await check.run(go_on) == 0
    checkpoint.note(TimerProgress(1, 2, 3, 4), 5, 6)
    checkpoint.file.sync()
    whole = flip(disk, path, 3)
    assert await check.run(go_on) == 1
    assert disk.read(path) == whole
    checkpoint.note(TimerProgress(5, 6, 7, 8), 9, 10)
    checkpoint.file.sync()
    checkpoint.close()
    assert disk.kept.below(ROOT) == []
    assert TimerCheckpoint(path, disk).read_time_ms == 6


async def test_it_ends_when_it_is_said_to(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    for name in "abc":
        replace_with_checked_json(disk, f"{ROOT}/{name}", 1)
        rot(disk, f"{ROOT}/{name}", 0)

    async def stop(_: float) -> bool:
        await trio.lowlevel.checkpoint()
        return False

    assert await SmallFilesCheck(disk, ROOT).run(stop) == 1

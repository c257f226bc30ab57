"""Damaged, foreign and missing files: a torn tail is cut off, anything else a person must see."""

import errno
import logging
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from node.simulated.disk import NothingKept, SimulatedDisk
from store import (
    CorruptLogError,
    DiskFailedError,
    StoreLockedError,
)
from store.files.store_checkpoint import StoreCheckpoint
from store.log.commit_log import CommitLog
from store.log.damage import LogDamage
from store.log.log_end import BLANK_HEADER
from store.machine.disk import Disk
from store.machine.errors import LogFault
from store.machine.real_disk import RealDisk
from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.consume_queue_store import ConsumeQueueStore
from store.queue.queue_units import QueueGapError
from store.queue.rebuild_order import RebuildOrder
from store.recovery import store_recovery
from store.recovery.store_recovery import StoreRecovery
from tandem.wire.crc import crc32
from tandem.wire.message import (
    BLANK_MAGIC_CODE,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    Host,
)
from tandem.wire.store_layout import CQ_STORE_UNIT, PAGE_BYTES, REBUILD_ORDER_FILE
from tests.store.step_disk import Interrupted, StepDisk, die_at
from tests.store.store_world import (
    COMMIT_LOG_BYTES,
    CONSUME_QUEUE_BYTES,
    DIRECTORY,
    STORE_HOST,
    Clock,
    a_batch,
    a_message,
    check_store,
    files_of,
    log_messages,
    number_of,
    open_store,
    put,
    put_many,
    queue_messages,
)
from tests.support.log_builder import LogBuilder
from tests.support.logged import logged
from tests.support.paths import GOLDEN


def killed_store(count: int) -> SimulatedDisk:
    """Return the disk of a store killed with nothing synced: all of it may be torn."""
    disk = SimulatedDisk()
    put_many(open_store(disk), count)
    return disk.crashed()


def stopped_store(count: int) -> SimulatedDisk:
    """Return the disk of a store that was closed: all of it is on disk."""
    disk = SimulatedDisk()
    with open_store(disk) as store:
        put_many(store, count)
    return disk


def log_file(offset: int) -> str:
    return f"{DIRECTORY}/commitlog/{offset - offset % COMMIT_LOG_BYTES:020d}"


def ends_of(disk: SimulatedDisk) -> list[int]:
    """Return where each record ends."""
    messages = log_messages(open_store(disk.crashed()))
    return [m.physical_offset + m.store_size for m in messages]


def test_recovery_cuts_a_torn_last_record_at_any_byte(caplog: pytest.LogCaptureFixture) -> None:
    start = killed_store(15)
    ends = ends_of(start)
    for kept in range(1, ends[-1] - ends[-2], 7):
        disk = start.crashed()
        cut = ends[-2] + kept
        file = disk.open(log_file(cut))
        at = cut % COMMIT_LOG_BYTES
        torn = bytes(file.buffer[ends[-2] % COMMIT_LOG_BYTES : at])
        file.buffer[at:] = bytes(COMMIT_LOG_BYTES - at)
        caplog.clear()
        store = open_store(disk)
        assert [number_of(m) for m in check_store(store)] == list(range(14))
        aside = disk.read(f"{DIRECTORY}/torn/{ends[-2]:020d}")
        assert (aside or b"") == torn.rstrip(b"\0")
        if torn.strip(b"\0"):
            (line,) = logged(caplog, RECOVERY)
            assert line[0] == ends[-2]
            # Cut from behind, it has its length: that is no put under way.
            assert store.damaged_end


def test_a_put_under_way_when_the_process_was_killed_is_no_damage() -> None:
    start = killed_store(15)
    ends = ends_of(start)
    file = start.open(log_file(ends[-2]))
    at = ends[-2] % COMMIT_LOG_BYTES
    file.buffer[at : at + 4] = bytes(4)
    store = open_store(start)
    assert [number_of(m) for m in check_store(store)] == list(range(14))
    assert start.read(f"{DIRECTORY}/torn/{ends[-2]:020d}")
    assert store.damaged_end is None


def test_nothing_is_set_aside_and_nothing_logged_when_nothing_was_torn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = killed_store(20)
    caplog.set_level("WARNING")
    open_store(disk)
    assert not disk.list_files(f"{DIRECTORY}/torn")
    assert caplog.text == ""


def torn_again(disk: SimulatedDisk, torn: bytes, number: int) -> tuple[SimulatedDisk, int]:
    """Put a message, and kill the store as it puts the next one, of which `torn` is there."""
    store = open_store(disk)
    end = store.max_physical_offset
    if not number:
        end = put(store, a_message(number))
    disk = disk.crashed()
    at = end % COMMIT_LOG_BYTES
    disk.open(log_file(end)).buffer[at : at + len(torn)] = torn
    return disk, end


def test_all_that_was_ever_torn_off_is_kept_once() -> None:
    disk = SimulatedDisk()
    for number, torn in enumerate((b"one, torn", b"two, torn too", b"two", b"one, torn")):
        disk, _ = torn_again(disk, torn, number)
    open_store(disk).close()
    kept = [disk.read(f"{DIRECTORY}/torn/{name}") for name, _ in disk.list_files("/store/torn")]
    assert kept == [b"one, torn", b"two, torn too", b"two"]


@pytest.mark.parametrize("following", [b"", b"?"])
def test_a_blank_under_way_is_not_torn_but_what_follows_it_is(following: bytes) -> None:
    """Its length is written last. It is written again with the next message."""
    begun = BLANK_HEADER.pack(0, BLANK_MAGIC_CODE) + following
    disk, end = torn_again(SimulatedDisk(), begun, 0)
    with open_store(disk) as store:
        assert store.max_physical_offset == end
    kept = [disk.read(f"{DIRECTORY}/torn/{name}") for name, _ in disk.list_files("/store/torn")]
    assert kept == ([begun] if following else [])


@pytest.mark.parametrize("lost", ["the last record", "all files"])
def test_what_others_put_where_records_were_lost_was_never_confirmed(lost: str) -> None:
    disk = killed_store(15)
    checkpoint = StoreCheckpoint(f"{DIRECTORY}/checkpoint", disk)
    ends = ends_of(disk)
    checkpoint.replicated_offset = ends[-1]
    checkpoint.flush_blocking()
    if lost == "all files":
        disk.remove(log_file(0))
    else:
        disk.open(log_file(ends[-2])).buffer[ends[-2] % COMMIT_LOG_BYTES + 4] ^= 1
    for _ in range(2):  # the next start as well
        store = open_store(disk)
        assert store.max_physical_offset == (0 if lost == "all files" else ends[-2])
        assert store.checkpoint.replicated_offset == store.max_physical_offset
        disk = disk.powered_off(NothingKept())


class NamesLost(random.Random):
    """For `powered_off`: what has no durable name is gone."""

    def random(self) -> float:
        return 0.0


@pytest.mark.parametrize("starts", [0, 1])
def test_a_start_after_a_kill_makes_names_of_queue_files_durable(starts: int) -> None:
    disk = SimulatedDisk()
    put(open_store(disk), a_message())
    for _ in range(starts):
        disk = disk.crashed()
        open_store(disk)
    kept = disk.powered_off(NamesLost()).list_files("/store/consumequeue/TopicA/0")
    assert bool(kept) == bool(starts)


def test_queues_of_a_log_that_is_gone_go_too() -> None:
    disk = killed_store(15)
    disk.remove(log_file(0))
    with open_store(disk) as store:
        assert store.list_queues() == []
        put_many(store, 6)
        assert len(check_store(store)) == 6


def test_of_a_damaged_end_no_more_is_asked_for_than_was_on_disk() -> None:
    """Others have confirmed that, and may not have what follows."""
    disk = killed_store(15)
    ends = ends_of(disk)
    checkpoint = StoreCheckpoint(f"{DIRECTORY}/checkpoint", disk)
    checkpoint.confirm_physical_offset = ends[12]
    checkpoint.flush_blocking()
    for start in ends[11:13]:
        disk.open(log_file(start)).buffer[start % COMMIT_LOG_BYTES + 200] ^= 1
    with pytest.raises(CorruptLogError) as caught:
        open_store(disk)
    assert (caught.value.offset, caught.value.damaged_end) == (ends[11], ends[12])


def test_a_byte_that_a_failed_sync_gave_up_is_written_again_though_alone_in_its_page() -> None:
    disk = SimulatedDisk()
    store = open_store(disk, commit_log_bytes=4 * PAGE_BYTES)
    synced_end = put(store, a_message(body_bytes=100))
    store.sync_log()
    store.checkpoint.confirm_physical_offset = synced_end
    store.checkpoint.flush_blocking()
    beside_body_bytes = synced_end - 100
    end = put(store, a_message(body_bytes=PAGE_BYTES + 1 - synced_end - beside_body_bytes))
    assert end == PAGE_BYTES + 1
    expected = log_messages(store)
    disk.sync_fails = True
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
        store.commit_log.files.sync_all()
    disk.sync_fails = False
    disk = disk.crashed()
    open_store(disk, commit_log_bytes=4 * PAGE_BYTES)
    after = open_store(disk.powered_off(NothingKept()), commit_log_bytes=4 * PAGE_BYTES)
    assert log_messages(after) == expected


@pytest.mark.parametrize("record", [0, 7, 13, 14])
@pytest.mark.parametrize("abort", ["clean", "killed"])
def test_a_changed_byte_in_what_was_on_disk_is_an_error_that_changes_nothing(
    record: int, abort: str
) -> None:
    """RocketMQ cuts the log there, and with it every message behind.

    The last record is no torn one either: it had been synced.
    """
    disk = stopped_store(15)
    if abort == "killed":
        disk.replace(f"{DIRECTORY}/abort", b"")
    ends = ends_of(disk)
    start = ends[record - 1] if record else 0
    file = disk.open(log_file(start))
    file.buffer[start % COMMIT_LOG_BYTES + 200] ^= 1
    before = files_of(disk)
    with pytest.raises(CorruptLogError) as caught:
        open_store(disk)
    assert caught.value.fault in (LogFault.NO_RECORD, LogFault.LOST_END)
    assert caught.value.offset == start
    assert caught.value.path == log_file(start)
    # The text has to say what to do.
    assert "another node" in str(caught.value)
    assert files_of(disk) == before
    disk.open(log_file(start)).buffer[start % COMMIT_LOG_BYTES + 200] ^= 1
    assert len(check_store(open_store(disk))) == 15


def test_damage_that_only_times_give_away_is_an_error_too() -> None:
    """A store of RocketMQ has no confirm offset to go by, but when its last message was synced."""
    disk = stopped_store(15)
    checkpoint = disk.open(f"{DIRECTORY}/checkpoint")
    checkpoint.buffer[32:] = bytes(4096 - 32)
    disk.open(log_file(0)).buffer[300] ^= 1
    with pytest.raises(CorruptLogError) as caught:
        open_store(disk)
    assert caught.value.fault is LogFault.NO_RECORD


def test_a_range_that_is_known_to_be_bad_is_no_end_though_nothing_says_that_it_was_synced() -> None:
    disk = stopped_store(15)
    disk.replace(f"{DIRECTORY}/abort", b"")
    disk.open(f"{DIRECTORY}/checkpoint").buffer[:] = bytes(4096)
    start, end = ends_of(disk)[3:5]
    LogDamage(disk, DIRECTORY).note(start, end, "a test")
    disk.open(log_file(start)).buffer[start % COMMIT_LOG_BYTES + 200] ^= 1
    before = files_of(disk)
    with pytest.raises(CorruptLogError) as caught:
        open_store(disk)
    assert caught.value.fault is LogFault.KNOWN_DAMAGE
    assert caught.value.offset == start
    assert files_of(disk) == before


@pytest.mark.parametrize("which", ["first", "middle", "last", "all"])
def test_a_missing_log_file_is_an_error_unless_it_is_the_oldest(which: str) -> None:
    disk = stopped_store(60)
    names = [name for name, _ in disk.list_files(f"{DIRECTORY}/commitlog")]
    assert len(names) == 4
    gone = {"first": names[:1], "middle": names[1:2], "last": names[-1:], "all": names}[which]
    for name in gone:
        disk.remove(f"{DIRECTORY}/commitlog/{name}")
    if which == "first":  # that is what deleting expired files looks like
        with open_store(disk) as store:
            assert number_of(log_messages(store)[-1]) == 59
        return
    before = files_of(disk)
    with pytest.raises(CorruptLogError) as caught:
        open_store(disk)
    assert caught.value.fault in (LogFault.MISSING_FILE, LogFault.LOST_END)
    assert files_of(disk) == before


@pytest.mark.parametrize("size", [1, 100, COMMIT_LOG_BYTES - 1, COMMIT_LOG_BYTES + 1])
def test_a_log_file_of_another_length_is_named_with_a_remedy(size: int) -> None:
    """MappedFileQueue.doLoad."""
    disk = stopped_store(20)
    name = disk.list_files(f"{DIRECTORY}/commitlog")[-1][0]
    path = f"{DIRECTORY}/commitlog/{name}"
    disk.replace(path, b"x" * size)
    with pytest.raises(CorruptLogError) as caught:
        open_store(disk)
    assert caught.value.fault is LogFault.LENGTH
    assert caught.value.path == path
    assert disk.read(path) == b"x" * size


def test_a_last_file_of_no_length_is_what_a_crash_leaves_and_goes() -> None:
    """MappedFileQueue.doLoad."""
    disk = stopped_store(20)
    path = log_file(COMMIT_LOG_BYTES * 2)
    disk.replace(path, b"")
    with open_store(disk) as store:
        assert len(check_store(store)) == 20
    assert not disk.exists(path)
    disk.replace(log_file(0), b"")
    with pytest.raises(CorruptLogError) as caught:
        open_store(disk)
    assert caught.value.fault is LogFault.LENGTH


@pytest.mark.parametrize(
    "name", ["notes.txt", "0000000000000000819x", "8192", "00000000000000008192.bak"]
)
def test_a_foreign_file_is_named_with_a_remedy(name: str) -> None:
    disk = stopped_store(20)
    disk.replace(f"{DIRECTORY}/commitlog/{name}", bytes(COMMIT_LOG_BYTES))
    with pytest.raises(CorruptLogError) as caught:
        open_store(disk)
    assert caught.value.fault is LogFault.NAME
    assert caught.value.path.endswith(f"/{name}")


@pytest.mark.parametrize("size", [0, 8, 39, 4095, 5000])
def test_a_checkpoint_of_another_length_is_named_with_a_remedy(size: int) -> None:
    disk = stopped_store(20)
    disk.replace(f"{DIRECTORY}/checkpoint", bytes(size))
    with pytest.raises(CorruptLogError) as caught:
        open_store(disk)
    assert caught.value.fault is LogFault.LENGTH
    assert caught.value.path == f"{DIRECTORY}/checkpoint"
    disk.remove(f"{DIRECTORY}/checkpoint")
    assert len(check_store(open_store(disk))) == 20


@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/TopicA", "consumequeue/TopicA/0"])
@pytest.mark.parametrize("abort", ["clean", "killed"])
def test_lost_queues_are_built_anew(lost: str, abort: str) -> None:
    disk = stopped_store(100)
    for path in list(files_of(disk)):
        if path.startswith(f"{DIRECTORY}/{lost}/"):
            disk.remove(path)
    if abort == "killed":
        disk.replace(f"{DIRECTORY}/abort", b"")
    with open_store(disk) as store:
        assert [number_of(m) for m in check_store(store)] == list(range(100))


RECOVERY = "store.recovery.store_recovery"
QUEUE = f"{DIRECTORY}/consumequeue/TopicA/0"


def queue_file(number: int) -> str:
    return f"{QUEUE}/{number * CONSUME_QUEUE_BYTES:020d}"


@pytest.mark.parametrize("abort", ["clean", "killed"])
@pytest.mark.parametrize(
    "what",
    [
        "first",
        "middle",
        "last",
        "two",
        "empty",
        "short",
        "short last",
        "long",
        "renamed",
        "cut and renamed",
    ],
)
def test_a_queue_that_lacks_files_is_built_anew_at_the_start(
    what: str, abort: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = stopped_store(150)
    paths = [f"{QUEUE}/{name}" for name, _ in disk.list_files(QUEUE)]
    assert len(paths) == 5
    for number in {"first": [0], "middle": [2], "last": [4], "two": [0, 2]}.get(what, []):
        disk.remove(paths[number])
    sizes = {"empty": (1, 0), "short": (1, 61), "short last": (4, 61), "long": (1, 201)}
    if what in sizes:
        number, size = sizes[what]
        disk.replace(paths[number], (disk.read(paths[number]) or b"").ljust(size, b"x")[:size])
    if what == "cut and renamed":
        disk.remove(paths[1])
        disk.replace(queue_file(9), bytes(61))
    if what == "renamed":
        disk.rename(paths[1], queue_file(9))
    if abort == "killed":
        disk.replace(f"{DIRECTORY}/abort", b"")

    with open_store(disk) as store:
        assert [number_of(m) for m in check_store(store)] == list(range(150))
        put_many(store, 3, start=150)
        assert len(check_store(store)) == 153
    assert [f"{QUEUE}/{name}" for name, _ in disk.list_files(QUEUE)] == [*paths, queue_file(5)]
    caplog.clear()
    with open_store(disk) as store:
        assert len(check_store(store)) == 153
    assert not logged(caplog, RECOVERY)


def test_where_all_queue_files_have_another_length_it_is_the_setting() -> None:
    disk = stopped_store(20)
    with pytest.raises(CorruptLogError) as caught:
        open_store(disk, consume_queue_bytes=400)
    assert caught.value.fault is LogFault.LENGTH
    with open_store(disk) as store:
        assert len(check_store(store)) == 20


def test_numbers_go_on_in_a_broken_queue_all_of_whose_messages_have_left_the_log() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    for number in range(25):
        put(store, a_message(number))
    put_many(store, 60, start=100)
    while store.min_physical_offset < 25 * 400:
        store.commit_log.files.delete_expired_file_by_time(
            now_ms=1 << 62, expired_time_ms=0, interval_forcibly_ms=0, delete_file_batch_max=1
        )
    before = store.reads.max_offset_in_queue("TopicA", 1)
    end = store.reads.max_offset_in_queue("TopicA", 0)
    store.close()
    disk.remove(queue_file(1))

    with open_store(disk) as store:
        check_store(store)
        assert store.reads.max_offset_in_queue("TopicA", 0) == end
        assert store.reads.max_offset_in_queue("TopicA", 1) == before


def test_a_queue_whose_first_files_went_with_their_messages_is_not_built_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    put_many(store, 150)
    files = store.commit_log.files
    while len(store.queues.find("TopicA", 0).files.files) > 3:  # type: ignore[union-attr]
        files.delete_expired_file_by_time(
            now_ms=1 << 62, expired_time_ms=0, interval_forcibly_ms=0, delete_file_batch_max=1
        )
        for key in store.list_queues():
            queue = store.queues.find(*key)
            assert queue is not None
            queue.delete_expired_files(store.min_physical_offset)
        store.queues.correct_min_offset(store.min_physical_offset)
    store.close()
    with open_store(disk) as store:
        check_store(store)
    assert not logged(caplog, RECOVERY)
    disk.remove(f"{QUEUE}/{disk.list_files(QUEUE)[0][0]}")
    with open_store(disk) as store:
        check_store(store)
    ((gap,),) = logged(caplog, RECOVERY)
    assert isinstance(gap, QueueGapError)


def test_queues_are_built_anew_where_that_was_ordered(caplog: pytest.LogCaptureFixture) -> None:
    disk = stopped_store(60)
    unit = disk.open(queue_file(0)).buffer
    unit[3] ^= 1  # far from the part of the log that a start looks at
    RebuildOrder(disk, DIRECTORY).give("TopicA-0 is wrong")
    RebuildOrder(disk, DIRECTORY).give("another reason")
    with open_store(disk) as store:
        assert len(check_store(store)) == 60
    assert [str(line[0]) for line in logged(caplog, RECOVERY)] == ["TopicA-0 is wrong"]
    assert not disk.exists(f"{DIRECTORY}/{REBUILD_ORDER_FILE}")
    disk.replace(f"{DIRECTORY}/{REBUILD_ORDER_FILE}", b"rubbish")
    with open_store(disk) as store:
        assert len(check_store(store)) == 60
    assert not disk.exists(f"{DIRECTORY}/{REBUILD_ORDER_FILE}")


def test_a_wrong_file_size_in_the_settings_is_told(tmp_path: Path) -> None:
    root = shutil.copytree(GOLDEN / "basic", tmp_path / "basic")
    with pytest.raises(CorruptLogError) as caught:
        open_store(RealDisk(), str(root), commit_log_bytes=65536)
    assert caught.value.fault is LogFault.LENGTH


def test_a_directory_that_may_not_be_written_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file is in the way")
    with pytest.raises(DiskFailedError) as caught:
        open_store(RealDisk(), str(tmp_path / "store"))
    assert caught.value.path.startswith(str(tmp_path / "store"))


def test_a_disk_that_fails_while_opening_is_an_error_of_the_store() -> None:
    disk = killed_store(5)
    for path in files_of(disk):
        if "/commitlog/" in path:
            disk.open(path).sync = _raise_io_error  # type: ignore[method-assign]
    with pytest.raises(DiskFailedError):
        open_store(disk)


def test_a_disk_that_fails_while_closing_leaves_the_stop_unclean() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    put_many(store, 5)
    for path in files_of(disk):
        disk.open(path).sync = _raise_io_error  # type: ignore[method-assign]
    with pytest.raises(DiskFailedError):
        store.close()
    assert disk.exists(f"{DIRECTORY}/abort")
    assert len(check_store(open_store(disk.crashed()))) == 5


def _raise_io_error() -> None:
    raise OSError(5, "Input/output error")


def test_a_store_that_is_open_elsewhere_is_left_alone() -> None:
    disk = SimulatedDisk()
    with open_store(disk), pytest.raises(StoreLockedError):
        open_store(disk)
    open_store(disk).close()


def test_a_store_that_did_not_open_gives_its_lock_back() -> None:
    disk = stopped_store(20)
    disk.replace(log_file(0), b"short")
    for _ in range(2):
        with pytest.raises(CorruptLogError):
            open_store(disk)


# Recovery alone, of a log in two directories, with queues of every kind.

LOG_DIRECTORIES = (f"{DIRECTORY}/log-a", f"{DIRECTORY}/log-b")


class Opened:
    """What one recovery leaves: everything a store is made of."""

    def __init__(
        self,
        disk: Disk,
        *,
        clean: bool = False,
        check_crc: bool = True,
        force_verify_prop_crc: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.log = CommitLog(LOG_DIRECTORIES, 2048, disk, STORE_HOST)
        self.queues = ConsumeQueueStore(
            f"{DIRECTORY}/consumequeue",
            200,
            disk,
            batch_directory=f"{DIRECTORY}/batchconsumequeue",
            batch_mapped_file_size=4 * 46,
            ext_directory=f"{DIRECTORY}/consumequeue_ext",
            ext_mapped_file_size=100,
            is_batch_topic=lambda topic: topic.startswith("Batch"),
        )
        self.log.files.load()
        self.queues.load()
        self.checkpoint = StoreCheckpoint(f"{DIRECTORY}/checkpoint", disk)
        StoreRecovery(
            DIRECTORY,
            self.log,
            self.queues,
            self.checkpoint,
            disk,
            check_crc=check_crc,
            force_verify_prop_crc=force_verify_prop_crc,
            wall_clock_ms=clock,
        ).run(clean=clean)

    @property
    def next_offsets(self) -> dict[tuple[str, int], int]:
        found = {key: self.queues.find(*key) for key in self.queues.queues()}
        return {key: queue.assigned_offset for key, queue in found.items() if queue is not None}

    def close(self) -> None:
        self.log.files.close()
        self.queues.close()
        self.checkpoint.close()


def disk_with(log: LogBuilder) -> SimulatedDisk:
    """Return a disk with this log and nothing else, its files in both directories in turn."""
    disk = SimulatedDisk()
    for index, (name, data) in enumerate(log.files().items()):
        disk.replace(f"{LOG_DIRECTORIES[index % 2]}/{name}", data)
    return disk


def flip(disk: SimulatedDisk, record: int, at: int) -> None:
    """Damage the byte `at` of the record at that offset."""
    number, position = divmod(record, 2048)
    disk.open(f"{LOG_DIRECTORIES[number % 2]}/{number * 2048:020d}").buffer[position + at] ^= 0xFF


def a_log_of_everything(count: int = 60) -> LogBuilder:
    """Build a log with V1 and V2, v4 and v6, batches, transactions and delayed messages."""
    log = LogBuilder(file_bytes=2048)
    base = 0
    for number in range(count):
        kind = number % 6
        v6 = Host("::1", 1)
        if kind == 0:
            log.put("TopicA", b"a" * (7 * number % 300), tags="TagA", queue_id=number % 2)
        elif kind == 1:
            log.put("%RETRY%" + "g" * 150, tags="TagB", born_host=v6)
        elif kind == 2:
            log.put("TopicA", sys_flag=TRANSACTION_PREPARED_TYPE, queue_offset=number)
            log.put("TopicA", sys_flag=TRANSACTION_ROLLBACK_TYPE, queue_offset=number)
            log._queue_ends["TopicA", 0] = len(  # what other messages of this queue there are
                [
                    m
                    for m in log.messages
                    if (m.topic, m.queue_id) == ("TopicA", 0) and not m.sys_flag & 4
                ]
            )
        elif kind == 3:
            log.put("TopicB", sys_flag=TRANSACTION_COMMIT_TYPE, store_host=v6)
        elif kind == 4:
            properties = {"INNER_BASE": str(base), "INNER_NUM": "5"}
            log.put("Batches", sys_flag=0xC0, queue_offset=base, properties=properties)
            base += 5
        else:
            log.put("SCHEDULE_TOPIC_XXXX", queue_id=2, properties={"DELAY": "3"})
    return log


def queue_files(disk: SimulatedDisk) -> dict[str, bytes]:
    return {path: data for path, data in files_of(disk).items() if "consumequeue" in path}


def test_queues_of_every_kind_are_built_from_the_log_alone() -> None:
    """ConsumeQueueStore.recoverOffsetTable: the next numbers, with V1 and V2 records alike.

    RocketMQ's second way to that table, with duplication, stops at the first V2 record.
    """
    log = a_log_of_everything()
    disk = disk_with(log)
    opened = Opened(disk)
    assert opened.log.max_offset == log.end_offset
    retry = "%RETRY%" + "g" * 150
    assert opened.next_offsets == {
        ("TopicA", 0): 10,
        (retry, 0): 10,
        ("TopicB", 0): 10,
        ("Batches", 0): 50,
        ("SCHEDULE_TOPIC_XXXX", 2): 10,
    }
    batches = opened.queues.find("Batches", 0)
    delayed = opened.queues.find("SCHEDULE_TOPIC_XXXX", 2)
    assert batches is not None
    assert delayed is not None
    assert [unit[0] for unit in batches.units(0, 3)] == [
        m.physical_offset for m in log.messages if m.topic == "Batches"
    ][:3]
    first = next(m for m in log.messages if m.topic == "SCHEDULE_TOPIC_XXXX")
    assert next(iter(delayed.units(0, 1)))[2] == first.store_timestamp_ms + 10_000
    assert {path.split("/")[2] for path in queue_files(disk)} == {
        "consumequeue",
        "consumequeue_ext",
        "batchconsumequeue",
    }


def test_prepared_and_rolled_back_messages_of_the_older_scheme_are_in_no_queue() -> None:
    """Their numbers are those of a table of their own; committed ones have the queue's."""
    log = LogBuilder(file_bytes=2048)
    log.put(queue_offset=0)
    for number in (0, 1, 7, -1, 1 << 40):
        log.put(sys_flag=TRANSACTION_PREPARED_TYPE, queue_offset=number)
        log.put(sys_flag=TRANSACTION_ROLLBACK_TYPE, queue_offset=number)
    log.put(sys_flag=TRANSACTION_COMMIT_TYPE, queue_offset=1, prepared_transaction_offset=113)
    log.put(queue_offset=2)
    disk = disk_with(log)
    for clean in (False, True):
        opened = Opened(disk, clean=clean)
        assert opened.log.max_offset == log.end_offset
        assert opened.next_offsets == {("TopicA", 0): 3}
        queue = opened.queues.find("TopicA", 0)
        assert queue is not None
        assert [queue.unit(n)[0] for n in range(3)] == [
            log.messages[n].physical_offset for n in (0, -2, -1)
        ]
        opened.close()


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False])
def test_wherever_a_queue_has_stopped_it_misses_nothing_afterwards(*, clean: bool) -> None:
    """CommitLog.recoverNormally skips what lies at the end of the last record of any queue."""
    log = a_log_of_everything()
    whole = disk_with(log)
    Opened(whole).close()
    expected = queue_files(whole)
    for message in log.messages[::3]:
        for key in (("TopicA", 0), ("Batches", 0), ("SCHEDULE_TOPIC_XXXX", 2), None):
            disk = whole.crashed()
            opened = Opened(disk)
            for name in opened.queues.queues() if key is None else [key]:
                queue = opened.queues.find(*name)
                assert queue is not None
                queue.truncate_dirty_logic_files(message.physical_offset)
            opened.close()
            if not clean:
                disk.remove(f"{DIRECTORY}/checkpoint")
            Opened(disk, clean=clean).close()
            assert queue_files(disk) == expected


def test_a_cut_log_takes_units_batches_and_extensions_with_it() -> None:
    """RocketMQ cuts extensions only if it has deleted all files of the queue."""
    log = a_log_of_everything()
    whole = disk_with(log)
    Opened(whole).close()
    for message in log.messages[1::4]:
        disk = whole.crashed()
        disk.remove(f"{DIRECTORY}/checkpoint")
        at = message.physical_offset
        flip(disk, at, 4)
        Opened(disk).close()
        shorter = LogBuilder(file_bytes=2048)
        shorter.log = log.log[:at]
        fresh = disk_with(shorter)
        Opened(fresh).close()
        assert queue_files(disk) == queue_files(fresh)
        again = disk.crashed()
        Opened(again).close()
        assert files_of(again) == files_of(disk)


@pytest.mark.slow
def test_recovery_of_everything_killed_at_any_step_ends_as_if_it_had_not_been() -> None:
    log = a_log_of_everything()
    torn = disk_with(log)
    Opened(torn).close()
    torn.remove(f"{DIRECTORY}/checkpoint")
    flip(torn, log.messages[40].physical_offset, 4)
    for path in list(queue_files(torn)):
        if "/TopicB/" in path:
            torn.remove(path)
    whole = torn.crashed()
    Opened(whole).close()
    expected = files_of(whole)
    for step in range(1, 1000):
        disk = StepDisk(torn)
        disk.on_step = die_at(step)
        try:
            Opened(disk)
        except Interrupted:
            after = disk.crashed()
            Opened(after).close()
            assert files_of(after) == expected
            continue
        assert step > 20
        return
    pytest.fail("recovery never got to its end")


@pytest.mark.slow
def test_power_lost_at_any_step_of_a_recovery_of_everything_costs_nothing() -> None:
    log = a_log_of_everything()
    start = disk_with(log)
    Opened(start).close()
    for path in list(queue_files(start)):
        if "/TopicB/" in path or "ext/TopicA" in path or "/Batches/" in path:
            start.remove(path)
    for path in files_of(start):
        start.open(path).sync()
    expected = Opened(start.crashed()).next_offsets
    chance = random.Random(1)
    for step in range(1, 1000):
        disk = StepDisk(start)
        disk.on_step = die_at(step)
        try:
            Opened(disk)
        except Interrupted:
            for _ in range(5):
                after = disk.powered_off(chance)
                assert Opened(after).next_offsets == expected
            continue
        assert step > 10
        return
    pytest.fail("recovery never got to its end")


def test_the_settings_say_which_checksum_counts() -> None:
    """checkCRCOnRecover and forceVerifyPropCRC."""
    log = a_log_of_everything(12)
    disk = disk_with(log)
    last = [m for m in log.messages if m.topic == "TopicA" and m.body[:1] == b"a"][-1]
    flip(disk, last.physical_offset, 88)
    assert Opened(disk.crashed()).log.max_offset == last.physical_offset
    unchecked = Opened(disk.crashed(), check_crc=False, force_verify_prop_crc=True)
    assert unchecked.log.max_offset == log.end_offset
    # No record has the CRC property: RocketMQ would empty the log.
    closed = disk_with(log)
    Opened(closed).close()
    with pytest.raises(CorruptLogError) as caught:
        Opened(closed, force_verify_prop_crc=True)
    assert caught.value.fault is LogFault.LOST_END


def test_a_long_walk_tells_how_far_it_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log_of_everything()
    monkeypatch.setattr(store_recovery, "PROGRESS_STEP_BYTES", 2048)
    caplog.set_level("INFO")
    Opened(disk_with(log), clock=Clock(step_ms=2600))
    # Where it is, of how much, and how fast; the last line is that the store is open.
    lines = [line for line in logged(caplog, RECOVERY, logging.INFO) if len(line) == 3]
    assert 1 <= len(lines) <= log.end_offset // 2048 // 2
    shares = [int(str(share)) for share, _, _ in lines]
    assert shares == sorted(shares)
    assert 0 < shares[0] <= shares[-1] <= 100
    caplog.clear()
    monkeypatch.setattr(store_recovery, "PROGRESS_STEP_BYTES", 1 << 20)
    Opened(disk_with(log), clock=Clock(step_ms=2600))
    assert not [line for line in logged(caplog, RECOVERY, logging.INFO) if len(line) == 3]


def test_a_hostile_record_with_the_right_checksum_enters_no_directory_but_its_own() -> None:
    log = LogBuilder(file_bytes=2048)
    for topic in ("../../../etc/passwd", "..", "", "a/b", "t" * 300):
        log.put(topic, b"x", queue_id=-5, body_crc=crc32(b"x"))
    log.put("TopicA")
    disk = disk_with(log)
    opened = Opened(disk)
    assert opened.log.max_offset == log.end_offset
    assert opened.next_offsets == {("TopicA", 0): 1}
    assert {path.split("/")[3] for path in queue_files(disk)} == {"TopicA"}


@pytest.mark.parametrize("damage", ["noise", "last file removed", "unit of another queue"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_queue_damaged_in_front_of_the_walk_gets_its_units_back(
    damage: str,
    is_killed: bool,  # noqa: FBT001
) -> None:
    """5.3.3 goes by the queue that is furthest: what the others have lost they never get back."""
    disk = SimulatedDisk()
    store = open_store(disk)
    for number in range(33):
        put(store, a_message(number, "Idle", body_bytes=100))
    for number in range(33, 80):
        put(store, a_message(number, "Busy", body_bytes=500))
    expected = queue_messages(store, "Idle", 0)
    store.close()
    if is_killed:
        disk.replace(f"{DIRECTORY}/abort", b"")
    name = f"{DIRECTORY}/consumequeue/Idle/0/{600:020d}"
    queue = disk.open(name).buffer
    if damage == "noise":
        queue[20:24] = b"damn"
    elif damage == "last file removed":
        disk.remove(name)
    else:
        queue[40:60] = disk.open(f"{DIRECTORY}/consumequeue/Busy/0/{0:020d}").buffer[0:20]
    with open_store(disk) as store:
        assert queue_messages(store, "Idle", 0) == expected
        assert len(check_store(store)) == 80


def test_a_batch_queue_that_has_lost_a_file_of_units_is_built_anew() -> None:
    """The units behind it hide that; they are of records that were torn off the log."""
    disk = SimulatedDisk()
    settings: dict[str, Any] = {
        "is_batch_topic": lambda topic: topic == "Batches",
        "mapper_file_size_batch_consume_queue_bytes": 92,
    }
    store = open_store(disk, **settings)
    for number in range(0, 60, 5):
        put(store, a_batch(range(number, number + 5), "Batches"))
    torn = log_messages(store)[5].physical_offset
    disk = disk.crashed()
    disk.open(log_file(torn)).buffer[torn % COMMIT_LOG_BYTES + 4] ^= 1
    for file in (2, 4):  # the units of the records number 4 and 5, and 8 and 9
        path = f"{DIRECTORY}/batchconsumequeue/Batches/0/{file * 92:020d}"
        disk.open(path).buffer[:] = bytes(92)
    with open_store(disk, **settings) as store:
        queue = store.queues.find("Batches", 0)
        assert isinstance(queue, BatchConsumeQueue)
        assert queue.next_offset == 25
        assert [unit.base for unit in queue.batch_units(20, 9)] == [20]


def test_queues_built_anew_give_numbers_of_torn_messages_away_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A master has given them away once; its slave would not take the message otherwise."""
    disk = SimulatedDisk()
    store = open_store(disk)
    put_many(store, 150)
    end = store.max_physical_offset
    put(store, a_message(199, "TopicQ"))
    disk = disk.crashed()
    disk.open(log_file(end)).buffer[end % COMMIT_LOG_BYTES + 4] ^= 1  # torn
    disk.open(f"{DIRECTORY}/consumequeue/TopicA/0/{200:020d}").buffer[:60] = bytes(60)  # lost
    with open_store(disk) as store:
        assert any(isinstance(line[0], QueueGapError) for line in logged(caplog, RECOVERY))
        assert len(check_store(store)) == 150
        assert store.puts.put_message(a_message(199, "TopicQ")).queue_offset == 0


@pytest.mark.parametrize("count", [7, 10])
def test_queues_built_anew_keep_their_numbers_when_all_their_messages_have_left(count: int) -> None:
    """At 0 again, new messages would look like old ones to every consumer."""
    disk = SimulatedDisk()
    with open_store(disk) as store:
        for number in range(count):
            put(store, a_message(number, "TopicQ"))
        put_many(store, 62)
        first = store.commit_log.files.files[1].file_from_offset
    disk.remove(f"{DIRECTORY}/commitlog/{0:020d}")
    # A unit too many, of a record that is another queue's: no queue is believed any more.
    name = disk.list_files(f"{DIRECTORY}/consumequeue/TopicA/0")[-1][0]
    with open_store(disk.crashed()) as store:
        last = store.last_record_offset
        position = store.reads.max_offset_in_queue("TopicA", 0) * 20 - int(name)
    CQ_STORE_UNIT.pack_into(
        disk.open(f"{DIRECTORY}/consumequeue/TopicA/0/{name}").buffer, position, last, 100, 0
    )
    disk.replace(f"{DIRECTORY}/abort", b"")
    for _ in range(2):
        with open_store(disk) as store:
            assert store.min_physical_offset == first
            assert store.reads.max_offset_in_queue("TopicB", 0) == 20
            assert store.reads.max_offset_in_queue("TopicQ", 0) == count
            assert store.reads.min_offset_in_queue("TopicQ", 0) == count
    with open_store(disk) as store:
        assert store.puts.put_message(a_message(1, "TopicQ")).queue_offset == count
        assert [m.queue_offset for m in queue_messages(store, "TopicQ", 0)] == [count]

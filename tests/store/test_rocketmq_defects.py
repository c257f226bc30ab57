"""Where RocketMQ 5.3.3 loses or mixes up messages and we do not. The disk format is the same.

Every test here fails on RocketMQ's behaviour, which its docstring tells.
"""

import msgspec
import pytest

from node.simulated.disk import SimulatedDisk
from node.simulated.file import SimulatedFile
from store import MessageStore, PutMessageStatus
from store.machine.errors import CorruptLogError, DiskFailedError, LogFault, StoreFullError
from tandem.wire.message_properties import tags_code
from tests.store.store_world import (
    COMMIT_LOG_BYTES,
    DIRECTORY,
    a_batch,
    a_message,
    check_store,
    log_messages,
    number_of,
    open_store,
    put,
    put_many,
    queue_messages,
)

QUEUE = f"{DIRECTORY}/consumequeue/TopicA/0"
FIRST_LOG_FILE = f"{DIRECTORY}/commitlog/{0:020d}"


def killed(count: int, *, body_bytes: int = 100) -> tuple[SimulatedDisk, list[int]]:
    """Put messages in one queue and die; return the disk and where each record starts."""
    disk = SimulatedDisk()
    store = open_store(disk)
    for number in range(count):
        put(store, a_message(3 * number, body_bytes=body_bytes))
    return disk.crashed(), [m.physical_offset for m in log_messages(store)]


def test_the_first_message_that_a_queue_lacks_is_entered() -> None:
    """CommitLog.recoverNormally: `offset > maxPhyCQ` skips it; its number is used again."""
    disk = SimulatedDisk()
    with open_store(disk) as store:
        put_many(store, 6)
    for path in (f"{QUEUE}/{0:020d}", f"{DIRECTORY}/consumequeue/TopicB/0/{0:020d}"):
        disk.open(path).buffer[20:40] = bytes(20)
    with open_store(disk) as store:
        assert len(check_store(store)) == 6
        assert store.reads.max_offset_in_queue("TopicA", 0) == 2
        put(store, a_message(6))
        assert [number_of(m) for m in queue_messages(store, "TopicA", 0)] == [0, 3, 6]


@pytest.mark.parametrize("abort", ["clean", "killed"])
@pytest.mark.parametrize("count", [10, 20, 0])
def test_a_queue_file_without_a_unit_neither_shifts_the_queue_nor_stops_the_start(
    abort: str, count: int
) -> None:
    """ConsumeQueue.truncateDirtyLogicFiles takes (0, 0, 0) for a unit; correctMinOffset throws."""
    disk = SimulatedDisk()
    with open_store(disk) as store:
        for number in range(count):
            put(store, a_message(number))
        put(store, a_message(99, "TopicB"))
    disk.create(f"{QUEUE}/{20 * count:020d}", 200)
    if abort == "killed":
        disk.replace(f"{DIRECTORY}/abort", b"")
    with open_store(disk) as store:
        assert len(check_store(store)) == count + 1
        assert not disk.exists(f"{QUEUE}/{20 * count:020d}")
        put(store, a_message(count))
        assert store.reads.max_offset_in_queue("TopicA", 0) == count + 1
        assert number_of(queue_messages(store, "TopicA", 0)[-1]) == count


def test_old_records_behind_a_cut_do_not_come_back() -> None:
    """MappedFileQueue.truncateDirtyFiles only moves positions; the bytes stay and fit again."""
    disk, starts = killed(4)
    disk.open(FIRST_LOG_FILE).buffer[starts[1] + 100] ^= 0xFF
    store = open_store(disk)
    assert [number_of(m) for m in check_store(store)] == [0]
    put(store, a_message(9, body_bytes=100))  # as long as the one that was cut
    assert store.max_physical_offset == starts[2]
    again = open_store(disk.crashed())
    assert [number_of(m) for m in check_store(again)] == [0, 9]


@pytest.mark.parametrize("at", [28, 32, 35])
def test_a_destroyed_physical_offset_is_noticed(at: int) -> None:
    """CommitLog.checkMessageAndReturnSize does not compare it with the place of the record."""
    disk, starts = killed(3)
    disk.open(FIRST_LOG_FILE).buffer[starts[2] + at] ^= 0x55
    assert [number_of(m) for m in check_store(open_store(disk))] == [0, 3]


def test_a_record_larger_than_a_file_is_refused_and_nothing_is_wasted() -> None:
    """CommitLog.asyncPutMessage writes two blanks and answers PUT_OK."""
    store = open_store(SimulatedDisk())
    put(store, a_message(0))
    end = store.max_physical_offset
    overhead = end - 2
    largest = a_message(1, body_bytes=COMMIT_LOG_BYTES - 8 - overhead - 5)
    too_large = msgspec.structs.replace(largest, body=largest.body + b"..............")
    result = store.puts.put_message(too_large)
    assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert store.max_physical_offset == end
    batch = store.puts.put_batch(a_batch(range(500)))
    assert batch.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert store.max_physical_offset == end


def test_a_record_that_leaves_exactly_the_blank_header_fits_a_file() -> None:
    """END_FILE_MIN_BLANK_LENGTH: the largest record is the file less 8 bytes."""
    store = open_store(SimulatedDisk())
    size = put(store, a_message(0, body_bytes=100))
    put(store, a_message(0, body_bytes=100 + COMMIT_LOG_BYTES - 8 - size))
    assert log_messages(store)[-1].store_size == COMMIT_LOG_BYTES - 8
    put(store, a_message(3))
    assert [m.physical_offset for m in check_store(store)] == [0, 8192, 16384]


def test_offset_zero_is_not_found_once_its_file_is_gone() -> None:
    """MappedFileQueue.findMappedFileByOffset answers from the first file that is left."""
    disk = SimulatedDisk()
    with open_store(disk) as store:
        put_many(store, 60)
    disk.remove(FIRST_LOG_FILE)
    with open_store(disk) as store:
        assert store.min_physical_offset == COMMIT_LOG_BYTES
        for offset in (0, 1, COMMIT_LOG_BYTES - 1):
            assert store.reads.look_message_by_offset(offset) is None
            assert bytes(store.read_log(offset, 100)) == b""
        assert store.reads.look_message_by_offset(COMMIT_LOG_BYTES) is not None


def test_a_queue_that_lost_units_is_built_anew_instead_of_going_on_at_the_wrong_place() -> None:
    """ConsumeQueue.putMessagePositionInfo logs "logic queue order maybe wrong" and appends."""
    disk = SimulatedDisk()
    with open_store(disk) as store:
        put_many(store, 100)
    # The last file of the queue is gone, and with it units of records before the last log file.
    names = [name for name, _ in disk.list_files(QUEUE)]
    assert len(names) == 4
    for name in names[1:]:
        disk.remove(f"{QUEUE}/{name}")
    with open_store(disk) as store:
        assert len(check_store(store)) == 100


def test_a_log_with_a_hole_in_a_queue_is_an_error_of_the_log() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    for number in range(3):
        put(store, a_message(number))
    queue = store.queues.find("TopicA", 0)
    assert queue is not None
    queue.next_offset += 1  # what no put of ours does
    put(store, a_message(3))
    disk.remove(f"{QUEUE}/{0:020d}")
    with pytest.raises(CorruptLogError) as caught:
        open_store(disk.crashed())
    assert caught.value.fault is LogFault.LOG_GAP


class FailingDisk(SimulatedDisk):
    """Makes no new file once `failing` is set."""

    failing: Exception | None = None

    def create(self, path: str, size: int, *, grows: bool = False) -> SimulatedFile:
        if self.failing is not None and "/commitlog/" in path:
            raise self.failing
        return super().create(path, size, grows=grows)


@pytest.mark.parametrize(
    "error", [StoreFullError("x: no room", path="x"), DiskFailedError("x: Input/output error")]
)
def test_a_put_that_could_not_be_written_is_refused_and_moves_nothing(error: Exception) -> None:
    """DefaultMappedFile.appendMessage logs an I/O error and moves its position all the same."""
    disk = FailingDisk()
    store = open_store(disk)
    for number in range(28):
        put(store, a_message(number, body_bytes=160))
    end = store.max_physical_offset
    disk.failing = error
    refused = [
        store.puts.put_message(a_message(28, body_bytes=300)),
        store.puts.put_batch(a_batch(range(28, 35))),
    ]
    for result in refused:
        assert result.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
        assert result.reason == str(error)
        assert result.wrote_offset == -1
    assert store.max_physical_offset == end
    assert store.reads.max_offset_in_queue("TopicA", 0) == 28
    assert len(check_store(store)) == 28
    disk.failing = None
    put(store, a_message(28, body_bytes=300))
    assert [number_of(m) for m in check_store(store)] == list(range(29))
    store.close()


def test_a_refused_put_leaves_no_queue_file_without_a_unit() -> None:
    """5.3.3 cannot load such a queue: see the first of the tests about empty files."""
    disk = FailingDisk()
    store = open_store(disk)
    for number in range(10):  # fills the first file of the queue
        put(store, a_message(number, body_bytes=650))
    disk.failing = StoreFullError("x: no room", path="x")
    assert (
        store.puts.put_message(a_message(10, body_bytes=5000)).status.name
        == "CREATE_MAPPED_FILE_FAILED"
    )
    assert [name for name, _ in disk.list_files(QUEUE)] == [f"{0:020d}"]
    assert len(check_store(store)) == 10


def open_with_extensions(disk: SimulatedDisk) -> MessageStore:
    return open_store(
        disk, enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext_bytes=100
    )


def open_with_batches(disk: SimulatedDisk) -> MessageStore:
    return open_store(disk, is_batch_topic=lambda topic: topic == "Batches")


def test_extensions_behind_a_cut_go_with_the_units_that_point_at_them() -> None:
    """ConsumeQueue.truncateDirtyLogicFiles cuts them only if it has deleted all of its files."""
    disk = SimulatedDisk()
    store = open_with_extensions(disk)
    for number in range(12):
        put(store, a_message(number))
    starts = [m.physical_offset for m in log_messages(store)]
    disk = disk.crashed()
    extensions = f"{DIRECTORY}/consumequeue_ext/TopicA/0"
    assert [name for name, _ in disk.list_files(extensions)] == [
        "0" * 20,
        f"{100:020d}",
        f"{200:020d}",
    ]
    disk.open(FIRST_LOG_FILE).buffer[starts[5] + 4] ^= 0xFF
    store = open_with_extensions(disk)
    assert store.reads.max_offset_in_queue("TopicA", 0) == 5
    assert [name for name, _ in disk.list_files(extensions)] == ["0" * 20, f"{100:020d}"]
    last = disk.read(f"{extensions}/{100:020d}") or b""
    assert last[:2] == b"\0\x14"
    assert last[20:] == bytes(80)
    put(store, a_message(5))
    again = open_with_extensions(disk.crashed())
    assert again.reads.max_offset_in_queue("TopicA", 0) == 6
    found = again.reads.get_message("TopicA", 0, 5, 1, tags_codes=frozenset([tags_code("TagB")]))
    assert found.message_count == 1


def test_the_numbers_of_long_topics_go_on_after_a_crash() -> None:
    """CommitLog.recoverTopicQueueTable, with duplication, stops at the first V2 record."""
    topic = "%RETRY%" + "g" * 200
    disk = SimulatedDisk()
    store = open_store(disk)
    for number in range(15):
        put(store, a_message(number, topic if number % 2 else "TopicA"))
    disk = disk.crashed()
    for path in (f"{DIRECTORY}/consumequeue/{topic}/0", QUEUE):
        for name, _ in disk.list_files(path):
            disk.remove(f"{path}/{name}")
    store = open_store(disk)
    assert (
        store.reads.max_offset_in_queue(topic, 0),
        store.reads.max_offset_in_queue("TopicA", 0),
    ) == (7, 8)
    put(store, a_message(15, topic))
    assert [m.queue_offset for m in queue_messages(store, topic, 0)] == list(range(8))
    check_store(store)


def test_a_topic_created_again_does_not_mix_its_messages_with_those_of_the_first_one() -> None:
    """ConsumeQueue.putMessagePositionInfo takes its messages for repeats, and drops them."""
    disk = SimulatedDisk()
    store = open_store(disk)
    for number in range(3):
        put(store, a_message(number))
    store.queues.delete_topic("TopicA")
    for number in range(3, 5):
        put(store, a_message(number))
    assert [number_of(m) for m in queue_messages(store, "TopicA", 0)] == [3, 4]
    disk = disk.crashed()
    disk.remove(f"{QUEUE}/{0:020d}")
    store = open_store(disk)
    assert [number_of(m) for m in queue_messages(store, "TopicA", 0)] == [3, 4]
    assert store.reads.max_offset_in_queue("TopicA", 0) == 2


@pytest.mark.parametrize("abort", ["clean", "killed"])
def test_no_batch_is_left_out_where_its_queue_lags(abort: str) -> None:
    """CommitLog.recoverNormally: what one queue knows decides what another one gets."""
    disk = SimulatedDisk()
    with open_with_batches(disk) as store:
        for number in range(4):
            batch = a_batch(range(10 * number, 10 * number + 10), "Batches")
            put(store, msgspec.structs.replace(batch, properties=b"UNIQ_KEY\x01U%d\x02" % number))
        put(store, a_message(0))
    path = f"{DIRECTORY}/batchconsumequeue/Batches/0/{0:020d}"
    disk.open(path).buffer[46 : 4 * 46] = bytes(3 * 46)
    if abort == "killed":
        disk.replace(f"{DIRECTORY}/abort", b"")
    with open_with_batches(disk) as store:
        assert store.reads.max_offset_in_queue("Batches", 0) == 40
        queue = store.queues.find("Batches", 0)
        assert queue is not None
        assert len(list(queue.units(0, 100))) == 4

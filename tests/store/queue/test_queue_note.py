import pytest

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.queue.queue_units import QueueGapError
from tandem.wire.store_layout import QUEUE_NOTE_FILE
from tests.store.store_world import DIRECTORY, a_message, check_store, open_store, put, put_many
from tests.support.logged import logged

PATH = f"{DIRECTORY}/{QUEUE_NOTE_FILE}"


def _a_quiet_queue(store: MessageStore) -> None:
    """Put its messages far from the part of the log that a start looks at."""
    for number in range(5):
        put(store, a_message(number, "Quiet"))
    put_many(store, 90, start=10, body_bytes=500)


def _remove_queue(disk: SimulatedDisk, topic: str = "Quiet") -> None:
    directory = f"{DIRECTORY}/consumequeue/{topic}/0"
    for name, _ in disk.list_files(directory):
        disk.remove(f"{directory}/{name}")


@pytest.mark.parametrize("abort", ["clean", "killed"])
def test_a_quiet_queue_that_is_gone_is_built_anew_and_its_numbers_go_on(
    abort: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    with open_store(disk) as store:
        _a_quiet_queue(store)
    _remove_queue(disk)
    if abort == "killed":
        disk.replace(f"{DIRECTORY}/abort", b"")
    with open_store(disk) as store:
        check_store(store)
        assert store.reads.max_offset_in_queue("Quiet", 0) == 5
        put(store, a_message(6, "Quiet"))
        check_store(store)
    ((gap,),) = logged(caplog, "store.recovery.store_recovery")
    assert isinstance(gap, QueueGapError)
    caplog.clear()
    open_store(disk).close()
    assert not logged(caplog, "store.recovery.store_recovery")


def test_what_was_there_at_the_start_is_missed_after_a_kill_too() -> None:
    disk = SimulatedDisk()
    with open_store(disk) as store:
        _a_quiet_queue(store)
    disk.remove(PATH)
    open_store(disk)
    disk = disk.crashed()
    _remove_queue(disk)
    with open_store(disk) as store:
        assert store.reads.max_offset_in_queue("Quiet", 0) == 5


def test_queues_that_somebody_else_has_deleted_are_not_missed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk(now_ms=iter(range(1, 1 << 30)).__next__)
    with open_store(disk) as store:
        _a_quiet_queue(store)
    disk.lock(f"{DIRECTORY}/lock")()
    _remove_queue(disk)
    with open_store(disk) as store:
        assert store.reads.max_offset_in_queue("Quiet", 0) == 0
    assert not logged(caplog, "store.recovery.store_recovery")


def test_a_note_that_is_damaged_or_cannot_be_written_stops_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    with open_store(disk) as store:
        _a_quiet_queue(store)
    whole = disk.read(PATH)
    disk.replace(PATH, b"rubbish")
    with open_store(disk) as store:
        check_store(store)
    assert logged(caplog, "store.queue.queue_note")[0][0] == PATH
    assert disk.read(PATH) == whole


def test_all_queues_may_be_deleted() -> None:
    disk = SimulatedDisk()
    with open_store(disk) as store:
        _a_quiet_queue(store)
        count = len(check_store(store))
    for topic in ("Quiet", "TopicB"):
        _remove_queue(disk, topic)
    for queue in ("TopicA/0", "TopicA/1"):
        directory = f"{DIRECTORY}/consumequeue/{queue}"
        for name, _ in disk.list_files(directory):
            disk.remove(f"{directory}/{name}")
    with open_store(disk) as store:
        assert len(check_store(store)) == count

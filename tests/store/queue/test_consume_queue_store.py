"""All queues of a store: by topic and queue id, found again on disk."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from node.simulated.disk import SimulatedDisk
from node.simulated.file import SimulatedFile
from store.files.mapped_file import MappedFile
from store.log.log_end import DispatchRequest
from store.machine.disk import Disk
from store.machine.errors import CorruptLogError, LogFault
from store.machine.real_disk import RealDisk
from store.queue import consume_queue_store
from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.consume_queue import ConsumeQueue
from store.queue.consume_queue_store import ConsumeQueueStore, is_queued
from tandem.wire.store_layout import ext_address, is_ext_address


def dirty_files(queues: ConsumeQueueStore) -> list[MappedFile]:
    return [file for found in queues.dirty_files(0) for file in found]


def a_request(
    number: int, topic: str = "T", queue_id: int = 0, sys_flag: int = 0
) -> DispatchRequest:
    return DispatchRequest(
        topic=topic,
        queue_id=queue_id,
        offset=number * 100,
        size=100,
        tags_code=0,
        queue_offset=number,
        store_timestamp_ms=1,
        sys_flag=sys_flag,
        msg_base_offset=number,
    )


def a_store(disk: Disk, root: str = "") -> ConsumeQueueStore:
    return ConsumeQueueStore(f"{root}/cq", 200, disk)


def of_all_kinds(disk: Disk, root: str = "") -> ConsumeQueueStore:
    """Queues of which those of topics that begin with B are of batches, the others extended."""
    return ConsumeQueueStore(
        f"{root}/cq",
        190,
        disk,
        batch_directory=f"{root}/bcq",
        batch_mapped_file_size=450,
        ext_directory=f"{root}/ext",
        ext_mapped_file_size=100,
        is_batch_topic=lambda topic: topic.startswith("B"),
    )


def test_queues_of_a_topic_share_its_name() -> None:
    """It comes anew with the first message of each, and there may be many thousands."""
    disk = SimulatedDisk()
    made, again = a_store(disk), a_store(disk)
    for queue_id in range(3):
        made.dispatch(a_request(0, b"Topic".decode(), queue_id))
    again.load()
    for queues in (made, again):
        found = [queues.find("Topic", queue_id) for queue_id in range(3)]
        names = [name for queue in found if queue for name in (queue.topic, queue.topic_bytes)]
        assert len(names) == 6
        assert len({id(name) for name in (*names, *(key[0] for key in queues._queues))}) == 2


def test_a_directory_that_is_no_queue_need_not_be_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the lost+found of a file system that is mounted there."""
    disk = RealDisk()
    (tmp_path / "cq/T/lost+found").mkdir(parents=True)
    (tmp_path / "cq/T/0").mkdir()
    scandir = os.scandir

    def guarded(path: str) -> object:
        if path.endswith("lost+found"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    queues = a_store(disk, str(tmp_path))
    queues.load()
    assert queues.queues() == [("T", 0)]


class AheadDisk(SimulatedDisk):
    """Takes note of what is read ahead, and how many files were opened before that."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0
        self.ahead: list[tuple[int, list[str]]] = []

    def open(self, path: str, *, read_only: bool = False, grows: bool = False) -> SimulatedFile:
        self.opened += 1
        return super().open(path, read_only=read_only, grows=grows)

    def read_ahead(self, paths: Sequence[str]) -> None:
        self.ahead.append((self.opened, list(paths)))


def test_recovery_reads_the_last_files_of_some_queues_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file whose first page is not in memory is a read of the disk: none waits for another."""
    monkeypatch.setattr(consume_queue_store, "QUEUES_AT_ONCE", 4)
    disk = AheadDisk()
    queues = a_store(disk)
    for queue_id in range(9):
        for number in range(11 if queue_id == 3 else 1):
            queues.dispatch(a_request(number, queue_id=queue_id))
    again = a_store(disk)
    again.load()
    disk.opened = 0
    again.recover()
    last = [f"/cq/T/{queue_id}/{200 if queue_id == 3 else 0:020d}" for queue_id in range(9)]
    # Queue 3 has two files; the last queue is alone, and read as it is.
    assert disk.ahead == [(0, last[:4]), (5, last[4:8])]
    assert disk.opened == 10


@pytest.mark.parametrize(
    ("sys_flag", "queued"),
    [(0, True), (4, False), (8, True), (12, False), (0x2C, False), (1, True)],
)
def test_prepared_and_rolled_back_messages_are_not_queued(sys_flag: int, *, queued: bool) -> None:
    """CommitLogDispatcherBuildConsumeQueue: the masked pair of bits, not single ones."""
    assert is_queued(sys_flag) == queued
    queues = a_store(SimulatedDisk())
    assert (queues.dispatch(a_request(0, sys_flag=sys_flag)) is not None) == queued
    assert queues.queues() == [("T", 0)] * queued


def test_queues_are_found_again_by_their_directories() -> None:
    """ConsumeQueueStore.loadConsumeQueues: a directory that is no number is skipped."""
    disk = SimulatedDisk()
    queues = a_store(disk)
    for topic, queue_id in (("B", 10), ("A", 2), ("%RETRY%g", 0), ("A", 1)):
        queue = queues.dispatch(a_request(0, topic, queue_id))
        assert queue is queues.find(topic, queue_id)
        assert queues.dispatch(a_request(0, topic, queue_id)) is None
    disk.replace("/cq/A/notes/readme", b"")
    disk.replace("/cq/stray", b"")
    again = a_store(disk)
    again.load()
    assert again.recover() == 100
    assert again.queues() == [("%RETRY%g", 0), ("A", 1), ("A", 2), ("B", 10)]
    assert again.find("A", 0) is None


def test_no_queues_know_no_record() -> None:
    queues = a_store(SimulatedDisk())
    queues.load()
    assert queues.recover() == -1


def test_what_all_queues_have_to_do_they_do() -> None:
    disk = SimulatedDisk()
    queues = a_store(disk)
    for number in range(15):
        queues.dispatch(a_request(number, "A"))
        queues.dispatch(a_request(number, "B"))
    assert len(dirty_files(queues)) == 4
    queues.sync_all()
    assert dirty_files(queues) == []
    queues.truncate_dirty(700)
    queues.correct_min_offset(300)
    for topic in ("A", "B"):
        queue = queues.find(topic, 0)
        assert queue is not None
        assert (queue.min_offset, queue.next_offset) == (3, 7)
    queues.destroy()
    assert queues.queues() == []
    assert disk.list_directories("/cq") == []


def test_a_wrong_file_in_any_queue_is_an_error() -> None:
    disk = SimulatedDisk()
    disk.replace(f"/cq/A/0/{0:020d}", bytes(100))
    with pytest.raises(CorruptLogError) as caught:
        a_store(disk).load()
    assert caught.value.fault is LogFault.LENGTH
    assert caught.value.path == f"/cq/A/0/{0:020d}"


@pytest.mark.parametrize("name", ["-1", "+1", "01", "1.5", "\u0663", "2147483648", "9" * 200, "x"])
def test_a_directory_that_is_no_queue_id_is_skipped(name: str) -> None:
    disk = SimulatedDisk()
    disk.replace(f"/cq/A/{name}/{0:020d}", bytes(100))
    queues = a_store(disk)
    queues.load()
    assert queues.queues() == []


def test_the_kind_of_a_queue_follows_from_its_topic() -> None:
    """ConsumeQueueStore.findOrCreateConsumeQueue; sizes are rounded up to whole units."""
    disk = SimulatedDisk()
    queues = of_all_kinds(disk)
    for number in range(12):
        queues.dispatch(a_request(number, "B"))
        queues.dispatch(a_request(number, "T"))
    queue = queues.find("T", 0)
    assert isinstance(queue, ConsumeQueue)
    assert isinstance(queues.find("B", 0), BatchConsumeQueue)
    assert is_ext_address(queue.unit(0)[2])
    assert disk.list_files("/cq/T/0") == [(f"{0:020d}", 200), (f"{200:020d}", 200)]
    assert disk.list_files("/bcq/B/0") == [(f"{0:020d}", 460), (f"{460:020d}", 460)]
    assert len(disk.list_files("/ext/T/0")) == 3
    assert disk.list_directories("/cq") == ["T"]
    again = of_all_kinds(disk)
    again.load()
    assert again.recover() == 1200
    assert again.queues() == [("B", 0), ("T", 0)]
    assert again.dispatch(a_request(11, "B")) is None
    assert again.dispatch(a_request(12, "B")) is again.find("B", 0)


def test_without_a_directory_for_them_there_are_no_queues_of_batches() -> None:
    queues = ConsumeQueueStore("/cq", 200, SimulatedDisk(), is_batch_topic=lambda _: True)
    assert isinstance(queues.find_or_create("B", 0), ConsumeQueue)


def test_a_topic_with_the_wrong_kind_of_queues_is_an_error() -> None:
    """ConsumeQueueStore.queueTypeShouldBe throws; a directory without files is nobody's queue."""
    disk = SimulatedDisk()
    disk.replace("/cq/B/0/stray/x", b"")
    of_all_kinds(disk).load()
    disk.create(f"/cq/B/0/{0:020d}", 200)
    with pytest.raises(CorruptLogError) as error:
        of_all_kinds(disk).load()
    assert error.value.fault is LogFault.QUEUE_KIND
    # The text has to say what to do.
    assert "queue.type back" in str(error.value)
    assert error.value.path == "/cq/B"


def test_a_topic_with_both_kinds_of_queues_is_an_error() -> None:
    disk = SimulatedDisk()
    disk.create(f"/cq/T/0/{0:020d}", 200)
    disk.create(f"/bcq/T/0/{0:020d}", 460)
    with pytest.raises(CorruptLogError) as caught:
        of_all_kinds(disk).load()
    assert caught.value.fault is LogFault.QUEUE_KIND
    assert caught.value.path == "/cq/T"


def test_files_and_records_show_that_a_topic_has_queues_of_batches() -> None:
    """A slave gets the first records of a topic before its attributes."""
    disk = SimulatedDisk()
    queues = of_all_kinds(disk)
    assert isinstance(queues.find_or_create("T", 0, holds_batches=True), BatchConsumeQueue)
    assert isinstance(queues.find_or_create("T", 1), BatchConsumeQueue)
    disk.create(f"/bcq/T/0/{0:020d}", 460)
    again = of_all_kinds(disk)
    again.load()
    assert isinstance(again.find("T", 0), BatchConsumeQueue)


def test_every_file_is_synced_extensions_before_the_units_that_point_at_them() -> None:
    queues = of_all_kinds(SimulatedDisk())
    queues.dispatch(a_request(0, "T"))
    queues.dispatch(a_request(0, "B"))
    paths = [file.file.path for file in dirty_files(queues)]
    assert [path.split("/")[1] for path in paths] == ["ext", "cq", "bcq"]
    assert [file.file.path for file in queues.mapped_files()] == paths
    queues.sync_all()
    assert dirty_files(queues) == []
    queues.close()
    assert queues.mapped_files() == []


def test_extensions_whose_queue_is_gone_are_deleted() -> None:
    """5.3.3 loads the leftover files when the queue comes back, with other messages."""
    disk = SimulatedDisk()
    queues = of_all_kinds(disk)
    for number in range(12):
        for topic in ("T", "U"):
            queues.dispatch(a_request(number, topic))
    for name, _ in disk.list_files("/cq/T/0"):
        disk.remove(f"/cq/T/0/{name}")
    again = of_all_kinds(disk)
    again.load()
    again.recover()
    assert disk.list_directories("/ext") == ["U"]
    assert again.queues() == [("U", 0)]
    queue = again.dispatch(a_request(0, "T"))
    assert queue is not None
    assert queue.unit(0)[2] == ext_address(0)


@pytest.mark.parametrize("real", [False, True])
def test_a_deleted_topic_leaves_nothing_and_may_come_back(real: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """DefaultMessageStore.deleteTopics."""
    disk: Disk = RealDisk() if real else SimulatedDisk()
    root = str(tmp_path) if real else ""
    queues = of_all_kinds(disk, root)
    for queue_id in (0, 1):
        for topic in ("T", "TT", "B"):
            queues.dispatch(a_request(0, topic, queue_id))
    disk.replace(f"{root}/cq/T/notes", b"")
    assert queues.delete_topic("T") == 2
    assert queues.delete_topic("T") == 0
    assert queues.delete_topic("B") == 2
    assert queues.queues() == [("TT", 0), ("TT", 1)]
    assert disk.list_directories(f"{root}/cq/T") == []
    assert disk.exists(f"{root}/cq/T/notes")
    disk.remove(f"{root}/cq/T/notes")
    assert disk.list_directories(f"{root}/ext") == ["TT"]
    assert disk.list_directories(f"{root}/bcq") == []
    assert queues.dispatch(a_request(0, "B")) is not None
    queues.close()


def test_a_flush_and_a_close_look_at_queues_that_have_changed_alone() -> None:
    disk = SimulatedDisk()
    queues = a_store(disk)
    for number in range(3):
        queues.dispatch(a_request(number, "A", queue_id=0))
    for queue_id in range(1, 5):
        queues.dispatch(a_request(0, "A", queue_id=queue_id))
    assert len(queues.awake.queues()) == 5
    queues.sync_all()
    assert queues.awake.queues() == []
    queues.dispatch(a_request(3, "A", queue_id=0))
    changed = queues.find("A", 0)
    assert changed is not None
    assert queues.awake.queues() == [changed]
    (file,) = dirty_files(queues)
    assert file is changed.files.last
    file.file.sync()
    file.flushed_position = file.wrote_position
    assert dirty_files(queues) == []
    assert queues.awake.queues() == []
    assert isinstance(changed, ConsumeQueue)
    changed.rewrite_unit(1, 0, 7, 7)
    assert dirty_files(queues) == [file]

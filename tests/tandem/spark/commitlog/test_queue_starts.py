import random
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tandem.spark.commitlog.queue_starts import QueueStarts
from tandem.spark.commitlog.storage import LocalStorage, OpenedFile
from tests.support.log_builder import LogBuilder

VECTORS = Path("tests/data/rocketmq-5.3.3")


def queue_starts(root: Path) -> QueueStarts:
    return QueueStarts(LocalStorage(), str(root / "consumequeue"))


def log_with_two_queues() -> LogBuilder:
    log = LogBuilder()
    for number in range(30):
        log.put(queue_id=number % 2, body=b"x" * number)
    return log


def test_neighbours_are_found_over_several_files(tmp_path: Path) -> None:
    log = log_with_two_queues()
    starts = queue_starts(log.write(tmp_path, queue_file_bytes=80))
    offsets = [message.physical_offset for message in log.messages]
    for wanted in range(log.end_offset + 2):
        assert starts.first_at(wanted) == min((o for o in offsets if o >= wanted), default=None)
        assert starts.last_before(wanted) == max((o for o in offsets if o < wanted), default=None)


def test_of_many_files_few_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder(file_bytes=1 << 20)
    for _ in range(2000):
        log.put(body=b"")
    root = log.write(tmp_path, queue_file_bytes=40)
    opened: list[str] = []
    really_open = LocalStorage.opened

    def counting(self: LocalStorage, path: str) -> AbstractContextManager[OpenedFile]:
        opened.append(path)
        return really_open(self, path)

    monkeypatch.setattr(LocalStorage, "opened", counting)
    starts = queue_starts(root)
    assert opened == []
    record_bytes = log.messages[0].store_size
    for wanted in range(0, log.end_offset, log.end_offset // 50):
        opened.clear()
        assert starts.first_at(wanted) == -(-wanted // record_bytes) * record_bytes
        assert len(opened) <= 12  # of 1,000 files


def test_a_near_start_is_good_enough(tmp_path: Path) -> None:
    log = log_with_two_queues()
    starts = queue_starts(log.write(tmp_path))
    offsets = [message.physical_offset for message in log.messages]
    for wanted in range(0, log.messages[-4].physical_offset, 7):
        found = starts.first_at(wanted, near_bytes=1000)
        assert found in offsets
        assert wanted <= found <= wanted + 1000


def test_units_that_make_no_sense_end_no_search(tmp_path: Path) -> None:
    log = log_with_two_queues()
    root = log.write(tmp_path, queue_file_bytes=80)
    for number, path in enumerate((root / "consumequeue").glob("*/*/*")):
        path.write_bytes(random.Random(number).randbytes((0, 7, 19, 81, 200)[number % 5]))
    (root / "consumequeue" / "TopicA" / "x").mkdir()
    (root / "consumequeue" / "TopicA" / "0" / "nonsense").touch()
    starts = queue_starts(root)
    for wanted in (0, 500, 1 << 62):
        assert starts.first_at(wanted) is None or starts.first_at(wanted) is not wanted
        starts.last_before(wanted)


def test_a_store_without_queues_knows_nothing(tmp_path: Path) -> None:
    starts = queue_starts(tmp_path)
    assert starts.first_at(0) is None
    assert starts.last_before(1000) is None


def test_golden_queues_are_read() -> None:
    starts = queue_starts(VECTORS / "basic")
    assert starts.first_at(1) == 0x88
    assert starts.last_before(10_000) == 0x110

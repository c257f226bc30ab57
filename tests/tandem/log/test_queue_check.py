import struct
from pathlib import Path

import pytest

from tandem.log import queue_units
from tandem.log.pieces import PieceMap, cut_log
from tandem.log.queue_check import QueueCheck, check_queue
from tandem.log.store_directory import open_store_directory
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import our_store

UNIT = struct.Struct(">qiq")
BATCH_UNIT = struct.Struct(">qiqqqhii")
FILLER = UNIT.pack(0, 0x7FFFFFFF, 0)


def checked(root: Path, file_bytes: int = 200) -> QueueCheck:
    store = open_store_directory(root)
    return check_queue(store.queues[0], 0, PieceMap(cut_log(store.commit_log)), file_bytes)


def written(root: Path, *units: bytes, at: int = 0, kind: str = "consumequeue") -> QueueCheck:
    path = root / kind / "T" / "0" / f"{at:020d}"
    path.parent.mkdir(parents=True)
    (root / "commitlog").mkdir()
    (root / "commitlog" / f"{1000:020d}").write_bytes(bytes(5000))
    size = 200 if kind == "consumequeue" else 460
    path.write_bytes(b"".join(units).ljust(size, b"\0"))
    return checked(root, size)


def kinds(check: QueueCheck) -> list[str]:
    return [finding.kind for finding in check.findings]


@pytest.mark.parametrize("units_read", [3, 1 << 16])
def test_a_sound_queue_is_sound_in_whatever_pieces_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, units_read: int
) -> None:
    monkeypatch.setattr(queue_units, "UNITS_READ", units_read)
    check = checked(our_store(tmp_path))
    assert check.findings == []
    assert (check.first_offset, check.next_offset, check.unit_count) == (0, 20, 20)
    assert sum(segment.count for _, segment in check.segments) == 20


def test_units_in_front_of_the_log_and_behind_it_are_counted(tmp_path: Path) -> None:
    check = written(
        tmp_path, UNIT.pack(0, 100, 0), UNIT.pack(1000, 100, 0), UNIT.pack(6000, 100, 0)
    )
    assert (check.removed_count, check.ahead_count, check.findings) == (1, 1, [])


def test_fillers_belong_to_the_head(tmp_path: Path) -> None:
    check = written(tmp_path, *[FILLER] * 5, UNIT.pack(1000, 100, 0), at=200)
    assert check.findings == []
    assert (check.first_offset, check.next_offset) == (15, 16)
    behind = written(tmp_path / "b", UNIT.pack(1000, 100, 0), FILLER)
    assert kinds(behind) == ["filler-misplaced"]


@pytest.mark.parametrize("second", [1000, 1050, 500])
def test_units_have_to_rise(tmp_path: Path, second: int) -> None:
    check = written(tmp_path, UNIT.pack(1000, 100, 0), UNIT.pack(second, 100, 0))
    assert kinds(check) == ["unit-order"]
    assert check.findings[0].position == 20


def test_a_unit_lost_in_the_middle_is_a_gap(tmp_path: Path) -> None:
    check = written(tmp_path, UNIT.pack(1000, 100, 0), bytes(20), UNIT.pack(1200, 100, 0))
    assert kinds(check) == ["queue-gap"]
    assert check.unit_count == 2
    assert [segment.number for _, segment in check.segments] == [0, 2]


def test_a_file_lost_in_the_middle_is_named(tmp_path: Path) -> None:
    root = our_store(tmp_path)
    folder = root / "consumequeue" / "TopicA" / "0"
    (folder / f"{0:020d}").rename(folder / f"{600:020d}")
    assert "queue-file-missing" in kinds(checked(root))


def test_a_file_emptied_in_the_middle_is_a_gap(tmp_path: Path) -> None:
    root = our_store(tmp_path)
    folder = root / "consumequeue" / "TopicA" / "0"
    first = folder / f"{0:020d}"
    first.write_bytes(b"")
    with first.open("r+b") as file:
        file.truncate(200)  # a hole, which is not even read
    assert kinds(checked(root)) == ["queue-gap"]


def test_a_file_of_another_length_is_named(tmp_path: Path) -> None:
    assert kinds(checked(our_store(tmp_path), 400)) == ["queue-file-length"] * 2
    root = our_store(tmp_path / "b")
    folder = root / "consumequeue" / "TopicA" / "0"
    (folder / f"{405:020d}").touch()  # empty and last: deleted at the next start
    assert kinds(checked(root)) == ["queue-file-length", "queue-file-missing"]


def test_garbage_behind_the_last_unit_is_a_leftover(tmp_path: Path) -> None:
    check = written(tmp_path, UNIT.pack(1000, 100, 0), UNIT.pack(-5, 9, 0))
    assert kinds(check) == ["queue-leftover"]


def test_a_batch_queue_counts_messages(tmp_path: Path) -> None:
    def unit(offset: int, base: int, count: int) -> bytes:
        return BATCH_UNIT.pack(offset, 100, 0, 1, base, count, -1, 0)

    kind = "batchconsumequeue"
    check = written(tmp_path / "a", unit(1000, 5, 3), unit(1100, 8, 2), kind=kind)
    assert (check.first_offset, check.next_offset, check.findings) == (5, 10, [])
    check = written(tmp_path / "b", unit(1000, 5, 3), unit(1100, 9, 2), kind=kind)
    assert kinds(check) == ["unit-order"]


def test_many_faults_are_counted_and_few_are_told(tmp_path: Path) -> None:
    root = tmp_path
    units = [UNIT.pack(1000, 100, 0)] * 50
    (root / "commitlog").mkdir()
    path = root / "consumequeue" / "T" / "0" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(units))
    check = checked(root, 1000)
    assert sum(finding.count for finding in check.findings) == 49
    assert len(check.findings) == 20


def test_the_queues_of_rocketmq_are_sound() -> None:
    check = checked(GOLDEN / "basic")
    assert (check.unit_count, check.findings) == (3, [])

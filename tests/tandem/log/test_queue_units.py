import struct
from pathlib import Path

import numpy as np
import pytest

from tandem.log import queue_units
from tandem.log.queue_units import QueueReader, are_fillers, are_units
from tandem.log.store_directory import open_store_directory
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import our_store

UNIT = struct.Struct(">qiq")
BATCH_UNIT = struct.Struct(">qiqqqhii")


def write_queue(root: Path, kind: str, files: dict[int, bytes]) -> QueueReader:
    for offset, data in files.items():
        path = root / kind / "T" / "0" / f"{offset:020d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (queue,) = open_store_directory(root).queues
    return QueueReader(queue)


def test_the_units_of_a_queue_of_rocketmq() -> None:
    (queue,) = open_store_directory(GOLDEN / "basic").queues
    reader = QueueReader(queue)
    (run,) = reader.runs()
    assert run.units["offset"].tolist()[:3] == [0, 136, 272]
    assert are_units(run.units).tolist() == [True] * 3 + [False] * 7
    assert reader.offset_range() == (0, 3)


def test_runs_continue_over_files_and_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_units, "UNITS_READ", 3)
    queue = open_store_directory(our_store(tmp_path)).queues[0]
    runs = list(QueueReader(queue).runs())
    numbers = np.concatenate([run.number + np.arange(len(run.units)) for run in runs])
    assert numbers.tolist() == list(range(len(queue.files) * 10))
    assert QueueReader(queue).offset_range() == (0, 20)


def test_fillers_at_the_head_do_not_count(tmp_path: Path) -> None:
    filler = UNIT.pack(0, 0x7FFFFFFF, 0)
    units = filler * 5 + UNIT.pack(0, 100, 0) + UNIT.pack(100, 100, 0)
    reader = write_queue(tmp_path, "consumequeue", {200: units.ljust(200, b"\0")})
    (run,) = reader.runs()
    assert run.number == 10
    assert int(are_fillers(run.units).sum()) == 5
    assert reader.offset_range() == (15, 17)


def test_a_queue_without_a_unit_is_empty(tmp_path: Path) -> None:
    assert write_queue(tmp_path, "consumequeue", {0: bytes(200)}).offset_range() == (0, 0)
    assert write_queue(tmp_path / "b", "batchconsumequeue", {0: b""}).offset_range() == (0, 0)


def test_the_units_of_a_batch_queue_count_messages(tmp_path: Path) -> None:
    units = BATCH_UNIT.pack(0, 284, 0, 5, 4, 3, -1, 0) + BATCH_UNIT.pack(284, 99, 0, 6, 7, 2, -1, 0)
    reader = write_queue(tmp_path, "batchconsumequeue", {0: units.ljust(460, b"\0")})
    (run,) = reader.runs()
    assert run.units["base_offset"].tolist()[:2] == [4, 7]
    assert are_units(run.units).tolist()[:3] == [True, True, False]
    assert reader.offset_range() == (4, 9)

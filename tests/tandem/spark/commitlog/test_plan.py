import itertools
import pickle
from pathlib import Path

import msgspec

from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.plan import plan_splits
from tests.support.log_builder import LogBuilder

FILE_BYTES = 65_536
SPLIT_BYTES = 16_384


def a_log(count: int) -> LogBuilder:
    log = LogBuilder(file_bytes=FILE_BYTES)
    for number in range(count):
        log.put(topic=f"Topic{number % 4}", body=bytes(200), queue_id=number % 3)
    return log


def test_splits_cover_each_file_without_overlap(tmp_path: Path) -> None:
    log = a_log(600)
    root = log.write(tmp_path)
    splits = plan_splits(ScanOptions(paths=(str(root),), split_bytes=SPLIT_BYTES))
    assert len(splits) > 6
    for before, behind in itertools.pairwise(splits):
        same_file = before.file == behind.file
        assert behind.start == (before.end if same_file else 0)
    assert splits[-1].end == log.end_offset - splits[-1].file.offset


def test_splits_name_what_they_need_and_nothing_else(tmp_path: Path) -> None:
    (split,) = plan_splits(ScanOptions(paths=(str(a_log(5).write(tmp_path)),)))
    assert msgspec.structs.asdict(split)["is_last_file"] is True
    assert len(pickle.dumps(split)) < 1000

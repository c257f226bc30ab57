import fcntl
from pathlib import Path
from typing import Any

import pytest

from tandem.spark.commitlog import queue_plan
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.plan import open_logs
from tandem.spark.commitlog.queue_plan import Split, is_cheaper, plan_store
from tandem.spark.commitlog.split import LogSplit, QueueSplit
from tests.support.log_builder import LogBuilder

FILE_BYTES = 16_384


def a_log(count: int = 600, topics: int = 6) -> LogBuilder:
    log = LogBuilder(file_bytes=FILE_BYTES)
    for number in range(count):
        log.put(topic=f"Topic{number % topics}", body=bytes(100), queue_id=number // topics % 2)
    return log


def plan(root: Path, **options: Any) -> list[Split]:  # noqa: ANN401
    options.setdefault("topics", frozenset({"Topic1"}))
    options.setdefault("consume_queues", "always")
    chosen = ScanOptions(paths=(str(root),), **options)
    return [split for log in open_logs(chosen) for split in plan_store(log, chosen)]


def through_queues(splits: list[Split]) -> bool:
    return any(isinstance(split, QueueSplit) for split in splits)


def test_a_topic_among_many_is_cheaper_through_its_queues() -> None:
    assert is_cheaper(1_000_000 // 16, 1_000_000, 1 << 30)
    assert not is_cheaper(900_000, 1_000_000, 1 << 30)
    assert is_cheaper(0, 0, 1)


def test_small_logs_are_scanned_unless_asked_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = a_log(topics=40).write(tmp_path)
    assert not through_queues(plan(root, consume_queues="auto"))
    assert not through_queues(plan(root, consume_queues="never"))
    assert through_queues(plan(root))
    monkeypatch.setattr(queue_plan, "LOG_BYTES_MIN", 0)
    assert through_queues(plan(root, consume_queues="auto"))
    every = frozenset(f"Topic{number}" for number in range(40))
    assert not through_queues(plan(root, consume_queues="auto", topics=every))
    assert not through_queues(plan(root, topics=None))
    assert not through_queues(plan(root, with_system_topics=True))


def test_small_files_share_a_task(tmp_path: Path) -> None:
    root = a_log().write(tmp_path)
    splits = plan(root, split_bytes=FILE_BYTES)
    queue_splits = [split for split in splits if isinstance(split, QueueSplit)]
    assert len(queue_splits) < len(a_log().files()) / 3
    assert all(scan.end for split in queue_splits for scan in split.scans)


def test_after_a_crash_queues_are_not_relied_on(tmp_path: Path) -> None:
    root = a_log().write(tmp_path)
    (root / "abort").write_text("1")
    assert not through_queues(plan(root))
    with (root / "lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX, 1)  # as a node that has the store open
        assert through_queues(plan(root))
    assert not through_queues(plan(root))


def test_a_log_alone_is_scanned(tmp_path: Path) -> None:
    root = a_log().write(tmp_path, consume_queues=False)
    assert not through_queues(plan(root))
    (root / "commitlog").rename(tmp_path / "log")
    assert not through_queues(plan(tmp_path / "log"))


def test_a_log_with_a_missing_file_is_scanned(tmp_path: Path) -> None:
    root = a_log().write(tmp_path)
    (root / "commitlog" / f"{FILE_BYTES:020d}").unlink()
    splits = plan(root)
    assert not through_queues(splits)
    assert any(isinstance(split, LogSplit) and split.fault for split in splits)


def test_topics_of_other_kinds_of_queues_are_scanned(tmp_path: Path) -> None:
    root = a_log().write(tmp_path)
    (root / "batchconsumequeue" / "Topic1" / "0").mkdir(parents=True)
    assert not through_queues(plan(root))
    assert through_queues(plan(root, topics=frozenset({"Topic2"})))
    light = tmp_path / "light"
    (a_log().write(light) / "consumequeue" / "Topic1").rename(light / "consumequeue" / "%LMQ%x")
    assert not through_queues(plan(light, topics=frozenset({"%LMQ%x"})))


def test_queues_ahead_of_their_log_are_not_relied_on(tmp_path: Path) -> None:
    log = a_log()
    root = log.write(tmp_path)
    last = max((root / "commitlog").iterdir())
    cut = log.messages[-3].physical_offset - int(last.name)
    assert cut > 0
    data = bytearray(last.read_bytes())
    data[cut:] = bytes(len(data) - cut)
    last.write_bytes(data)
    assert not through_queues(plan(root))

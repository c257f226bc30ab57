import random
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.plan import plan_splits
from tandem.spark.commitlog.read import read_split
from tandem.spark.commitlog.storage import LocalStorage, OpenedFile
from tandem.spark.commitlog.time_window import TimeWindow
from tandem.wire.message import Host
from tests.support.log_builder import V6, LogBuilder

HOUR_MS = 3_600_000


def a_log(times_ms: list[int], seed: int = 0) -> LogBuilder:
    chance = random.Random(seed)
    log = LogBuilder(file_bytes=8192)
    for time_ms in times_ms:
        host = V6 if chance.random() < 0.2 else Host("10.1.2.3", 1234)
        log.put(body=bytes(chance.randrange(400)), store_timestamp_ms=time_ms, born_host=host)
    return log


def read(root: Path, start_ms: int | None, end_ms: int | None, margin_ms: int) -> list[int]:
    options = ScanOptions(
        paths=(str(root),),
        start_ms=start_ms,
        end_ms=end_ms,
        margin_ms=margin_ms,
        split_bytes=4096,
    )
    return [
        offset
        for split in plan_splits(options)
        for batch in read_split(split, options, ("physicalOffset",))
        for offset in batch.column(0).to_pylist()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_window_gives_what_all_records_would(tmp_path: Path, seed: int) -> None:
    """Clocks that step back by up to the margin lose nothing."""
    chance = random.Random(seed)
    margin_ms = chance.choice([0, 1000, 20_000])
    now = 10_000_000
    times = []
    for _ in range(400):
        now += chance.randrange(500)
        times.append(now - chance.randrange(margin_ms + 1))
    log = a_log(times, seed)
    root = log.write(tmp_path, consume_queues=seed % 2 == 0)
    bounds = [None, 0, times[0], times[-1], now + 1, *chance.sample(range(times[0], now), 4)]
    for start_ms in bounds:
        for end_ms in bounds:
            expected = [
                m.physical_offset
                for m in log.messages
                if (start_ms is None or m.store_timestamp_ms >= start_ms)
                and (end_ms is None or m.store_timestamp_ms < end_ms)
            ]
            assert read(root, start_ms, end_ms, margin_ms) == expected


def test_a_step_beyond_the_margin_may_hide_records(tmp_path: Path) -> None:
    """What the margin is for: without one, records after a step down are left out."""
    log = a_log([1000 + n for n in range(200)] + [500 + n for n in range(200)])
    root = log.write(tmp_path)
    assert read(root, 500, 600, margin_ms=0) != read(root, 500, 600, margin_ms=1000)
    assert len(read(root, 500, 600, margin_ms=1000)) == 100


def test_an_hour_of_a_day_opens_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    day = [number * 24 * HOUR_MS // 4000 for number in range(4000)]
    log = a_log(day)
    root = log.write(tmp_path, consume_queues=False)
    files = len(log.files())
    assert files > 100
    opened: set[str] = set()
    really_open = LocalStorage.opened

    def counting(self: LocalStorage, path: str) -> AbstractContextManager[OpenedFile]:
        opened.add(path)
        return really_open(self, path)

    monkeypatch.setattr(LocalStorage, "opened", counting)
    found = read(root, 9 * HOUR_MS, 10 * HOUR_MS, margin_ms=0)
    assert len(found) == sum(9 * HOUR_MS <= time_ms < 10 * HOUR_MS for time_ms in day)
    assert len(opened) < files / 24 + 20


def test_a_first_record_that_cannot_be_read_hides_nothing(tmp_path: Path) -> None:
    log = a_log(list(range(0, 40_000, 100)))
    root = log.write(tmp_path)
    for file in sorted((root / "commitlog").iterdir())[1::2]:
        data = bytearray(file.read_bytes())
        data[4] ^= 1
        file.write_bytes(data)
    options = ScanOptions(
        paths=(str(root),), start_ms=20_000, end_ms=21_000, margin_ms=0, on_error="row"
    )
    rows = [
        row["physicalOffset"]
        for split in plan_splits(options)
        for batch in read_split(split, options, ("physicalOffset", "error"))
        for row in batch.to_pylist()
        if row["error"] is None
    ]
    damaged = {int(file.name) for file in sorted((root / "commitlog").iterdir())[1::2]}
    wanted = [m for m in log.messages if 20_000 <= m.store_timestamp_ms < 21_000]
    assert rows == [m.physical_offset for m in wanted if m.physical_offset not in damaged]


def test_without_bounds_there_is_no_window() -> None:
    assert not TimeWindow(None, None, 0)
    assert TimeWindow(0, None, 0)
    assert TimeWindow(None, 5, 0).places(10, lambda n: n) == range(5)
    assert TimeWindow(None, 5, 2).places(10, lambda n: n) == range(7)
    assert TimeWindow(5, 7, 0).places(10, lambda n: n) == range(4, 7)
    assert TimeWindow(5, 5, 0).places(0, lambda n: n) == range(0)

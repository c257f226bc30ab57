import json
import random
import shutil
from pathlib import Path

import pytest

from tandem.spark.commitlog import log_files, stream
from tandem.spark.commitlog.offsets import Mark
from tandem.spark.commitlog.options import parse_options
from tandem.spark.commitlog.parts import read_part
from tandem.spark.commitlog.stream import CommitLogStream, Marks, from_json, to_json
from tandem.spark.errors import DataLossError, LogDamagedError, LossCause, OptionError
from tests.support.fenced_store import note_confirmed
from tests.support.log_builder import LogBuilder
from tests.support.logged import logged

FILE_BYTES = 8192


class Reader:
    """A stream as Spark runs it: offsets go through JSON, and it may be started anew."""

    def __init__(self, *roots: Path | str, **given: str) -> None:
        paths = json.dumps([str(root) for root in roots])
        self.options = parse_options({"paths": paths, "startingOffsets": "earliest", **given})
        self.stream = CommitLogStream(self.options)
        self.at: Marks | None = None
        self.errors: list[str] = []

    def restart(self) -> None:
        self.stream = CommitLogStream(self.options)

    def batch(self, limit_bytes: int | None = None) -> list[tuple[str, int]]:
        """Store and offset of each row of the next batch."""
        start = self.stream.initial() if self.at is None else self.at
        end = self._kept(self.stream.next_end(start, limit_bytes))
        found = self.planned(start, end)
        self.at = end
        return found

    def planned(self, start: Marks, end: Marks) -> list[tuple[str, int]]:
        names = ("store", "physicalOffset", "error")
        found = []
        for part in self.stream.splits(start, end):
            for batch in read_part(part, self.options, names):
                for row in batch.to_pylist():
                    if row["error"] is None:
                        found.append((Path(row["store"]).name, row["physicalOffset"]))
                    else:
                        self.errors.append(row["error"])
        return found

    def _kept(self, marks: Marks) -> Marks:
        return from_json(json.loads(json.dumps(to_json(marks))))


@pytest.fixture(autouse=True)
def _no_second_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "_LOOKS_MAX", 0)


def grow(log: LogBuilder, chance: random.Random, count: int) -> None:
    for _ in range(count):
        log.put(body=chance.randbytes(chance.randrange(500)), queue_id=chance.randrange(3))


def write(log: LogBuilder, root: Path, torn: int = 0) -> None:
    """Write the log as a node has at this moment, maybe with its last record half written."""
    log.write(root, consume_queues=False)
    if torn:
        last = log.messages[-1]
        file = root / "commitlog" / f"{last.physical_offset // FILE_BYTES * FILE_BYTES:020d}"
        data = bytearray(file.read_bytes())
        at = last.physical_offset % FILE_BYTES + last.store_size - torn
        end = last.physical_offset % FILE_BYTES + last.store_size
        data[at:end] = bytes(end - at)
        file.write_bytes(data)


@pytest.mark.parametrize("seed", range(5))
def test_every_record_is_in_one_batch_whatever_is_written_and_however_often_it_is_restarted(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    logs = {name: LogBuilder(file_bytes=FILE_BYTES) for name in "ab"}
    for name, log in logs.items():
        log.write(tmp_path / name)
    reader = Reader(tmp_path / "a", tmp_path / "b", splitSizeBytes="4096")
    found: list[tuple[str, int]] = []
    for _ in range(25):
        for name, log in logs.items():
            grow(log, chance, chance.randrange(1, 12))
            torn = chance.choice([0, 0, log.messages[-1].store_size - 60])
            write(log, tmp_path / name, torn)
        if chance.random() < 0.3:
            reader.restart()
        found += reader.batch(chance.choice([None, 1, 700, 5000]))
    for name, log in logs.items():
        write(log, tmp_path / name)
    while rows := reader.batch(3000):
        found += rows
    expected = {(name, m.physical_offset) for name, log in logs.items() for m in log.messages}
    assert len(found) == len(expected)
    assert set(found) == expected
    for name in logs:
        mine = [offset for store, offset in found if store == name]
        assert mine == sorted(mine)


def test_a_batch_that_is_planned_again_has_the_same_records(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    chance = random.Random(1)
    grow(log, chance, 50)
    log.write(tmp_path)
    reader = Reader(tmp_path)
    start = reader.stream.initial()
    end = reader.stream.next_end(start, 5000)
    first = reader.planned(start, end)
    grow(log, chance, 50)
    log.write(tmp_path)
    reader.restart()
    assert reader.planned(start, end) == first
    assert 0 < len(first) < 50


def test_nothing_new_is_the_same_offset(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    grow(log, random.Random(1), 50)
    log.write(tmp_path)
    reader = Reader(tmp_path)
    assert len(reader.batch()) == 50
    before = reader.at
    assert reader.batch() == []
    assert reader.at == before


def test_a_limit_is_shared_by_what_waits_and_takes_a_record_at_least(tmp_path: Path) -> None:
    size = 0
    for name, count in (("a", 90), ("b", 10)):
        log = LogBuilder(file_bytes=1 << 20)
        for _ in range(count):
            log.put(body=bytes(100))
        size = log.messages[0].store_size
        log.write(tmp_path / name)
    reader = Reader(tmp_path / "a", tmp_path / "b")
    rows = reader.batch(20 * size)
    assert [sum(store == name for store, _ in rows) for name in "ab"] == [18, 2]
    assert len(reader.batch(1)) == 2


def test_a_stream_starts_where_it_is_told(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    grow(log, random.Random(1), 50)
    log.write(tmp_path)
    assert Reader(tmp_path, startingOffsets="latest").batch() == []
    at = log.messages[20].physical_offset
    offset = json.dumps({str(tmp_path): at - 3})
    assert Reader(tmp_path, startingOffsets=offset).batch()[0] == (tmp_path.name, at)
    with pytest.raises(OptionError) as caught:
        Reader(tmp_path, startingOffsets="{}").batch()
    assert caught.value.names == ("startingOffsets",)


def test_available_now_reads_what_was_there_and_no_more(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    chance = random.Random(1)
    grow(log, chance, 50)
    log.write(tmp_path)
    reader = Reader(tmp_path)
    reader.stream.stop_at_what_is_there()
    grow(log, chance, 50)
    log.write(tmp_path)
    found = []
    while rows := reader.batch(4000):
        found += rows
    assert len(found) == 50
    reader.restart()
    assert len(reader.batch()) == 50


def test_stores_that_come_later_are_read_from_their_start(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    grow(log, random.Random(1), 20)
    log.write(tmp_path / "broker-a")
    reader = Reader(f"{tmp_path}/broker-*", startingOffsets="latest")
    assert reader.batch() == []
    log.write(tmp_path / "broker-b")
    assert {store for store, _ in reader.batch()} == {"broker-b"}


def test_damage_does_not_wait_if_records_follow(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    grow(log, random.Random(1), 10)
    log.log[log.messages[5].physical_offset + 4] ^= 1
    log.write(tmp_path)
    with pytest.raises(LogDamagedError) as caught:
        Reader(tmp_path).batch()
    assert caught.value.kind == "corrupt"
    reader = Reader(tmp_path, onError="row")
    assert len(reader.batch()) == 9
    assert len(reader.errors) == 1
    grow(log, random.Random(2), 10)
    log.write(tmp_path)
    assert len(reader.batch()) == 10


def lose(log: LogBuilder, how: str, root: Path) -> None:
    if how == "deleted":
        for file in sorted((root / "commitlog").iterdir())[:2]:
            file.unlink()
        return
    kept = log.messages[:30]
    del log.log[kept[-1].physical_offset + kept[-1].store_size :]
    log.messages = kept
    for file in (root / "commitlog").iterdir():
        file.unlink()
    if how == "rewritten":
        grow(log, random.Random(77), 60)
    log.write(root, consume_queues=False)


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("deleted", LossCause.DELETED),
        ("cut", LossCause.CUT),
        ("rewritten", LossCause.REWRITTEN),
    ],
)
def test_what_is_not_there_any_more_is_said(tmp_path: Path, how: str, cause: LossCause) -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    grow(log, random.Random(1), 100)
    log.write(tmp_path)
    limit = 3000 if how == "deleted" else 15_000
    strict = Reader(tmp_path)
    lenient = Reader(tmp_path, failOnDataLoss="false", onError="row")
    assert strict.batch(limit) == lenient.batch(limit)
    reached = max(mark.offset for mark in (strict.at or {}).values())
    lose(log, how, tmp_path)
    strict.restart()
    with pytest.raises(DataLossError) as caught:
        strict.batch()
    assert caught.value.cause is cause
    rows = lenient.batch()
    told = [error.removeprefix("lost: ") for error in lenient.errors]
    assert any(str(caught.value).startswith(words) for words in told)
    if how == "deleted":
        assert rows[0][1] == 2 * FILE_BYTES
    grow(log, random.Random(5), 20)
    for path, data in log.files().items():
        if how != "deleted" or int(path) >= 2 * FILE_BYTES:
            (tmp_path / "commitlog" / path).write_bytes(data)
    lenient.errors.clear()
    rows += lenient.batch()
    assert lenient.errors == []
    resumed = [m.physical_offset for m in log.messages if m.physical_offset >= reached]
    assert [offset for _, offset in rows if offset >= reached][-20:] == resumed[-20:]


def test_an_end_that_is_not_there_any_more_is_said_too(tmp_path: Path) -> None:
    """A batch that was planned before the log was cut, and is planned again after a restart."""
    log = LogBuilder(file_bytes=FILE_BYTES)
    grow(log, random.Random(1), 100)
    log.write(tmp_path)
    reader = Reader(tmp_path)
    start = reader.stream.initial()
    end = reader.stream.next_end(start, None)
    lose(log, "cut", tmp_path)
    with pytest.raises(DataLossError) as caught:
        reader.planned(start, end)
    assert caught.value.cause is LossCause.CUT


def test_a_store_that_goes_after_the_plan_is_said(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    grow(log, random.Random(1), 20)
    for name in ("broker-a", "broker-b"):
        log.write(tmp_path / name)
    reader = Reader(f"{tmp_path}/broker-*")
    start = reader.stream.initial()
    end = reader.stream.next_end(start, None)
    shutil.rmtree(tmp_path / "broker-b")
    with pytest.raises(DataLossError) as caught:
        reader.planned(start, end)
    assert caught.value.cause is LossCause.DELETED


def test_a_checkpoint_of_an_empty_log_goes_on(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    log.write(tmp_path)
    reader = Reader(tmp_path, startingOffsets="latest")
    assert reader.batch() == []
    assert reader.at == {str(tmp_path): Mark(0)}
    grow(log, random.Random(1), 5)
    log.write(tmp_path)
    assert len(reader.batch()) == 5


def cut_at(log: LogBuilder, count: int, root: Path) -> None:
    """Let a node follow a master that has `count` of its messages, and others after them."""
    log.messages = log.messages[:count]
    last = log.messages[-1]
    del log.log[last.physical_offset + last.store_size :]
    for file in (root / "commitlog").iterdir():
        file.unlink()
    grow(log, random.Random(77), 60)
    log.write(root, consume_queues=False)


def test_a_cut_takes_no_row_that_a_stream_has_read(tmp_path: Path) -> None:
    """The second stream, which is not bounded, has rows of messages that nobody can read later."""
    log = LogBuilder(file_bytes=FILE_BYTES)
    grow(log, random.Random(1), 100)
    log.write(tmp_path, consume_queues=False)
    note_confirmed(tmp_path, log.messages[40].physical_offset)
    bounded = Reader(tmp_path)
    unbounded = Reader(tmp_path, includeUnconfirmed="true", failOnDataLoss="false")
    read, read_too_far = bounded.batch(5000), unbounded.batch()
    while rows := bounded.batch(5000):
        read += rows
    assert (len(read), len(read_too_far)) == (40, 100)
    cut_at(log, 40, tmp_path)
    assert bounded.batch() == []
    note_confirmed(tmp_path, log.end_offset)
    bounded.restart()
    read += bounded.batch()
    name = tmp_path.name
    assert read == [(name, message.physical_offset) for message in log.messages]
    kept = {message.physical_offset for message in log.messages}
    assert {offset for _, offset in read_too_far} - kept


@pytest.mark.parametrize("seed", range(5))
def test_every_record_is_in_one_batch_whatever_is_confirmed_when(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = LogBuilder(file_bytes=FILE_BYTES)
    log.write(tmp_path)
    note_confirmed(tmp_path, 0)
    reader = Reader(tmp_path, splitSizeBytes="4096")
    found: list[tuple[str, int]] = []
    confirmed = 0
    for _ in range(40):
        grow(log, chance, chance.randrange(5))
        log.write(tmp_path, consume_queues=bool(seed % 2))
        confirmed = chance.randrange(confirmed, len(log.messages) + 1)
        end = log.messages[confirmed].physical_offset if confirmed < len(log.messages) else None
        note_confirmed(tmp_path, log.end_offset if end is None else end)
        if chance.random() < 0.3:
            reader.restart()
        found += reader.batch(chance.choice([None, 1, 700]))
        assert all(offset < (end or log.end_offset) for _, offset in found)
    note_confirmed(tmp_path, log.end_offset)
    while rows := reader.batch():
        found += rows
    assert found == [(tmp_path.name, message.physical_offset) for message in log.messages]


def test_a_batch_that_is_planned_again_has_its_records_whatever_is_confirmed_then(
    tmp_path: Path,
) -> None:
    """After a loss of power the checkpoint of a node may know less than it did."""
    log = LogBuilder(file_bytes=FILE_BYTES)
    grow(log, random.Random(1), 100)
    log.write(tmp_path)
    note_confirmed(tmp_path, log.messages[60].physical_offset)
    reader = Reader(tmp_path)
    start = reader.stream.initial()
    end = reader.stream.next_end(start, None)
    first = reader.planned(start, end)
    assert len(first) == 60
    note_confirmed(tmp_path, log.messages[10].physical_offset)
    reader.restart()
    assert reader.planned(start, end) == first
    assert reader.stream.next_end(end, None) == end


def test_available_now_ends_where_the_log_is_confirmed(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    grow(log, random.Random(1), 100)
    log.write(tmp_path)
    note_confirmed(tmp_path, log.messages[60].physical_offset)
    reader = Reader(tmp_path)
    reader.stream.stop_at_what_is_there()
    note_confirmed(tmp_path, log.end_offset)
    assert len(reader.batch()) == 60
    assert reader.batch() == []


def test_a_stream_begins_at_the_end_of_what_is_confirmed(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=FILE_BYTES)
    grow(log, random.Random(1), 100)
    log.write(tmp_path)
    note_confirmed(tmp_path, log.messages[60].physical_offset)
    reader = Reader(tmp_path, startingOffsets="latest")
    assert reader.batch() == []
    note_confirmed(tmp_path, log.end_offset)
    assert len(reader.batch()) == 40


def test_a_store_that_a_pattern_fits_no_more_is_said_once_and_read_on_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept, moved = LogBuilder(file_bytes=FILE_BYTES), LogBuilder(file_bytes=FILE_BYTES)
    for name, log in (("a", kept), ("b", moved)):
        log.put()
        log.write(tmp_path / name)
    reader = Reader(f"{tmp_path}/?")
    assert len(reader.batch()) == 2
    assert logged(caplog, stream.__name__) == []
    end = moved.end_offset
    for _ in range(2):  # each time that it goes, and not in every batch
        caplog.clear()
        (tmp_path / "b").rename(tmp_path / "elsewhere")
        kept.put()
        kept.write(tmp_path / "a")
        assert [name for name, _ in reader.batch()] == ["a"]
        assert reader.batch() == []
        assert logged(caplog, stream.__name__) == [(f"{tmp_path}/b", end)]
        (tmp_path / "elsewhere").rename(tmp_path / "b")
        assert reader.batch() == []
    moved.put()
    moved.write(tmp_path / "b")
    assert reader.batch() == [("b", end)]

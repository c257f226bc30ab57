import struct
from pathlib import Path

import pytest

from tandem.spark.archive.errors import (
    ArchiveError,
    LostBeforeArchivedError,
    OldCopyError,
    OtherLogError,
)
from tandem.spark.archive.log_piece import (
    log_crc,
    log_files,
    piece_of,
    pieces_to_archive,
    rows_of,
)
from tandem.spark.errors import NotAStoreError
from tandem.wire.crc import raw_crc32
from tests.support.log_builder import LogBuilder
from tests.support.small_archive import FILE_BYTES, SmallArchive


def firsts(small: SmallArchive, **options: bool) -> list[int]:
    pieces = pieces_to_archive("broker-a", str(small.store), [], **options)
    return [piece.first for piece in pieces]


def test_closed_files_only(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path)
    files = len(small.log.files())
    assert firsts(small) == [number * FILE_BYTES for number in range(files - 1)]
    assert len(firsts(small, take_open_file=True)) == files


def test_of_an_open_file_what_is_written(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path)
    *_, last = pieces_to_archive("broker-a", str(small.store), [], take_open_file=True)
    assert last.end == small.log.end_offset
    assert not last.closes_file


def test_of_a_fenced_group_what_is_confirmed(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path)
    confirmed = 2 * FILE_BYTES + 1
    (small.store / "checkpoint").write_bytes(struct.pack(">6q", 0, 0, 0, 0, 0, confirmed))
    assert firsts(small) == [0, FILE_BYTES]
    (small.store / "checkpoint").write_bytes(struct.pack(">6q", 0, 0, 0, 0, 0, 0))
    assert len(firsts(small)) == len(small.log.files()) - 1


def test_it_goes_on_where_the_archive_ends(small: SmallArchive) -> None:
    units = small.manifest.units
    small.put(300)
    pieces = pieces_to_archive("broker-a", str(small.store), units)
    assert pieces[0].first == units[-1].end
    assert pieces[-1].end == FILE_BYTES * (len(small.log.files()) - 1)


def test_it_goes_on_within_a_file(small: SmallArchive) -> None:
    small.archive(open_file="take")
    end = small.unit(-1).end
    small.put(300)
    pieces = pieces_to_archive("broker-a", str(small.store), small.manifest.units)
    assert pieces[0].first == end
    assert pieces[0].closes_file
    assert piece_of(small.unit(-1), str(small.store), log_files(str(small.store))) is not None


def test_what_was_lost_is_told(small: SmallArchive) -> None:
    units = small.manifest.units
    small.put(300)
    for file in log_files(str(small.store)):
        if file.offset <= units[-1].end:
            Path(file.path).unlink()
    with pytest.raises(LostBeforeArchivedError, match=f"{FILE_BYTES} bytes are lost") as caught:
        pieces_to_archive("broker-a", str(small.store), units)
    assert caught.value.start == units[-1].end
    pieces = pieces_to_archive("broker-a", str(small.store), units, lost=True)
    assert pieces[0].first == units[-1].end + FILE_BYTES
    assert piece_of(units[0], str(small.store), log_files(str(small.store))) is None


def test_another_log_is_told(small: SmallArchive, tmp_path: Path) -> None:
    units = small.manifest.units
    old = SmallArchive(tmp_path / "old", messages=40)
    with pytest.raises(OldCopyError):
        pieces_to_archive("broker-a", str(old.store), units)
    path = Path(log_files(str(small.store))[len(units) - 1].path)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(OtherLogError) as caught:
        pieces_to_archive("broker-a", str(small.store), units)
    assert caught.value.__class__ is OtherLogError


def test_a_torn_end_is_told(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path)
    path = Path(log_files(str(small.store))[-1].path)
    data = bytearray(path.read_bytes())
    data[-10] = 7
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match="tandem log repair"):
        firsts(small, take_open_file=True)


def test_rows_are_those_of_the_log(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path)
    pieces = pieces_to_archive("broker-a", str(small.store), [], take_open_file=True)
    offsets = [
        offset
        for piece in pieces
        for batch in rows_of(piece)
        for offset in batch.column("physicalOffset").to_pylist()
    ]
    assert offsets == [message.physical_offset for message in small.log.messages]


def test_the_broker_s_own_records_are_archived_too(tmp_path: Path) -> None:
    """A message that waits for its time is in the log under another topic, and nowhere else."""
    log = LogBuilder(file_bytes=4096)
    log.put(topic="SCHEDULE_TOPIC_XXXX", body=b"later")
    log.put(topic="orders", body=b"now")
    log.roll()
    log.put(topic="orders", body=b"in the file that is open")
    store = str(log.write(tmp_path))
    (piece,) = pieces_to_archive("broker-a", store, [])
    (rows,) = rows_of(piece)
    assert rows.column("topic").to_pylist() == ["SCHEDULE_TOPIC_XXXX", "orders"]


def test_the_crc_is_that_of_the_bytes(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path)
    file = log_files(str(small.store))[1]
    data = Path(file.path).read_bytes()
    assert log_crc(file, FILE_BYTES + 10, FILE_BYTES + 500) == raw_crc32(data[10:500])


def test_no_store_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        log_files(str(tmp_path / "nowhere"))

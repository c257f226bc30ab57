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
from tandem.spark.errors import LossCause, NotAStoreError
from tandem.wire.crc import raw_crc32
from tests.support.fenced_store import note_confirmed
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
    note_confirmed(small.store, 2 * FILE_BYTES + 1)
    assert firsts(small) == [0, FILE_BYTES]
    note_confirmed(small.store, 2 * FILE_BYTES)
    assert firsts(small) == [0, FILE_BYTES]
    note_confirmed(small.store, 2 * FILE_BYTES - 1)
    assert firsts(small) == [0]
    note_confirmed(small.store, 0)
    assert firsts(small) == []


def test_of_an_open_file_what_is_confirmed(tmp_path: Path) -> None:
    """And of a closed one: a node holds files that others have yet to confirm."""
    small = SmallArchive(tmp_path)
    for number in (20, 120, -3):
        message = small.log.messages[number]
        end = message.physical_offset + message.store_size
        note_confirmed(small.store, end)
        *_, last = pieces_to_archive("broker-a", str(small.store), [], take_open_file=True)
        assert (last.end, last.closes_file) == (end, False)
        rows = [row for batch in rows_of(last) for row in batch.column("physicalOffset")]
        assert rows[-1].as_py() == message.physical_offset
    note_confirmed(small.store, 0)
    assert firsts(small, take_open_file=True) == []


def test_an_archive_that_ends_in_a_file_goes_on_there_when_more_is_confirmed(
    tmp_path: Path,
) -> None:
    small = SmallArchive(tmp_path)
    message = small.log.messages[20]
    end = message.physical_offset + message.store_size
    note_confirmed(small.store, end)
    small.archive(open_file="take")
    assert (small.unit(-1).end, small.unit(-1).closes_file) == (end, False)
    note_confirmed(small.store, small.log.end_offset)
    small.archive(open_file="take")
    assert [unit.first for unit in small.manifest.units][:3] == [0, end, FILE_BYTES]
    assert sum(unit.rows for unit in small.manifest.units) == len(small.log.messages)
    assert small.verify().faults == []


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


@pytest.mark.parametrize("gone", [0, 1, -1])
def test_a_unit_that_was_removed_is_a_piece_again(small: SmallArchive, gone: int) -> None:
    units = small.manifest.units
    removed = units.pop(gone)
    (piece,) = pieces_to_archive("broker-a", str(small.store), units)
    assert (piece.first, piece.end, piece.closes_file) == (removed.first, removed.end, True)


def test_units_that_were_removed_of_one_file_are_pieces_again(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path)
    ends = [message.physical_offset for message in small.log.messages[20:60:20]]
    for end in ends:
        note_confirmed(small.store, end)
        small.archive(open_file="take")
    note_confirmed(small.store, small.log.end_offset)
    small.archive()
    units = small.manifest.units
    spans = [(unit.first, unit.end, unit.closes_file) for unit in units]
    assert spans[:2] == [(0, ends[0], False), (ends[0], ends[1], False)]
    for gone in ([0], [1], [2], [0, 2], [1, 2], [0, 1, 2]):
        left = [unit for number, unit in enumerate(units) if number not in gone]
        pieces = pieces_to_archive("broker-a", str(small.store), left)
        found = [(piece.first, piece.end, piece.closes_file) for piece in pieces]
        if gone == [1, 2]:
            assert found == [(ends[0], FILE_BYTES, True)]
        elif gone == [0, 1, 2]:
            assert found == [(0, FILE_BYTES, True)]
        else:
            assert found == [spans[number] for number in gone]


def test_a_log_in_several_directories_is_archived_through_links(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path, 700)
    wanted = firsts(small)
    files = sorted((small.store / "commitlog").iterdir())
    other = tmp_path / "other-disk"
    links = tmp_path / "links" / "commitlog"
    for folder in (other, links):
        folder.mkdir(parents=True)
    files[1::2] = [file.rename(other / file.name) for file in files[1::2]]
    with pytest.raises(LostBeforeArchivedError, match="several directories") as caught:
        firsts(small)
    assert (caught.value.cause, caught.value.start) == (LossCause.DELETED, FILE_BYTES)
    for file in files:
        (links / file.name).symlink_to(file)
    pieces = pieces_to_archive("broker-a", str(tmp_path / "links"), [])
    assert [piece.first for piece in pieces] == wanted
    assert sum(len(batch) for piece in pieces for batch in rows_of(piece)) > 0


def test_a_gap_that_no_store_has_stays_one(small: SmallArchive) -> None:
    units = small.manifest.units
    removed = units.pop(1)
    small.put(300)
    for file in log_files(str(small.store)):
        if file.offset < removed.end:
            Path(file.path).unlink()
    pieces = pieces_to_archive("broker-a", str(small.store), units)
    assert pieces[0].first == units[-1].end


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

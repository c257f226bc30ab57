from pathlib import Path
from typing import Any

import pytest

from tandem.log.diff import Content, LogDiff, diff_logs, first_difference, read_log
from tandem.log.store_directory import open_store_directory
from tests.support.log_builder import LogBuilder
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import NAMES, overwrite


def a_log(count: int = 10, *, file_bytes: int = 65_536, start_offset: int = 0) -> LogBuilder:
    log = LogBuilder(file_bytes=file_bytes, start_offset=start_offset)
    for number in range(count):
        log.put(body=f"body {number}".encode(), keys=f"k{number}")
    return log


def compared(a: Path, b: Path) -> LogDiff:
    return diff_logs(open_store_directory(a), open_store_directory(b))


@pytest.mark.parametrize("name", NAMES)
def test_a_log_is_equal_to_itself(name: str) -> None:
    found = compared(GOLDEN / name, GOLDEN / name)
    assert found.is_equal
    assert (found.offset, found.start[0], found.end[0]) == (-1, found.start[1], found.end[1])


def test_a_log_that_is_behind_is_a_prefix(tmp_path: Path) -> None:
    found = compared(a_log(10).write(tmp_path / "a"), a_log(7).write(tmp_path / "b"))
    assert not found.is_equal
    end = a_log(7).end_offset
    assert found.offset == end
    assert (found.end, found.lacking_count) == ((a_log(10).end_offset, end), 3)
    one = compared(a_log(9).write(tmp_path / "c"), a_log(10).write(tmp_path / "d"))
    assert one.lacking_count == 1
    assert one.text.startswith("A is a prefix of B: 1 record behind")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"body": b"body X"}, "body: 6 bytes, different from byte 5: '4' in A, 'X' in B"),
        ({"queue_id": 3}, "queue_id: 0 in A, 3 in B"),
        ({"keys": "other"}, "property KEYS: 'k4' in A, 'other' in B"),
        ({"properties": {"extra": "1"}}, "property extra: absent in A, '1' in B"),
        ({"store_timestamp_ms": 5}, "store_timestamp_ms: "),
        ({"body": b"longer"}, "body: 6 bytes, different from byte 0"),
    ],
)
def test_the_first_record_that_differs_is_told_field_by_field(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    other = a_log(4)
    other.put(**({"body": b"body 4", "keys": "k4"} | fields))
    found = compared(a_log(10).write(tmp_path / "a"), other.write(tmp_path / "b"))
    place = a_log(4).end_offset
    assert not found.is_equal
    assert found.offset in range(place, a_log(5).end_offset)
    assert (found.contents, found.equal_count) == ((Content.RECORD, Content.RECORD), 4)
    assert any(field.startswith(words) for field in found.fields)


def test_a_damaged_record_is_called_that(tmp_path: Path) -> None:
    a, b = a_log().write(tmp_path / "a"), a_log().write(tmp_path / "b")
    hurt = a_log().messages[3].physical_offset
    overwrite(b / "commitlog" / f"{0:020d}", hurt + 4, b"xxxx")
    found = compared(a, b)
    assert found.offset == hurt + 4
    assert (found.contents, found.equal_count) == ((Content.RECORD, Content.OTHER), 3)


def test_files_that_end_at_other_places_are_named(tmp_path: Path) -> None:
    a = a_log(60, file_bytes=4096).write(tmp_path / "a")
    found = compared(a, a_log(60, file_bytes=8192).write(tmp_path / "b"))
    assert found.contents == (Content.BLANK, Content.RECORD)


def test_a_log_whose_first_files_were_deleted_differs_there_only(tmp_path: Path) -> None:
    a = a_log(60, file_bytes=4096).write(tmp_path / "a")
    b = a_log(60, file_bytes=4096).write(tmp_path / "b")
    (b / "commitlog" / f"{0:020d}").unlink()
    found = compared(a, b)
    assert not found.is_equal
    assert (found.offset, found.start, found.contents) == (0, (0, 4096), None)


def test_logs_without_a_common_part_cannot_be_compared(tmp_path: Path) -> None:
    a = a_log(5, file_bytes=4096).write(tmp_path / "a")
    b = a_log(5, file_bytes=4096, start_offset=40_960).write(tmp_path / "b")
    found = compared(a, b)
    assert not found.is_equal
    assert (found.start, found.contents, found.lacking_count) == ((0, 40_960), None, 0)


def test_an_empty_log_is_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "a" / "commitlog").mkdir(parents=True)
    b = a_log().write(tmp_path / "b")
    assert compared(tmp_path / "a", tmp_path / "a").is_equal
    found = compared(tmp_path / "a", b)
    assert (found.is_equal, found.offset, found.end) == (False, 0, (0, a_log().end_offset))


def test_bytes_are_read_over_files_and_up_to_a_gap(tmp_path: Path) -> None:
    root = a_log(90, file_bytes=4096).write(tmp_path / "a")
    files = open_store_directory(root).commit_log
    assert len(read_log(files, 4000, 8200)) == 4200
    (root / "commitlog" / f"{4096:020d}").unlink()
    files = open_store_directory(root).commit_log
    assert len(read_log(files, 4000, 8200)) == 96
    assert first_difference(files, files, 0, 8192) == 4096

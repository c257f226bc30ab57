import struct
from pathlib import Path

import pytest

from tandem.log.findings import Finding
from tandem.log.store_directory import open_store_directory
from tandem.log.verify import verify_store
from tests.tandem.log.vectors import copy_of, log_file, overwrite

UNITS_AT = 40 + 400


def findings(root: Path) -> list[Finding]:
    return list(verify_store(open_store_directory(root)).findings)


def index_file(root: Path, number: int = 0) -> Path:
    return sorted((root / "index").iterdir())[number]


def unit(number: int, field_at: int) -> int:
    return UNITS_AT + number * 20 + field_at


@pytest.mark.parametrize(
    ("position", "data", "kinds"),
    [
        # An entry that leads elsewhere: that one leads nowhere, and a key is not found.
        (unit(5, 4), struct.pack(">q", 137), {"index-entry", "index-key-missing"}),
        (unit(5, 12), struct.pack(">i", 99), {"index-time"}),
        (0, struct.pack(">q", 1_795_218_857_973), {"index-header"}),  # begin time
        (8, struct.pack(">q", 5), {"index-header"}),  # end time
    ],
)
def test_an_entry_has_to_be_of_its_message(
    tmp_path: Path, position: int, data: bytes, kinds: set[str]
) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(index_file(root), position, data)
    assert {finding.kind for finding in findings(root)} == kinds


def test_a_key_that_was_changed_in_the_record_is_in_no_index(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    at = log_file(root).read_bytes().index(b"U1")
    overwrite(log_file(root), at, b"UX")
    assert {f.kind for f in findings(root)} == {"index-entry", "index-key-missing"}


def test_entries_behind_the_last_file_are_only_late(tmp_path: Path) -> None:
    root = copy_of("idx", tmp_path)
    index_file(root, -1).unlink()
    found = findings(root)
    assert {finding.kind for finding in found} == {"index-behind"}
    assert all(finding.severity == "warning" for finding in found)


def test_an_index_that_starts_late_is_sound(tmp_path: Path) -> None:
    root = copy_of("idx", tmp_path)
    index_file(root, 0).unlink()
    assert findings(root) == []


def test_a_file_missing_in_the_middle_is_damage(tmp_path: Path) -> None:
    root = copy_of("idx", tmp_path)
    index_file(root, 2).unlink()
    assert {finding.kind for finding in findings(root)} == {"index-key-missing"}


def test_times_in_front_of_the_first_message_count_as_none(tmp_path: Path) -> None:
    """A first entry has the time behind the end of the file before, or none. IndexFile.putKey."""
    root = copy_of("idx", tmp_path)
    at = 40 + 7 * 4 + 20 + 12
    overwrite(index_file(root, 1), at, struct.pack(">i", 99))
    assert {finding.kind for finding in findings(root)} == {"index-time"}
    overwrite(index_file(root, 1), at, struct.pack(">i", 0))
    overwrite(index_file(root, 0), at, struct.pack(">i", 99))  # nobody knows the file before
    assert findings(root) == []

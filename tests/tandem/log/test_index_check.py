import struct
from pathlib import Path

import pytest

from tandem.log import index_check
from tandem.log.index_check import IndexCheck, check_index
from tandem.log.index_file import IndexSettings
from tandem.log.pieces import PieceMap, cut_log
from tandem.log.store_directory import open_store_directory
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import copy_of, overwrite

SETTINGS = IndexSettings(100, 400)
UNITS_AT = 40 + 400


def checked(root: Path, settings: IndexSettings = SETTINGS) -> IndexCheck:
    store = open_store_directory(root)
    return check_index(store.index_files[0], 0, settings, PieceMap(cut_log(store.commit_log)))


def kinds(check: IndexCheck) -> set[str]:
    return {finding.kind for finding in check.findings}


@pytest.mark.parametrize("block_units", [2, 1 << 18])
@pytest.mark.parametrize("name", ["basic", "batch", "crc", "sch"])
def test_index_files_of_rocketmq_are_sound(
    monkeypatch: pytest.MonkeyPatch, name: str, block_units: int
) -> None:
    monkeypatch.setattr(index_check, "BLOCK_UNITS", block_units)
    check = checked(GOLDEN / name)
    assert check.findings == []
    assert sum(segment.count for _, segment in check.segments) == check.unit_count


@pytest.mark.parametrize(
    ("position", "data", "kind"),
    [
        (16, struct.pack(">q", 5), "index-header"),  # begin offset
        (24, struct.pack(">q", 5), "index-header"),  # end offset
        (32, struct.pack(">i", 99), "index-header"),  # slots in use
        (36, struct.pack(">i", 9), "index-chain"),  # one unit too few: a slot leads behind it
        (36, struct.pack(">i", 2**31 - 1), "index-header"),
        (36, struct.pack(">i", -5), "index-header"),
        (40 + 7 * 4, struct.pack(">i", 3), "index-chain"),  # a slot without an entry
        (UNITS_AT + 20, struct.pack(">i", -7), "index-chain"),  # hash
        (UNITS_AT + 20, struct.pack(">i", 12_345), "index-chain"),
        (UNITS_AT + 5 * 20 + 16, struct.pack(">i", 0), "index-chain"),  # previous
        (UNITS_AT + 5 * 20 + 16, struct.pack(">i", 5), "index-chain"),
    ],
)
def test_what_is_wrong_with_header_slots_and_chains_is_found(
    tmp_path: Path, position: int, data: bytes, kind: str
) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(next((root / "index").iterdir()), position, data)
    assert kind in kinds(checked(root))


def test_a_file_of_another_length_cannot_be_used() -> None:
    check = checked(GOLDEN / "basic", IndexSettings(7, 5))
    assert check.header is None
    assert kinds(check) == {"index-file-length"}


def test_an_empty_file_says_nothing() -> None:
    check = checked(GOLDEN / "v6")
    assert (check.unit_count, check.findings) == (0, [])

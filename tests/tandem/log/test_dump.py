from collections.abc import Iterable
from pathlib import Path

import pytest

from tandem.log.dump import Dumped, DumpedRecord, dump_records
from tandem.log.index_file import IndexSettings
from tandem.log.log_scan import LogDamage
from tandem.log.record_filter import Range, RecordFilter
from tandem.log.store_directory import open_store_directory
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import NAMES, copy_of, log_file, overwrite


def offsets(found: Iterable[Dumped]) -> list[int]:
    return [item.message.physical_offset for item in found if isinstance(item, DumpedRecord)]


@pytest.mark.parametrize("name", NAMES)
def test_every_record_of_rocketmq_is_dumped_sound(name: str) -> None:
    store = open_store_directory(GOLDEN / name)
    found = list(dump_records(store, RecordFilter()))
    assert found
    assert all(isinstance(item, DumpedRecord) and item.crc_ok for item in found)


@pytest.mark.parametrize("use_index", [False, True])
@pytest.mark.parametrize("key", ["a", "b", "U3", "U6", "none"])
def test_the_index_finds_what_a_scan_finds(key: str, use_index: bool) -> None:  # noqa: FBT001
    store = open_store_directory(GOLDEN / "idx")
    wanted = RecordFilter(topics=frozenset({"T"}), key=key)
    expected = {"U3": [351], "U6": [702], "none": []}.get(key, list(range(0, 819, 117)))
    assert offsets(dump_records(store, wanted, use_index=use_index)) == expected


def test_the_log_is_scanned_where_no_index_file_covers_it(tmp_path: Path) -> None:
    root = copy_of("idx", tmp_path)
    files = sorted((root / "index").iterdir())
    for file in (files[0], files[1], files[-1], files[-2]):
        file.unlink()
    wanted = RecordFilter(topics=frozenset({"T"}), key="a")
    assert offsets(dump_records(open_store_directory(root), wanted)) == list(range(0, 819, 117))


def test_an_entry_that_lies_is_not_believed(tmp_path: Path) -> None:
    """Only hashes are in an index: what its record says counts."""
    root = copy_of("idx", tmp_path)
    store = open_store_directory(root)
    record = open_store_directory(root).commit_log[0].path
    at = Path(record).read_bytes().index(b"U3")
    overwrite(Path(record), at, b"UX")
    wanted = RecordFilter(topics=frozenset({"T"}), key="U3")
    assert offsets(dump_records(store, wanted)) == []


def test_ranges_hold_for_records_out_of_the_index_too() -> None:
    store = open_store_directory(GOLDEN / "idx")
    wanted = RecordFilter(topics=frozenset({"T"}), key="a", physical_offsets=Range(100, 400))
    settings = IndexSettings(7, 5)
    assert offsets(dump_records(store, wanted, index_settings=settings)) == [117, 234, 351]


def test_a_body_that_its_crc_does_not_fit_is_dumped_and_marked(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(log_file(root), 136 + 88, b"X")
    found = list(dump_records(open_store_directory(root), RecordFilter()))
    assert [isinstance(item, DumpedRecord) and item.crc_ok for item in found] == [True, False, True]


def test_damage_is_told_between_the_records(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(log_file(root), 136 + 4, b"XXXX")
    found = list(dump_records(open_store_directory(root), RecordFilter()))
    assert [isinstance(item, LogDamage) for item in found] == [True, False, False]
    assert offsets(found) == [0, 272]

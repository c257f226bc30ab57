from collections.abc import Sequence
from pathlib import Path

import pytest

from tandem.cli.log_tables import RecordTable, print_listing, print_report, print_stat
from tandem.log import (
    DumpedRecord,
    RecordFilter,
    dump_records,
    list_store,
    open_store_directory,
    store_stat,
    verify_store,
)
from tandem.text_table import Line, bare
from tests.support.log_builder import LogBuilder
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import NAMES, copy_of, log_file, overwrite


@pytest.mark.parametrize("name", NAMES)
def test_a_listing_shows_files_ranges_and_times(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_listing(list_store(open_store_directory(GOLDEN / name)))
    text = capsys.readouterr().out
    assert "00000000000000000000" in text
    assert "2026-11-2" in text
    assert "checkpoint: log to 2026-11-2" in text
    assert "stopped cleanly" in text


def test_a_listing_tells_of_a_crash_and_of_strange_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = copy_of("basic", tmp_path)
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    (root / "commitlog" / "notes.txt").touch()
    print_listing(list_store(open_store_directory(root)))
    text = capsys.readouterr().out
    assert "the last stop was a crash" in text
    assert "checkpoint: none" in text
    assert "notes.txt (its name is not" in text


def test_numbers_are_shown_by_queue_and_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    print_stat(store_stat(open_store_directory(GOLDEN / "tran")))
    text = capsys.readouterr().out
    assert "SCHEDULE_TOPIC_XXXX" in text
    assert "all" in text


def test_records_are_printed_as_they_come_and_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    log = LogBuilder()
    log.put(topic="T\x1b[31m", body=b"\x1b[2J" + b"x" * 100, keys="k")
    store = open_store_directory(log.write(tmp_path, consume_queues=False))
    lines: list[str] = []

    def write(printed: Sequence[Line]) -> None:
        lines.extend(map(bare, printed))

    table = RecordTable(write, None, shows_body=True)
    for record in dump_records(store, RecordFilter()):
        assert isinstance(record, DumpedRecord)
        table.add(record, bytes.decode)
    assert lines[0].split()[:2] == ["physical", "topic"]
    assert "\x1b" not in lines[1]
    assert "\\x1b[31m" in lines[1]
    assert "(104 characters)" in lines[1]


def test_a_report_says_what_a_kind_of_finding_means_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(log_file(root), 88, b"X")
    overwrite(log_file(root), 136 + 88, b"X")
    print_report(verify_store(open_store_directory(root)), 0.5)
    text = capsys.readouterr().out
    assert text.count("remedy") == 1
    assert text.count("position") == 2
    assert "in 0.5 s" in text
    assert "DAMAGED: 2 findings" in text


def test_a_sound_store_is_called_that(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(verify_store(open_store_directory(GOLDEN / "basic")), 0.5)
    assert capsys.readouterr().out.endswith("\nsound\n")

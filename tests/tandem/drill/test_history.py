import multiprocessing
from pathlib import Path

import msgspec
import pytest

from tandem.drill.history import (
    HISTORY_NAME,
    HistoryError,
    NoRunError,
    add_run,
    check_history,
    find_run,
    read_history,
    read_run,
)
from tests.tandem.drill import samples


def labels(directory: Path) -> list[str]:
    return [run.label for run in read_history(directory).runs]


def test_runs_are_read_in_the_order_in_which_they_were_added(tmp_path: Path) -> None:
    history = tmp_path / "new" / "drill"
    for label in ("a", "b", "c"):
        add_run(history, samples.record(label=label))
    assert labels(history) == ["a", "b", "c"]
    assert (history / HISTORY_NAME).read_bytes().count(b"\n") == 3


def test_without_a_history_there_are_no_runs(tmp_path: Path) -> None:
    assert read_history(tmp_path / "none").runs == []


def test_a_last_line_torn_at_any_byte_is_passed_over_and_ends_no_history(tmp_path: Path) -> None:
    add_run(tmp_path, samples.record(label="a"))
    path = tmp_path / HISTORY_NAME
    whole = path.read_bytes()
    line = msgspec.json.encode(samples.record(label="torn"))
    for size in (1, 2, len(line) // 2, len(line) - 1):
        path.write_bytes(whole + line[:size])
        found = read_history(tmp_path)
        assert ([run.label for run in found.runs], found.unreadable) == (["a"], 1), size
        add_run(tmp_path, samples.record(label="b"))
        again = read_history(tmp_path)
        assert ([run.label for run in again.runs], again.unreadable) == (["a", "b"], 1), size


def test_a_whole_line_without_its_end_counts_and_is_not_joined(tmp_path: Path) -> None:
    add_run(tmp_path, samples.record(label="a"))
    path = tmp_path / HISTORY_NAME
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    add_run(tmp_path, samples.record(label="b"))
    assert labels(tmp_path) == ["a", "b"]


@pytest.mark.parametrize(
    "rubbish", [b"\xff\xfe\n", b"[" * 9_999 + b"\n", b"{}\n", b"\0" * 2_000_000]
)
def test_rubbish_between_runs_is_counted_and_passed_over(tmp_path: Path, rubbish: bytes) -> None:
    add_run(tmp_path, samples.record(label="a"))
    with (tmp_path / HISTORY_NAME).open("ab") as file:
        file.write(rubbish)
    add_run(tmp_path, samples.record(label="b"))
    found = read_history(tmp_path)
    assert [run.label for run in found.runs] == ["a", "b"]
    assert found.unreadable >= 1


def _add_some(directory: Path) -> None:
    for _ in range(20):
        add_run(directory, samples.record(label="x" * 5_000))


@pytest.mark.slow
def test_drills_that_end_at_once_each_have_their_line(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=_add_some, args=(tmp_path,)) for _ in range(3)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    found = read_history(tmp_path)
    assert (len(found.runs), found.unreadable) == (60, 0)


def test_a_history_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HistoryError):
        add_run(tmp_path / "file", samples.record())
    with pytest.raises(HistoryError):
        check_history(tmp_path / "file")
    (tmp_path / HISTORY_NAME).mkdir()
    with pytest.raises(HistoryError):
        read_history(tmp_path)
    with pytest.raises(HistoryError):
        check_history(tmp_path)


def test_a_run_is_found_by_number_by_place_and_by_report(tmp_path: Path) -> None:
    for label in ("a", "b", "c"):
        add_run(tmp_path, samples.record(label=label))
    for name, label in {"1": "a", "3": "c", "last": "c", "previous": "b"}.items():
        assert find_run(name, tmp_path).label == label
    report = tmp_path / "report"
    report.mkdir()
    (report / "summary.json").write_bytes(msgspec.json.encode(samples.summary()))
    assert find_run(str(report), tmp_path) == find_run(str(report / "summary.json"), tmp_path)
    assert read_run(report / "summary.json", "mine").label == "mine"


@pytest.mark.parametrize("name", ["0", "4", "9" * 5_000, "nowhere", "", "a\0b" * 0 + "previous"])
def test_a_run_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(NoRunError):
        find_run(name, tmp_path)


def test_a_file_that_is_no_summary_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(NoRunError) as raised:
        find_run(str(tmp_path), tmp_path)
    assert raised.value.name == str(tmp_path / "summary.json")

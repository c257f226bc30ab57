import os
from pathlib import Path

import pytest

from tandem.drill.summary import Summary
from tandem.views import drill_reports
from tandem.views.drill_reports import (
    RUNS_MAX,
    UnreadableReportError,
    read_reports,
    read_summary,
    report_files,
    trend,
)
from tests.tandem.views.drill_samples import write_run


def test_a_directory_that_is_not_there_has_no_reports(tmp_path: Path) -> None:
    assert report_files(tmp_path / "none") == {}
    assert read_reports(tmp_path / "none").runs == []


def test_the_report_of_the_directory_itself_is_one(tmp_path: Path) -> None:
    write_run(tmp_path / "report", day=1, seconds=1.0)
    (tmp_path / "report" / "empty").mkdir()
    (found,) = read_reports(tmp_path / "report").runs
    assert found.id == "report"


def test_what_is_no_report_is_named_and_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "good", day=1, seconds=1.0)
    for name, data in {"bad": b"{", "list": b"[]", "other": b"{}", "binary": b"\xff"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_bytes(data)
    strange = tmp_path / os.fsdecode(b"\xff")
    strange.mkdir()
    (strange / "summary.json").write_bytes(b"?")
    found = read_reports(tmp_path)
    assert [each.id for each in found.runs] == ["good"]
    assert {each.id for each in found.unreadable} == {"bad", "list", "other", "binary", "\\xff"}
    with pytest.raises(UnreadableReportError):
        read_summary(tmp_path / "bad" / "summary.json")
    monkeypatch.setattr(drill_reports, "SUMMARY_BYTES_MAX", 10)
    assert len(read_reports(tmp_path).unreadable) == 6


def test_old_runs_are_left_out_and_counted(tmp_path: Path) -> None:
    for number in range(RUNS_MAX + 3):
        write_run(tmp_path / f"{number:03}", day=1 + number % 28, seconds=1.0)
    found = read_reports(tmp_path)
    assert (len(found.runs), found.left_out) == (RUNS_MAX, 3)
    (points,) = [each["points"] for each in trend(found.runs)]
    assert [each.started_at for each in points] == sorted(each.started_at for each in points)


def test_what_is_read_is_what_a_drill_writes() -> None:
    fields = set(drill_reports._Summary.__struct_fields__)
    assert fields <= set(Summary.__struct_fields__)

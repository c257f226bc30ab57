from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from tandem.drill.errors import ReportError
from tandem.drill.history import NoRunError, read_history
from tandem.drill.keeping import keep
from tests.tandem.drill import samples


@pytest.fixture
def out(tmp_path: Path) -> Path:
    report = tmp_path / "report"
    report.mkdir()
    (report / "summary.json").write_bytes(msgspec.json.encode(samples.summary()))
    return report


def test_a_drill_is_kept_for_ci_for_reviewers_and_for_the_history(
    out: Path, tmp_path: Path
) -> None:
    record = keep(out, tmp_path / "drill", "abc")
    assert ET.parse(out / "junit.xml").getroot().tag == "testsuites"
    assert "PASSED" in (out / "summary.md").read_text()
    assert read_history(tmp_path / "drill").runs == [record]
    assert "abc" in (tmp_path / "drill/trends.html").read_text()


def test_without_a_history_none_is_made(out: Path, tmp_path: Path) -> None:
    keep(out, None, "")
    assert [each.name for each in tmp_path.iterdir()] == ["report"]


def test_without_a_report_nothing_is_kept(tmp_path: Path) -> None:
    with pytest.raises(NoRunError):
        keep(tmp_path, tmp_path / "drill", "")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_said(out: Path) -> None:
    (out / "junit.xml").mkdir()
    with pytest.raises(ReportError):
        keep(out, None, "")

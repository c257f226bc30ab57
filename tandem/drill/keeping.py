"""What is kept of a drill for others than its reader: for CI, for a pull request, for a history."""

from pathlib import Path
from typing import Final

from tandem.drill.errors import ReportError
from tandem.drill.history import add_run, read_history, read_run
from tandem.drill.junit import junit_of
from tandem.drill.markdown_summary import markdown_of
from tandem.drill.run_record import RunRecord
from tandem.drill.trends import write_trends
from tandem.views.drill_reports import SUMMARY_NAME

JUNIT_NAME: Final = "junit.xml"
MARKDOWN_NAME: Final = "summary.md"


def keep(out: Path, history: Path | None, label: str) -> RunRecord:
    """Write what belongs beside the report in `out`, and add the drill to a history.

    Raises:
        ReportError: it cannot be written.
        NoRunError: there is no report of a drill.
    """
    record = read_run(out / SUMMARY_NAME, label)
    try:
        (out / JUNIT_NAME).write_bytes(junit_of(record))
        (out / MARKDOWN_NAME).write_text(markdown_of(record), encoding="utf-8", errors="replace")
    except OSError as error:
        raise ReportError(f"cannot write the report in {out}: {error.strerror}") from error
    if history is not None:
        add_run(history, record)
        write_trends(history, read_history(history))
    return record

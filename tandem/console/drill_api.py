"""/api/v1/drills: reports of past drills, and their trend."""

from typing import Any

from tandem.console.asking import Asked, not_found
from tandem.views.drill_reports import (
    UnreadableReportError,
    read_reports,
    read_summary,
    report_files,
    trend,
)


async def drills(asked: Asked) -> dict[str, Any]:
    """GET /api/v1/drills."""
    asked.query().end()
    await asked.account.check_cluster()
    found = read_reports(asked.console.reports)
    return {
        "directory": str(asked.console.reports),
        "runs": found.runs,
        "trend": trend(found.runs),
        "unreadable": found.unreadable,
        "left_out": found.left_out,
    }


async def drill(asked: Asked, run_id: str) -> dict[str, Any]:
    """GET /api/v1/drills/ID."""
    asked.query().end()
    await asked.account.check_cluster()
    # Looked for among those that are there: no part of a path comes from a request.
    file = report_files(asked.console.reports).get(run_id)
    if file is None:
        raise not_found("no_run", f"there is no report {run_id}")
    try:
        return {"id": run_id, "summary": read_summary(file)}
    except UnreadableReportError as error:
        raise not_found("no_run", f"report {run_id}: {error}") from error

"""Reports of drills in a directory: `summary.json` in it, and in the directories in it.

A report is what a drill has written, perhaps of an older version: it is read as far as it goes, and
what cannot be read is named. Without a drill's packages, which a console does not need.
"""

import os
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from tandem.wire.untrusted import UnreadableError, decode_json

T = TypeVar("T")

SUMMARY_NAME: Final = "summary.json"
RUNS_MAX: Final = 200
DIRECTORIES_MAX: Final = 2_000
SUMMARY_BYTES_MAX: Final = 4 * 1024 * 1024


class Unavailability(msgspec.Struct, frozen=True, kw_only=True):
    """How long sends of one scenario went without SEND_OK, over its runs."""

    scenario: str
    promise: str = ""
    runs: int = 0
    median_seconds: float
    p99_seconds: float
    max_seconds: float


class _Settings(msgspec.Struct, frozen=True, kw_only=True):
    group_kind: str = ""
    rate_per_second: float = 0.0
    tandem_version: str = ""
    scenarios: list[str] = []


class _Summary(msgspec.Struct, frozen=True, kw_only=True):
    verdict: str
    started_at: str
    seconds: float = 0.0
    sends: int = 0
    sync_acknowledged: int | None = None
    sync_lost: int | None = None
    promises_broken: int | None = None
    expectations_failed: int = 0
    switches: list[Any] = []
    unavailability: list[Unavailability] = []
    settings: _Settings = _Settings()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One drill in a list."""

    id: str
    started_at: str
    verdict: str
    seconds: float
    sends: int
    sync_acknowledged: int | None
    sync_lost: int | None
    promises_broken: int | None
    expectations_failed: int
    switches: int
    group_kind: str
    rate_per_second: float
    tandem_version: str
    scenarios: list[str]
    unavailability: list[Unavailability]


class Unreadable(msgspec.Struct, frozen=True):
    """A report that is none, and why."""

    id: str
    reason: str


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """What one drill adds to the trend of a scenario."""

    id: str
    started_at: str
    verdict: str
    median_seconds: float
    p99_seconds: float
    max_seconds: float


class Reports(msgspec.Struct, frozen=True):
    """Newest first; `left_out` counts those that are older still."""

    runs: list[Run]
    unreadable: list[Unreadable]
    left_out: int


class UnreadableReportError(Exception):
    """A report cannot be read; the text says why."""


def report_files(directory: Path) -> dict[str, Path]:
    """Return where reports are, by their ids: the names of their directories."""
    found = {}
    own = directory / SUMMARY_NAME
    if own.is_file():
        found[directory.resolve().name or "report"] = own
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries)[:DIRECTORIES_MAX]
    except OSError:
        return found
    for name in names:
        file = directory / name / SUMMARY_NAME
        if file.is_file():
            found[_id(name, found)] = file
    return found


def read_reports(directory: Path) -> Reports:
    """Return what all reports say in short."""
    runs, unreadable = [], []
    for run_id, file in report_files(directory).items():
        try:
            runs.append(_run(run_id, _read(file, _Summary)))
        except UnreadableReportError as error:
            unreadable.append(Unreadable(run_id, str(error)))
    runs.sort(key=lambda each: (each.started_at, each.id), reverse=True)
    return Reports(runs[:RUNS_MAX], unreadable, len(runs[RUNS_MAX:]))


def read_summary(file: Path) -> dict[str, Any]:
    """Return the whole of one report.

    Raises:
        UnreadableReportError: it cannot be read, or is none.
    """
    _read(file, _Summary)
    return _read(file, dict[str, Any])


def trend(runs: list[Run]) -> list[dict[str, Any]]:
    """Return how long each scenario stopped sends, oldest drill first."""
    points: dict[str, list[Point]] = {}
    for run in reversed(runs):
        for each in run.unavailability:
            points.setdefault(each.scenario, []).append(
                Point(
                    id=run.id,
                    started_at=run.started_at,
                    verdict=run.verdict,
                    median_seconds=each.median_seconds,
                    p99_seconds=each.p99_seconds,
                    max_seconds=each.max_seconds,
                )
            )
    return [{"scenario": name, "points": points[name]} for name in sorted(points)]


def _id(name: str, taken: dict[str, Path]) -> str:
    # A file name may have bytes that are no UTF-8.
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    while text in taken:
        text += "'"
    return text


def _read(file: Path, kind: type[T]) -> T:
    try:
        if file.stat().st_size > SUMMARY_BYTES_MAX:
            raise UnreadableReportError(f"it is longer than {SUMMARY_BYTES_MAX:,} bytes")
        return decode_json(file.read_bytes(), kind)
    except OSError as error:
        raise UnreadableReportError(error.strerror or str(error)) from error
    except UnreadableError as error:
        raise UnreadableReportError("it is no report of a drill") from error


def _run(run_id: str, summary: _Summary) -> Run:
    settings = summary.settings
    return Run(
        id=run_id,
        started_at=summary.started_at,
        verdict=summary.verdict,
        seconds=summary.seconds,
        sends=summary.sends,
        sync_acknowledged=summary.sync_acknowledged,
        sync_lost=summary.sync_lost,
        promises_broken=summary.promises_broken,
        expectations_failed=summary.expectations_failed,
        switches=len(summary.switches),
        group_kind=settings.group_kind,
        rate_per_second=settings.rate_per_second,
        tandem_version=settings.tandem_version,
        scenarios=settings.scenarios,
        unavailability=summary.unavailability,
    )

"""The page of a history: what became of every run, and how each scenario went from run to run.

One document with nothing to load, as a report. Shapes are computed here; the template places them.
"""

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import jinja2
import msgspec

from tandem.drill.history import HISTORY_NAME, TRENDS_NAME, History, HistoryError
from tandem.drill.run_record import RunRecord

RUNS_SHOWN_MAX: Final = 200
WIDTH: Final = 640.0
HEIGHT: Final = 120.0
DOT_GAP_MAX: Final = 40.0
"""Few runs do not spread over the whole width."""


class Dot(msgspec.Struct, frozen=True):
    """One run of a scenario in a picture. `x` and `y` in its units, `text` for the pointer."""

    x: float
    y: float
    outcome: str
    text: str


class Series(msgspec.Struct, frozen=True):
    """A scenario from run to run: without an acknowledgement, the median of each run."""

    scenario: str
    dots: list[Dot]
    max_seconds: float
    last_seconds: float
    outcomes: dict[str, int]
    """How many runs came to what."""

    @property
    def line(self) -> str:
        """The dots as points of a line."""
        return " ".join(f"{dot.x:.1f},{dot.y:.1f}" for dot in self.dots)


class Row(msgspec.Struct, frozen=True):
    """A run in the table. `number` is what `tandem drill diff` calls it."""

    number: int
    date: str
    run: RunRecord


def series_of(runs: Sequence[RunRecord]) -> list[Series]:
    """Return every scenario of some runs, in the order in which they first came."""
    names = dict.fromkeys(each.name for run in runs for each in run.scenarios)
    return [_series(name, runs) for name in names]


def _series(name: str, runs: Sequence[RunRecord]) -> Series:
    found = [(run, each) for run in runs for each in run.scenarios if each.name == name]
    outcomes: dict[str, int] = {}
    for _, each in found:
        outcomes[each.outcome] = outcomes.get(each.outcome, 0) + 1
    measured = [
        (run, each, each.unavailable_seconds)
        for run, each in found
        if each.unavailable_seconds is not None
    ]
    highest = max((seconds for _, _, seconds in measured), default=0.0)
    step = min(DOT_GAP_MAX, WIDTH / max(1, len(measured)))
    dots = [
        Dot(
            x=(place + 0.5) * step,
            y=HEIGHT * (1 - seconds / highest) if highest else HEIGHT,
            outcome=each.outcome,
            text=f"{_date(run.started_at)} {run.label}: {seconds:.2f} s, {each.outcome}",
        )
        for place, (run, each, seconds) in enumerate(measured)
    ]
    return Series(name, dots, highest, measured[-1][2] if measured else 0.0, outcomes)


def render_trends(history: History) -> str:
    """Return the page of a history."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tandem.drill", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    rows = [
        Row(number, _date(run.started_at), run) for number, run in enumerate(history.runs, start=1)
    ]
    shown = rows[-RUNS_SHOWN_MAX:]
    return environment.get_template("trends.html").render(
        rows=shown,
        left_out=len(rows) - len(shown),
        unreadable=history.unreadable,
        series=series_of([row.run for row in shown]),
        verdicts=_verdicts(history.runs),
        width=WIDTH,
        height=HEIGHT,
        history_name=HISTORY_NAME,
    )


def write_trends(directory: Path, history: History) -> Path:
    """Write the page of a history; return it.

    Raises:
        HistoryError: it cannot be written.
    """
    page = directory / TRENDS_NAME
    draft = directory / f".{TRENDS_NAME}.{os.getpid()}"
    try:
        draft.write_text(render_trends(history), encoding="utf-8", errors="replace")
        draft.replace(page)
    except OSError as error:
        raise HistoryError(f"cannot write the trends {page}: {error.strerror}") from error
    return page


def _verdicts(runs: Sequence[RunRecord]) -> dict[str, int]:
    found: dict[str, int] = {}
    for run in runs:
        found[run.verdict] = found.get(run.verdict, 0) + 1
    return found


def _date(started_at: str) -> str:
    """The minute, or what is written there if it is no time."""
    try:
        at = datetime.fromisoformat(started_at)
    except ValueError:
        return started_at
    return f"{at:%Y-%m-%d %H:%M}"

"""Times as they are written on the command line."""

import datetime as dt
import re
import time
from typing import Final

import typer

from tandem.plain_text import one_line

MILLISECONDS_MIN: Final = 10**11
"""A number from here on is milliseconds since 1970, of 1973 and later; one below it is none."""

_MILLISECONDS_OF: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ms|s|m|h|d)")

TIME_FORMS: Final = "2026-11-22T14:00, 2026-11-22T14:00:00+01:00, -10m, milliseconds since 1970"
DURATION_FORMS: Final = "500ms, 10s, 5m, 2h, 1d"


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def duration_ms(text: str) -> int | None:
    """Return what `10s`, `1.5h` or `500ms` says, in milliseconds; None if it says none."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    return round(float(found[1]) * _MILLISECONDS_OF[found[2]])


def time_ms(text: str, now: int) -> int | None:
    """Return which moment a text means, in milliseconds since 1970; None if it means none.

    ISO 8601, in the time zone of this machine unless it has one; `-10m`, before `now`; or
    milliseconds since 1970.
    """
    if text.isascii() and text.isdecimal():
        number = int(text) if len(text) <= 15 else 0
        return number if number >= MILLISECONDS_MIN else None
    if text.startswith("-"):
        before = duration_ms(text[1:])
        return None if before is None else max(0, now - before)
    if not re.match(r"\d{4}-", text):  # a year alone, or 20261122, is rather a number
        return None
    try:
        moment = dt.datetime.fromisoformat(text)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None


def parsed_time_ms(text: str, option: str) -> int:
    """Return which moment an option means, in milliseconds since 1970.

    Raises:
        typer.BadParameter: It means none.
    """
    found = time_ms(text, now_ms())
    if found is None:
        raise typer.BadParameter(
            f"{one_line(text, 100)!r} is no time; give one such as {TIME_FORMS}", param_hint=option
        )
    return max(0, found)


def time_cell(moment_ms: int | None) -> str | None:
    """Return a time for a cell, in UTC: "2026-11-20T23:54:17.974Z"; None if there is none."""
    if moment_ms is None or moment_ms <= 0:
        return None
    try:
        moment = _EPOCH + dt.timedelta(milliseconds=moment_ms)
    except OverflowError:
        return str(moment_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

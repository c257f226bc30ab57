"""How lives are put into words: times, counts, lists."""

import datetime as dt
from collections.abc import Iterable
from typing import Final

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
NAMES_MAX: Final = 8


def time_words(moment_ms: int) -> str:
    """Return a time in UTC, "2026-11-20 23:54:17.974"; the number where no calendar has it."""
    try:
        moment = _EPOCH + dt.timedelta(milliseconds=moment_ms)
    except OverflowError:
        return f"{moment_ms} ms since 1970"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment_ms % 1000:03d}"


def span_words(span_ms: int) -> str:
    """Return how long something is, to two units: "3 d 4 h", "1 min 5 s", "250 ms"."""
    span_ms = max(0, span_ms)
    if span_ms < 1000:
        return f"{span_ms} ms"
    seconds = span_ms // 1000
    units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")]
    for (size, name), (small, small_name) in zip(units, [*units[1:], (0, "")], strict=True):
        if seconds >= size:
            rest = seconds % size // small if small else 0
            return f"{seconds // size:,} {name}" + (f" {rest} {small_name}" if rest else "")
    raise AssertionError


def count_words(count: int, noun: str) -> str:
    """Return "1 message", "2 messages"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def list_words(names: Iterable[str]) -> str:
    """Return "a", "a and b", "a, b and c"; of many the first ones, and how many more there are."""
    found = list(dict.fromkeys(names))
    if len(found) > NAMES_MAX:
        found = [*found[: NAMES_MAX - 1], f"{len(found) - NAMES_MAX + 1} more"]
    return " and ".join(filter(None, (", ".join(found[:-1]), *found[-1:])))

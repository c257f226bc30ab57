"""Whether a program has printed what a page shows.

In what is shown, `...` in a line is any text, and a line of `...` alone any number of lines, also
none. Runs of spaces are equal: the columns of a table are as wide as what is in them. Empty lines
are not compared: Spark prints one after each table, and a page that ends a block there shows none.
"""

import re
from collections.abc import Collection
from typing import Final

_STAND_INS: Final = {
    "times": (
        re.compile(
            r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)?"
            r"|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"
            # Beyond a minute pytest says it twice.
            r"|\b\d+(?:\.\d+)? ?(?:ms|s)\b(?: \(\d+:\d\d:\d\d\))?"
        ),
        "TIME",
    ),
    "ids": (re.compile(r"\b[0-9A-Fa-f]{12,}\b"), "ID"),
    "numbers": (re.compile(r"\d[\d,._]*\d|\d"), "0"),
}
"""What is put for what another run prints otherwise, in this order."""


def differs(shown: str, printed: str, varies: Collection[str], *, is_start: bool = False) -> str:
    """Say how they differ; empty if they do not. `is_start`: more may be printed after it."""
    wanted = _lines(shown, varies)
    found = _lines(printed, varies)
    if "order" in varies:
        wanted, found = sorted(wanted), sorted(found)
    pattern = _pattern(wanted)
    text = "".join(f"{line}\n" for line in found)
    matches = re.match(pattern, text) if is_start else re.fullmatch(pattern, text)
    if matches:
        return ""
    return f"shown:\n{_indented(shown)}\nprinted:\n{_indented(printed)}"


def _lines(text: str, varies: Collection[str]) -> list[str]:
    for name, (what, stand_in) in _STAND_INS.items():
        if name in varies:
            text = what.sub(stand_in, text)
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    return [line for line in lines if line]


def _pattern(lines: list[str]) -> str:
    parts = []
    for line in lines:
        if line == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*".join(map(re.escape, line.split("..."))) + r"\n")
    return "".join(parts)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines()) or "    (nothing)"

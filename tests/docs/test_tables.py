"""Every table of the pages is one: a head, a line below it, and rows with as many cells."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.page_blocks import pages
from tests.support.paths import ROOT

_FENCE = re.compile(r"(`{3,}|~{3,})")
_BELOW_HEAD = re.compile(r"\|(\s*:?-+:?\s*\|)+")
_CELL_END = re.compile(r"(?<!\\)\|")


def tables_of(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines that stand together and begin with a bar, outside of code, and where."""
    fence = ""
    lines: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        mark = _FENCE.match(line.strip())
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        if not fence and line.startswith("|"):
            lines.append(line)
        elif lines:
            yield number - len(lines), lines
            lines = []


def complaints(text: str) -> list[str]:
    found = []
    for number, lines in tables_of(text):
        if len(lines) < 2 or not _BELOW_HEAD.fullmatch(lines[1].strip()):
            found.append(f"line {number}: no head: {lines[0][:60]}")
            continue
        counts = {len(_CELL_END.findall(re.sub(r"`[^`]*`", "", line))) for line in lines}
        if len(counts) > 1:
            found.append(f"line {number}: rows of {sorted(counts)} bars")
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_tables_are_whole(page: Path) -> None:
    assert complaints(page.read_text()) == [], page.relative_to(ROOT)


def test_a_table_that_is_cut_is_found() -> None:
    whole = "| a | b |\n| --- | --- |\n| `x | y` | \\| |\n"
    assert complaints(whole) == []
    assert complaints(whole + "\n| c | d |\n| e | f |\n") == ["line 5: no head: | c | d |"]
    assert complaints(whole + "| only one |\n") == ["line 1: rows of [2, 3] bars"]
    assert complaints(f"```text\n{whole}\n| c |\n```\n") == []

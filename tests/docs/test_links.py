"""Every link of a page to the repository leads to a file, and to a heading of it."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.page_blocks import pages
from tests.support.paths import ROOT

_CODE = re.compile(r"^(`{3,}|~{3,}).*?^\1`*$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")
_HEADING = re.compile(r"^#{1,6} +(.+?)#*$", re.MULTILINE)
_DROPPED = re.compile(r"[^\w\- ]")


def anchor_of(heading: str) -> str:
    """What a heading is linked by, as GitHub makes it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return _DROPPED.sub("", text.strip().lower()).replace(" ", "-")


@cache
def anchors_of(page: Path) -> frozenset[str]:
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1`*$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = [anchor_of(heading.replace("`", "")) for heading in _HEADING.findall(text)]
    again = [f"{anchor}-{n}" for anchor in set(headings) for n in range(1, headings.count(anchor))]
    return frozenset([*headings, *again, *_ANCHOR.findall(text)])


def dead_links(page: Path, text: str) -> list[str]:
    dead = []
    for link in _LINK.findall(_CODE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            dead.append(f"{link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors_of(target):
            dead.append(f"{link}: no such heading")
    return dead


@pytest.mark.parametrize("page", [*pages(), ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page, page.read_text()) == [], page.relative_to(ROOT)


def test_a_dead_link_is_found() -> None:
    page = ROOT / "README.md"
    sound = "[a](docs/store.md) `[d](x.md)` [e](#the-drill)"
    text = f"{sound} [b](docs/nowhere.md) [c](docs/store.md#nothing)"
    assert dead_links(page, text) == [
        "docs/nowhere.md: no such file",
        "docs/store.md#nothing: no such heading",
    ]

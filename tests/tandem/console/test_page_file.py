"""What the page may not have, whatever shows it: read as a file, without a browser."""

import re
from html.parser import HTMLParser

import pytest

from tandem.console.page import read_page

TEXT = read_page().body.decode()

BYTES_MAX = 90 * 1024

MARKUP_FROM_TEXT = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "createContextualFragment",
    "DOMParser",
    "setHTML",
    "srcdoc",
)

PROGRAM_FROM_TEXT = (r"\beval\b", r"\bFunction\s*\(", r"\bsetTimeout\(\s*[\"'`]", r"javascript:")


class Tags(HTMLParser):
    """Every tag of the markup with its attributes; what is in scripts and styles is no markup."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def tags() -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(TEXT)
    return parser.tags


def test_the_page_is_small() -> None:
    assert len(TEXT.encode()) <= BYTES_MAX


def test_the_page_loads_nothing() -> None:
    addresses = set(re.findall(r"\w+://[^\s\"'`)]*", TEXT))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, which nobody looks up
    assert not re.search(r"@import|url\(|\bimport\(|importScripts|new Worker", TEXT)


def test_the_markup_has_nothing_that_its_policy_forbids(
    tags: list[tuple[str, dict[str, str | None]]],
) -> None:
    assert [tag for tag, _ in tags if tag in ("link", "img", "iframe", "object", "base")] == []
    names = {name for _, attributes in tags for name in attributes}
    assert [name for name in names if name.startswith("on") or name in ("style", "src")] == []
    assert [attributes for tag, attributes in tags if tag in ("script", "style")] == [{}, {}]


@pytest.mark.parametrize("name", MARKUP_FROM_TEXT)
def test_no_text_becomes_markup(name: str) -> None:
    assert name not in TEXT


@pytest.mark.parametrize("pattern", PROGRAM_FROM_TEXT)
def test_no_text_becomes_a_program(pattern: str) -> None:
    assert not re.search(pattern, TEXT)


def test_no_style_is_written_as_an_attribute() -> None:
    """The policy would leave it out, and the page would look broken without a word."""
    script = TEXT.partition("<script>")[2]
    assert not re.search(r"\bstyle:|[\"']style[\"']|cssText", script)


def test_readers_decide_about_colours_and_motion() -> None:
    for feature in ("prefers-color-scheme: dark", "prefers-reduced-motion"):
        assert feature in TEXT

"""The code blocks of README.md and `docs/`, and the marks above them.

A mark is a comment of Markdown directly above a block. Readers of the page do not see it:

    <!-- not run: needs an etcd of three machines -->
    ```console
    $ etcdctl role add tandem
    ```

CONTRIBUTING.md lists the marks. What is no mark there, or has no reason where it needs one, is an
error: a block that is not run by mistake is a block that nobody has run.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.support.paths import ROOT

_COMMENT: Final = r"<!--(?:(?!-->)[\s\S])*-->"
_BLOCK: Final = re.compile(
    rf"^(?P<marks>(?:[ ]*{_COMMENT}\s*?\n\s*)*)"
    r"(?P<indent>[ ]*)(?P<fence>```+)(?P<language>[^\n`]*)\n"
    r"(?P<text>[\s\S]*?)^[ ]*(?P=fence)[ ]*$",
    re.MULTILINE,
)
_MARK: Final = re.compile(r"<!--\s*([a-z ]+?)\s*(?::\s*([\s\S]*?)\s*)?-->")

RUN: Final = ("python", "console", "bash")
"""Blocks in these languages are programs."""

CHECKED: Final = ("yaml", "json", "toml")
"""Blocks in these are read as a cluster file or a scenario is, or only decoded."""

SHOWN: Final = ("text", "mermaid", "markdown", "pyi")
"""Blocks in these are for people: drawings, signatures, output if it is not marked as such."""

WITH_TEXT: Final = (
    *("not run", "long", "drilled", "file", "inside", "before", "until", "varies", "exits", "on"),
)
WITHOUT_TEXT: Final = ("continues", "output", "background")

NOT_HERE: Final = frozenset(("not run", "drilled", "file", "on"))
"""Marks of blocks that nothing runs, or something else than the tests of pages does."""

A_CLUSTER: Final = "127.0.0.1:9876"
"""A name server of the example cluster."""

VARIES: Final = ("numbers", "times", "ids", "order")
INSIDE: Final = ("producer", "consumer", "pull consumer", "admin")
MACHINES: Final = ("operator", "each", "first", "second", "third", "fourth")
"""Where blocks of `docs/operations` are run, by `tests/operations`."""


class BadBlockError(Exception):
    """A block that the collector does not understand: where, what, and what to write instead."""


@dataclass(frozen=True)
class Block:
    """One block of a page."""

    page: Path
    line: int
    """Where its first fence is, from 1."""

    language: str
    text: str
    marks: dict[str, str]
    """By name; of a mark without a text, an empty one."""

    @property
    def place(self) -> str:
        """`docs/logs.md:17`."""
        return f"{self.page}:{self.line}"

    @property
    def is_run(self) -> bool:
        """Whether it is a program that runs here, and not on machines of a rehearsal alone."""
        return self.language in RUN and not NOT_HERE & set(self.marks)

    @property
    def needs_spark(self) -> bool:
        """Whether it says that it is run where there is a Spark session; see `apart_from_spark`."""
        return self.is_run and self.language == "python" and "tandem.spark" in self.text

    def listed(self, mark: str) -> list[str]:
        """The words of a mark between commas."""
        return [word.strip() for word in self.marks.get(mark, "").split(",") if word.strip()]


@dataclass(frozen=True)
class Command:
    """A line of a console block after its prompt, and what the page shows after it."""

    line: str
    shown: str


def pages() -> list[Path]:
    """README.md, CONTRIBUTING.md and all pages of `docs/`."""
    named = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
    return [*named, *sorted((ROOT / "docs").rglob("*.md"))]


def read_page(page: Path) -> list[Block]:
    """Find the blocks of a page of the repository. Errors: as for `read_blocks`."""
    return read_blocks(page.relative_to(ROOT), page.read_text(encoding="utf-8"))


def understood_blocks(page: Path) -> list[Block]:
    """The same, but none of a page with an error: one test says it, and the others are run."""
    try:
        return read_page(page)
    except BadBlockError:
        return []


def apart_from_spark(blocks: list[Block]) -> tuple[list[Block], list[Block]]:
    """Split a page's blocks in two: without Spark, and with it.

    With a Spark session goes what imports `tandem.spark`, what continues that, and what it prints;
    and a whole page if such a block asks a cluster: all that the page does is about one cluster.
    The first are played by tests/docs/test_pages.py, the others by
    tests/tandem/spark/test_pages.py.
    """
    if any(block.needs_spark and A_CLUSTER in block.text for block in blocks):
        return [], blocks
    without: list[Block] = []
    with_spark: list[Block] = []
    program = None
    for before, block in pairwise([None, *blocks]):
        assert block is not None
        is_continued = "continues" in block.marks and program in with_spark
        is_shown = "output" in block.marks and before in with_spark
        mine = block.needs_spark or is_continued or is_shown
        (with_spark if mine else without).append(block)
        if block.is_run and block.language == "python":
            program = block
    return without, with_spark


def read_blocks(page: Path, text: str) -> list[Block]:
    """Find the blocks of a page.

    Raises:
        BadBlockError: One of them, or a mark, is not as CONTRIBUTING.md says.
    """
    blocks = [_block(page, text, found) for found in _BLOCK.finditer(text)]
    _check_fences(page, text)
    for before, block in pairwise([None, *blocks]):
        assert block is not None
        _check(block, before)
    return blocks


def commands_of(block: Block) -> list[Command]:
    """Take a console block apart. A line that ends with `\\` goes on in the next.

    Raises:
        BadBlockError: It does not begin with a prompt.
    """
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    if parts[0].strip() or len(parts) == 1:
        raise BadBlockError(
            f"{block.place}: a console block begins with `$ `; what is not typed is `text`, and a"
            " script without prompts is `bash`"
        )
    commands = []
    for part in parts[1:]:
        lines = part.split("\n")
        count = 1
        while lines[count - 1].endswith("\\"):
            count += 1
        commands.append(Command("\n".join(lines[:count]), "\n".join(lines[count:]).strip("\n")))
    return commands


def _block(page: Path, text: str, found: re.Match[str]) -> Block:
    line = text.count("\n", 0, found.start("fence")) + 1
    place = f"{page}:{line}"
    marks = {}
    for comment in re.findall(_COMMENT, found["marks"]):
        mark = _MARK.fullmatch(comment)
        if mark is None:
            raise BadBlockError(f"{place}: {comment!r} is no mark; {_marks_there_are()}")
        marks[mark[1]] = mark[2] or ""
    indent = len(found["indent"])
    body = "".join(
        each[indent:] if each.strip() else "\n" for each in found["text"].splitlines(keepends=True)
    )
    return Block(page, line, found["language"].strip(), body, marks)


def _check_fences(page: Path, text: str) -> None:
    rest = _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), text)
    if (fence := re.search(r"^\s*```", rest, re.MULTILINE)) is not None:
        line = rest.count("\n", 0, fence.end()) + 1
        raise BadBlockError(f"{page}:{line}: this fence has no other")


def _marks_there_are() -> str:
    return f"there are {', '.join((*WITH_TEXT, *WITHOUT_TEXT))}; see CONTRIBUTING.md"


def _check(block: Block, before: Block | None) -> None:
    if not block.language:
        raise BadBlockError(
            f"{block.place}: a block names its language; a drawing or a file's text is `text`,"
            " what is typed is `console`"
        )
    if "not run" not in block.marks and block.language not in (*RUN, *CHECKED, *SHOWN):
        raise BadBlockError(
            f"{block.place}: nothing here runs or reads {block.language!r}; mark it"
            " `<!-- not run: REASON -->`"
        )
    for name, text in block.marks.items():
        _check_mark(block, name, text)
    if "output" in block.marks and (before is None or not before.is_run):
        raise BadBlockError(
            f"{block.place}: it is the output of the block before, which is not run"
        )
    if "continues" in block.marks and before is None:
        raise BadBlockError(f"{block.place}: there is no block before that it could continue")
    if block.language == "console" and block.is_run:
        commands_of(block)


def _check_mark(block: Block, name: str, text: str) -> None:
    if name not in (*WITH_TEXT, *WITHOUT_TEXT):
        raise BadBlockError(f"{block.place}: {name!r} is no mark; {_marks_there_are()}")
    if name in WITH_TEXT and not text:
        raise BadBlockError(f"{block.place}: {name!r} needs a text: `<!-- {name}: ... -->`")
    if name in WITHOUT_TEXT and text:
        raise BadBlockError(f"{block.place}: {name!r} takes no text")
    if name == "exits" and not text.isdecimal():
        raise BadBlockError(f"{block.place}: exits: {text!r} is no exit status, such as 1")
    for known, mark in ((VARIES, "varies"), (INSIDE, "inside"), (MACHINES, "on")):
        for word in set(block.listed(mark)) - set(known):
            raise BadBlockError(f"{block.place}: {mark}: {word!r} is none of {', '.join(known)}")

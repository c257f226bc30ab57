"""From the blocks of a page to what is done: files are written, and lines are run."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.support.page_blocks import Block, commands_of

_SURROUNDINGS: Final = {
    "producer": 'async with tandem.Producer(NAME_SERVERS, group="pages-producer") as producer:',
    "consumer": 'async with tandem.Consumer(NAME_SERVERS, group="pages") as consumer:',
    "pull consumer": 'async with tandem.PullConsumer(NAME_SERVERS, group="pages") as consumer:',
    "admin": "async with tandem.Admin(NAME_SERVERS) as admin:",
}
"""What is around a fragment that is marked `inside`."""

_BEGINNING: Final = """\
import asyncio

import tandem
import trio

NAME_SERVERS = ["127.0.0.1:9876", "127.0.0.2:9876", "127.0.0.3:9876"]


async def main() -> None:
"""


@dataclass(frozen=True)
class WriteFile:
    """A file of the room."""

    name: str
    text: str


@dataclass(frozen=True)
class RunLine:
    """A line, or a script, for bash."""

    place: str
    line: str
    shown: str = ""
    """What it prints; empty if the page does not show it."""

    varies: frozenset[str] = frozenset()
    exits: int = 0
    until: str = ""
    """Interrupt it when it has printed this, and what is shown."""

    in_background: bool = False
    """Go on at once; it ends with the page, and must then have printed what is shown."""


Step = WriteFile | RunLine


def steps_of(blocks: Sequence[Block]) -> Iterator[Step]:
    """What the blocks of one page do, in their order."""
    for number, block in enumerate(blocks):
        if "before" in block.marks:
            yield RunLine(block.place, block.marks["before"])
        if {"not run", "drilled", "on"} & set(block.marks):
            continue
        if "file" in block.marks:
            yield WriteFile(block.marks["file"], block.text)
        elif block.language == "console":
            yield from _commands(block)
        elif block.language == "bash":
            yield _line(block, block.text, _output(blocks[number + 1 :]))
        elif block.language == "python" and "continues" not in block.marks:
            yield from _program(block, blocks[number + 1 :])


def _commands(block: Block) -> Iterator[RunLine]:
    *others, last = commands_of(block)
    for command in others:
        yield RunLine(block.place, command.line, command.shown, frozenset(block.listed("varies")))
    yield _line(block, last.line, last.shown)


def _program(block: Block, following: Sequence[Block]) -> Iterator[Step]:
    code, shown, has_output = _code(block), "", False
    varies = set(block.listed("varies"))
    waits_for_output = True
    for each in following:
        if "output" in each.marks and waits_for_output:
            shown += each.text
            has_output, waits_for_output = True, False
            varies |= set(each.listed("varies"))
        elif each.language == "python" and each.is_run:
            if "continues" not in each.marks:
                break
            shown += "...\n" if waits_for_output else ""
            code += f"\n{_code(each)}"
            waits_for_output = True
    shown += "...\n" if waits_for_output else ""
    name = f"block_{block.line}.py"
    yield WriteFile(name, code)
    yield _line(block, f"python {name}", shown if has_output else "", varies)


def _code(block: Block) -> str:
    if "inside" not in block.marks:
        return block.text
    depth = 1
    text = _BEGINNING
    for word in block.listed("inside"):
        text += textwrap.indent(f"{_SURROUNDINGS[word]}\n", "    " * depth)
        depth += 1
    end = "trio.run(main)" if "trio." in block.text else "asyncio.run(main())"
    return f"{text}{textwrap.indent(block.text, '    ' * depth)}\n\n{end}\n"


def _output(following: Sequence[Block]) -> str:
    return following[0].text if following and "output" in following[0].marks else ""


def _line(block: Block, line: str, shown: str, varies: set[str] | None = None) -> RunLine:
    return RunLine(
        block.place,
        line,
        shown,
        frozenset(varies or block.listed("varies")),
        exits=int(block.marks.get("exits", "0")),
        until=block.marks.get("until", ""),
        in_background="background" in block.marks,
    )

"""The life of a message as text of 80 columns: what matters first, then the rest in order."""

import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tandem.life.absence import look_words
from tandem.life.words import time_words
from tandem.plain_text import one_line, plain

if TYPE_CHECKING:
    from tandem.life.evidence import Gap
    from tandem.life.result import Finding, Life, Why

WIDTH: Final = 79
TIME_WIDTH: Final = 25
NAME_CHARACTERS_MAX: Final = 200
"""Of a key or an id in a title."""


def why_lines(found: "Why") -> Iterator[str]:
    """Yield the lines of an answer."""
    if not found.is_found:
        yield from _absent(found)
    for place, life in enumerate(found.lives):
        if place:
            yield ""
        yield from _life(life)
    if found.left_out:
        yield ""
        yield from _wrapped(
            f"{found.left_out:,} more messages have this key. These are the newest; ask for one of"
            " the others by its id."
        )
    unknown = list(dict.fromkeys(found.unknown))
    if unknown:
        yield from _title("Could not be looked at")
        yield from _gaps(unknown)
    if not found.is_found:
        yield from _title("Looked at")
        for words in look_words(found.looked):
            yield from _item(words)
    yield ""
    yield from _wrapped(f"Times are UTC. Asked at {time_words(found.asked_at_ms)}.")


def _absent(found: "Why") -> Iterator[str]:
    where = f" in topic {found.topic}" if found.topic else ""
    yield from _wrapped(
        f"No message was found{where} with {_name(found.message)} as its id or key."
    )
    if found.absence:
        yield from _title("What that proves")
        for each in found.absence:
            yield from _item(each.text)
            yield from _shown(each)


def _life(life: "Life") -> Iterator[str]:
    yield from _wrapped(f"Message {_name(life.id)}")
    facts = [f"topic {_name(life.topic)}"] if life.topic else []
    facts += [f"keys {_name(life.keys)}"] if life.keys else []
    facts += [f"tag {_name(life.tags)}"] if life.tags else []
    yield from _wrapped(", ".join(facts))
    yield ""
    for line in life.summary:
        yield from _wrapped(line)
    events = [each for each in life.findings if each.at_ms]
    now = [each for each in life.findings if not each.at_ms]
    yield from _title("What happened")
    for each in events:
        yield from _event(each)
    if now:
        yield from _title("What is so now")
        for each in now:
            yield from _item(each.text)
            yield from _shown(each)
    if life.unknown:
        yield from _title("What nobody can say")
        yield from _gaps(life.unknown)


def _event(finding: "Finding") -> Iterator[str]:
    time = time_words(finding.at_ms).ljust(TIME_WIDTH)
    yield from _wrapped(finding.text, first=time, indent=TIME_WIDTH)
    yield from _shown(finding, indent=TIME_WIDTH)


def _shown(finding: "Finding", *, indent: int = 2) -> Iterator[str]:
    shown = "; ".join(finding.evidence)
    yield from _wrapped(f"[{shown}]", first=" " * indent, indent=indent + 1)


def _gaps(gaps: "Iterable[Gap]") -> Iterator[str]:
    """Yield what is not known, all that has one reason together."""
    together: dict[tuple[str, str], list[str]] = {}
    for gap in gaps:
        together.setdefault((gap.why, gap.remedy), []).append(gap.what)
    for (why, remedy), what in together.items():
        yield from _item(f"{'; '.join(what)}: {why}{f' ({remedy})' if remedy else ''}")


def _title(text: str) -> Iterable[str]:
    return ("", text)


def _item(text: str) -> Iterator[str]:
    return _wrapped(text, first="- ", indent=2)


def _name(text: str) -> str:
    return one_line(text, NAME_CHARACTERS_MAX)


def _wrapped(text: str, *, first: str = "", indent: int = 0) -> Iterator[str]:
    """Yield a text in lines; what is too long for one without a blank in it is broken."""
    lines = textwrap.wrap(
        plain(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
    )
    yield from lines

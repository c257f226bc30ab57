"""A figure: a number with a name and labels. Nothing else is said of a broker in numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

_SPECIAL: Final = re.compile(r'[\\"\n]')
_ESCAPED: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}


class Labels:
    """Names and values, and how they are written; made once, and used for many figures.

    Attributes:
        pairs: Names and values.
        tail: The same as expositions have it, and what is between labels and a value.
    """

    __slots__ = ("pairs", "tail")

    def __init__(self, **values: str) -> None:
        self.pairs = tuple(values.items())
        self.tail = f"{self.text}}} "

    @property
    def text(self) -> str:
        """The same as expositions have it, each pair with a comma before it."""
        return "".join(f',{name}="{escaped(value)}"' for name, value in self.pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Labels) and self.pairs == other.pairs

    def __hash__(self) -> int:
        return hash(self.pairs)

    def __repr__(self) -> str:
        return f"Labels({self.text[1:]})"


class Figure(NamedTuple):
    """One number, as it is now. What is not known has no figure."""

    name: str
    labels: Labels
    value: float


NO_LABELS: Final = Labels()


class Column(NamedTuple):
    """Figures of one name."""

    name: str
    labels: tuple[Labels, ...]
    values: tuple[float, ...]


def columns(figures: list[Figure]) -> Iterator[Column]:
    """Parts of one name each. Mostly all have one, and to see that is quicker than to part them."""
    if not figures:
        return
    names, labels, values = zip(*figures, strict=True)
    if names.count(names[0]) == len(names):
        yield Column(names[0], labels, values)
        return
    end = 0
    for name, some in groupby(names):
        start, end = end, end + len(list(some))
        yield Column(name, labels[start:end], values[start:end])


def plain(value: str) -> str:
    """A label's value as text; half a pair of UTF-16, which no text has, becomes `?`."""
    return value if value.isascii() else value.encode(errors="replace").decode()


def escaped(value: str) -> str:
    """The same as it is written in an exposition."""
    return _SPECIAL.sub(_replaced, plain(value)) if _SPECIAL.search(value) else plain(value)


def _replaced(match: re.Match[str]) -> str:
    return _ESCAPED[match.group()]


class LabelsOf:
    """The labels of what has a name, each made once: at most as many as there are names at once."""

    def __init__(self, make: Callable[..., Labels], most: int) -> None:
        self._make = make
        self._most = most
        self._known: dict[tuple[str, ...], Labels] = {}

    def __call__(self, *names: str) -> Labels:
        """Return the labels of these names."""
        labels = self._known.get(names)
        if labels is None:
            if len(self._known) >= self._most:
                self._known.clear()
            labels = self._known[names] = self._make(*names)
        return labels

"""Figures as text: Prometheus' format 0.0.4, and OpenMetrics 1.0.

Every figure is of a family of the catalogue. Families come in the order of their first figure, each
with all of its lines together, whatever the order of the figures. How many there are is bounded;
see `node.figures.selection`.

Source: Prometheus, Exposition formats; OpenMetrics 1.0.0.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from node.figures.families import FAMILIES, FAMILY_OF, Base, Kind
from node.figures.figure import Column, Figure, Labels, columns
from node.figures.selection import Selection

LINES_A_STEP: Final = 256
"""After this many lines the caller may let others have their turn."""


class Format(enum.Enum):
    """How figures are written; the value is the type of the content."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def wanted_format(accept: str) -> Format:
    """Return what a header `Accept` likes best; of equals the text."""
    quality = {Format.TEXT: 0.0, Format.OPEN_METRICS: 0.0}
    for entry in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in entry.split(";"))
        found = _quality(parameters)
        if kind == "application/openmetrics-text":
            quality[Format.OPEN_METRICS] = max(quality[Format.OPEN_METRICS], found)
        elif kind in ("text/plain", "text/*", "*/*"):
            quality[Format.TEXT] = max(quality[Format.TEXT], found)
    return max(Format, key=lambda each: quality[each])


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


class Exposition:
    """Writes the figures of one node. It holds nothing between two times but what is fixed."""

    def __init__(
        self, bases: Mapping[Base, Labels], *, series_max: int, with_exporter_names: bool = False
    ) -> None:
        """Write each family with the labels of its base.

        Args:
            bases: The labels that all figures of a kind have, at least one each.
            series_max: How many lines of a family are written.
            with_exporter_names: Whether families with the names of RocketMQ's exporter are.
        """
        self._series_max = series_max
        self._with_exporter_names = with_exporter_names
        self._heads = {
            sample: f"\n{sample}{{{bases[FAMILIES[family].base].text[1:]}"
            for sample, family in FAMILY_OF.items()
        }
        """The end of the line before, and what each line of a sample begins with."""

    def write(self, figures: Iterable[Figure], format_: Format) -> Iterator[bytes]:
        """Yield parts of the text; after each, others may have their turn.

        Raises:
            KeyError: a figure is of no family.
        """
        selection = Selection(
            series_max=self._series_max, with_exporter_names=self._with_exporter_names
        )
        parts: dict[str, list[bytes]] = {}
        left = iter(figures)
        while chunk := list(islice(left, LINES_A_STEP)):
            for column in columns(chunk):
                family = FAMILY_OF[column.name]
                if room := selection.room(family, len(column.values)):
                    parts.setdefault(family, []).append(self._lines(column, room))
            yield b""
        for column in columns([*selection.left_out()]):
            parts[column.name] = [self._lines(column, len(column.values))]
        is_open = format_ is Format.OPEN_METRICS
        end = ""
        for name, own in parts.items():
            family_ = FAMILIES[name]
            is_cut = is_open and family_.kind is Kind.COUNTER
            shown = name.removesuffix("_total") if is_cut else name
            kind = family_.kind.value
            yield f"{end}# HELP {shown} {family_.help}\n# TYPE {shown} {kind}".encode()
            yield from own
            end = "\n"
        yield f"{end}# EOF\n".encode() if is_open else end.encode()

    def _lines(self, column: Column, count: int) -> bytes:
        """Write the first ones of a column, each after the end of the line before."""
        name, labels, values = column
        # One join of all pieces: to make a text of each line first takes longer.
        pieces = [self._heads[name]] * (3 * count)
        pieces[1::3] = [each.tail for each in labels[:count]]
        pieces[2::3] = map(repr, values[:count])
        return "".join(pieces).encode()

"""Figures as text: Prometheus' format 0.0.4, and OpenMetrics 1.0.

Every figure is of a family of the catalogue. Families come in the order of their first figure, each
with all of its lines together, whatever the order of the figures. The number of lines of a family
is bounded; the rest is left out, and one series says how many those were:

    tandem_series_left_out{family="rocketmq_consumer_lag_messages"} 17

Source: Prometheus, Exposition formats; OpenMetrics 1.0.0.
"""

from __future__ import annotations

import enum
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from node.figures.families import FAMILIES, Kind, sample_names
from node.figures.figure import Figure, Labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from node.figures.families import Base

LINES_A_STEP: Final = 512
"""After this many lines the caller may let others have their turn."""

_NOT_WANTED: Final = ""
_NAME: Final = itemgetter(0)

LEFT_OUT: Final = "tandem_series_left_out"


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
        self._heads: dict[str, tuple[str, str]] = {}
        """Family and beginning of each line, by the name of a sample."""
        for name, family in FAMILIES.items():
            is_wanted = with_exporter_names or not family.is_exporters
            base = bases[family.base].text[1:]
            for sample in sample_names(name, family):
                head = name if is_wanted else _NOT_WANTED, f"{sample}{{{base}"
                self._heads[sample] = head

    def write(self, figures: Iterable[Figure], format_: Format) -> Iterator[bytes]:
        """Yield parts of the text; after each, others may have their turn.

        Raises:
            KeyError: a figure is of no family.
        """
        parts: dict[str, list[bytes]] = {}
        counts: dict[str, int] = {}
        left = iter(figures)
        while chunk := list(islice(left, LINES_A_STEP)):
            for name, some in _by_name(chunk):
                self._add(name, some, parts, counts)
            yield b""
        parts.pop(_NOT_WANTED, None)
        counts.pop(_NOT_WANTED, None)
        most = self._series_max
        if beyond := {name: count - most for name, count in counts.items() if count > most}:
            _, head = self._heads[LEFT_OUT]
            parts[LEFT_OUT] = [
                f"{head}{Labels(family=name).tail}{count}\n".encode()
                for name, count in beyond.items()
            ]
        is_open = format_ is Format.OPEN_METRICS
        for name, own in parts.items():
            family_ = FAMILIES[name]
            is_cut = is_open and family_.kind is Kind.COUNTER
            shown = name.removesuffix("_total") if is_cut else name
            yield f"# HELP {shown} {family_.help}\n# TYPE {shown} {family_.kind.value}\n".encode()
            yield from own
        if is_open:
            yield b"# EOF\n"

    def _add(
        self,
        name: str,
        some: list[Figure],
        parts: dict[str, list[bytes]],
        counts: dict[str, int],
    ) -> None:
        """Write figures of one name, as far as there is room in their family."""
        family, head = self._heads[name]
        own = parts.setdefault(family, [])
        room = self._series_max - counts.get(family, 0)
        counts[family] = counts.get(family, 0) + len(some)
        if len(some) > room:
            some = some[: max(0, room)]
        if family and some:
            # Each line is the head, and what follows it; the head is written by the join.
            lines = [f"{labels.tail}{value}\n" for _, labels, value in some]
            own.append(f"{head}{head.join(lines)}".encode())


def _by_name(figures: list[Figure]) -> Iterator[tuple[str, list[Figure]]]:
    """Parts of one name each. Mostly all have one, and to see that is quicker than to part them."""
    names = list(map(_NAME, figures))
    if names.count(names[0]) == len(names):
        yield names[0], figures
        return
    for name, some in groupby(figures, _NAME):
        yield name, list(some)

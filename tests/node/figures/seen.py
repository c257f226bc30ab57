"""Figures of a broker of the tests, by name."""

from collections import defaultdict
from collections.abc import Iterable

from node.figures.figure import Figure


def by_name(figures: Iterable[Figure]) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Labels and values of each name."""
    found: dict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
    for name, labels, value in figures:
        found[name].append((dict(labels.pairs), value))
    return dict(found)


def values(figures: Iterable[Figure]) -> dict[str, float]:
    """The values of all that have no labels."""
    return {name: value for name, labels, value in figures if not labels.pairs}

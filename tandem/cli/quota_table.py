"""Bounds of users as rows and words, and arguments as bounds."""

from typing import Final

import msgspec
import typer

from tandem.cli.formats import Column
from tandem.wire.user_quota import BOUND_MAX, NO_BOUND, UserQuota

DEFAULT: Final = "default"
UNBOUNDED: Final = "none"

WORDS: Final = {
    "connections_max": "connections",
    "requests_per_second": "requests a second",
    "bytes_per_second": "bytes a second",
    "bytes_in_flight_max": "bytes in flight",
}
"""What is bounded, as nodes call it."""


class BoundRow(msgspec.Struct, frozen=True):
    """One bound of a user. `most` is None for the cluster file's, 0 for none."""

    bound: str
    most: int | None
    refused: int


def bound_rows(quota: UserQuota, refused: dict[str, int]) -> list[BoundRow]:
    """Return all bounds, and how many requests were over each."""
    return [
        BoundRow(words, getattr(quota, name), refused.get(words, 0))
        for name, words in WORDS.items()
    ]


def bound_columns() -> list[Column[BoundRow]]:
    """Return the columns of a table of bounds."""
    return [
        Column("bound", lambda row: row.bound),
        Column("at each node", lambda row: most_in_words(row.most)),
        Column("refused", lambda row: row.refused),
    ]


def most_in_words(most: int | None) -> str:
    """Return a bound as people read it."""
    if most is None:
        return "of the cluster file"
    return "none" if most == NO_BOUND else f"{most:,}"


def quota_in_words(quota: UserQuota) -> str:
    """Return the bounds that a user has of its own, in one line."""
    said = [
        f"{'no bound on ' if most == NO_BOUND else f'{most:,} '}{words}"
        for name, words in WORDS.items()
        if (most := getattr(quota, name)) is not None
    ]
    return ", ".join(said) or "of the cluster file"


def refused_in_words(refused: dict[str, int]) -> str:
    """Return how many requests were over which bound, in one line."""
    return ", ".join(f"{count:,} over its {words}" for words, count in refused.items()) or "none"


def changes_of(given: dict[str, str | None]) -> dict[str, int | None]:
    """Return the changes that arguments name, by the field of a quota.

    Raises:
        typer.BadParameter: one of them is no bound.
    """
    return {name: _bound(name, text) for name, text in given.items() if text is not None}


def _bound(name: str, text: str) -> int | None:
    word = text.strip().lower()
    if word == DEFAULT:
        return None
    if word == UNBOUNDED:
        return NO_BOUND
    is_number = word.isascii() and word.isdigit() and len(word) <= len(str(BOUND_MAX))
    if not is_number or not 1 <= int(word) <= BOUND_MAX:
        raise typer.BadParameter(
            f"--{name.replace('_', '-')} is {text[:20]!r}; write a number from 1 to {BOUND_MAX},"
            f" {UNBOUNDED} for no bound, or {DEFAULT} for that of the cluster file"
        )
    return int(word)

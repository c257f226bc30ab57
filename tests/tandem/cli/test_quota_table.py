"""Bounds as rows and words, and arguments as bounds."""

import pytest
import typer

from tandem.cli.quota_table import (
    bound_rows,
    changes_of,
    most_in_words,
    quota_in_words,
    refused_in_words,
)
from tandem.wire.user_quota import BOUND_MAX, UserQuota


@pytest.mark.parametrize(
    ("text", "bound"),
    [("default", None), (" NONE ", 0), ("1", 1), ("007", 7), (str(BOUND_MAX), BOUND_MAX)],
)
def test_an_argument_is_a_number_or_one_of_two_words(text: str, bound: int | None) -> None:
    assert changes_of({"connections_max": text, "bytes_per_second": None}) == {
        "connections_max": bound
    }


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "1e3", "1.5", "9" * 5_000, str(BOUND_MAX + 1), "\u0663", "null"]
)
def test_anything_else_is_none(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        changes_of({"connections_max": text})


def test_each_bound_has_a_row_with_what_was_refused_over_it() -> None:
    rows = bound_rows(UserQuota(3, None, 0), {"connections": 7, "bytes a second": 1})
    assert [(row.most, row.refused) for row in rows] == [(3, 7), (None, 0), (0, 1), (None, 0)]
    words = {most_in_words(row.most) for row in rows}
    assert words == {"3", "none", "of the cluster file"}


def test_bounds_and_refusals_in_one_line() -> None:
    assert quota_in_words(UserQuota()) == "of the cluster file"
    both = quota_in_words(UserQuota(requests_per_second=1_000, bytes_per_second=0))
    assert both == "1,000 requests a second, no bound on bytes a second"
    assert refused_in_words({}) == "none"
    assert refused_in_words({"connections": 1_234}) == "1,234 over its connections"

"""What is shown and what is printed: equal but for what the page says."""

import pytest

from tests.support.page_output import differs


@pytest.mark.parametrize(
    ("shown", "printed", "varies"),
    [
        ("one\ntwo", "one\ntwo\n\n", ""),
        ("node    role", "node  role   ", ""),
        ("at ... in file", "at 17 in file", ""),
        ("a\n...\nz", "a\nb\nc\nz", ""),
        ("a\n...\nz", "a\nz", ""),
        ("12 of 1,024", "7 of 9", "numbers"),
        ("2026-11-22T14:09:29.104Z up, 1.5 s", "2027-01-01 00:00:00,000 up, 30 ms", "times"),
        ("5 passed in 1.66s", "5 passed in 75.10s (0:01:15)", "times"),
        ("7F000001AAAA3C00", "0a0000010000dddd01", "ids"),
        ("b\na", "a\nb", "order"),
    ],
)
def test_equal(shown: str, printed: str, varies: str) -> None:
    assert differs(shown, printed, [varies]) == ""


@pytest.mark.parametrize(
    ("shown", "printed", "varies"),
    [
        ("one", "two", ""),
        ("one", "one\ntwo", ""),
        ("one\ntwo", "one", ""),
        ("one.", "onex", ""),
        ("12", "13", ""),
        ("12", "13", "times"),
        ("12 a", "12 b", "numbers"),
        ("b\na", "a\nb", ""),
        ("b\na", "a\na", "order"),
    ],
)
def test_different_and_both_are_said(shown: str, printed: str, varies: str) -> None:
    said = differs(shown, printed, [varies])
    assert "shown:" in said
    assert f"printed:\n    {printed.splitlines()[0]}" in said


def test_what_goes_on_is_compared_as_far_as_it_is_shown() -> None:
    assert differs("one", "one\ntwo", [], is_start=True) == ""
    assert differs("one\ntwo", "one", [], is_start=True)

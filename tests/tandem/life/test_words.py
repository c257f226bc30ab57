import pytest

from tandem.life.words import count_words, list_words, span_words, time_words


@pytest.mark.parametrize(
    ("span_ms", "words"),
    [
        (-5, "0 ms"),
        (250, "250 ms"),
        (1_000, "1 s"),
        (65_000, "1 min 5 s"),
        (7_200_000, "2 h"),
        (86_400_000 * 1_102 + 3_600_000, "1,102 d 1 h"),
    ],
)
def test_a_span_has_two_units(span_ms: int, words: str) -> None:
    assert span_words(span_ms) == words


def test_a_time_is_utc_to_the_millisecond() -> None:
    assert time_words(1_795_218_857_974) == "2026-11-20 23:54:17.974"
    assert time_words(2**63) == f"{2**63} ms since 1970"


def test_one_is_not_several() -> None:
    assert (count_words(1, "message"), count_words(1_200, "message")) == (
        "1 message",
        "1,200 messages",
    )


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b", "a"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        ([str(number) for number in range(10)], "0, 1, 2, 3, 4, 5, 6 and 3 more"),
    ],
)
def test_a_list_is_said_in_words(names: list[str], words: str) -> None:
    assert list_words(names) == words

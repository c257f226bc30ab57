"""What is logged once, and when it is logged again."""

from store.machine.tell_once import TellOnce


def test_a_trouble_that_lasts_is_news_once() -> None:
    told: TellOnce[str] = TellOnce()
    assert [told.is_news("refused") for _ in range(3)] == [True, False, False]


def test_another_trouble_is_news_and_then_the_first_one_again() -> None:
    told: TellOnce[str] = TellOnce()
    assert [told.is_news(text) for text in ("refused", "silent", "refused")] == [True] * 3


def test_a_trouble_that_was_over_is_news_again() -> None:
    told: TellOnce[str] = TellOnce()
    told.is_news("refused")
    told.over()
    assert told.last() is None
    assert told.is_news("refused")


def test_subjects_have_troubles_of_their_own() -> None:
    told: TellOnce[str] = TellOnce()
    assert told.is_news("refused", about="a")
    assert told.is_news("refused", about="b")
    told.over("b")
    assert not told.is_news("refused", about="a")
    assert told.last("a") == "refused"
    assert told.last("b") is None


def test_too_many_subjects_are_forgotten_instead_of_kept_silent() -> None:
    told: TellOnce[str] = TellOnce(subjects_max=3)
    was_full = []
    for name in "abc":
        was_full.append(told.is_full)
        told.is_news("refused", about=name)
    was_full.append(told.is_full)
    assert told.is_news("silent", about="c")
    assert not told.is_news("refused", about="a")
    assert told.is_news("refused", about="d")
    was_full.append(told.is_full)
    assert was_full == [False, False, False, True, False]
    assert told.is_news("refused", about="a")


def test_what_is_over_although_it_never_began_is_no_matter() -> None:
    told: TellOnce[str] = TellOnce()
    told.over("nobody")
    assert told.is_news("refused", about="nobody")

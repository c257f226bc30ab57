from tandem.wire.feature_level import (
    LEVEL_MAX,
    LEVEL_MIN,
    LEVELS,
    feature_level,
    level_of_journal,
    needed_for,
)


def test_levels_are_numbered_without_a_gap_and_no_format_of_them_goes_back() -> None:
    assert [each.number for each in LEVELS] == list(range(1, len(LEVELS) + 1))
    assert (LEVELS[0].number, LEVELS[-1].number) == (LEVEL_MIN, LEVEL_MAX)
    assert [each.link for each in LEVELS] == sorted(each.link for each in LEVELS)
    assert [each.journal for each in LEVELS] == sorted(each.journal for each in LEVELS)
    assert all(each.brings and each.program for each in LEVELS)


def test_a_format_of_the_journal_has_its_level() -> None:
    assert level_of_journal(1) == level_of_journal(5) == 1
    assert level_of_journal(6) == 2
    assert level_of_journal(1_000) == LEVEL_MAX + 1


def test_what_a_level_needs_is_said_of_unknown_ones_too() -> None:
    assert feature_level(2).program in needed_for(2)
    assert all(len(each.needs) <= 48 for each in LEVELS)  # what old versions show of it
    assert f"{LEVEL_MAX + 5}" in needed_for(LEVEL_MAX + 5)

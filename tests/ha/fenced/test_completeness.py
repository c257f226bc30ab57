"""What a process has seen of its log, from round to round."""

from ha.fenced.completeness import Completeness


def test_nothing_is_known_at_the_beginning() -> None:
    process = Completeness()
    assert not process.holds("")
    process.round_begins("a1", 100)
    assert not process.holds("a1")


def test_what_was_seen_holds_for_that_replica() -> None:
    process = Completeness()
    process.round_begins("a1", 100)
    process.seen("a1")
    assert process.holds("a1")
    assert not process.holds("a2")


def test_it_holds_in_the_next_round_if_nothing_is_missing() -> None:
    process = Completeness()
    process.seen("a1")
    process.round_ends(200)
    process.round_begins("a1", 200)
    assert process.holds("a1")
    process.round_begins("a1", 199)
    assert not process.holds("a1")
    process.round_begins("a1", 200)
    assert not process.holds("a1"), "what was missing once may be another's bytes now"


def test_another_incarnation_has_seen_nothing() -> None:
    process = Completeness()
    process.seen("a1")
    process.round_ends(200)
    process.round_begins("a2", 200)
    assert not process.holds("a2")
    process.round_begins("a1", 200)
    assert not process.holds("a1")


def test_what_a_round_has_cut_off_on_purpose_is_not_missing_in_the_next() -> None:
    process = Completeness()
    process.seen("a1")
    process.round_ends(200)
    process.round_begins("a1", 200)
    process.round_ends(150)
    process.round_begins("a1", 150)
    assert process.holds("a1")

from __future__ import annotations

from node.tables.by_age import ByAge


def test_those_that_were_not_heard_of_since_are_found_the_oldest_first() -> None:
    known: ByAge[str] = ByAge()
    for now, key in enumerate("abcd"):
        known.heard(key, float(now))
    known.heard("a", 4.0)
    assert known.silent_since(1.0) == []
    assert known.silent_since(3.0) == ["b", "c"]
    assert known.silent_since(5.0) == ["b", "c", "d", "a"]
    assert len(known) == 4


def test_a_key_that_is_forgotten_is_not_found_and_may_come_again() -> None:
    known: ByAge[str] = ByAge()
    known.heard("a", 0.0)
    known.forget("a")
    known.forget("a")
    assert known.silent_since(9.0) == []
    known.heard("a", 5.0)
    assert known.silent_since(5.0) == []
    assert known.silent_since(6.0) == ["a"]


def test_nothing_is_silent_where_nothing_was_heard() -> None:
    assert ByAge[str]().silent_since(1e9) == []

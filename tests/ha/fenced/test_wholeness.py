"""Which members have a whole log, and what is said of one that has not."""

import msgspec

from ha.fenced.wholeness import damage_in_words, whole_members
from store.log.damage import LogDamage
from tandem.wire.group_state import NodeRecord

ISR = {"a": "a1", "b": "b1", "c": "c1"}


def node(name: str, **changes: str) -> NodeRecord:
    record = NodeRecord(node=name, session="s", incarnation=f"{name}1", epoch=1, end=9)
    return msgspec.structs.replace(record, **changes)


def test_whole_members_live_as_recorded_and_have_neither_trouble_nor_damage() -> None:
    whole = {name: node(name) for name in ISR}
    assert whole_members(ISR, whole, but="a") == ["b", "c"]
    assert whole_members(ISR, {"a": node("a")}, but="a") == []
    for change in ({"trouble": "full"}, {"damage": "bad"}, {"incarnation": "b2"}):
        assert whole_members(ISR, {**whole, "b": node("b", **change)}, but="a") == ["c"]
    assert whole_members({"a": "a1"}, whole, but="a") == []


def test_a_whole_log_is_nothing_to_talk_about() -> None:
    assert damage_in_words(LogDamage()) == ""


def test_of_a_damaged_log_the_first_range_is_named() -> None:
    damage = LogDamage()
    damage.note(700, 800, "a bit has flipped")
    assert damage_in_words(damage) == "its log is damaged from 700 to 800 (a bit has flipped)"
    damage.note(0, 10, "it is zeroed")
    assert damage_in_words(damage) == (
        "its log is damaged from 0 to 10 (it is zeroed), and 1 other ranges"
    )

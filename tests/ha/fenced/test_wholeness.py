"""Which members have a whole log."""

import msgspec

from ha.fenced.wholeness import whole_members
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

"""The keys of a group, decoded."""

import pytest

from ha.fenced.group_view import GroupView, read_view
from tandem.coordinator.interface import KeyValue, Snapshot
from tandem.wire.group_state import (
    GroupKeys,
    GroupState,
    LeaderRecord,
    MalformedGroupRecordError,
    NodeRecord,
    encode_record,
)

STATE = GroupState(epoch=5, master="a", isr={"a": "a1"}, min_isr=2)
LEADER = LeaderRecord(node="a", session="s-a", epoch=5)
NODE = NodeRecord(node="a", session="s-a", incarnation="a1", epoch=5, end=1000)


def test_a_snapshot_is_decoded() -> None:
    keys = GroupKeys("cluster", "broker-a")
    records: dict[str, GroupState | LeaderRecord | NodeRecord] = {
        keys.state: STATE,
        keys.leader: LEADER,
        keys.node("a"): NODE,
    }
    values = {
        key: KeyValue(key, encode_record(record), 1, number, 0)
        for number, (key, record) in enumerate(records.items(), start=5)
    }
    read = read_view(Snapshot(8, values), keys)
    assert (read.state, read.leader, read.nodes) == (STATE, LEADER, {"a": NODE})
    assert (read.state_revision, read.leader_revision, read.node_revisions) == (5, 6, {"a": 7})


def test_no_keys_are_an_empty_view() -> None:
    assert read_view(Snapshot(3, {}), GroupKeys("c", "g")) == GroupView(revision=3)


def test_a_foreign_record_is_refused() -> None:
    keys = GroupKeys("c", "g")
    for key in (keys.state, keys.leader, keys.node("a")):
        with pytest.raises(MalformedGroupRecordError, match=f"^{key} in the coordinator holds"):
            read_view(Snapshot(3, {key: KeyValue(key, b"[]", 1, 1, 0)}), keys)

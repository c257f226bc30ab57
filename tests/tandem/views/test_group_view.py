import msgspec
import pytest

from tandem.views.group_view import (
    GroupRecords,
    GroupView,
    NodeView,
    Switch,
    decode_records,
)
from tandem.wire.group_state import (
    GroupKeys,
    MalformedGroupRecordError,
    NodeRecord,
    encode_record,
)
from tandem.wire.ha_status import FencedStatus
from tests.tandem.views.group_samples import HEALTHY, NO_ANSWER, master, records, status, view


def node_of(seen: GroupView, name: str) -> NodeView:
    return next(node for node in seen.nodes if node.node == name)


def test_a_healthy_group_is_told_in_full() -> None:
    seen = view()
    assert (seen.master, seen.epoch, seen.takes_messages, seen.reasons) == ("a", 7, True, [])
    assert (seen.min_isr, seen.ack_level, seen.in_sync) == (2, "written", ["a", "b"])
    assert seen.last_switch == Switch("the lease of c ended", 1_700_000_000_000, "c", "lease-ended")
    a, b, c = seen.nodes
    assert (a.role, a.in_sync, a.lag_bytes, a.lease_left_ms, a.trouble) == (
        "MASTER",
        True,
        0,
        4200,
        "",
    )
    assert (b.role, b.in_sync, b.lag_bytes, b.lease_left_ms) == ("FOLLOWER", True, 100, -1)
    assert (b.written, b.flushed, b.confirm) == (900, 800, 850)
    assert (c.in_sync, c.lag_bytes, c.trouble) == (False, 700, "is behind")


def test_of_a_silent_node_the_master_tells_what_it_has() -> None:
    b = node_of(view({**HEALTHY, "b": NO_ANSWER}), "b")
    assert (b.role, b.written, b.flushed, b.confirm, b.lag_bytes) == ("down", 900, 0, -1, 100)
    assert (b.in_sync, b.trouble) == (True, NO_ANSWER)


def test_without_a_master_every_node_says_why_it_is_none() -> None:
    said = records(leader=None)
    said = msgspec.structs.replace(
        said,
        nodes={
            "c": NodeRecord(
                node="c", session="s", incarnation="i", epoch=7, end=1, trouble="its disk is full"
            )
        },
    )
    answers: dict[str, FencedStatus | str] = {
        "a": NO_ANSWER,
        "b": status("b", refusal="no master: waits for the end of a's lease"),
        "c": status("c", refusal=""),
    }
    seen = view(answers, said)
    assert (seen.master, seen.takes_messages) == ("", False)
    assert seen.reasons == [
        f"a: {NO_ANSWER}",
        "b: no master: waits for the end of a's lease",
        "c: its disk is full",
    ]


def test_a_master_that_takes_nothing_says_why() -> None:
    seen = view({**HEALTHY, "a": master(refusal="1 of 2 in-sync replicas lives")})
    assert (seen.master, seen.takes_messages) == ("a", False)
    assert seen.reasons == ["a: 1 of 2 in-sync replicas lives"]
    assert node_of(seen, "a").trouble == "1 of 2 in-sync replicas lives"


def test_an_old_master_that_believes_in_itself_is_not_taken_for_one() -> None:
    said = records(leader="b", epoch=8, master="b")
    new = master("b", epoch=8, log_epoch=8)
    seen = view({"a": master(), "b": new, "c": status("c")}, said)
    assert (seen.master, seen.epoch) == ("b", 8)
    assert "believes to be master" in node_of(seen, "a").trouble
    alone = view({"a": master(), "b": NO_ANSWER, "c": NO_ANSWER}, said)
    assert alone.master == ""


def test_without_coordinator_the_nodes_are_believed_and_that_is_said() -> None:
    seen = view(said="connection refused")
    assert (seen.master, seen.epoch, seen.in_sync, seen.min_isr) == ("a", 7, ["a", "b"], 2)
    assert seen.coordinator_trouble == "connection refused"
    two = view({"a": master(), "b": master("b", epoch=8), "c": NO_ANSWER}, "refused")
    assert two.master == "b"


def test_a_node_that_lost_what_it_had_does_not_count_as_in_sync() -> None:
    b = node_of(view({**HEALTHY, "b": status("b", incarnation="another")}), "b")
    assert not b.in_sync
    assert "does not have all it once acknowledged" in b.trouble


def test_a_node_that_the_master_does_not_know_is_not_connected() -> None:
    seen = view({**HEALTHY, "a": master(replicas=[])})
    assert node_of(seen, "c").trouble == "not connected to the master"
    assert node_of(seen, "c").lag_bytes == 700


def test_the_reason_of_a_quarantined_node_is_shown() -> None:
    quarantined = status("c", role="QUARANTINED", refusal="its log ends before what it confirmed")
    seen = view({**HEALTHY, "c": quarantined})
    assert "its log ends before what it confirmed" in node_of(seen, "c").trouble


def test_a_damaged_node_is_shown_as_one() -> None:
    seen = view({**HEALTHY, "b": status("b", damage="its log is damaged from 0 to 9 (a flip)")})
    assert node_of(seen, "b").is_damaged
    assert "damaged from 0 to 9" in node_of(seen, "b").trouble
    assert not node_of(seen, "c").is_damaged


def test_when_nobody_answers_there_is_still_a_view() -> None:
    seen = view(dict.fromkeys("abc", "connection refused"), "connection refused")
    assert (seen.master, seen.epoch, seen.in_sync, seen.min_isr) == ("", -1, [], -1)
    assert [node.role for node in seen.nodes] == ["down"] * 3
    assert seen.last_switch == Switch()
    with_records = view(dict.fromkeys("abc", "connection refused"), records())
    assert (with_records.epoch, with_records.in_sync) == (7, ["a", "b"])


def test_records_are_read_with_their_revisions() -> None:
    keys = GroupKeys("C", "g")
    said = records()
    assert said.state is not None
    assert said.leader is not None
    node = NodeRecord(node="b", session="s", incarnation="i", epoch=7, end=1)
    values = {
        keys.state: (encode_record(said.state), 5),
        keys.leader: (encode_record(said.leader), 6),
        keys.node("b"): (encode_record(node), 9),
    }
    read = decode_records(keys, values)
    assert (read.state, read.leader, read.nodes) == (said.state, said.leader, {"b": node})
    assert read.revisions == {keys.state: 5, keys.leader: 6, keys.node("b"): 9}
    assert decode_records(keys, {}) == GroupRecords()
    with pytest.raises(MalformedGroupRecordError):
        decode_records(keys, {keys.state: (b"{", 1)})

"""What a fenced group is, by what its nodes say."""

import msgspec

from tandem.drill.targets.process_watch import group_of
from tandem.wire.ha_status import FencedStatus
from tests.tandem.drill import samples


def status(node: str, master: str, epoch: int, **changes: object) -> FencedStatus:
    return msgspec.structs.replace(samples.status(node, master, epoch), **changes)


def test_the_master_of_the_newest_epoch_leads_while_it_says_so() -> None:
    statuses = {"a": status("a", "a", 3, isr=["a", "b"]), "b": status("b", "a", 3, isr=["a"])}
    state, leader = group_of(statuses, None)
    assert state is not None
    assert leader is not None
    assert (state.epoch, state.master, sorted(state.isr)) == (3, "a", ["a", "b"])
    assert (leader.node, leader.epoch) == ("a", 3)


def test_nobody_leads_while_the_master_does_not_answer_or_its_lease_is_over() -> None:
    state, leader = group_of({"a": None, "b": status("b", "a", 3)}, None)
    assert state is not None
    assert (state.master, leader) == ("a", None)
    over = status("a", "a", 3, lease_left_ms=0)
    assert group_of({"a": over}, None)[1] is None


def test_a_former_master_that_still_says_so_leads_nobody() -> None:
    statuses = {"a": status("a", "a", 3), "b": status("b", "b", 4)}
    state, leader = group_of(statuses, None)
    assert state is not None
    assert leader is not None
    assert (state.epoch, leader.node) == (4, "b")


def test_what_was_known_stays_while_nobody_knows_more() -> None:
    known, _ = group_of({"b": status("b", "b", 4)}, None)
    assert group_of({"a": None, "b": None}, known) == (known, None)
    assert group_of({"a": status("a", "a", 3), "b": None}, known) == (known, None)
    assert group_of({"a": None}, None) == (None, None)

import msgspec

from tandem.console.feed import SWITCHES_MAX, History, event
from tandem.views.cluster_look import ClusterLook
from tandem.views.group_view import GroupView, Switch
from tests.tandem.views.group_samples import view


def group(epoch: int, master: str, reason: str = "r", at_ms: int = 0) -> GroupView:
    switch = Switch(reason, at_ms or epoch, "before")
    return msgspec.structs.replace(view(), epoch=epoch, master=master, last_switch=switch)


def epochs(history: History, *groups: GroupView) -> list[tuple[int, str]]:
    seen = history.snapshot(ClusterLook([], list(groups)), "C", 1)
    return [(each.epoch, each.master) for each in seen.switches]


def test_switches_that_were_seen_stay() -> None:
    history = History()
    assert epochs(history, group(1, "a")) == [(1, "a")]
    assert epochs(history, group(1, "a")) == [(1, "a")]
    assert epochs(history, group(2, "")) == [(2, ""), (1, "a")]
    assert epochs(history, group(2, "b")) == [(2, "b"), (1, "a")]
    assert epochs(history) == [(2, "b"), (1, "a")]


def test_a_group_of_which_nothing_is_known_has_had_no_switch() -> None:
    assert epochs(History(), group(-1, "")) == []
    nothing = msgspec.structs.replace(group(1, "a"), last_switch=Switch())
    assert epochs(History(), nothing) == []


def test_old_switches_make_room() -> None:
    history = History()
    found: list[tuple[int, str]] = []
    for epoch in range(1, SWITCHES_MAX + 10):
        found = epochs(history, group(epoch, "a"))
    assert len(found) == SWITCHES_MAX
    assert found[0] == (SWITCHES_MAX + 9, "a")


def test_a_cluster_without_groups_is_empty() -> None:
    assert History().snapshot(ClusterLook([], []), "", 1).verdict == "empty"


def test_an_event_is_one_block_whatever_is_in_it() -> None:
    data = event("cluster", {"a": "x\n\ndata: y\r\u2028"}, "1-2")
    assert data.count(b"\n\n") == 1
    assert data.endswith(b"\n\n")
    assert data.split(b"\n")[:2] == [b"event: cluster", b"id: 1-2"]
    assert b"id:" not in event("over", {})

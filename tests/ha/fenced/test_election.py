"""Who may become master: every state of the records against every state of a node."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.fenced.election import (
    Bootstrap,
    Decision,
    Disown,
    Election,
    Follow,
    Refuse,
    Run,
    Show,
    Wait,
    farewell,
    ranked,
    state_if_won,
    why_switched,
)
from ha.fenced.group_view import GroupView, OwnFacts, who_else_may_win
from tandem.wire.group_state import (
    GroupState,
    LeaderRecord,
    LifeRecord,
    NodeRecord,
)
from tandem.wire.switch_cause import SwitchCause

NAMES = ("a", "b", "c")
STATE = GroupState(epoch=5, master="a", isr={name: f"{name}1" for name in NAMES}, min_isr=2)
LEADER = LeaderRecord(node="a", session="s-a", epoch=5)


def node(name: str, *, epoch: int = 5, end: int = 1000, **changes: object) -> NodeRecord:
    record = NodeRecord(
        node=name,
        session=f"s-{name}",
        incarnation=f"{name}1",
        epoch=epoch,
        end=end,
        is_complete=True,
    )
    return msgspec.structs.replace(record, **changes)


def view(
    state: GroupState | None = STATE,
    leader: LeaderRecord | None = None,
    *nodes: NodeRecord,
) -> GroupView:
    present = nodes or tuple(node(name) for name in NAMES)
    return GroupView(
        revision=9, state=state, leader=leader, nodes={record.node: record for record in present}
    )


def own(
    name: str = "b",
    **changes: Any,  # noqa: ANN401 - fields of OwnFacts
) -> OwnFacts:
    facts = OwnFacts(
        name=name,
        session_id=f"s-{name}",
        incarnation=f"{name}1",
        log_epoch=5,
        log_end=1000,
        promised=5,
        is_complete=True,
        trouble=None,
        members=NAMES,
        min_isr=2,
    )
    return msgspec.structs.replace(facts, **changes)


EMPTY: dict[str, Any] = {"log_epoch": 0, "log_end": 0, "promised": 0}


def decide(group: GroupView, facts: OwnFacts, now: float = 100.0) -> Decision:
    return Election().decide(group, facts, now)


# following


def test_who_else_may_win_lives_as_recorded_and_has_no_trouble() -> None:
    recorded = {name: f"{name}1" for name in NAMES}
    first, second, third = NAMES
    assert who_else_may_win(view(), recorded, first) == [second, third]
    assert who_else_may_win(None, recorded, first) == []
    others = view(STATE, None, node(second, trouble="a sync failed"), node(third))
    assert who_else_may_win(others, recorded, first) == [third]
    assert who_else_may_win(others, {**recorded, third: "another"}, first) == []


def test_the_leader_of_the_recorded_epoch_is_followed() -> None:
    assert decide(view(STATE, LEADER), own()) == Follow("a", 5)


def test_it_is_followed_as_the_master_that_has_drawn_the_recorded_id() -> None:
    group = view(msgspec.structs.replace(STATE, epoch_id="id-5"), LEADER)
    assert decide(group, own()) == Follow("a", 5, "id-5")


def test_it_is_followed_until_it_has_noticed_itself_that_another_has_seen_more() -> None:
    group = view(STATE, LEADER, node("a"), node("b"), node("c", seen_epoch=6))
    assert decide(group, own()) == Follow("a", 5)


def test_also_by_a_node_that_could_not_be_elected() -> None:
    group = view(STATE, LEADER)
    assert decide(group, own(incarnation="b2", trouble="disk full")) == Follow("a", 5)
    assert decide(group, own("d", **EMPTY)) == Follow("a", 5)


def test_an_epoch_below_the_promise_is_not_followed() -> None:
    decision = decide(view(STATE, LEADER), own(promised=6))
    assert isinstance(decision, Wait)
    assert "promised 6" in decision.why


def test_a_leader_that_does_not_fit_the_state_is_not_followed() -> None:
    for leader in (
        LeaderRecord(node="a", session="s-a", epoch=4),
        LeaderRecord(node="c", session="s-c", epoch=5),
    ):
        decision = decide(view(STATE, leader), own())
        assert isinstance(decision, Wait)
        assert "do not fit" in decision.why


def test_an_earlier_life_of_ours_is_waited_out() -> None:
    decision = decide(view(STATE, LEADER), own("a", session_id="s-new"))
    assert isinstance(decision, Wait)
    assert "earlier life" in decision.why


def test_a_leader_record_of_ours_that_came_late_is_given_up() -> None:
    assert decide(view(STATE, LEADER), own("a")) == Disown()


# running


def test_a_member_runs_for_the_next_epoch_when_there_is_no_leader() -> None:
    assert decide(view(), own()) == Run(6)


def test_nobody_runs_after_the_last_epoch_there_is() -> None:
    state = msgspec.structs.replace(STATE, epoch=2**31 - 1)
    facts = own(promised=2**31 - 1)
    assert isinstance(decide(view(state), facts), Wait)
    state = msgspec.structs.replace(STATE, epoch=2**31 - 2)
    assert decide(view(state), facts) == Run(2**31 - 1)


def test_a_candidate_that_has_promised_its_epoch_runs_again() -> None:
    assert decide(view(), own(promised=6)) == Run(6)


def test_the_old_master_runs_like_anyone_else() -> None:
    assert decide(view(), own("a")) == Run(6)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": "d"}, "not in the in-sync set"),
        ({"incarnation": "b2"}, "has lost what it had acknowledged"),
        ({"trouble": "a sync failed"}, "a sync failed"),
    ],
)
def test_who_may_lack_something_does_not_run(changes: dict[str, str], why: str) -> None:
    decision = decide(view(), own(**changes))
    assert isinstance(decision, Wait)
    assert why in decision.why


@pytest.mark.parametrize("changes", [{"log_epoch": 6}, {"promised": 7}, {"seen": (5, 1)}])
@pytest.mark.parametrize("leader", [None, LEADER])
def test_records_older_than_the_log_are_not_believed(
    changes: dict[str, Any], leader: LeaderRecord | None
) -> None:
    decision = decide(view(STATE, leader), own(**changes))
    assert isinstance(decision, Refuse)
    assert "recover-group" in decision.why


def test_one_that_has_resigned_stands_back_unless_nobody_wins() -> None:
    election = Election()
    election.resigned(until=130.0)
    assert election.decide(view(), own(), 100.0) == Show(
        6, "this node has resigned and leaves the field to others", 103.0
    )
    assert election.decide(view(), own(), 103.0) == Run(6)


def test_one_that_has_resigned_runs_if_an_operator_wants_it() -> None:
    election = Election()
    election.resigned(until=130.0)
    state = msgspec.structs.replace(STATE, preferred="b")
    assert election.decide(view(state), own("b"), 100.0) == Run(6)


def test_one_that_has_resigned_stands_back_again_if_another_was_master_meanwhile() -> None:
    election = Election()
    election.resigned(until=130.0)
    election.decide(view(), own(), 100.0)
    assert election.decide(view(STATE, LEADER), own(), 104.0) == Follow("a", 5)
    assert isinstance(election.decide(view(), own(), 110.0), Show)
    assert election.decide(view(), own(), 131.0) == Run(6)


def test_others_hold_back_for_a_second_for_the_preferred_node() -> None:
    state = msgspec.structs.replace(STATE, preferred="c")
    election = Election()
    assert isinstance(election.decide(view(state), own(), 100.0), Show)
    assert election.decide(view(state), own(), 101.0) == Run(6)
    assert decide(view(state), own("c")) == Run(6)


def test_a_preferred_node_that_cannot_win_is_not_waited_for() -> None:
    state = msgspec.structs.replace(STATE, preferred="c")
    assert decide(view(state, None, node("b")), own()) == Run(6)
    assert decide(view(state, None, node("b"), node("c", trouble="full")), own()) == Run(6)


def test_the_longest_log_goes_first() -> None:
    nodes = (node("a", epoch=4, end=9000), node("b", end=10), node("c", end=20))
    group = view(STATE, None, *nodes)
    assert ranked(STATE, group.nodes) == ["c", "b", "a"]
    turns = {name: Election().turn(group, own(name), 100.0) for name in NAMES}
    assert turns == {"c": 100.0, "b": 100.15, "a": 100.3}


@pytest.mark.parametrize("lead", [1, 2**31 - 1, 2**31, 3_000_000_000, 2**32, 2**40])
def test_lengths_are_compared_beyond_what_an_int_holds(lead: int) -> None:
    """RocketMQ narrows the difference of two offsets to an int: the shorter log can win."""
    nodes = (node("a", end=2_000_000_000), node("b", end=2_000_000_000 + lead))
    assert ranked(STATE, view(STATE, None, *nodes).nodes) == ["b", "a"]


def test_the_preferred_node_need_not_wait_for_longer_logs() -> None:
    state = msgspec.structs.replace(STATE, preferred="c")
    group = view(state, None, node("a"), node("b"), node("c", end=20))
    assert Election().turn(group, own("c"), 100.0) == 100.0


def test_only_who_can_win_is_ranked() -> None:
    nodes = (node("a", incarnation="a2"), node("b", trouble="full"), node("c"), node("d"))
    assert ranked(STATE, view(STATE, None, *nodes).nodes) == ["c"]


# damage


def test_whole_logs_are_ranked_before_longer_ones_that_are_damaged() -> None:
    nodes = (node("a", end=9000, damage="bad"), node("b", end=10), node("c", epoch=4))
    group = view(STATE, None, *nodes)
    assert ranked(STATE, group.nodes) == ["b", "c", "a"]
    assert Election().turn(group, own("a"), 100.0) == 100.3


def test_a_damaged_node_waits_for_a_whole_member_but_not_for_ever() -> None:
    election, facts = Election(), own(damage="its log is damaged")
    decision = election.decide(view(), facts, 100.0)
    assert decision == Show(6, "its log is damaged; a, c with a whole log goes first", 110.0)
    assert isinstance(election.decide(view(), facts, 109.9), Show)
    assert election.decide(view(), facts, 110.0) == Run(6)


def test_it_waits_also_if_an_operator_wants_it() -> None:
    state = msgspec.structs.replace(STATE, preferred="b")
    assert isinstance(decide(view(state), own(damage="bad")), Show)


@pytest.mark.parametrize("change", [{"damage": "bad"}, {"trouble": "full"}, {"incarnation": "x"}])
def test_it_runs_at_once_where_nobody_is_whole(change: dict[str, Any]) -> None:
    others = (node("a", **change), node("b", damage="bad"), node("c", **change))
    assert decide(view(STATE, None, *others), own(damage="bad")) == Run(6)
    assert decide(view(STATE, None, node("b", damage="bad")), own(damage="bad")) == Run(6)


# directories that may be copies of a moment ago


def incomplete(name: str = "b", **changes: Any) -> OwnFacts:  # noqa: ANN401 - fields of OwnFacts
    return own(name, **{"is_complete": False, "promised": 6, **changes})


def test_who_began_after_the_last_acknowledgement_waits_for_another_member() -> None:
    """With `min_isr` 2 one directory may be a copy of a moment ago, and it may be its own."""
    found = decide(view(STATE, None, node("b")), incomplete())
    assert isinstance(found, Show)
    assert found.epoch == 6
    assert found.until is None
    assert "2 members of the in-sync set (a, b, c)" in found.why
    assert "Start a, c" in found.why
    assert "recover-group" in found.why
    not_final = view(STATE, None, node("b"), node("c", promised=5))
    assert isinstance(decide(not_final, incomplete()), Show), "c may still get more"
    longer = view(STATE, None, node("b"), node("c", promised=6, end=1001))
    assert isinstance(decide(longer, incomplete()), Show), "c shows that this log lacks something"
    newer = view(STATE, None, node("b"), node("c", promised=6, epoch=6, end=1))
    assert isinstance(decide(newer, incomplete(log_epoch=5)), Show)


@pytest.mark.parametrize(
    "other", [{"end": 1000}, {"end": 999}, {"epoch": 4, "end": 9000}, {"trouble": "full"}]
)
def test_it_runs_when_another_has_shown_that_it_has_no_more(other: dict[str, Any]) -> None:
    group = view(STATE, None, node("a"), node("b"), node("c", promised=6, **other))
    later = msgspec.structs.replace(group, nodes={**group.nodes, "a": node("a", promised=6)})
    assert decide(later, incomplete()) == Run(6)


def test_a_longer_log_that_a_later_master_did_without_keeps_nobody_out() -> None:
    """One of a and b has lost nothing, so what only c has was never acknowledged."""
    nodes = (node("a", promised=6), node("b"), node("c", promised=6, end=2000))
    assert decide(view(STATE, None, *nodes), incomplete()) == Run(6)


def test_a_member_that_is_known_to_have_lost_its_log_is_one_of_the_lost() -> None:
    group = view(STATE, None, node("b"), node("c", incarnation="c2"))
    assert decide(group, incomplete()) == Run(6)
    group = view(STATE, None, node("b"), node("d", promised=6))
    assert isinstance(decide(group, incomplete()), Show), "d is no member"


def test_so_is_one_whose_log_ends_below_what_others_have_confirmed() -> None:
    """It may have been elected all the same, and have the newer epoch: then it had to give way."""
    short = node("c", epoch=6, end=500, promised=7)
    state = msgspec.structs.replace(STATE, epoch=6, master="c", isr={"b": "b1", "c": "c1"})
    group = view(state, None, node("b", confirm=900), short)
    assert decide(group, incomplete(promised=7)) == Run(7)
    group = view(state, None, node("b", confirm=500), short)
    assert isinstance(decide(group, incomplete(promised=7)), Show)


def test_the_others_are_waited_for_a_moment_where_they_are_not_needed() -> None:
    alone = msgspec.structs.replace(STATE, min_isr=1)
    election = Election()
    found = election.decide(view(alone, None, node("b")), incomplete(), 100.0)
    assert found == Show(6, "waits a moment for the logs of a, c", 101.0)
    assert election.decide(view(alone, None, node("b")), incomplete(), 101.0) == Run(6)
    sick = (node("a", promised=6), node("b"), node("c", trouble="its disk is full"))
    assert decide(view(alone, None, *sick), incomplete()) == Run(6), "c will not say more"


@pytest.mark.parametrize(
    ("state", "needed"),
    [
        (STATE, 2),
        (msgspec.structs.replace(STATE, min_isr=3), 3),
        (msgspec.structs.replace(STATE, min_isr=1), 1),
        (msgspec.structs.replace(STATE, isr={"b": "b1"}), 1),
        (msgspec.structs.replace(STATE, epoch=0), 1),
    ],
)
def test_as_many_are_needed_as_an_acknowledgement_took(state: GroupState, needed: int) -> None:
    assert state.accounts_needed == needed


@given(
    st.integers(1, 3),
    st.permutations(range(3)),
    st.sets(st.sampled_from(NAMES), min_size=1),
    st.lists(st.tuples(st.integers(3, 5), st.integers(0, 3)), min_size=3, max_size=3),
    st.integers(0, 2),
)
def test_no_log_that_lacks_what_was_acknowledged_wins_while_fewer_than_min_isr_went_back(
    min_isr: int,
    order: list[int],
    alive: set[str],
    copies: list[tuple[int, int]],
    gone_back: int,
) -> None:
    """All have (5, 4 or more) acknowledged; some directories, too few to matter, were put back."""
    state = msgspec.structs.replace(STATE, min_isr=min_isr)
    ends = {name: (5, 4 + place) for name, place in zip(NAMES, order, strict=True)}
    old = NAMES[: min(gone_back, min_isr - 1)]
    ends |= {name: copies[NAMES.index(name)] for name in old}
    nodes = [
        node(name, epoch=ends[name][0], end=ends[name][1], promised=6, is_complete=False)
        for name in sorted(alive)
    ]
    for name in alive:
        epoch, end = ends[name]
        facts = incomplete(name, log_epoch=epoch, log_end=end)
        if decide(view(state, None, *nodes), facts, now=200.0) == Run(6):
            assert (epoch, end) >= (5, 4)


# winning


def test_the_new_set_is_the_members_that_live() -> None:
    won = state_if_won(
        STATE, view(STATE, None, node("b"), node("c")).nodes, own(), why=("c", "r"), wall_clock_ms=7
    )
    assert won == GroupState(
        epoch=6,
        master="b",
        isr={"b": "b1", "c": "c1"},
        min_isr=2,
        reason="r",
        cause="c",
        switched_at_ms=7,
        previous_master="a",
    )


def test_the_new_set_is_never_below_the_minimum_if_the_old_was_not() -> None:
    nodes = view(STATE, None, node("b"), node("c", incarnation="c2")).nodes
    won = state_if_won(STATE, nodes, own(), why=("", ""), wall_clock_ms=0)
    assert won.isr == {"b": "b1", "a": "a1"}
    won = state_if_won(STATE, nodes, own(min_isr=3), why=("", ""), wall_clock_ms=0)
    assert won.isr == STATE.isr


def test_nobody_joins_the_set_by_an_election() -> None:
    nodes = view(STATE, None, node("b"), node("d")).nodes
    won = state_if_won(STATE, nodes, own(min_isr=1), why=("", ""), wall_clock_ms=0)
    assert won.isr == {"b": "b1"}


@given(
    st.sets(st.sampled_from(NAMES)).map(lambda names: names | {"b"}),
    st.dictionaries(st.sampled_from("abcd"), st.booleans()),
    st.integers(1, 4),
)
def test_a_new_set_is_a_part_of_the_old_one_with_enough_members(
    members: set[str], alive: dict[str, bool], min_isr: int
) -> None:
    state = msgspec.structs.replace(STATE, isr={name: f"{name}1" for name in members})
    nodes = {
        name: node(name, incarnation=f"{name}1" if same else f"{name}2")
        for name, same in alive.items()
    }
    won = state_if_won(state, nodes, own(min_isr=min_isr), why=("", ""), wall_clock_ms=0)
    assert won.isr.items() <= state.isr.items()
    assert won.isr["b"] == "b1"
    assert len(won.isr) >= min(min_isr, len(state.isr))


def test_the_reason_of_a_switch_is_told() -> None:
    replace = msgspec.structs.replace
    ended = SwitchCause.LEASE_ENDED, "the lease of a ended"
    assert why_switched(STATE, "b") == ended
    # What is recorded of a's own election says nothing of its end.
    won = replace(STATE, reason="a stepped down", cause=SwitchCause.STEPPED_DOWN)
    assert why_switched(won, "b") == ended
    promoted = replace(farewell(STATE, "an operator promotes b"), preferred="b")
    assert why_switched(promoted, "b") == (SwitchCause.PROMOTED, "an operator promoted b")
    stepped_down = SwitchCause.STEPPED_DOWN, "a stepped down: an operator promotes b"
    assert why_switched(promoted, "c") == stepped_down  # another was faster
    over = farewell(STATE, "its lease is over", SwitchCause.LEASE_ENDED)
    assert why_switched(over, "b") == (
        SwitchCause.LEASE_ENDED,
        "a stepped down: its lease is over",
    )
    recovered = replace(STATE, master="", reason="recovered", cause=SwitchCause.RECOVERED)
    assert why_switched(recovered, "b") == (SwitchCause.RECOVERED, "recovered")
    assert why_switched(replace(STATE, master=""), "b")[0] is SwitchCause.FIRST


def test_who_wins_takes_the_cause_into_its_record_and_nothing_of_the_end_before_it() -> None:
    state = state_if_won(
        farewell(STATE, "why"), {}, own(), why=(SwitchCause.STEPPED_DOWN, "w"), wall_clock_ms=0
    )
    assert (state.cause, state.reason) == (SwitchCause.STEPPED_DOWN, "w")
    assert not state.has_stepped_down


# beginning


def test_a_new_group_begins_when_all_its_nodes_are_there_and_empty() -> None:
    group = view(None, None, *(node(name, epoch=0, end=0) for name in NAMES))
    decision = decide(group, own(**EMPTY))
    assert isinstance(decision, Bootstrap)
    assert decision.state.isr == {"a": "a1", "b": "b1", "c": "c1"}
    assert (decision.state.epoch, decision.state.master) == (0, "")


def test_a_new_group_waits_for_all_its_nodes() -> None:
    decision = decide(view(None, None, node("b", epoch=0, end=0)), own(**EMPTY))
    assert isinstance(decision, Wait)
    assert decision.why.startswith("waiting for a, c to register")


@pytest.mark.parametrize("changes", [{"log_end": 5}, {"log_epoch": 1}, {"promised": 1}])
def test_a_node_with_a_history_does_not_begin_a_group(changes: dict[str, Any]) -> None:
    group = view(None, None, *(node(name, epoch=0, end=0) for name in NAMES))
    decision = decide(group, own(**{**EMPTY, **changes}))
    assert isinstance(decision, Refuse)
    assert "recover-group" in decision.why


@pytest.mark.parametrize("changes", [{"end": 5}, {"epoch": 1}, {"promised": 1}])
def test_an_empty_node_does_not_begin_a_group_beside_one_with_a_history(
    changes: dict[str, Any],
) -> None:
    others = [node(name, epoch=0, end=0) for name in ("a", "b")]
    third = msgspec.structs.replace(node("c", epoch=0, end=0), **changes)
    assert isinstance(decide(view(None, None, *others, third), own(**EMPTY)), Refuse)


# logs and coordinators that went back in time


def test_nobody_runs_who_lacks_what_another_has_confirmed() -> None:
    """A directory that was put back from a backup, and started before the others."""
    peers = (node("b", end=500), node("c", confirm=900))
    found = decide(view(STATE, None, *peers), own(log_end=500))
    assert isinstance(found, Show)
    assert "c has confirmed everything below 900, and this log ends at 500" in found.why
    assert decide(view(STATE, None, *peers), own(log_end=900)) == Run(6)


def test_what_a_node_that_is_down_has_confirmed_counts_as_well() -> None:
    life = LifeRecord(node="c", life=1, token="t", incarnation="c1", epoch=5, confirm=900)
    alone = msgspec.structs.replace(view(STATE, None, node("b", end=500)), lives={"c": life})
    assert isinstance(decide(alone, own(log_end=500)), Show)
    accepted = msgspec.structs.replace(alone, state=msgspec.structs.replace(STATE, loss_accepted=5))
    assert decide(accepted, own(log_end=500)) == Run(6)
    own_life = msgspec.structs.replace(alone, lives={"b": life})
    assert decide(own_life, own(log_end=500)) == Run(6), "its own is judged at its start"


def test_a_coordinator_that_was_set_back_is_not_believed() -> None:
    found = decide(view(STATE), own(coordinator_is_old="it knows life 3 of this node, of 5"))
    assert isinstance(found, Refuse)
    assert "it knows life 3" in found.why
    assert "recover-group" in found.why


def test_what_an_operator_has_accepted_outlives_the_election() -> None:
    state = msgspec.structs.replace(STATE, loss_accepted=4, recoveries=2)
    won = state_if_won(state, {}, own(), why=("c", "r"), wall_clock_ms=0, epoch_id="new")
    assert (won.loss_accepted, won.recoveries, won.epoch_id) == (4, 2, "new")


def test_a_record_older_than_what_another_has_seen_is_not_believed() -> None:
    for changes in ({"seen_epoch": 5, "seen_version": 1}, {"seen_epoch": 6}, {"promised": 7}):
        found = decide(view(STATE, None, node("b"), node("c", **changes)), own())
        assert isinstance(found, Refuse)
        assert "c has seen" in found.why
    assert decide(view(STATE, None, node("b"), node("c", promised=6)), own()) == Run(6)

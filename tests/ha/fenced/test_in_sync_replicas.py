"""The in-sync set: by hand, and against a model of a coordinator that loses answers."""

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ha.errors import LocalHAError
from ha.fenced.in_sync_replicas import READD_PAUSE_SECONDS, InSyncReplicas
from tandem.cluster_file.choices import AckLevel
from tests.support.reasons import words

ALL = {"m": "m1", "a": "a1", "b": "b1"}


def replicas(
    recorded: dict[str, str] | None = None,
    *,
    min_isr: int = 2,
    level: AckLevel = AckLevel.WRITTEN,
    epoch_start: int = 0,
    confirm: int = 0,
) -> InSyncReplicas:
    return InSyncReplicas(
        name="m",
        incarnation="m1",
        min_isr=min_isr,
        ack_level=level,
        lag_seconds=5.0,
        epoch_start=epoch_start,
        confirm=confirm,
        recorded=ALL if recorded is None else recorded,
        revision=10,
        now=0.0,
    )


def connected(
    isr: InSyncReplicas, *names: str, end: int = 0, flushed: int = 0, now: float = 0.0
) -> None:
    for name in names:
        isr.replica_connected(name, f"{name}1", now)
        isr.replica_acked(name, end, flushed, now)


def healthy(end: int = 100) -> InSyncReplicas:
    isr = replicas()
    isr.own_log(end, end)
    connected(isr, "a", "b", end=end, flushed=end)
    return isr


# confirm


def test_confirm_is_the_least_that_any_member_has() -> None:
    isr = replicas()
    isr.own_log(100, 0)
    connected(isr, "a", end=80)
    assert isr.confirm == 0
    connected(isr, "b", end=60)
    assert isr.confirm == 60
    assert isr.replica_acked("b", 100, 0, 0.0)
    assert isr.confirm == 80


def test_our_own_log_counts_too() -> None:
    isr = replicas()
    isr.own_log(50, 0)
    connected(isr, "a", "b", end=50)
    isr.own_log(70, 0)
    assert isr.confirm == 50


def test_at_the_level_flushed_only_what_is_on_disk_counts() -> None:
    isr = replicas(level=AckLevel.FLUSHED)
    isr.own_log(100, 40)
    connected(isr, "a", "b", end=100, flushed=30)
    assert isr.confirm == 30
    assert isr.flushed_everywhere == 30


def test_at_the_level_written_the_disks_are_counted_apart() -> None:
    isr = healthy()
    isr.own_log(200, 150)
    isr.replica_acked("a", 200, 120, 1.0)
    isr.replica_acked("b", 200, 110, 1.0)
    assert (isr.confirm, isr.flushed_everywhere) == (200, 110)


def test_our_own_disk_counts_too() -> None:
    isr = healthy()
    isr.own_log(200, 150)
    connected(isr, "a", "b", end=200, flushed=200)
    assert (isr.confirm, isr.flushed_everywhere) == (200, 150)
    by_disks = replicas(level=AckLevel.FLUSHED)
    by_disks.own_log(100, 40)
    connected(by_disks, "a", "b", end=100, flushed=100)
    assert by_disks.confirm == 40


def test_a_lost_connection_takes_its_acknowledgements_along() -> None:
    isr = healthy()
    isr.own_log(200, 0)
    isr.replica_acked("a", 200, 0, 1.0)
    isr.replica_lost("a", "", 1.0)
    isr.replica_acked("b", 200, 0, 1.0)
    assert isr.confirm == 100
    isr.replica_connected("a", "a1", 2.0)
    assert not isr.own_log(210, 0)
    assert isr.replica_acked("a", 150, 0, 2.0)
    assert isr.confirm == 150


def test_a_member_under_another_name_acknowledges_nothing_for_the_old_one() -> None:
    isr = healthy()
    isr.own_log(200, 0)
    isr.replica_acked("b", 200, 0, 1.0)
    isr.replica_connected("a", "a2", 1.0)
    assert not isr.replica_acked("a", 200, 0, 1.0)
    assert isr.confirm == 100


def test_a_node_that_is_no_member_moves_nothing() -> None:
    isr = replicas({"m": "m1", "a": "a1"})
    isr.own_log(100, 0)
    connected(isr, "b", end=100)
    assert isr.confirm == 0
    connected(isr, "a", end=100)
    assert isr.confirm == 100


def test_confirm_begins_where_it_was_and_never_falls() -> None:
    isr = replicas(confirm=90)
    isr.own_log(100, 0)
    connected(isr, "a", "b", end=50)
    assert isr.confirm == 90


def test_a_single_copy_confirms_by_itself() -> None:
    isr = replicas({"m": "m1"}, min_isr=1)
    assert isr.own_log(100, 0)
    assert isr.confirm == 100


def test_a_master_that_is_no_member_is_a_bug() -> None:
    with pytest.raises(LocalHAError):
        replicas({"a": "a1"})


def test_an_acknowledgement_without_a_connection_is_a_bug() -> None:
    with pytest.raises(LocalHAError):
        replicas().replica_acked("a", 1, 1, 0.0)


# joining


def test_a_node_with_everything_confirmed_may_join_and_counts_from_that_step_on() -> None:
    isr = replicas({"m": "m1", "a": "a1"})
    isr.own_log(100, 0)
    connected(isr, "a", "b", end=100)
    wanted = isr.proposal(0.0)
    assert wanted == ALL
    isr.proposed(wanted)
    isr.own_log(200, 0)
    isr.replica_acked("a", 200, 0, 1.0)
    assert isr.confirm == 100
    isr.replica_acked("b", 150, 0, 1.0)
    assert isr.confirm == 150


def test_a_node_behind_confirm_does_not_join() -> None:
    isr = replicas({"m": "m1", "a": "a1"})
    isr.own_log(100, 0)
    connected(isr, "a", end=100)
    connected(isr, "b", end=99)
    assert isr.proposal(0.0) is None


def test_a_node_below_the_start_of_the_epoch_does_not_join() -> None:
    isr = replicas({"m": "m1", "a": "a1"}, epoch_start=100)
    isr.own_log(100, 0)
    connected(isr, "b", end=99)
    assert isr.confirm == 0
    assert isr.proposal(0.0) is None


def test_a_node_joins_with_what_was_promised_to_be_on_every_disk() -> None:
    isr = replicas({"m": "m1", "a": "a1"}, epoch_start=40)
    isr.own_log(100, 100)
    connected(isr, "a", end=100, flushed=80)
    isr.flush_asked = 60
    connected(isr, "b", end=100, flushed=59)
    assert isr.proposal(0.0) is None
    isr.replica_acked("b", 100, 60, 0.0)
    assert isr.proposal(0.0) == ALL


def test_a_node_joins_with_what_earlier_masters_may_have_promised() -> None:
    isr = replicas({"m": "m1", "a": "a1"}, epoch_start=40)
    isr.own_log(100, 100)
    connected(isr, "a", end=100)
    connected(isr, "b", end=100, flushed=39)
    assert isr.proposal(0.0) is None
    isr.replica_acked("b", 100, 40, 0.0)
    assert isr.proposal(0.0) == ALL


def test_a_member_is_exchanged_for_its_new_incarnation() -> None:
    isr = replicas({"m": "m1", "a": "a1"})
    isr.own_log(100, 0)
    connected(isr, "a", end=100)
    isr.replica_connected("a", "a2", 1.0)
    assert isr.proposal(1.0) is None
    isr.replica_acked("a", 100, 0, 1.0)
    wanted = {"m": "m1", "a": "a2"}
    assert isr.proposal(1.0) == wanted
    isr.proposed(wanted)
    isr.own_log(200, 0)
    isr.replica_acked("a", 200, 0, 1.0)
    assert isr.confirm == 100
    isr.record_seen(wanted, 11, 1.0)
    assert isr.confirm == 200


def test_a_missing_member_is_exchanged_for_a_node_that_has_everything() -> None:
    isr = replicas({"m": "m1", "a": "a1"})
    isr.own_log(100, 0)
    connected(isr, "b", end=100, now=6.0)
    assert isr.proposal(6.0) == {"m": "m1", "b": "b1"}


# leaving


def test_a_member_leaves_when_it_does_not_reach_the_end_for_too_long() -> None:
    isr = healthy()
    isr.own_log(200, 0)
    isr.replica_acked("a", 200, 0, 1.0)
    isr.replica_acked("b", 150, 0, 1.0)
    assert isr.proposal(5.0) is None
    isr.tick(5.1)
    assert isr.proposal(5.1) == {"m": "m1", "a": "a1"}


def test_a_member_that_follows_at_a_distance_stays() -> None:
    isr = healthy()
    for second in range(1, 60):
        isr.own_log(100 + second * 100, 0)
        isr.replica_acked("a", 100 + second * 100, 0, second)
        isr.replica_acked("b", second * 100, 0, second)
        assert isr.proposal(second) is None


def test_a_member_that_falls_ever_further_behind_leaves() -> None:
    isr = healthy()
    left_at = 0
    for second in range(1, 30):
        isr.own_log(100 + second * 1000, 0)
        isr.replica_acked("a", 100 + second * 1000, 0, second)
        isr.replica_acked("b", 100 + second * 100, 0, second)
        if isr.proposal(second) is not None:
            left_at = second
            break
    assert 5 < left_at < 12


def test_an_idle_member_that_has_everything_stays() -> None:
    isr = healthy()
    isr.tick(100.0)
    assert isr.proposal(100.0) is None
    assert isr.live_count(100.0) == 3


def test_a_member_whose_process_is_gone_leaves_at_once() -> None:
    isr = healthy()
    isr.nodes_alive(["m", "a"])
    assert isr.proposal(1.0) is None
    isr.replica_lost("b", "", 1.0)
    assert isr.proposal(1.0) == {"m": "m1", "a": "a1"}


def test_the_set_does_not_shrink_below_the_minimum() -> None:
    isr = healthy()
    isr.replica_lost("a", "", 1.0)
    isr.replica_lost("b", "", 2.0)
    isr.nodes_alive(["m"])
    wanted = isr.proposal(60.0)
    assert wanted is not None
    assert len(wanted) == 2
    isr.record_seen(wanted, 11, 60.0)
    assert isr.proposal(90.0) is None


def test_of_two_late_members_the_later_one_leaves_first() -> None:
    isr = healthy()
    isr.tick(1.0)
    isr.replica_lost("a", "", 1.0)
    isr.tick(3.0)
    isr.replica_lost("b", "", 3.0)
    assert isr.proposal(60.0) == {"m": "m1", "b": "b1"}


def test_too_small_a_set_is_a_bug() -> None:
    isr = healthy()
    with pytest.raises(LocalHAError, match="below min_isr"):
        isr.proposed({"m": "m1"})
    with pytest.raises(LocalHAError, match="always a member"):
        isr.proposed({"a": "a1", "b": "b1"})


def test_a_removal_helps_only_when_it_is_known_to_have_happened() -> None:
    isr = healthy()
    isr.own_log(200, 0)
    isr.replica_lost("b", "", 1.0)
    isr.replica_acked("a", 200, 0, 1.0)
    isr.proposed({"m": "m1", "a": "a1"})
    assert isr.confirm == 100
    assert isr.record_seen({"m": "m1", "a": "a1"}, 11, 6.0)
    assert isr.confirm == 200


def test_a_slow_member_does_not_come_back_at_once() -> None:
    isr = healthy()
    isr.own_log(200, 0)
    isr.nodes_alive(ALL)
    isr.record_seen({"m": "m1", "a": "a1"}, 11, 6.0)
    isr.replica_acked("a", 200, 0, 6.0)
    isr.replica_acked("b", 200, 0, 6.0)
    assert isr.proposal(7.0) is None
    isr.tick(6.0 + READD_PAUSE_SECONDS)
    assert isr.proposal(6.0 + READD_PAUSE_SECONDS) == ALL


def test_one_that_had_crashed_comes_back_at_once() -> None:
    isr = healthy()
    isr.replica_lost("b", "", 1.0)
    isr.nodes_alive(["m", "a"])
    isr.record_seen({"m": "m1", "a": "a1"}, 11, 1.0)
    isr.nodes_alive(ALL)
    connected(isr, "b", end=100, now=2.0)
    isr.tick(2.0)
    assert isr.proposal(2.0) == ALL


def test_one_that_was_gone_and_is_back_before_the_answer_was_not_slow() -> None:
    isr = healthy()
    isr.replica_lost("b", "", 1.0)
    isr.nodes_alive(["m", "a"])
    assert isr.proposal(1.0) == {"m": "m1", "a": "a1"}
    isr.nodes_alive(ALL)
    isr.record_seen({"m": "m1", "a": "a1"}, 11, 1.1)
    connected(isr, "b", end=100, now=1.2)
    assert isr.proposal(1.2) == ALL


def test_a_slow_member_comes_back_at_once_if_the_group_is_short() -> None:
    isr = healthy()
    isr.record_seen({"m": "m1", "a": "a1"}, 11, 6.0)
    isr.tick(6.0)
    isr.replica_lost("a", "", 6.0)
    assert isr.proposal(6.0) == ALL


# answers that never came


def test_a_change_without_an_answer_counts_until_the_record_has_moved() -> None:
    isr = replicas({"m": "m1", "a": "a1"})
    isr.own_log(100, 0)
    connected(isr, "a", "b", end=100)
    isr.proposed(ALL)
    assert not isr.record_seen({"m": "m1", "a": "a1"}, 10, 1.0)
    isr.replica_lost("b", "", 1.0)
    isr.own_log(200, 0)
    isr.replica_acked("a", 200, 0, 1.0)
    assert isr.confirm == 100
    again = isr.proposal(1.0)
    assert again == {"m": "m1", "a": "a1"}
    isr.proposed(again)
    assert isr.confirm == 100
    assert isr.record_seen(again, 11, 2.0)
    assert isr.confirm == 200
    assert isr.proposal(2.0) is None


def test_a_member_whose_removal_is_open_does_not_count_as_live() -> None:
    isr = healthy()
    isr.proposed({"m": "m1", "a": "a1"})
    assert isr.live_count(0.0) == 2
    isr.record_seen(ALL, 11, 0.0)
    assert isr.live_count(0.0) == 3


def test_an_older_revision_is_no_news() -> None:
    isr = healthy()
    isr.record_seen({"m": "m1", "a": "a1"}, 12, 0.0)
    assert not isr.record_seen(ALL, 11, 0.0)
    assert isr.recorded == {"m": "m1", "a": "a1"}


# live members


def test_live_members_are_counted_with_ourselves() -> None:
    isr = healthy()
    assert isr.live_count(0.0) == 3
    isr.replica_lost("a", "", 0.0)
    assert isr.live_count(0.0) == 2
    assert isr.live_count(5.1) == 1


def test_a_joining_member_is_live_once_it_is_recorded() -> None:
    isr = replicas({"m": "m1", "a": "a1"})
    isr.own_log(100, 0)
    connected(isr, "a", "b", end=100)
    isr.proposed(ALL)
    assert isr.live_count(0.0) == 2
    isr.record_seen(ALL, 11, 0.0)
    assert isr.live_count(0.0) == 3


def test_it_is_known_since_when_members_are_missing_and_who() -> None:
    isr = healthy()
    assert isr.short_for(0.0) == 0.0
    assert isr.why_short(0.0) is None
    isr.replica_lost("a", "refused: wrong secret", 1.0)
    isr.replica_lost("b", "", 1.0)
    assert isr.short_for(1.0) == 0.0
    assert isr.short_for(4.0) == 3.0
    assert isr.why_short(4.0) == (
        "1 of at least 2 in-sync replicas are live"
        " (a is not connected: refused: wrong secret; b is not connected)"
    )


def test_a_member_that_is_late_says_how_late() -> None:
    isr = healthy()
    isr.own_log(200, 0)
    assert isr.why_not_live("b", 7.0) == "is 7.0 s behind"
    isr.replica_connected("b", "b2", 7.0)
    assert isr.why_not_live("b", 7.0) == "has come back without what it had acknowledged"
    isr.replica_connected("b", "b1", 7.0)
    assert isr.why_not_live("b", 7.0) == "is connected but has acknowledged nothing yet"


def test_who_lacks_what_is_waited_for_says_why() -> None:
    isr = healthy()
    assert isr.why_lacking(100, 0.0) is None
    isr.own_log(200, 0)
    isr.replica_lost("b", "", 1.0)
    assert (isr.acked("a"), isr.acked("b"), isr.acked("stranger")) == (100, -1, -1)
    assert words(isr.why_lacking(150, 1.0)) == "a has acknowledged 100; b is not connected"
    isr.proposed({**ALL, "c": "c1"})
    assert "c is not connected" in words(isr.why_lacking(150, 1.0))


class CoordinatorModel(RuleBasedStateMachine):
    """A master, four nodes and a coordinator that executes changes late, never, or untold."""

    names = ("m", "a", "b", "c", "d")

    @initialize(min_isr=st.integers(1, 3), level=st.sampled_from(AckLevel))
    def start(self, min_isr: int, level: AckLevel) -> None:
        self.level = level
        self.now = 0.0
        self.log_end = 100
        self.held = dict.fromkeys(self.names, 100)
        self.incarnations = {name: f"{name}1" for name in self.names}
        self.connected: set[str] = set()
        self.record = {name: self.incarnations[name] for name in ("m", "a", "b")}
        self.revision = 1
        self.flying: list[tuple[dict[str, str], int]] = []
        self.seen_revision = 1
        self.min_isr = min_isr
        self.isr = InSyncReplicas(
            name="m",
            incarnation="m1",
            min_isr=min_isr,
            ack_level=level,
            lag_seconds=5.0,
            epoch_start=100,
            confirm=0,
            recorded=self.record,
            revision=1,
            now=0.0,
        )
        self.isr.own_log(100, 100)
        self.highest = self.isr.confirm
        self.holders: dict[tuple[str, str], int] = {}

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 6.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.isr.tick(self.now)

    @rule(size=st.integers(1, 50))
    def the_master_appends(self, size: int) -> None:
        self.log_end += size
        self.isr.own_log(self.log_end, self.log_end)

    @rule(name=st.sampled_from(names[1:]))
    def a_node_connects(self, name: str) -> None:
        self.connected.add(name)
        self.isr.replica_connected(name, self.incarnations[name], self.now)

    @rule(name=st.sampled_from(names[1:]), share=st.sampled_from([0.0, 0.5, 1.0]))
    def a_node_copies_and_acknowledges(self, name: str, share: float) -> None:
        if name in self.connected:
            held = self.held[name]
            self.held[name] = max(held, held + int((self.log_end - held) * share))
            self.isr.replica_acked(name, self.held[name], self.held[name], self.now)

    @rule(name=st.sampled_from(names[1:]))
    def a_node_is_lost(self, name: str) -> None:
        self.connected.discard(name)
        self.isr.replica_lost(name, "", self.now)

    @rule(name=st.sampled_from(names[1:]))
    def a_node_loses_its_disk(self, name: str) -> None:
        self.a_node_is_lost(name)
        self.held[name] = 0
        self.incarnations[name] += "+"

    @rule(alive=st.sets(st.sampled_from(names[1:])))
    def records_of_nodes_are_read(self, alive: set[str]) -> None:
        self.isr.nodes_alive(alive | {"m"})

    @rule()
    def the_master_asks_for_a_change(self) -> None:
        wanted = self.isr.proposal(self.now)
        if wanted is not None:
            self.isr.proposed(wanted)
            self.flying.append((wanted, self.isr.revision))

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), told=st.booleans())
    def the_coordinator_gets_to_a_change(self, data: st.DataObject, *, told: bool) -> None:
        number = data.draw(st.integers(0, len(self.flying) - 1))
        wanted, compared = self.flying.pop(number)
        if compared == self.revision:
            assert len(wanted) >= min(self.min_isr, len(self.record))
            self.record, self.revision = wanted, self.revision + 1
        if told:
            self.the_record_is_read()

    @rule()
    def the_record_is_read(self) -> None:
        self.isr.record_seen(self.record, self.revision, self.now)

    @invariant()
    def confirm_never_falls(self) -> None:
        if hasattr(self, "isr"):
            assert self.isr.confirm >= self.highest
            self.highest = self.isr.confirm

    @invariant()
    def every_recorded_member_has_everything_confirmed(self) -> None:
        if not hasattr(self, "isr"):
            return
        for name, incarnation in self.record.items():
            if name == "m":
                assert self.log_end >= self.isr.confirm
            elif incarnation == self.incarnations[name]:
                assert self.held[name] >= self.isr.confirm

    @invariant()
    def whoever_may_be_recorded_must_have_everything(self) -> None:
        if hasattr(self, "isr"):
            assert set(self.record.items()) <= self.isr.must_have

    @invariant()
    def live_members_are_recorded(self) -> None:
        if hasattr(self, "isr"):
            assert 1 <= self.isr.live_count(self.now) <= len(self.record)
            assert self.isr.short_for(self.now) < math.inf


TestCoordinatorModel = CoordinatorModel.TestCase
TestCoordinatorModel.settings = settings(stateful_step_count=40, deadline=None)

"""The checker of fenced groups finds every kind of fault when it is planted, and nothing else."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ha.fenced.events import (
    ConfirmAdvanced,
    EpochAppended,
    FrameTaken,
    MasterOpened,
    Promised,
    Quarantined,
)
from ha.fenced.wholeness import WHOLE_FIRST_SECONDS
from tests.sim.engine.history import (
    AnswerSeen,
    Contract,
    EmptyPull,
    Extent,
    OffsetSeen,
    Outcome,
    Probe,
)
from tests.sim.engine.planted import (
    ALL,
    FILE_BYTES,
    OUT_OF_ORDER,
    log_of,
    read_of,
    sent_again,
)
from tests.sim.engine.walked_log import walk_log
from tests.sim.fenced.checker import FencedExpectations, Kind
from tests.sim.fenced.good_run import FORK, RECORDS, WHOLE, Run, ack_of, state_of
from tests.sim.fenced.history import (
    ElectionSeen,
    EpochEntrySeen,
    HurtSeen,
    LackingSeen,
    NodeEvent,
    NotDurableSeen,
    StaySeen,
)


def test_a_good_run_has_no_findings() -> None:
    assert Run().check() == []


def test_another_record_of_an_acknowledged_message_may_be_cut_at_its_place() -> None:
    """A producer tried again, and the next master had room for it where the last one had it."""
    run = Run()
    other = msgspec.structs.replace(RECORDS[4], content_crc=RECORDS[4].content_crc ^ 1)
    run.change("cuts", 0, records=(other,))
    assert run.check() == []


def test_the_log_of_the_good_run_has_a_filler_in_it() -> None:
    assert len(WHOLE) > FILE_BYTES
    assert len(RECORDS) == 8


HAS_IT = Extent(len(WHOLE), len(WHOLE))
WROTE_IT = Extent(len(WHOLE), RECORDS[4].physical_offset)


def _lost(run: Run) -> None:
    run.everywhere(log_of(*ALL[:4]))


def _blackout(run: Run, *kept: tuple[int, int]) -> None:
    """Have all machines lose power at 30 s; these messages are left, everywhere."""
    run.history.blackout_at = 30.0
    run.everywhere(log_of(*kept))


def _lost_by_a_blackout(run: Run) -> None:
    run.change("sends", 4, contract=Contract.FLUSHED)
    _blackout(run, *ALL[:4])


def _reordered_by_a_blackout(run: Run) -> None:
    for index in (2, 4):
        run.change("sends", index, contract=Contract.FLUSHED)
    data = log_of(*OUT_OF_ORDER)
    records = walk_log(data).records
    run.history.sends = [sent_again(send, records) for send in run.history.sends]
    _blackout(run, *OUT_OF_ORDER)


def _unreplicated_before_a_blackout(run: Run) -> None:
    _unreplicated(run)
    _blackout(run, *ALL)


def _duplicated(run: Run) -> None:
    run.everywhere(log_of(*ALL, (2, 0)))


def _reordered(run: Run) -> None:
    for index in range(8):
        run.change("sends", index, contract=Contract.ASYNC)
    run.history.openings.pop()
    run.everywhere(log_of(*OUT_OF_ORDER))


def _reordered_though_sent_again(run: Run) -> None:
    data = log_of(*OUT_OF_ORDER)
    records = walk_log(data).records
    run.history.sends = [sent_again(send, records) for send in run.history.sends]
    run.history.openings.pop()
    run.everywhere(data)


def _phantom(run: Run) -> None:
    run.everywhere(log_of(*ALL, (9, 1)))


def _phantom_with_another_body(run: Run) -> None:
    run.change("sends", 5, body_crc=7)


def _phantom_that_was_refused(run: Run) -> None:
    run.change("sends", 5, outcome=Outcome.REFUSED)


def _misplaced(run: Run) -> None:
    run.change("sends", 4, queue_offset=7)


def _gap(run: Run) -> None:
    data = bytearray(WHOLE)
    # The queue offset of the last message: 1 more than what follows.
    data[RECORDS[7].physical_offset + 20 + 7] += 1
    run.everywhere(bytes(data))


def _rewritten(run: Run) -> None:
    run.everywhere(log_of(*ALL, base_ms=50))


def _resurrected(run: Run) -> None:
    other = log_of(*ALL[:3], (9, 1))
    run.change("openings", 1, log=walk_log(other[:FORK]))


def _vanished(run: Run) -> None:
    run.history.reads[6] = msgspec.structs.replace(run.history.reads[6], key="key9")


def _vanished_body(run: Run) -> None:
    run.history.reads[6] = msgspec.structs.replace(run.history.reads[6], body_crc=7)


def _vanished_beside_what_had_rotted(run: Run) -> None:
    _hurt(run, 5, at=49.0)
    _vanished(run)


def _vanished_before_it_rotted(run: Run) -> None:
    _hurt(run, 6, at=50.1)
    _vanished(run)


def _vanished_body_of_what_had_rotted(run: Run) -> None:
    _hurt(run, 6, at=49.0)
    _vanished_body(run)


def _misread_two_contents_of_what_had_rotted(run: Run) -> None:
    _hurt(run, 0, at=49.0)
    _misread_two_contents(run)
    run.history.reads[-1] = msgspec.structs.replace(run.history.reads[-1], body_crc=7)


def _hurt(run: Run, index: int, at: float) -> None:
    """Have bytes of a record rot, on a node that has checked them before."""
    start = RECORDS[index].end - 9
    run.history.hurt.append(HurtSeen(at, "b", start, start + 1))


def _misread_out_of_order(run: Run) -> None:
    run.history.reads.pop(2)


def _misread_two_contents(run: Run) -> None:
    run.history.reads.append(read_of("second", RECORDS[0], 51.0))
    run.history.reads[-1] = msgspec.structs.replace(run.history.reads[-1], key="key9")


def _read_ahead(run: Run) -> None:
    run.history.reads.append(read_of("early", RECORDS[5], 4.5))


def _asked(run: Run, at_seconds: float, queue_id: int, queue_offset: int) -> None:
    """Have a reader be told by the master that there is nothing."""
    run.history.empty_pulls.append(
        EmptyPull(
            node="b",
            asked_at=at_seconds,
            answered_at=at_seconds + 0.1,
            queue_id=queue_id,
            queue_offset=queue_offset,
        )
    )


def _stale_at_a_master_that_was_cut_off(run: Run) -> None:
    _asked_of_a_master_of_then_after_a_restore(run)
    run.history.set_back.clear()


def _stale_at_the_newest_master_before_a_restore(run: Run) -> None:
    _asked_of_a_master_of_then_after_a_restore(run)
    run.history.set_back[:] = [3.9]


def _stale(run: Run) -> None:
    _asked(run, 4.6, queue_id=0, queue_offset=2)


def _unread(run: Run) -> None:
    run.history.drained.pop()


def _torn(run: Run) -> None:
    run.change("nodes", 0, log=walk_log(WHOLE[:-1]))


def _diverged_at_the_end(run: Run) -> None:
    run.change("nodes", 0, log=walk_log(log_of(*ALL[:6])))


def _diverged_in_an_epoch(run: Run) -> None:
    run.change("nodes", 0, log=walk_log(log_of(*ALL[:4], *ALL[4:], base_ms=3)))


def _diverged_start_told(run: Run) -> None:
    run.tell(9.5, "c", EpochAppended(1, 10))


def _diverged_start_of_a_file(run: Run) -> None:
    run.change("nodes", 0, epochs=(EpochEntrySeen(1, 0), EpochEntrySeen(2, FORK - 1)))


def _ack_lie(run: Run) -> None:
    run.change("reports", 0, written=101)


def _ack_lie_about_flushing(run: Run) -> None:
    run.change("reports", 0, flushed=51)


def _unreplicated(run: Run) -> None:
    stored = {**run.history.acks[0].stored, "c": Extent(0, 0)}
    run.change("acks", 0, stored=stored)


def _lost_by_a_member(run: Run) -> None:
    run.history.lacking.append(LackingSeen(9.0, "c", Extent(5, 5), 10))


def _unflushed(run: Run) -> None:
    run.expectations = FencedExpectations(counts_flushed=True)
    end = run.history.acks[0].end
    run.change("acks", 0, stored={"c": Extent(end, end - 1)})


def _answered(run: Run, contract: Contract, **stored: Extent) -> None:
    """Have message 4 answered while these have it."""
    at = RECORDS[4].physical_offset
    run.history.contracts["key4"] = contract
    run.history.answers.append(
        AnswerSeen(
            at_seconds=8.0, node="b", key="key4", physical_offset=at, own=HAS_IT, stored=stored
        )
    )


def _answered_unreplicated(run: Run) -> None:
    _answered(run, Contract.REPLICATED, b=HAS_IT, c=Extent(RECORDS[4].physical_offset, 0))


def _answered_unflushed_by_a_follower(run: Run) -> None:
    _answered(run, Contract.FLUSHED, b=HAS_IT, c=WROTE_IT)


def _answered_unflushed_by_the_master(run: Run) -> None:
    _answered(run, Contract.FLUSHED, b=WROTE_IT, c=HAS_IT)


def _answered_unflushed_where_the_group_flushes(run: Run) -> None:
    run.expectations = FencedExpectations(counts_flushed=True)
    _answered(run, Contract.REPLICATED, b=HAS_IT, c=WROTE_IT)


def _small_isr(run: Run) -> None:
    run.change("acks", 0, used_isr=("a", "b"))


def _too_few(run: Run) -> None:
    run.change("acks", 0, live_count=1)


def _late(run: Run) -> None:
    run.change("acks", 0, true_boottime_seconds=5.0)


def _late_without_a_lease(run: Run) -> None:
    run.change("acks", 0, lease="expired")


def _late_by_its_own_reckoning(run: Run) -> None:
    run.change("acks", 0, lease_left_seconds=0.9)


def _two_masters(run: Run) -> None:
    run.history.acks.append(ack_of(8.5, "a", 2, RECORDS[4].end))


def _two_masters_open(run: Run) -> None:
    run.change("openings", 1, epoch=1)


def _unelected(run: Run) -> None:
    run.change("openings", 1, is_elected=False)


def _epoch_jumped(run: Run) -> None:
    run.history.states.append(state_of(4, 4, "c"))


def _epoch_stolen(run: Run) -> None:
    run.history.states.append(state_of(4, 2, "c"))


def _usurped(run: Run) -> None:
    state = state_of(4, 2, "b")
    run.history.states.append(msgspec.structs.replace(state, was_led=False))


def _isr_too_small(run: Run) -> None:
    run.history.states.append(state_of(4, 2, "b", isr={"b": "ib"}))


def _promise_fell(run: Run) -> None:
    run.tell(9.5, "b", Promised(1))


def _promise_broken(run: Run) -> None:
    run.tell(9.5, "b", FrameTaken(1, 0, 10, 1))


def _not_durable(run: Run) -> None:
    run.history.missing.append(NotDurableSeen(1.0, "a", "promise 2"))


def _confirm_fell(run: Run) -> None:
    run.tell(9.5, "b", ConfirmAdvanced(2, 5))


def _confirm_fell_with_the_master(run: Run) -> None:
    run.tell(9.5, "c", MasterOpened(3, 5))


def _cut_below_confirm(run: Run) -> None:
    run.change("cuts", 0, cut=FORK - 1)


def _cut_acknowledged(run: Run) -> None:
    run.change("cuts", 0, records=(RECORDS[4],))


def _bad_epochs(run: Run) -> None:
    run.change("nodes", 0, epochs=(EpochEntrySeen(1, 0), EpochEntrySeen(2, 0)))


def _epoch_above_the_end(run: Run) -> None:
    last = EpochEntrySeen(3, len(WHOLE) + 1)
    run.change("nodes", 0, epochs=(EpochEntrySeen(1, 0), EpochEntrySeen(2, FORK), last))


def _rotten(run: Run) -> None:
    run.history.rotten.append("flip /data/broker-a-1/commitlog/0 at 17 of broker-a-1")


def _falsely_whole(run: Run) -> None:
    run.history.falsely_whole.append("flip /data/broker-a-1/commitlog/0: taken for whole at 3.000")


def _forgotten(run: Run) -> None:
    run.history.forgotten.append("b at 3.000: it says that nothing is damaged")


def _handed_out(run: Run) -> None:
    run.history.handed_out.append("flip /data/broker-a-1/commitlog/0: sent to 127.0.0.1:7")


def _skipped(run: Run) -> None:
    run.history.skipped.append("queue 0: from 3 on an answer moves on by 2 and has 1")


DAMAGED = ElectionSeen(
    at_seconds=20.5,
    node="b",
    epoch=3,
    noted_since=19.0,
    leaderless_since=20.0,
    waited_seconds=0.5,
    whole={"c": 15.9},
)


def _damaged_first(run: Run) -> None:
    run.history.elections.append(DAMAGED)


def _damaged_stays(run: Run) -> None:
    run.history.stays.append(StaySeen("b", 2, "c", 10.0, 12.1))


def _topic_lost(run: Run) -> None:
    run.history.topics_created.append("new")
    run.history.topics_at_end = ["orders"]


def _offset_back(run: Run) -> None:
    run.history.offsets.append(OffsetSeen(3.0, "g", 0, 2))


def _quarantined(run: Run) -> None:
    run.tell(9.5, "c", Quarantined("its log is another history"))


def _unavailable(run: Run) -> None:
    run.history.probes[1] = Probe(20.0, succeeded=False)


def _never_tried(run: Run) -> None:
    run.history.probes.pop()


def _crashed(run: Run) -> None:
    run.history.crashes.append("a: ValueError")


def _too_old(run: Run) -> None:
    run.history.too_old.append("a knows 1, epoch 3 is at 2")


PLANTED: dict[Callable[[Run], None], set[Kind]] = {
    _lost: {Kind.LOST},
    _lost_by_a_blackout: {Kind.LOST},
    _reordered_by_a_blackout: {Kind.REORDERED},
    _unreplicated_before_a_blackout: {Kind.UNREPLICATED},
    _duplicated: {Kind.DUPLICATED},
    _reordered: {Kind.REORDERED},
    _reordered_though_sent_again: {Kind.REORDERED},
    _phantom: {Kind.PHANTOM},
    _phantom_with_another_body: {Kind.PHANTOM},
    _phantom_that_was_refused: {Kind.PHANTOM},
    _misplaced: {Kind.MISPLACED},
    _gap: {Kind.GAP},
    _rewritten: {Kind.REWRITTEN},
    _resurrected: {Kind.RESURRECTED},
    _vanished: {Kind.VANISHED},
    _vanished_body: {Kind.VANISHED},
    _vanished_beside_what_had_rotted: {Kind.VANISHED},
    _vanished_before_it_rotted: {Kind.VANISHED},
    _vanished_body_of_what_had_rotted: {Kind.VANISHED},
    _misread_two_contents_of_what_had_rotted: {Kind.MISREAD, Kind.VANISHED},
    _misread_out_of_order: {Kind.MISREAD},
    _misread_two_contents: {Kind.MISREAD},
    _read_ahead: {Kind.READ_AHEAD},
    _stale: {Kind.STALE},
    _stale_at_a_master_that_was_cut_off: {Kind.STALE},
    _stale_at_the_newest_master_before_a_restore: {Kind.STALE},
    _unread: {Kind.UNREAD},
    _torn: {Kind.TORN},
    _diverged_at_the_end: {Kind.DIVERGED},
    _diverged_in_an_epoch: {Kind.DIVERGED},
    _diverged_start_told: {Kind.DIVERGED},
    _diverged_start_of_a_file: {Kind.DIVERGED},
    _ack_lie: {Kind.ACK_LIE},
    _ack_lie_about_flushing: {Kind.ACK_LIE},
    _unreplicated: {Kind.UNREPLICATED},
    _lost_by_a_member: {Kind.UNREPLICATED},
    _unflushed: {Kind.UNREPLICATED},
    _answered_unreplicated: {Kind.UNREPLICATED},
    _answered_unflushed_by_a_follower: {Kind.UNFLUSHED},
    _answered_unflushed_by_the_master: {Kind.UNFLUSHED},
    _answered_unflushed_where_the_group_flushes: {Kind.UNREPLICATED},
    _small_isr: {Kind.SMALL_ISR},
    _too_few: {Kind.TOO_FEW},
    _late: {Kind.LATE},
    _late_without_a_lease: {Kind.LATE},
    _late_by_its_own_reckoning: {Kind.LATE},
    _two_masters: {Kind.TWO_MASTERS},
    _two_masters_open: {Kind.TWO_MASTERS},
    _unelected: {Kind.UNELECTED},
    _epoch_jumped: {Kind.EPOCH_JUMPED},
    _epoch_stolen: {Kind.EPOCH_JUMPED},
    _usurped: {Kind.USURPED},
    _isr_too_small: {Kind.ISR_TOO_SMALL},
    _promise_fell: {Kind.PROMISE_BROKEN},
    _promise_broken: {Kind.PROMISE_BROKEN},
    _not_durable: {Kind.NOT_DURABLE},
    _confirm_fell: {Kind.CONFIRM_FELL},
    _confirm_fell_with_the_master: {Kind.CONFIRM_FELL},
    _cut_below_confirm: {Kind.CUT_TOO_DEEP},
    _cut_acknowledged: {Kind.CUT_TOO_DEEP},
    _bad_epochs: {Kind.BAD_EPOCHS},
    _epoch_above_the_end: {Kind.BAD_EPOCHS},
    _rotten: {Kind.ROTTEN},
    _falsely_whole: {Kind.FALSELY_WHOLE},
    _forgotten: {Kind.FORGOTTEN},
    _handed_out: {Kind.HANDED_OUT},
    _skipped: {Kind.SKIPPED},
    _damaged_first: {Kind.DAMAGED_FIRST},
    _damaged_stays: {Kind.DAMAGED_STAYS},
    _topic_lost: {Kind.TOPIC_LOST},
    _offset_back: {Kind.OFFSET_BACK},
    _quarantined: {Kind.QUARANTINED},
    _unavailable: {Kind.UNAVAILABLE},
    _never_tried: {Kind.UNAVAILABLE},
    _crashed: {Kind.CRASHED},
    _too_old: {Kind.TOO_OLD},
}


@pytest.mark.parametrize(
    ("plant", "kinds"), PLANTED.items(), ids=[plant.__name__.strip("_") for plant in PLANTED]
)
def test_a_planted_fault_is_found(plant: Callable[[Run], None], kinds: set[Kind]) -> None:
    run = Run()
    plant(run)
    assert kinds <= run.kinds()


def test_a_reorder_is_all_there_is_to_say_of_a_producer_that_sends_again() -> None:
    run = Run()
    _reordered_though_sent_again(run)
    assert run.kinds() - {Kind.REWRITTEN} == {Kind.REORDERED}


@pytest.mark.parametrize(
    "changes",
    [
        {"whole": {}},
        {"whole": {"c": 16.5}},
        {"noted_since": 20.1},
        {"waited_seconds": WHOLE_FIRST_SECONDS},
    ],
    ids=["nobody is whole", "nobody knew it yet", "it did not know it", "it has waited"],
)
def test_a_damaged_node_may_be_elected_where(changes: dict[str, Any]) -> None:
    run = Run()
    run.history.elections.append(msgspec.structs.replace(DAMAGED, **changes))
    assert run.check() == []


def test_a_damaged_master_may_stay_for_a_moment() -> None:
    run = Run()
    run.history.stays.append(StaySeen("b", 2, "c", 10.0, 11.9))
    assert run.check() == []


def test_every_kind_is_planted() -> None:
    assert set().union(*PLANTED.values()) == set(Kind)


def _async_message_is_lost(run: Run) -> None:
    run.everywhere(log_of(*ALL[:7]))


def _timed_out_message_is_lost(run: Run) -> None:
    run.change("sends", 7, outcome=Outcome.UNKNOWN, answered_at=float("inf"))
    run.everywhere(log_of(*ALL[:6]))
    run.change("sends", 6, outcome=Outcome.STORED)


def _stored_twice_by_a_second_try(run: Run) -> None:
    run.change("sends", 2, attempts_max=2)
    run.everywhere(log_of(*ALL, (2, 0)))


def _blackout_takes_what_was_only_written(run: Run) -> None:
    run.change("sends", 4, contract=Contract.FLUSHED)
    _blackout(run, *ALL[:5])


def _a_second_copy_came_late(run: Run) -> None:
    """The first try of message 2 was still on its way when another one was answered."""
    run.change("sends", 2, attempts_max=2)
    run.everywhere(log_of(*ALL, (2, 0)))


def _sent_while_another_was_under_way(run: Run) -> None:
    data = log_of(*OUT_OF_ORDER)
    records = walk_log(data).records
    run.history.sends = [sent_again(send, records) for send in run.history.sends]
    run.change("sends", 4, invoked_at=2.4)
    run.history.openings.pop()
    run.everywhere(data)
    for name in ("acks", "cuts"):
        getattr(run.history, name).clear()


def _async_was_answered_by_a_master_that_was_deposed(run: Run) -> None:
    """A late try of it came to its place in the next master's log."""
    data = log_of(*OUT_OF_ORDER)
    records = walk_log(data).records
    run.history.sends = [sent_again(send, records) for send in run.history.sends]
    run.change("sends", 2, contract=Contract.ASYNC)
    run.history.openings.pop()
    run.everywhere(data)


def _asked_before_the_answer(run: Run) -> None:
    _asked(run, 2.4, queue_id=0, queue_offset=1)


def _asked_for_what_carries_no_promise(run: Run) -> None:
    _asked(run, 50.0, queue_id=1, queue_offset=1)


def _asked_of_a_master_by_records_of_a_backup(run: Run) -> None:
    _asked(run, 4.6, queue_id=0, queue_offset=2)
    run.tell(4.0, "b", MasterOpened(2, 0))
    run.history.older_openings.append(("b", 2))


def _asked_of_a_master_of_then_after_a_restore(run: Run) -> None:
    _asked(run, 4.6, queue_id=0, queue_offset=2)
    run.tell(0.5, "b", MasterOpened(1, 964))
    run.tell(4.0, "c", MasterOpened(2, 964))
    run.history.set_back.append(4.5)


def _answered_when_it_is_written(run: Run) -> None:
    _answered(run, Contract.REPLICATED, b=WROTE_IT, c=WROTE_IT)


def _answered_before_anybody_has_it(run: Run) -> None:
    _answered(run, Contract.ASYNC, b=Extent(0, 0), c=Extent(0, 0))


def _answered_while_nobody_knows_what_a_member_has(run: Run) -> None:
    _answered(run, Contract.FLUSHED, b=HAS_IT, c=Extent(0, 0, is_certain=False))


def _holder_has_lost_power(run: Run) -> None:
    run.change("acks", 0, stored={"c": Extent(0, 0, is_certain=False)})


def _old_master_decides_with_what_was_recorded_then(run: Run) -> None:
    run.change("acks", 0, used_isr=("a", "b"), recorded_epoch=2)


def _lease_was_revoked(run: Run) -> None:
    run.change("acks", 0, lease="revoked")


def _confirm_of_another_life(run: Run) -> None:
    run.history.events.append(NodeEvent(9.5, "b", 2, ConfirmAdvanced(2, 5)))


def _properties_of_what_had_rotted(run: Run) -> None:
    _hurt(run, 0, at=49.0)
    _misread_two_contents(run)


def _nobody_is_electable(run: Run) -> None:
    run.expectations = FencedExpectations(must_be_available=False)
    run.history.probes[1] = Probe(20.0, succeeded=False)
    run.history.drained.clear()


@pytest.mark.parametrize(
    "allow",
    [
        _async_message_is_lost,
        _timed_out_message_is_lost,
        _stored_twice_by_a_second_try,
        _blackout_takes_what_was_only_written,
        _a_second_copy_came_late,
        _sent_while_another_was_under_way,
        _async_was_answered_by_a_master_that_was_deposed,
        _asked_before_the_answer,
        _asked_for_what_carries_no_promise,
        _asked_of_a_master_by_records_of_a_backup,
        _asked_of_a_master_of_then_after_a_restore,
        _answered_when_it_is_written,
        _answered_before_anybody_has_it,
        _answered_while_nobody_knows_what_a_member_has,
        _holder_has_lost_power,
        _old_master_decides_with_what_was_recorded_then,
        _lease_was_revoked,
        _confirm_of_another_life,
        _properties_of_what_had_rotted,
        _nobody_is_electable,
    ],
)
def test_what_is_allowed_is_no_finding(allow: Callable[[Run], None]) -> None:
    run = Run()
    allow(run)
    assert run.check() == []

"""Every kind of broken promise, planted into a good history by hand."""

from collections.abc import Callable

import msgspec
import pytest

from tandem.wire.system_topics import (
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    dlq_topic,
)
from tests.sim.consumers.checker import (
    Expectations,
    Kind,
    check,
    is_settled,
    overlaps_of_masters,
)
from tests.sim.consumers.seen import (
    Commit,
    Consumed,
    Decision,
    Grant,
    Holding,
    Moved,
    OffsetTold,
    Seen,
    Sent,
    SentBack,
    Stored,
    Term,
    Transaction,
)

QUEUE = ("orders", 0)
EXPECTED = Expectations(
    groups={"orders": "g", "ledger": "o"},
    max_reconsume_times=1,
    transaction_topic="orders",
    delivers_once=True,
)


def consumed(key: str, offset: int, times: int = 0, *, is_ok: bool = True) -> Consumed:
    return Consumed(
        at_seconds=float(offset),
        group="g",
        client="c1",
        session=1,
        queue=QUEUE if not times else ("%RETRY%g", 0),
        queue_offset=offset,
        key=key,
        reconsume_times=times,
        is_ok=is_ok,
    )


def told(offset: int | None, at: float, node: str = "n2") -> OffsetTold:
    return OffsetTold(
        node=node, group="g", queue=QUEUE, offset=offset, asked_at=at, answered_at=at + 0.1
    )


def commit(offset: int, at: float, *, is_settled: bool = True) -> Commit:
    return Commit(
        group="g",
        queue=QUEUE,
        offset=offset,
        asked_at=at,
        answered_at=at + 0.1,
        is_settled=is_settled,
    )


def holding(client: str, begin: float, until: float, grantor: str = "n1") -> Holding:
    return Holding(client=client, queue=QUEUE, grantor=grantor, begin=begin, until=until)


def transaction(key: str, decision: Decision, *, was_ended: bool) -> Transaction:
    return Transaction(
        key=key, decision=decision, invoked_at=0.0, is_prepared=True, was_ended=was_ended
    )


def move(node: str, offset: int, to: int, *, at: float) -> Moved:
    return Moved(
        node=node, group="g", queue=QUEUE, offset=offset, to=to, asked_at=at, answered_at=at + 0.1
    )


class Run:
    """Plain a is consumed, bad goes to the dead letters, of three transactions one commits."""

    def __init__(self) -> None:
        self.seen = Seen(
            sent={
                key: Sent(key=key, topic="orders", invoked_at=0.0, is_acknowledged=True)
                for key in ("a", "bad")
            },
            transactions={
                "yes": transaction("yes", Decision.COMMIT, was_ended=True),
                "no": transaction("no", Decision.ROLLBACK, was_ended=True),
                "never": transaction("never", Decision.NEVER, was_ended=False),
            },
            consumed=[
                consumed("a", 0),
                consumed("bad", 1, is_ok=False),
                consumed("yes", 2),
                msgspec.structs.replace(consumed("bad", 0, 1, is_ok=False), session=2),
            ],
            sent_back=[SentBack(group="g", key="bad", reconsume_times=1)],
            commits=[commit(1, 1.0), commit(2, 2.0), commit(3, 3.0, is_settled=False)],
            told=[told(None, 0.5), told(1, 1.5), told(2, 2.5), told(3, 4.0), told(2, 5.0)],
            holdings=[
                holding("c1", 0.0, 3.0),
                holding("c2", 3.0, 6.0),
                holding("c1", 5.0, 8.0, "n2"),
            ],
            grants=[Grant(node="n1", asked_at=1.0, answered_at=1.1)],
            terms=[Term("n1", 0.0), Term("n2", 4.0)],
        )
        self.log = [
            Stored("SCHEDULE_TOPIC_XXXX", "a", 0, 0, 0, waits_for="orders"),
            Stored("orders", "a", 0, 0, 0, was_delayed=True),
            Stored("orders", "bad", 0, 1, 0),
            Stored("orders", "yes", 0, 2, 0),
            Stored("%RETRY%g", "bad", 0, 0, 1),
            Stored(dlq_topic("g"), "bad", 0, 0, 2),
            Stored(RMQ_SYS_TRANS_HALF_TOPIC, "yes", 0, 0, 0),
            Stored(RMQ_SYS_TRANS_HALF_TOPIC, "no", 0, 1, 0),
            Stored(RMQ_SYS_TRANS_HALF_TOPIC, "never", 0, 2, 0),
            Stored(RMQ_SYS_TRANS_HALF_TOPIC, "never", 0, 3, 0),
            Stored(RMQ_SYS_TRANS_OP_HALF_TOPIC, "", 0, 0, 0, (0,)),
            Stored(RMQ_SYS_TRANS_OP_HALF_TOPIC, "", 0, 1, 0, (1,)),
            Stored(RMQ_SYS_TRANS_OP_HALF_TOPIC, "", 0, 2, 0, (2, 3)),
            Stored(TRANS_CHECK_MAX_TIME_TOPIC, "never", 0, 0, 4),
        ]

    def forget(self, topic: str, key: str) -> None:
        self.log = [each for each in self.log if (each.topic, each.key) != (topic, key)]

    def kinds(self, expected: Expectations = EXPECTED) -> set[Kind]:
        return {finding.kind for finding in check(self.seen, self.log, expected)}  # type: ignore[misc]


def _lost(run: Run) -> None:
    del run.seen.consumed[0]
    run.seen.consumed.insert(0, consumed("a", 0, is_ok=False))


def _lost_commit(run: Run) -> None:
    run.seen.consumed[2] = consumed("yes", 2, is_ok=False)


def _lost_dead(run: Run) -> None:
    run.forget(dlq_topic("g"), "bad")


def _dead_too_early(run: Run) -> None:
    del run.seen.consumed[3]


def _tried_too_often(run: Run) -> None:
    run.seen.consumed.append(consumed("bad", 1, 2))


def _phantom(run: Run) -> None:
    run.seen.consumed.append(consumed("nobody's", 3))


def _gap(run: Run) -> None:
    run.seen.consumed.append(msgspec.structs.replace(consumed("a", 4), session=9))


def _unordered(run: Run) -> None:
    run.seen.consumed.append(consumed("a", 1))


def _odd(run: Run) -> None:
    run.seen.oddities.append("pulled [2] at 1")


def _moved(run: Run) -> None:
    run.seen.moves.append(move("n1", 5, 3, at=3.5))


def _moved_on_by_a_deposed_master(run: Run) -> None:
    run.seen.moves.append(move("n1", 3, 5, at=4.5))


def _went_back(run: Run) -> None:
    run.seen.told.append(told(1, 6.0))


def _forgotten(run: Run) -> None:
    run.seen.told.append(told(None, 6.0))


def _never_committed(run: Run) -> None:
    run.seen.told.insert(0, told(7, 0.6))


def _two_holders(run: Run) -> None:
    run.seen.holdings[1] = holding("c2", 2.9, 6.0)


def _false_grant(run: Run) -> None:
    run.seen.grants.append(Grant(node="n1", asked_at=4.1, answered_at=4.2))


def _rolled_back_in_the_log(run: Run) -> None:
    run.log.append(Stored("orders", "no", 0, 3, 0))


def _rolled_back_consumed(run: Run) -> None:
    run.seen.consumed.append(consumed("never", 3))


def _commit_lost(run: Run) -> None:
    run.forget("orders", "yes")


def _committed_twice(run: Run) -> None:
    run.log.append(Stored("orders", "yes", 0, 3, 0))


def _delivered_twice(run: Run) -> None:
    run.log.append(Stored("orders", "a", 0, 3, 0, was_delayed=True))


def _committed_and_given_up(run: Run) -> None:
    run.log.append(Stored(TRANS_CHECK_MAX_TIME_TOPIC, "yes", 0, 1, 4))


def _ended_given_up(run: Run) -> None:
    run.log.append(Stored(TRANS_CHECK_MAX_TIME_TOPIC, "no", 0, 1, 4))


def _half_open(run: Run) -> None:
    run.log = [each for each in run.log if each.ended != (2, 3)]


def _half_gone(run: Run) -> None:
    run.forget(RMQ_SYS_TRANS_HALF_TOPIC, "no")


PLANTED: list[tuple[Callable[[Run], None], Kind]] = [
    (_lost, Kind.LOST),
    (_lost_commit, Kind.LOST),
    (_lost_dead, Kind.LOST),
    (_lost_dead, Kind.DEAD_MISSING),
    (_dead_too_early, Kind.DEAD_TOO_EARLY),
    (_tried_too_often, Kind.TRIED_TOO_OFTEN),
    (_phantom, Kind.PHANTOM),
    (_gap, Kind.GAP),
    (_unordered, Kind.UNORDERED),
    (_odd, Kind.ODD),
    (_moved, Kind.MOVED),
    (_moved_on_by_a_deposed_master, Kind.MOVED),
    (_went_back, Kind.OFFSET_WENT_BACK),
    (_forgotten, Kind.OFFSET_WENT_BACK),
    (_never_committed, Kind.OFFSET_WENT_BACK),
    (_two_holders, Kind.TWO_HOLDERS),
    (_false_grant, Kind.FALSE_GRANT),
    (_rolled_back_in_the_log, Kind.ROLLED_BACK_SEEN),
    (_rolled_back_consumed, Kind.ROLLED_BACK_SEEN),
    (_commit_lost, Kind.COMMIT_LOST),
    (_committed_twice, Kind.COMMITTED_TWICE),
    (_committed_and_given_up, Kind.COMMITTED_TWICE),
    (_delivered_twice, Kind.DELIVERED_TWICE),
    (_ended_given_up, Kind.ENDED_GIVEN_UP),
    (_half_open, Kind.HALF_OPEN),
    (_half_gone, Kind.HALF_OPEN),
]


def test_a_good_history_has_no_findings() -> None:
    run = Run()
    assert check(run.seen, run.log, EXPECTED) == []
    assert is_settled(run.seen, run.log, EXPECTED)


@pytest.mark.parametrize(("plant", "kind"), PLANTED)
def test_a_planted_fault_is_found(plant: Callable[[Run], None], kind: Kind) -> None:
    run = Run()
    plant(run)
    assert kind in run.kinds()


def test_every_kind_is_planted() -> None:
    assert {kind for _, kind in PLANTED} == set(Kind) - {Kind.CRASHED}, "that one is no history's"


def test_what_is_promised_in_the_end_is_not_asked_of_a_run_without_one() -> None:
    for plant in (_lost, _commit_lost, _half_open, _lost_dead):
        run = Run()
        plant(run)
        assert not is_settled(run.seen, run.log, EXPECTED)
        assert not run.kinds(msgspec.structs.replace(EXPECTED, is_complete=False))


def test_readers_may_be_moved_back_where_the_master_lost_what_was_not_synced() -> None:
    run = Run()
    for plant in (_gap, _unordered, _odd, _moved):
        plant(run)
    assert not run.kinds(msgspec.structs.replace(EXPECTED, forgets_unsynced=True))


def test_offsets_may_be_gone_when_the_tables_of_a_classic_group_were_not_saved() -> None:
    run = Run()
    _forgotten(run)
    run.seen.lost_memory_at.append(5.5)
    assert not run.kinds()
    run.seen.commits.append(commit(9, 6.5))
    run.seen.told += [told(9, 7.0), told(None, 8.0)]
    assert run.kinds() == {Kind.OFFSET_WENT_BACK}, "what was committed since is known"


def test_locks_of_two_masters_are_counted() -> None:
    run = Run()
    assert overlaps_of_masters(run.seen) == 1
    run.seen.holdings[2] = holding("c1", 5.0, 8.0)
    assert run.kinds() == {Kind.TWO_HOLDERS}
    assert overlaps_of_masters(run.seen) == 0


def test_what_a_client_holds_no_more_is_held_by_nobody() -> None:
    run = Run()
    run.seen.holdings.append(holding("c3", 1.0, 1.0))
    assert not run.kinds()


def test_a_deposed_master_may_send_a_reader_back() -> None:
    run = Run()
    run.seen.moves.append(move("n1", 5, 3, at=4.5))
    assert not run.kinds()


def test_a_master_that_cannot_know_of_the_next_one_serves_on() -> None:
    run = Run()
    _false_grant(run)
    run.seen.told.append(told(1, 4.1, "n1"))
    assert run.kinds() == {Kind.FALSE_GRANT, Kind.OFFSET_WENT_BACK}
    assert not run.kinds(msgspec.structs.replace(EXPECTED, unaware_seconds=0.2))

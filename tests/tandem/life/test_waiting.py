"""Transactions and delays, as tables of decisions."""

import pytest

from tandem.life.evidence import DelayAt, HalfEnd, HalvesRead
from tandem.life.result import Kind
from tandem.wire.message import TRANSACTION_COMMIT_TYPE, MessageExt
from tests.tandem.life.samples import NOW_MS, STORED_MS, kinds, life, stored, the

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF = stored(HALF_TOPIC, 4, properties={"REAL_TOPIC": "T", "REAL_QID": "0"})
CHECKED = stored(
    HALF_TOPIC, 9, at_ms=5_000, properties={"REAL_TOPIC": "T", "TRANSACTION_CHECK_TIMES": "2"}
)
COMMITTED = stored(at_ms=30, sys_flag=TRANSACTION_COMMIT_TYPE, prepared_transaction_offset=1_000)
GIVEN_UP = stored("TRANS_CHECK_MAX_TIME_TOPIC", at_ms=9_000, properties={"REAL_TOPIC": "T"})
READ = HalvesRead(broker="b", node="", is_complete=True)
READ_IN_PART = HalvesRead(broker="b", node="", is_complete=False)
ENDS = (Kind.COMMITTED, Kind.ROLLED_BACK, Kind.TRANSACTION_OPEN, Kind.TRANSACTION_GIVEN_UP)


def ended(offset: int, broker: str = "b") -> HalfEnd:
    return HalfEnd(
        broker=broker, node="", half_queue_offset=offset, at_ms=STORED_MS + 40, source="an op"
    )


@pytest.mark.parametrize(
    ("records", "ends", "read", "kind"),
    [
        ([HALF], [], READ, Kind.TRANSACTION_OPEN),
        ([HALF], [], READ_IN_PART, None),
        ([HALF], [ended(4)], READ, Kind.ROLLED_BACK),
        ([HALF], [ended(4)], READ_IN_PART, Kind.ROLLED_BACK),
        ([HALF], [ended(5)], READ, Kind.TRANSACTION_OPEN),
        ([HALF], [ended(4, broker="other")], READ, Kind.TRANSACTION_OPEN),
        ([HALF, COMMITTED], [ended(4)], READ, Kind.COMMITTED),
        ([HALF, COMMITTED], [], READ_IN_PART, Kind.COMMITTED),
        ([COMMITTED], [], READ_IN_PART, Kind.COMMITTED),
        # A check puts the half anew, and ends the copy before.
        ([HALF, CHECKED], [ended(4)], READ, Kind.TRANSACTION_OPEN),
        ([HALF, CHECKED], [ended(4), ended(9)], READ, Kind.ROLLED_BACK),
        ([HALF, GIVEN_UP], [ended(4)], READ, Kind.TRANSACTION_GIVEN_UP),
    ],
)
def test_what_became_of_a_transaction(
    records: list[MessageExt], ends: list[HalfEnd], read: HalvesRead, kind: Kind | None
) -> None:
    found = life(*records, ends=ends, halves_read=[read])
    assert kinds(found).intersection(ENDS) == ({kind} if kind else set())
    is_unknown = any("transaction" in gap.what for gap in found.unknown)
    assert is_unknown == (kind is None)


def test_no_record_says_how_a_half_ended_so_a_rollback_is_concluded() -> None:
    found = life(HALF, ends=[ended(4)], halves_read=[READ])
    assert the(found, Kind.ROLLED_BACK).is_concluded
    assert the(found, Kind.ROLLED_BACK).at_ms == STORED_MS + 40


def test_checks_are_counted() -> None:
    assert "2 times" in the(life(HALF, CHECKED, halves_read=[READ]), Kind.CHECKED).text


def waiting(level: int = 3, **more: str) -> MessageExt:
    return stored(
        "SCHEDULE_TOPIC_XXXX",
        6,
        queue_id=level - 1,
        properties={"REAL_TOPIC": "T", "DELAY": str(level), **more},
    )


def timer(due_ms: int, at_ms: int = 0, **more: str) -> MessageExt:
    return stored(
        "rmq_sys_wheel_timer",
        at_ms=at_ms,
        properties={"REAL_TOPIC": "T", "TIMER_OUT_MS": str(due_ms), **more},
    )


@pytest.mark.parametrize(
    ("records", "due_ms", "expected"),
    [
        ([waiting(18)], STORED_MS + 7_200_000, {Kind.DELAYED}),
        ([waiting(3)], STORED_MS + 10_000, {Kind.DELAYED, Kind.OVERDUE}),
        ([waiting(99)], 0, {Kind.DELAYED}),
        ([waiting(3), stored(at_ms=10_001)], STORED_MS + 10_000, {Kind.DELAYED, Kind.DELIVERED}),
        ([timer(NOW_MS + 5)], NOW_MS + 5, {Kind.DELAYED}),
        ([timer(NOW_MS - 50_000)], NOW_MS - 50_000, {Kind.DELAYED, Kind.OVERDUE}),
    ],
)
def test_until_when_a_message_is_delayed(
    records: list[MessageExt], due_ms: int, expected: set[Kind]
) -> None:
    found = life(*records)
    delays = {Kind.DELAYED, Kind.OVERDUE, Kind.DELIVERED, Kind.RECALLED}
    assert kinds(found) & delays == expected
    assert the(found, Kind.DELAYED).due_ms == due_ms


def test_the_levels_of_the_broker_count_and_not_those_of_rocketmq() -> None:
    levels = DelayAt(broker="b", node="", source="s", delays_ms=(1, 2, 3_000_000))
    found = life(waiting(3), delays=[levels])
    assert the(found, Kind.DELAYED).due_ms == STORED_MS + 3_000_000


@pytest.mark.parametrize(("next_offset", "words"), [(4, "2 messages"), (7, "passed it over")])
def test_what_is_late_is_compared_with_the_delivery_of_its_level(
    next_offset: int, words: str
) -> None:
    delays = DelayAt(broker="b", node="", source="s", next_offsets={3: next_offset})
    assert words in the(life(waiting(3), delays=[delays]), Kind.OVERDUE).text


def test_a_recalled_message_is_not_late() -> None:
    recall = timer(NOW_MS - 50_000, 9, TIMER_DEL_UNIQKEY="T_K")
    found = life(timer(NOW_MS - 50_000), recall)
    assert Kind.RECALLED in kinds(found)
    assert Kind.OVERDUE not in kinds(found)

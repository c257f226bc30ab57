"""Transactions on a store whose disk can die. What is saved of the progress is a file, too."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from trio.testing import MockClock

from node.simulated.disk import NothingKept, SimulatedDisk
from store.delayed.schedule_message_service import delay_rewrite
from store.machine.errors import RecordDamagedError
from store.results import PutMessage, PutMessageResult, PutMessageStatus
from store.transaction import transactional_message_service as module
from store.transaction.half_message import op_message
from store.transaction.transaction import (
    CheckTransaction,
    EndTransaction,
    EndTransactionStatus,
    TransactionSettings,
)
from store.transaction.transactional_message_service import TransactionalMessageService
from store.transaction.uncovered_commit import missing_op
from tandem.wire.delay_level import DelayLevels
from tandem.wire.message import Host, MessageExt, encode_record
from tandem.wire.message_properties import decode_properties, encode_properties
from tandem.wire.system_topics import SCHEDULE_TOPIC
from tests.ha.fingerprinted import take_fingerprints
from tests.store.step_disk import Interrupted, StepDisk, die_at
from tests.store.store_world import (
    BORN_HOST,
    DIRECTORY,
    STORE_HOST,
    Clock,
    a_message,
    heal,
    log_messages,
    note_damage,
    number_of,
    open_store,
    put,
    queue_messages,
)
from tests.support.logged import logged
from tests.support.paths import GOLDEN

T0 = 1_700_000_000_000
HALF, OP, GIVEN_UP = (
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
)
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
OFFSETS = f"{DIRECTORY}/config/consumerOffset.json"


def prepared(number: int, *, born_ms: int, more: dict[str, str] | None = None) -> PutMessage:
    message = a_message(number)
    own = {"TRAN_MSG": "true", "PGROUP": "pg"}
    properties = decode_properties(message.properties) | own | (more or {})
    return msgspec.structs.replace(
        message, properties=encode_properties(properties), born_timestamp_ms=born_ms
    )


class World:
    """A store, its clock, the service, and a producer's view of its halves."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        now_ms: int = T0,
        wanted: TransactionSettings | None = None,
    ) -> None:
        self.disk = disk or SimulatedDisk()
        self.clock = Clock(now_ms, step_ms=0)
        self.refuses = self.dies_between = False
        self.settings = wanted
        self.store = open_store(self.disk, clock=self.clock)
        self.offsets: dict[str, int] = json.loads(self.disk.read(OFFSETS) or b"{}")
        self.service = self.service_again()
        op = missing_op(self.store.whole_log, self.store.last_record_offset, now_ms, STORE_HOST)
        if op is not None:
            assert self.put(op).status.is_stored
        while not self.service.recover(7):
            pass

    def service_again(self) -> TransactionalMessageService:
        return TransactionalMessageService(
            self.store.whole_log,
            delay=lambda message: delay_rewrite(message, DelayLevels()),
            put=self.put,
            put_pair=self.put_pair,
            query_offset=lambda topic, _: self.offsets.get(topic, -1),
            commit_offset=self._commit_offset,
            flushed_where=lambda: self.store.flushed_where,
            store_host=STORE_HOST,
            settings=self.settings,
        )

    def _commit_offset(self, topic: str, queue_id: int, offset: int) -> None:
        assert queue_id == 0
        assert offset >= self.offsets.get(topic, 0)
        self.offsets[topic] = offset

    def put(self, message: PutMessage) -> PutMessageResult:
        if self.refuses:
            return PutMessageResult(PutMessageStatus.CREATE_MAPPED_FILE_FAILED, "refused")
        result = self.store.puts.put_message(message, hooks=False)
        self.store.announce()
        return result

    def put_pair(self, first: PutMessage, second: PutMessage) -> PutMessageResult:
        if self.refuses:
            return PutMessageResult(PutMessageStatus.CREATE_MAPPED_FILE_FAILED, "refused")
        if self.dies_between:
            self.store.puts.put_message(first, hooks=False)
            raise Interrupted
        result = self.store.puts.put_pair(first, second)
        self.store.announce()
        return result

    def prepare(self, number: int, **more: str) -> PutMessageResult:
        message = prepared(number, born_ms=self.clock.now_ms, more=more)
        result = self.service.prepare(message)
        assert result.status.is_stored
        return result

    def end(
        self, half: PutMessageResult | MessageExt, outcome: int, **other: object
    ) -> EndTransactionStatus:
        at = half.wrote_offset if isinstance(half, PutMessageResult) else half.physical_offset
        request = EndTransaction("pg", half.queue_offset, at, outcome)
        request = msgspec.structs.replace(request, **other)
        return self.service.end_transaction(request, self.clock.now_ms).status

    def answer(self, question: CheckTransaction, outcome: int) -> EndTransactionStatus:
        return self.end(question.message, outcome, from_transaction_check=True)

    def check(self, after_ms: int = 0) -> list[CheckTransaction]:
        """One whole check, as it comes every 30 seconds."""
        self.clock.now_ms += after_ms
        questions: list[CheckTransaction] = []
        while True:
            found = self.service.check(self.clock.now_ms)
            questions += found.questions
            if found.is_complete:
                return questions

    def asked(self, after_ms: int = 0) -> list[int]:
        return [number_of(question.message) for question in self.check(after_ms)]

    def sync_and_save(self) -> None:
        self.store.commit_log.files.sync_all()
        self.service.save_progress()
        self.save()

    def save(self) -> None:
        self.disk.replace(OFFSETS, json.dumps(self.offsets).encode())

    def delivered(self, topic: str = "TopicA") -> list[int]:
        return [number_of(m) for m in queue_messages(self.store, topic, 0)]

    def restarted(self, disk: SimulatedDisk | None = None) -> World:
        return World(disk or self.disk.crashed(), self.clock.now_ms, self.settings)


# -- prepare and end -------------------------------------------------------------------------------


def test_a_prepared_message_is_seen_by_nobody() -> None:
    world = World()
    world.prepare(1)
    assert world.delivered() == []
    assert world.delivered(HALF) == [1]


def test_a_committed_message_is_delivered_once_and_names_its_half() -> None:
    world = World()
    put(world.store, a_message(0))
    half = world.prepare(1)
    assert world.end(half, COMMIT) is EndTransactionStatus.ENDED
    first, found = queue_messages(world.store, "TopicA", 0)
    assert (number_of(first), number_of(found)) == (0, 1)
    assert found.queue_offset == 1
    assert found.sys_flag == COMMIT
    assert found.prepared_transaction_offset == half.wrote_offset


def test_a_rolled_back_message_leaves_no_record_but_the_op() -> None:
    """No ROLLBACK record is written."""
    world = World()
    half = world.prepare(1)
    assert world.end(half, ROLLBACK) is EndTransactionStatus.ENDED
    assert [m.topic for m in log_messages(world.store)] == [HALF, OP]
    assert world.delivered() == []


def test_a_producer_that_does_not_know_changes_nothing() -> None:
    world = World()
    half = world.prepare(1)
    for outcome in (UNKNOWN, 4, 99):
        assert world.end(half, outcome) is EndTransactionStatus.UNKNOWN
    assert len(log_messages(world.store)) == 1
    assert world.end(half, COMMIT) is EndTransactionStatus.ENDED


@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
def test_a_transaction_ends_once(first: int, second: int) -> None:
    """RocketMQ puts the message at every commit, also after a rollback."""
    refused = EndTransactionStatus.NO_SUCH_TRANSACTION
    world = World()
    half = world.prepare(1)
    world.end(half, first)
    again = EndTransactionStatus.ENDED_BEFORE if first == second else refused
    assert world.end(half, second) is again
    world.check(60_000)
    world.check(60_000)
    assert world.end(half, second) is refused
    world = world.restarted()
    assert world.end(half, second) is refused
    assert world.delivered() == ([1] if first == COMMIT else [])


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"producer_group": "other"}, "The producer group wrong"),
        ({"tran_state_table_offset": 7}, "The transaction state table offset wrong"),
        ({"commit_log_offset": 3}, "Find prepared transaction message failed"),
        ({"commit_log_offset": 1 << 40}, "Find prepared transaction message failed"),
        ({"commit_log_offset": -1}, "Find prepared transaction message failed"),
    ],
)
def test_an_end_that_names_no_half_of_this_producer_is_refused(
    wrong: dict[str, object], reason: str
) -> None:
    """EndTransactionProcessor.checkPrepareMessage."""
    world = World()
    half = world.prepare(1)
    request = EndTransaction("pg", half.queue_offset, half.wrote_offset, COMMIT)
    request = msgspec.structs.replace(request, **wrong)
    result = world.service.end_transaction(request, world.clock.now_ms)
    assert result.status is EndTransactionStatus.NO_SUCH_TRANSACTION
    assert result.reason == reason
    assert world.delivered() == []


def test_an_end_that_names_an_ordinary_message_is_refused() -> None:
    world = World()
    put(world.store, prepared(1, born_ms=T0))
    assert world.end(queue_messages(world.store, "TopicA", 0)[0], COMMIT) is (
        EndTransactionStatus.NO_SUCH_TRANSACTION
    )


def test_a_message_that_cannot_be_put_stays_open() -> None:
    world = World()
    half = world.prepare(1)
    world.refuses = True
    assert world.end(half, COMMIT) is EndTransactionStatus.NOT_STORED
    world.refuses = False
    assert world.end(half, COMMIT) is EndTransactionStatus.ENDED
    assert world.delivered() == [1]


@pytest.mark.parametrize(
    ("immunity", "age_ms", "from_check", "expected"),
    [
        ("10", 10_000, False, EndTransactionStatus.ENDED),
        ("10", 10_001, False, EndTransactionStatus.TIMED_OUT),
        ("10", 10_001, True, EndTransactionStatus.ENDED),
        ("1", 6000, False, EndTransactionStatus.ENDED),
        ("1", 6001, False, EndTransactionStatus.TIMED_OUT),
        ("-1", 6001, False, EndTransactionStatus.TIMED_OUT),
        ("soon", 6001, False, EndTransactionStatus.TIMED_OUT),
        ("", 60_000, False, EndTransactionStatus.ENDED),
    ],
)
def test_a_half_with_an_immunity_has_to_be_ended_within_it(
    immunity: str,
    age_ms: int,
    from_check: bool,  # noqa: FBT001
    expected: EndTransactionStatus,
) -> None:
    """EndTransactionProcessor.rejectCommitOrRollback."""
    world = World()
    more = {"CHECK_IMMUNITY_TIME_IN_SECONDS": immunity} if immunity else {}
    half = world.prepare(1, **more)
    world.clock.now_ms += age_ms
    assert world.end(half, COMMIT, from_transaction_check=from_check) is expected


def test_a_delayed_transaction_waits_after_its_commit() -> None:
    """RocketMQ delays the half instead, and drops it when it is due."""
    world = World()
    half = world.prepare(1, DELAY="2")
    assert world.delivered(HALF) == [1]
    assert world.end(half, COMMIT) is EndTransactionStatus.ENDED
    assert world.delivered() == []
    (waiting,) = queue_messages(world.store, SCHEDULE_TOPIC, 1)
    assert waiting.properties["REAL_TOPIC"] == "TopicA"
    assert waiting.prepared_transaction_offset == half.wrote_offset


# -- op messages -----------------------------------------------------------------------------------


def ops_of(world: World) -> list[bytes]:
    return [m.body for m in queue_messages(world.store, OP, 0)]


def test_an_op_stands_behind_the_message_it_is_about() -> None:
    """RocketMQ writes it up to three seconds later."""
    world = World()
    for number, outcome in enumerate((COMMIT, ROLLBACK)):
        world.end(world.prepare(number), outcome)
    assert [m.topic for m in log_messages(world.store)] == [HALF, "TopicA", OP, HALF, OP]
    assert ops_of(world) == [b"0,", b"1,"]


def test_an_op_names_the_earlier_copies_as_well() -> None:
    """RocketMQ, with progress from before a crash, would ask about them."""
    world = World()
    world.prepare(1)
    world.check(7000)
    (question,) = world.check(30_000)
    world.answer(question, COMMIT)
    assert ops_of(world) == [b"0,1,2,"]


def test_the_op_of_one_that_is_given_up_names_its_earlier_copies_as_well() -> None:
    """RocketMQ, which may be the next to open this store, would ask about them."""
    world = World(wanted=TransactionSettings(transaction_check_max=2))
    world.prepare(1)
    for _ in range(3):
        world.check(30_000)
    assert world.delivered(GIVEN_UP) == [1]
    assert ops_of(world) == [b"0,1,2,"]


def test_an_op_names_the_last_of_very_many_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_OP_COPIES_MAX", 2)
    world = World()
    world.prepare(1)
    questions = [question for _ in range(4) for question in world.check(30_000)]
    assert world.answer(questions[-1], COMMIT) is EndTransactionStatus.ENDED
    assert ops_of(world) == [b"2,3,4,"]


def test_a_refused_op_leaves_the_transaction_open() -> None:
    """RocketMQ forgets it, and asks the producer again."""
    world = World()
    half = world.prepare(1)
    world.refuses = True
    assert world.end(half, ROLLBACK) is EndTransactionStatus.NOT_STORED
    world.refuses = False
    assert world.end(half, COMMIT) is EndTransactionStatus.ENDED


# -- check -----------------------------------------------------------------------------------------


def test_a_producer_is_asked_when_its_half_is_old_enough() -> None:
    world = World()
    world.prepare(1)
    assert world.asked(6000) == []
    assert world.asked(1) == [1]
    assert world.asked(30_000) == [1]


def test_a_question_shows_the_message_as_the_producer_knows_it() -> None:
    """AbstractTransactionalMessageCheckListener.sendCheckMessage."""
    world = World()
    world.prepare(1)
    (question,) = world.check(7000)
    _, copy = queue_messages(world.store, HALF, 0)
    assert question.producer_group == "pg"
    assert (question.message.topic, question.message.queue_id) == ("TopicA", 0)
    assert question.message.store_size == 0
    assert question.message.queue_offset == copy.queue_offset == 1
    assert question.message.physical_offset == copy.physical_offset
    assert question.message.properties == copy.properties
    assert copy.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert copy.born_timestamp_ms == T0


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
def test_the_answer_to_a_question_ends_the_transaction(outcome: int) -> None:
    world = World()
    world.prepare(1)
    (question,) = world.check(7000)
    assert world.answer(question, UNKNOWN) is EndTransactionStatus.UNKNOWN
    (question,) = world.check(30_000)
    assert world.answer(question, outcome) is EndTransactionStatus.ENDED
    assert world.asked(30_000) == []
    assert world.delivered() == ([1] if outcome == COMMIT else [])


def test_a_half_that_ended_a_moment_ago_is_not_asked_about() -> None:
    """RocketMQ asks: its op messages are up to three seconds behind."""
    world = World()
    halves = [world.prepare(number) for number in range(3)]
    world.clock.now_ms += 5900
    world.end(halves[0], COMMIT)
    world.end(halves[2], ROLLBACK)
    assert world.asked(200) == [1]


def test_a_late_commit_of_a_half_that_was_asked_about_counts_once() -> None:
    """RocketMQ puts the message for the first half, and again for the answer to the question."""
    world = World()
    half = world.prepare(1)
    (first,) = world.check(7000)
    (second,) = world.check(30_000)
    assert world.end(half, COMMIT) is EndTransactionStatus.ENDED
    for question in (first, second):
        assert world.answer(question, COMMIT) is EndTransactionStatus.ENDED_BEFORE
    assert world.asked(30_000) == []
    assert world.delivered() == [1]


def test_a_half_nobody_answers_for_is_given_up_in_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    half = world.prepare(1)
    assert [world.asked(30_000) for _ in range(16)] == [[1]] * 15 + [[]]
    (given_up,) = queue_messages(world.store, GIVEN_UP, 0)
    assert given_up.properties["TRANSACTION_CHECK_TIMES"] == "15"
    (line,) = logged(caplog, "store.transaction.transactional_message_service", logging.ERROR)
    assert line[-1] == 15
    assert world.asked(30_000) == []
    assert world.end(half, COMMIT) is EndTransactionStatus.NO_SUCH_TRANSACTION


def test_a_half_older_than_the_log_is_kept_is_given_up() -> None:
    world = World(wanted=TransactionSettings(file_reserved_time_ms=3_600_000))
    world.prepare(1)
    assert world.asked(3_600_001) == []
    assert world.delivered(GIVEN_UP) == [1]


def test_a_half_that_cannot_be_put_again_holds_up_the_check() -> None:
    """RocketMQ tries again without a pause for a minute; one given up it loses."""
    world = World(wanted=TransactionSettings(transaction_check_max=1))
    world.prepare(1)
    world.refuses = True
    assert world.asked(7000) == []
    world.refuses = False
    assert world.asked() == [1]
    world.refuses = True
    world.check(30_000)
    assert world.delivered(GIVEN_UP) == []
    world.refuses = False
    world.check()
    assert world.delivered(GIVEN_UP) == [1]


def test_a_half_from_the_future_is_asked_about_at_once() -> None:
    world = World()
    world.prepare(1)
    world.clock.now_ms -= 10_000
    assert world.check() == [], "stored after the start of the check"
    world.service.prepare(prepared(2, born_ms=T0 + 100_000))
    world.clock.now_ms = T0 + 7000
    assert world.asked() == [1, 2]


def test_an_immune_half_lets_the_others_pass_and_is_not_asked_about() -> None:
    world = World()
    half = world.prepare(1, CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    world.prepare(2)
    assert [world.asked(30_000) for _ in range(3)] == [[2]] * 3
    assert [m.properties.get("TRAN_PREPARED_QUEUE_OFFSET") for m in halves_of(world, 1)] == [
        None,
        "0",
        "0",
        "0",
    ]
    assert world.end(half, COMMIT) is EndTransactionStatus.ENDED
    assert world.asked(30_000) == [2]
    assert world.delivered() == [1]


def halves_of(world: World, number: int) -> list[MessageExt]:
    return [m for m in queue_messages(world.store, HALF, 0) if number_of(m) == number]


def test_an_immune_half_is_asked_about_once_its_time_is_over() -> None:
    world = World()
    world.prepare(1, CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    assert [world.asked(30_000) for _ in range(5)] == [[], [], [], [1], [1]]


def test_a_long_immunity_does_not_count_as_checks() -> None:
    """In RocketMQ it does: the half is given up and nobody was ever asked."""
    world = World()
    world.prepare(1, CHECK_IMMUNITY_TIME_IN_SECONDS="1000")
    assert all(world.asked(30_000) == [] for _ in range(33))
    assert world.asked(30_000) == [1]


@pytest.mark.parametrize("immunity", ["-1", "soon"])
def test_an_immunity_of_no_number_is_the_usual_time(immunity: str) -> None:
    world = World()
    world.prepare(1, CHECK_IMMUNITY_TIME_IN_SECONDS=immunity)
    assert world.asked(5999) == []
    assert world.asked(1) == [1]


def test_a_check_of_many_halves_goes_on_in_slices_and_asks_once_about_each() -> None:
    world = World()
    for number in range(450):
        world.prepare(number)
    world.clock.now_ms += 7000
    assert not world.service.check(world.clock.now_ms).is_complete
    rest = world.asked(100)
    assert rest == list(range(200, 450))


def test_progress_goes_over_halves_and_ops_that_are_done() -> None:
    world = World()
    halves = [world.prepare(number) for number in range(4)]
    for half in (halves[0], halves[1], halves[3]):
        world.end(half, ROLLBACK)
    world.check(5000)
    world.sync_and_save()
    assert world.offsets == {HALF: 2, OP: 2}
    world.check(5000)
    world.sync_and_save()
    assert world.offsets == {HALF: 4, OP: 3}
    assert world.service._ended == {}


def test_progress_is_not_saved_beyond_what_is_durable() -> None:
    """A power loss must not take the copy of a half that the walk has passed."""
    world = World()
    world.prepare(1)
    world.sync_and_save()
    world.check(7000)
    world.service.save_progress()
    world.save()
    lost = world.restarted(world.disk.powered_off(NothingKept()))
    assert lost.delivered(HALF) == [1]
    assert lost.asked(1000) == [1]


def test_what_is_saved_is_the_progress_of_the_last_check_that_is_durable() -> None:
    world = World()
    world.prepare(1)
    world.check(7000)
    world.store.commit_log.files.sync_all()
    world.end(world.prepare(2), ROLLBACK)
    world.check(7000)
    assert (world.service.half_offset, world.service.op_offset) == (3, 1)
    assert world.offsets == {HALF: 1, OP: 0}
    world.sync_and_save()
    assert world.offsets == {HALF: 3, OP: 1}


def test_progress_is_not_saved_past_an_end_that_is_not_durable() -> None:
    """A power loss takes the message and its op; the half must not be passed over then."""
    world = World()
    half = world.prepare(1)
    world.sync_and_save()
    assert world.end(half, COMMIT) is EndTransactionStatus.ENDED
    world.check(7000)
    world.save()
    lost = world.restarted(world.disk.powered_off(NothingKept()))
    assert lost.delivered() == []
    assert lost.asked(1000) == [1]


# -- logs of others --------------------------------------------------------------------------------


def test_an_op_for_the_first_of_several_copies_ends_the_last() -> None:
    """RocketMQ's op names the half that the producer knew; its check then does not find it."""
    world = World()
    world.prepare(1, CHECK_IMMUNITY_TIME_IN_SECONDS="40")
    world.check(30_000)
    put(world.store, op_message([0], T0, STORE_HOST))
    assert world.asked(30_000) == []
    assert world.asked(30_000) == []


def test_an_op_is_kept_in_mind_until_the_last_copy_is_passed() -> None:
    world = World()
    world.prepare(1, CHECK_IMMUNITY_TIME_IN_SECONDS="40")
    world.clock.now_ms += 29_000
    world.prepare(2)
    assert world.asked(1000) == []
    put(world.store, op_message([0], T0, STORE_HOST))
    assert world.asked(1000) == [], "the second half is too young, and in the way"
    world.sync_and_save()
    assert world.offsets == {HALF: 1, OP: 0}
    assert world.restarted().asked(30_000) == [2]


def test_an_op_is_kept_in_mind_until_its_half_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a walk that has stopped just before that half, and by one that begins there."""
    monkeypatch.setattr(module, "_SLICE_HALVES", 1)
    world = World()
    world.prepare(1)
    world.end(world.prepare(2), ROLLBACK)
    world.clock.now_ms += 7000
    first = world.service.check(world.clock.now_ms)
    assert ([number_of(each.message) for each in first.questions], first.is_complete) == (
        [1],
        False,
    )
    world.sync_and_save()
    assert world.restarted().asked() == []
    assert world.asked() == []


def test_ops_of_other_shapes_are_passed_over() -> None:
    world = World()
    world.prepare(1)
    wrong = op_message([0], T0, STORE_HOST)
    put(world.store, msgspec.structs.replace(wrong, properties=b"TAGS\x01x\x02"))
    put(world.store, msgspec.structs.replace(wrong, body=b"zero"))
    assert world.asked(7000) == [1]
    world.sync_and_save()
    assert world.offsets[OP] == 2


def test_saved_offsets_outside_their_queues_are_moved_into_them() -> None:
    world = World()
    world.prepare(1)
    world.offsets = {HALF: 100, OP: 100}
    world.save()
    again = world.restarted()
    assert (again.service.half_offset, again.service.op_offset) == (1, 0)


# -- the older scheme ------------------------------------------------------------------------------


@pytest.mark.parametrize(("sys_flag", "is_queued"), [(0, True), (4, False), (8, True), (12, False)])
def test_prepared_and_rolled_back_records_have_no_place_in_a_queue(
    sys_flag: int,
    is_queued: bool,  # noqa: FBT001
) -> None:
    """MessageExtEncoder and CommitLogDispatcherBuildConsumeQueue: offset 0, whatever was given."""
    store = open_store(SimulatedDisk())
    put(store, a_message(0))
    put(store, msgspec.structs.replace(a_message(1), sys_flag=sys_flag))
    put(store, a_message(2))
    offsets = [m.queue_offset for m in log_messages(store)]
    assert offsets == ([0, 1, 2] if is_queued else [0, 0, 1])
    assert [number_of(m) for m in queue_messages(store, "TopicA", 0)] == (
        [0, 1, 2] if is_queued else [0, 2]
    )


def test_records_of_the_state_table_are_read_and_stay_out_of_the_queues() -> None:
    """Before 4.3 QUEUEOFFSET of prepared and rolled-back records was an index of that table."""
    disk = SimulatedDisk()
    log = b"".join(
        old_record(number, sys_flag, queue_offset)
        for number, (sys_flag, queue_offset) in enumerate(
            [(0, 0), (4, 17), (4, 18), (8, 1), (12, 18), (0, 2)]
        )
    )
    disk.create(f"{DIRECTORY}/commitlog/{0:020d}", 8192).buffer[: len(log)] = log
    store = open_store(disk)
    assert [m.queue_offset for m in log_messages(store)] == [0, 17, 18, 1, 18, 2]
    assert [number_of(m) for m in queue_messages(store, "TopicA", 0)] == [0, 3, 5]
    put(store, a_message(6))
    assert [number_of(m) for m in queue_messages(store, "TopicA", 0)] == [0, 3, 5, 6]


def old_record(number: int, sys_flag: int, queue_offset: int) -> bytes:
    message = MessageExt(
        topic="TopicA",
        body=b"%d:" % number,
        properties={},
        queue_id=0,
        queue_offset=queue_offset,
        physical_offset=0,
        store_size=0,
        flag=0,
        sys_flag=sys_flag,
        born_timestamp_ms=T0,
        born_host=BORN_HOST,
        store_timestamp_ms=T0,
        store_host=Host("127.0.0.1", 10911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=0,
    )
    size = len(encode_record(message))
    return encode_record(msgspec.structs.replace(message, physical_offset=number * size))


def test_rocketmqs_own_records_of_each_kind_have_the_offsets_told() -> None:
    disk = SimulatedDisk()
    for path in (GOLDEN / "tran").rglob("*"):
        if path.is_file() and "index" not in path.parts:
            disk.replace(f"{DIRECTORY}/{path.relative_to(GOLDEN / 'tran')}", path.read_bytes())
    store = open_store(disk)
    records = [m for m in log_messages(store) if m.topic == "T"]
    assert [(m.sys_flag, m.queue_offset) for m in records] == [(0, 0), (4, 0), (12, 0), (8, 1)]
    assert [m.sys_flag for m in queue_messages(store, "T", 0)] == [0, 8]


# -- crashes ---------------------------------------------------------------------------------------

OUTCOMES = {0: COMMIT, 1: ROLLBACK, 2: COMMIT, 3: ROLLBACK, 4: COMMIT}


def run_through(disk: SimulatedDisk) -> set[int]:
    """Transactions of every kind; return which ones were prepared in the end."""
    world = World(disk)
    halves = [world.prepare(number) for number in OUTCOMES]
    world.end(halves[0], COMMIT)
    world.end(halves[1], ROLLBACK)
    world.sync_and_save()
    for question in world.check(7000):
        if number_of(question.message) > 2:
            world.answer(question, OUTCOMES[number_of(question.message)])
    world.sync_and_save()
    world.check(30_000)
    world.end(halves[2], COMMIT)
    world.sync_and_save()
    world.store.close()
    return set(OUTCOMES)


def finish(disk: SimulatedDisk) -> Counter[int]:
    """Ask and answer until no transaction is open; return what was delivered."""
    world = World(disk, T0 + 100_000)
    for _ in range(5):
        for question in world.check(30_000):
            world.answer(question, OUTCOMES[number_of(question.message)])
    assert world.check(30_000) == []
    counts = Counter(world.delivered())
    seen = {number_of(half) for half in queue_messages(world.store, HALF, 0)}
    assert counts.keys() == {number for number in seen if OUTCOMES[number] == COMMIT}
    return counts


def test_killed_at_any_step_what_was_prepared_ends_as_its_producer_wants() -> None:
    step = 0
    while True:
        step += 1
        disk = StepDisk()
        disk.on_step = die_at(step)
        try:
            run_through(disk)
        except Interrupted:
            counts = finish(disk.crashed())
            assert max(counts.values(), default=0) <= 1
            continue
        break
    assert finish(disk.crashed()) == Counter({0: 1, 2: 1, 4: 1})
    assert step > 30


@pytest.mark.parametrize("seed", range(4))
def test_after_a_power_loss_at_any_step_no_transaction_is_forgotten(seed: int) -> None:
    chance = random.Random(seed)
    disk = StepDisk()
    pictures: list[SimulatedDisk] = []
    disk.on_step = lambda _: pictures.append(disk.powered_off(chance))
    run_through(disk)
    for picture in pictures:
        finish(picture)
    assert len(pictures) > 30


def test_a_crash_between_commit_and_op_does_not_repeat_the_message() -> None:
    """The next master sees that its log ends with a commit, and puts the op before all else."""
    world = World()
    halves = [world.prepare(number) for number in range(3)]
    world.end(halves[0], COMMIT)
    questions = world.check(7000)
    world.sync_and_save()
    world.dies_between = True
    with pytest.raises(Interrupted):
        world.end(halves[1], COMMIT)
    again = world.restarted()
    assert [m.topic for m in log_messages(again.store)][-2:] == ["TopicA", OP]
    for question in questions:
        expected = number_of(question.message) == 2
        assert (again.answer(question, COMMIT) is EndTransactionStatus.ENDED) == expected
    assert again.end(halves[1], COMMIT) is EndTransactionStatus.NO_SUCH_TRANSACTION
    assert again.asked(30_000) == []
    assert again.delivered() == [0, 1, 2]


def test_a_late_end_by_the_first_copy_counts_after_a_restart_past_it() -> None:
    world = World()
    half = world.prepare(1)
    world.check(7000)
    world.sync_and_save()
    again = world.restarted()
    assert again.service.half_offset == 1
    assert again.end(half, COMMIT) is EndTransactionStatus.ENDED
    assert again.asked(30_000) == []
    assert again.delivered() == [1]


def test_copies_of_a_half_are_known_again_after_a_crash() -> None:
    """The progress is behind: RocketMQ then asks about each copy, and puts the message for each."""
    world = World()
    half = world.prepare(1)
    immune = world.prepare(2, CHECK_IMMUNITY_TIME_IN_SECONDS="40")
    world.check(7000)
    world.check(30_000)
    again = world.restarted()
    assert again.service.half_offset == 0
    assert again.end(half, COMMIT) is EndTransactionStatus.ENDED
    assert again.end(immune, COMMIT) is EndTransactionStatus.ENDED
    assert again.asked(30_000) == []
    assert sorted(again.delivered()) == [1, 2]


# -- a model ---------------------------------------------------------------------------------------


class Transactions(RuleBasedStateMachine):
    """Random producers and random kills, against what has to come out.

    A producer decides once and tells the same whenever it tells anything.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.halves: dict[int, PutMessageResult] = {}
        self.outcomes: dict[int, int] = {}
        self.committed: set[int] = set()

    @rule(outcome=st.sampled_from((COMMIT, ROLLBACK)), immune=st.booleans())
    def prepare(self, outcome: int, immune: bool) -> None:  # noqa: FBT001
        number = len(self.halves)
        more = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "70"} if immune else {}
        self.halves[number] = self.world.prepare(number, **more)
        self.outcomes[number] = outcome

    @precondition(lambda self: self.halves)
    @rule(pick=st.integers(0, 1000))
    def end(self, pick: int) -> None:
        number = pick % len(self.halves)
        status = self.world.end(self.halves[number], self.outcomes[number])
        self._note(number, status)

    def _note(self, number: int, status: EndTransactionStatus) -> None:
        if status is EndTransactionStatus.ENDED and self.outcomes[number] == COMMIT:
            self.committed.add(number)

    @rule(after_ms=st.sampled_from((3000, 7000, 30_000)), answers=st.randoms(use_true_random=False))
    def check(self, after_ms: int, answers: random.Random) -> None:
        for question in self.world.check(after_ms):
            number = number_of(question.message)
            if answers.random() < 0.5:
                status = self.world.answer(question, self.outcomes[number])
                assert status is EndTransactionStatus.ENDED
                self._note(number, status)

    @rule(synced=st.booleans())
    def save(self, synced: bool) -> None:  # noqa: FBT001
        if synced:
            self.world.sync_and_save()
        else:
            self.world.service.save_progress()
            self.world.save()

    @precondition(lambda self: self.halves)
    @rule(pick=st.integers(0, 1000))
    def kill_between(self, pick: int) -> None:
        """The node dies with a message in the log, and its op not."""
        number = pick % len(self.halves)
        self.world.dies_between = True
        try:
            status = self.world.end(self.halves[number], self.outcomes[number])
        except Interrupted:
            self.committed.add(number)
        else:
            self._note(number, status)
        self.kill()

    @rule()
    def kill(self) -> None:
        self.world = self.world.restarted()

    @invariant()
    def delivered_as_decided(self) -> None:
        counts = Counter(self.world.delivered())
        assert counts.keys() == self.committed
        for number, count in counts.items():
            assert count == 1, f"message {number} came {count} times"

    def teardown(self) -> None:
        """Let every transaction end."""
        for _ in range(8):
            for question in self.world.check(30_000):
                number = number_of(question.message)
                self._note(number, self.world.answer(question, self.outcomes[number]))
        assert self.world.check(30_000) == []
        self.delivered_as_decided()
        assert self.committed == {n for n, outcome in self.outcomes.items() if outcome == COMMIT}
        self.world.sync_and_save()
        assert self.world.offsets.get(HALF, 0) == self.world.store.reads.max_offset_in_queue(
            HALF, 0
        )
        assert self.world.offsets.get(OP, 0) == self.world.store.reads.max_offset_in_queue(OP, 0)
        service = self.world.service
        state = (service._ended, service._live, service._earlier, service._ops)
        assert not any(state)


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("topic", [HALF, OP])
def test_nothing_is_known_to_be_open_while_a_half_or_an_op_is_damaged(topic: str) -> None:
    world = World()
    halves = [world.prepare(number) for number in range(4)]
    for half in halves[:3]:
        assert world.end(half, COMMIT) is EndTransactionStatus.ENDED
    note_damage(world.store, topic, 1)
    service = world.service_again()
    for _ in range(5):
        assert not service.recover(), "it would read the same record for ever"
        assert service.damaged is not None
    heal(world.store)
    while not service.recover(7):
        assert service.damaged is None
    world.service = service
    assert world.asked(60_000) == [3]


def test_a_check_waits_at_a_damaged_half() -> None:
    world = World()
    halves = [world.prepare(number) for number in range(4)]
    note_damage(world.store, HALF, 1)
    assert world.asked(60_000) == [0]
    assert world.asked(60_000) == []
    with pytest.raises(RecordDamagedError):
        world.end(halves[1], COMMIT)
    heal(world.store)
    assert set(world.asked(60_000)) >= {1, 2, 3}


def rot(world: World, half: PutMessageResult, at: int) -> None:
    """Change a byte of a half that is known to be sound."""
    file = world.store.commit_log.files.find_by_offset(half.wrote_offset)
    assert file is not None
    file.buffer[half.wrote_offset + at - file.file_from_offset] ^= 1


def test_no_message_is_made_of_a_half_that_has_rotted_since_it_was_put() -> None:
    world = World()
    halves = [world.prepare(number) for number in range(3)]
    rot(world, halves[1], 89)
    with pytest.raises(RecordDamagedError):
        world.end(halves[1], COMMIT)
    # Nor does a check put it again, with a checksum that fits then.
    assert world.asked(60_000) == [0]
    assert world.asked(60_000) == []
    assert world.store.reads.max_offset_in_queue(HALF, 0) == 4
    rot(world, halves[1], 89)
    heal(world.store)
    assert world.end(halves[1], COMMIT) is EndTransactionStatus.ENDED


@pytest.mark.parametrize("at", [17, 40, 50, 60])
async def test_a_header_that_has_rotted_in_a_closed_file_ends_no_transaction(
    at: int, autojump_clock: MockClock
) -> None:
    """A queue id, a time, a host: only the fingerprint covers them."""
    world = World()
    half = world.prepare(0)
    while len(world.store.commit_log.files.files) < 2:
        world.prepare(1)
    await take_fingerprints(world.store)
    rot(world, half, at)
    halves = world.store.reads.max_offset_in_queue(HALF, 0)
    assert world.asked(60_000) == []
    assert world.store.reads.max_offset_in_queue(HALF, 0) == halves
    with pytest.raises(RecordDamagedError):
        world.end(half, COMMIT)
    assert world.store.reads.max_offset_in_queue("TopicA", 0) == 0

"""Transactions: a message is put aside, and delivered or forgotten when its producer says so.

                        +--commit----> message in the real topic, then an op
    prepare --> half ---+--rollback--> an op
                        +--nothing---> the producer is asked, again and again; in the end given up

The check walks the half queue. `half_offset` is its progress, kept as the consumer offset of group
CID_RMQ_SYS_TRANS: no half below it is open. A half that stays open is put again at the end of the
queue, so that the walk can go on; the *live* copy of a half is its last one, and an end of any
of them ends that one. The op queue says which halves have ended; its progress is kept likewise.

State in memory, all of it built again from the two queues at a start:

    _ended     queue offsets of ended halves that the walk has not passed, or whose op is not done
    _live      queue offset of an earlier copy -> that of the live one
    _ops       op messages not done: their queue offset -> the halves in them

Progress is saved only up to where the log is durable: a power loss must not take the copy of a
half that the walk has passed.

Ops are written in batches. A crash in between forgets who has ended: a half rolled back is asked
about again, and a *committed* one too, so its message may come a second time. That is the only way
it can; RocketMQ also repeats it when an end crosses a check, when the walk has passed an immune
half, and when a producer commits twice.

Unlike RocketMQ, which reads op messages as it goes and sleeps for more, a check knows all ops
before it starts; so it never waits. A half that was given up can no longer be committed.

Source: RocketMQ 5.3.3, TransactionalMessageServiceImpl, EndTransactionProcessor.
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from store.transaction.half_message import (
    HALF_QUEUE_ID,
    check_times,
    checked_half,
    committed_message,
    ended_halves,
    given_up_message,
    half_message,
    immune_half,
    prepared_queue_offset,
)
from store.transaction.op_batches import OpBatches
from store.transaction.transaction import (
    CheckRound,
    CheckTransaction,
    EndTransactionResult,
    EndTransactionStatus,
    TransactionSettings,
)
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    decode_message,
    decode_messages,
)
from tandem.wire.message_properties import PROPERTY_UNIQUE_KEY
from tandem.wire.system_topics import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from store.results import PutMessage, PutMessageResult
    from store.transaction.transaction import EndTransaction, TransactionLog
    from tandem.wire.message import Host, MessageExt

_log = logging.getLogger(__name__)

_PULL_NUMS: Final = 32
_SLICE_HALVES: Final = 200
"""Halves looked at in one call of `check`; then other tasks have their turn."""

_TOO_LATE: Final = (
    "the half message is older than its CHECK_IMMUNITY_TIME_IN_SECONDS: wait for the check"
)
_NOT_OPEN: Final = "the transaction has ended, was given up, or is checked at another offset"


class _Verdict(enum.Enum):
    """What the check makes of an open half."""

    LATER = enum.auto()
    GIVE_UP = enum.auto()
    IMMUNE = enum.auto()
    ASK = enum.auto()


class TransactionalMessageService:
    """The transactions of one master."""

    def __init__(
        self,
        log: TransactionLog,
        *,
        delay: Callable[[PutMessage], PutMessage],
        put: Callable[[PutMessage], PutMessageResult],
        query_offset: Callable[[str, int], int],
        commit_offset: Callable[[str, int, int], None],
        flushed_where: Callable[[], int],
        store_host: Host,
        settings: TransactionSettings | None = None,
    ) -> None:
        """Take up where the saved progress says; reads both queues from there on.

        Args:
            log: The store.
            delay: Rewrites a message with a delay level, which has to wait after its commit.
            put: Puts a message as it is, without hooks.
            query_offset: Consumer offset of CID_RMQ_SYS_TRANS for topic and queue id; -1: none.
            commit_offset: Sets it.
            flushed_where: The offset below which the log is durable.
            store_host: This broker.
            settings: None: RocketMQ's defaults.
        """
        self._log = log
        self._delay = delay
        self._put_message = put
        self._query_offset = query_offset
        self._commit_offset = commit_offset
        self._flushed_where = flushed_where
        self._settings = settings or TransactionSettings()
        self._ended: set[int] = set()
        self._live: dict[int, int] = {}
        self._earlier: dict[int, list[int]] = {}
        """The inverse of `_live`."""
        self._ops: dict[int, list[int]] = {}
        self._op_batches = OpBatches(self._put, store_host, self._settings)
        self._run: tuple[int, int] | None = None
        """Start time of a check under way, and where the half queue ended then."""
        self._put_end = 0
        self._not_durable: deque[tuple[int, int, int]] = deque()
        """(end of the log that must be durable, half offset, op offset) after each check."""
        self.half_offset = self._saved_offset(RMQ_SYS_TRANS_HALF_TOPIC)
        self.op_offset = self._op_read_offset = self._saved_offset(RMQ_SYS_TRANS_OP_HALF_TOPIC)
        self._read_ops()
        self._find_copies()

    # -- the state, from the log -----------------------------------------------------------------

    def _saved_offset(self, topic: str) -> int:
        low = self._log.min_offset_in_queue(topic, HALF_QUEUE_ID)
        high = self._log.max_offset_in_queue(topic, HALF_QUEUE_ID)
        return min(max(self._query_offset(topic, HALF_QUEUE_ID), low), high)

    def _messages(self, topic: str, offset: int) -> Iterator[MessageExt]:
        """Yield the messages of a queue from `offset` on; what cannot be read is left out."""
        while True:
            found = self._log.get_message(topic, HALF_QUEUE_ID, offset, _PULL_NUMS)
            for view in found.body:
                yield from _decoded(view)
            if found.next_begin_offset <= offset:
                return
            offset = found.next_begin_offset

    def _read_ops(self) -> None:
        for op in self._messages(RMQ_SYS_TRANS_OP_HALF_TOPIC, self._op_read_offset):
            halves = ended_halves(op)
            self._ops[op.queue_offset] = halves
            self._ended.update(halves)
            self._op_read_offset = op.queue_offset + 1

    def _find_copies(self) -> None:
        """Find out which halves were put again before the last stop."""
        last: dict[tuple[object, ...], MessageExt] = {}
        for half in self._messages(RMQ_SYS_TRANS_HALF_TOPIC, self.half_offset):
            origin = prepared_queue_offset(half)
            if origin is not None and origin != half.queue_offset:
                self._renewed(origin, half.queue_offset)
            identity = _identity(half)
            before = last.get(identity)
            if before is not None and check_times(before) < check_times(half):
                self._renewed(before.queue_offset, half.queue_offset)
            last[identity] = half

    def _renewed(self, old: int, new: int) -> None:
        """Remember that the half at `old`, or its live copy, goes on at `new`."""
        live = self._live.get(old, old)
        if live == new:
            return
        earlier = [*self._earlier.pop(live, ()), live]
        self._earlier.setdefault(new, []).extend(earlier)
        self._live.update(dict.fromkeys(earlier, new))

    def _has_ended(self, live: int) -> bool:
        ended = self._ended
        return live in ended or any(offset in ended for offset in self._earlier.get(live, ()))

    # -- prepare and end -------------------------------------------------------------------------

    def prepare(self, message: PutMessage) -> PutMessageResult:
        """Put the half of `message`. The producer needs both offsets of the result later."""
        return self._put(half_message(message))

    def end_transaction(self, request: EndTransaction, now_ms: int) -> EndTransactionResult:
        """Commit or roll back.

        Source: EndTransactionProcessor.processRequest.
        """
        if request.commit_or_rollback not in (TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE):
            return EndTransactionResult(EndTransactionStatus.UNKNOWN)
        half = self._half_at(request.commit_log_offset)
        if half is None:
            return _refused("Find prepared transaction message failed")
        if not request.from_transaction_check and self._came_too_late(half, now_ms):
            return EndTransactionResult(EndTransactionStatus.TIMED_OUT, _TOO_LATE)
        live = self._live.get(half.queue_offset, half.queue_offset)
        fault = _fault(half, request)
        if not fault and (live < self.half_offset or self._has_ended(live)):
            fault = _NOT_OPEN
        if fault:
            return _refused(fault)
        if request.commit_or_rollback == TRANSACTION_COMMIT_TYPE:
            return self._commit(half, live, now_ms)
        self._end(live, now_ms)
        return EndTransactionResult(EndTransactionStatus.ENDED)

    def _commit(self, half: MessageExt, live: int, now_ms: int) -> EndTransactionResult:
        try:
            put = self._put(committed_message(half, self._delay))
        except ValueError as error:
            return _refused(str(error))
        if not put.status.is_stored:
            return EndTransactionResult(EndTransactionStatus.NOT_STORED, put.reason, put)
        self._end(live, now_ms)
        return EndTransactionResult(EndTransactionStatus.ENDED, "", put)

    def _half_at(self, commit_log_offset: int) -> MessageExt | None:
        record = self._log.look_message_by_offset(commit_log_offset)
        if record is None:
            return None
        try:
            half, _ = decode_message(record)
        except MalformedMessageError as error:
            _log.error("no half message at %d: %s", commit_log_offset, error)
            return None
        return half if half.topic == RMQ_SYS_TRANS_HALF_TOPIC else None

    def _came_too_late(self, half: MessageExt, now_ms: int) -> bool:
        """Source: EndTransactionProcessor.rejectCommitOrRollback."""
        own_ms = _immunity_of(half)
        if own_ms is None:
            return False
        timeout_ms = self._settings.transaction_timeout_ms
        return now_ms - half.born_timestamp_ms > max(own_ms, timeout_ms)

    def _end(self, live: int, now_ms: int) -> None:
        self._ended.add(live)
        self._op_batches.add(live, now_ms)

    def _put(self, message: PutMessage) -> PutMessageResult:
        result = self._put_message(message)
        if result.status.is_stored:
            self._put_end = max(self._put_end, result.end_offset)
        return result

    def write_ops(self, now_ms: int, *, at_once: bool = False) -> int | None:
        """Write what ops are due; return when to come back, None if nothing waits."""
        return self._op_batches.write(now_ms, at_once=at_once)

    # -- check -----------------------------------------------------------------------------------

    def check(self, now_ms: int) -> CheckRound:
        """Go on with the walk over the half queue, or start a new one.

        Call it again at once until it is complete, then every transactionCheckInterval.

        Source: TransactionalMessageServiceImpl.check.
        """
        self._read_ops()
        if self._run is None:
            end = self._log.max_offset_in_queue(RMQ_SYS_TRANS_HALF_TOPIC, HALF_QUEUE_ID)
            self._run = (now_ms, end)
        questions: list[CheckTransaction] = []
        looked_at = 0
        while looked_at < _SLICE_HALVES and self.half_offset < self._run[1]:
            looked_at += 1
            if not self._step(now_ms, questions):
                self._run = None
                break
        if self._run is not None and self.half_offset >= self._run[1]:
            self._run = None
        self._advance_op_offset()
        self._not_durable.append((self._put_end, self.half_offset, self.op_offset))
        self.save_progress()
        return CheckRound(tuple(questions), self._run is None)

    def _step(self, now_ms: int, questions: list[CheckTransaction]) -> bool:
        """Deal with the half at `half_offset`; False if the walk ends there for now."""
        offset = self.half_offset
        if offset in self._live:
            self.half_offset += 1
        elif self._has_ended(offset):
            self._pass(offset)
        else:
            return self._check_open(offset, now_ms, questions)
        return True

    def _check_open(self, offset: int, now_ms: int, questions: list[CheckTransaction]) -> bool:
        half = self._read_half(offset)
        if half is None:
            return self.half_offset > offset
        match self._verdict(half, now_ms):
            case _Verdict.LATER:
                return False
            case _Verdict.GIVE_UP:
                return self._give_up(half)
            case _Verdict.IMMUNE:
                return self._renew(half, immune_half(half)) is not None
            case _Verdict.ASK:
                return self._ask(half, questions)

    def _read_half(self, offset: int) -> MessageExt | None:
        """Return the half; if it cannot be read, move on to the next one that can."""
        found = self._log.get_message(RMQ_SYS_TRANS_HALF_TOPIC, HALF_QUEUE_ID, offset, 1)
        halves = _decoded(found.body[0]) if found.body else []
        if halves:
            return halves[0]
        if found.next_begin_offset > offset:
            _log.warning("halves %d to %d are gone", offset, found.next_begin_offset - 1)
            self.half_offset = found.next_begin_offset
        return None

    def _verdict(self, half: MessageExt, now_ms: int) -> _Verdict:
        settings = self._settings
        assert self._run is not None
        age_ms = now_ms - half.born_timestamp_ms
        checks = check_times(half)
        if checks >= settings.transaction_check_max or age_ms > settings.file_reserved_time_ms:
            return _Verdict.GIVE_UP
        if half.store_timestamp_ms >= self._run[0]:
            return _Verdict.LATER
        own_ms = _immunity_of(half)
        if own_ms is None:
            is_young = 0 <= age_ms <= settings.transaction_timeout_ms
            return _Verdict.LATER if is_young else _Verdict.ASK
        immunity_ms = settings.transaction_timeout_ms if own_ms < 0 else own_ms
        return _Verdict.IMMUNE if age_ms < immunity_ms else _Verdict.ASK

    def _give_up(self, half: MessageExt) -> bool:
        if not self._put(given_up_message(half)).status.is_stored:
            return False
        _log.error(
            "the transaction of half %d (topic %s, key %s) is given up after %d checks",
            half.queue_offset,
            half.properties.get(PROPERTY_REAL_TOPIC),
            half.properties.get(PROPERTY_UNIQUE_KEY),
            check_times(half),
        )
        self._pass(half.queue_offset)
        return True

    def _renew(self, half: MessageExt, copy: PutMessage) -> PutMessageResult | None:
        result = self._put(copy)
        if not result.status.is_stored:
            return None
        self._renewed(half.queue_offset, result.queue_offset)
        self.half_offset += 1
        return result

    def _ask(self, half: MessageExt, questions: list[CheckTransaction]) -> bool:
        copy, properties = checked_half(half)
        put = self._renew(half, copy)
        if put is None:
            return False
        queue_id = properties.get(PROPERTY_REAL_QUEUE_ID, "")
        message = msgspec.structs.replace(
            half,
            topic=properties.get(PROPERTY_REAL_TOPIC, ""),
            queue_id=int(queue_id) if queue_id.isdecimal() else 0,
            properties=properties,
            queue_offset=put.queue_offset,
            physical_offset=put.wrote_offset,
            store_size=0,
        )
        group = properties.get(PROPERTY_PRODUCER_GROUP, "")
        questions.append(CheckTransaction(group, message))
        return True

    def _pass(self, live: int) -> None:
        """Go on past a half that has ended, and forget its earlier copies."""
        for offset in self._earlier.pop(live, ()):
            del self._live[offset]
        self.half_offset = live + 1

    # -- progress --------------------------------------------------------------------------------

    def _advance_op_offset(self) -> None:
        """Move over op messages all of whose halves the walk has passed."""
        while self.op_offset < self._op_read_offset:
            halves = self._ops.get(self.op_offset, [])
            if any(self._live.get(half, half) >= self.half_offset for half in halves):
                return
            self._ended.difference_update(halves)
            self._ops.pop(self.op_offset, None)
            self.op_offset += 1

    def save_progress(self) -> None:
        """Hand on the progress of the last check after which the log is durable."""
        flushed = self._flushed_where()
        durable: tuple[int, int, int] | None = None
        while self._not_durable and self._not_durable[0][0] <= flushed:
            durable = self._not_durable.popleft()
        if durable is not None:
            self._commit_offset(RMQ_SYS_TRANS_HALF_TOPIC, HALF_QUEUE_ID, durable[1])
            self._commit_offset(RMQ_SYS_TRANS_OP_HALF_TOPIC, HALF_QUEUE_ID, durable[2])


def _decoded(view: memoryview) -> list[MessageExt]:
    try:
        return decode_messages(view)
    except MalformedMessageError as error:
        _log.error("a half or op message cannot be read: %s", error)
        return []


def _refused(reason: str) -> EndTransactionResult:
    return EndTransactionResult(EndTransactionStatus.NO_SUCH_TRANSACTION, reason)


def _fault(half: MessageExt, request: EndTransaction) -> str:
    """Say what is wrong with a request. Source: EndTransactionProcessor.checkPrepareMessage."""
    if half.properties.get(PROPERTY_PRODUCER_GROUP) != request.producer_group:
        return "The producer group wrong"
    if half.queue_offset != request.tran_state_table_offset:
        return "The transaction state table offset wrong"
    if half.physical_offset != request.commit_log_offset:
        return "The commit log offset wrong"
    return ""


def _immunity_of(half: MessageExt) -> int | None:
    """Return how long a half asks not to be checked, in ms: negative for the usual time.

    None if it does not ask.
    """
    value = half.properties.get(PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
    if not value:
        return None
    try:
        return int(value) * 1000
    except ValueError:
        return -1000


def _identity(half: MessageExt) -> tuple[object, ...]:
    """Return what all copies of one half have in common, and no other half has."""
    return (
        half.properties.get(PROPERTY_UNIQUE_KEY),
        half.properties.get(PROPERTY_REAL_TOPIC),
        half.properties.get(PROPERTY_REAL_QUEUE_ID),
        half.born_timestamp_ms,
        half.born_host,
        half.body_crc,
        len(half.body),
    )

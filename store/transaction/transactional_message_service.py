"""Transactions: a message is put aside, and delivered or forgotten when its producer says so.

                        +--commit----> message in the real topic, at once followed by an op
    prepare --> half ---+--rollback--> an op
                        +--nothing---> the producer is asked, again and again; in the end given up

The check walks the half queue. `half_offset` is its progress, kept as the consumer offset of group
CID_RMQ_SYS_TRANS: no half below it is open. A half that stays open is put again at the end of the
queue, so that the walk can go on; the *live* copy of a half is its last one, and an end of any
of them ends that one. The op queue says which halves have ended; its progress is kept likewise.

Invariant: a transaction ends once, and its end is in the log. An op comes right after the message
that it is about: the two are put in one step with nothing between them, both or none. So wherever
a log was cut, at most its very last record is a message without its op, and a master that opens
such a log puts the op before anything else (`uncovered_commit.py`). Every later master finds
all ends in the op queue. RocketMQ writes ops in batches, three seconds later.

State in memory, all of it built again from the two queues at a start:

    _ended     ended halves that the walk has not passed, or whose op is not done: queue offset ->
               how they ended, UNKNOWN if the op was read from the log
    _live      queue offset of an earlier copy -> that of the live one
    _copies    what a half is -> a copy of it, found at the start, of which earlier ones were passed
    _ops       op messages not done: their queue offset -> the halves in them

Progress is saved only up to where the log is durable: a power loss must not take the copy of a
half that the walk has passed. In a fenced group it is in the log, after the copies.

RocketMQ puts the message once more for each further commit, also after a rollback, and when an end
crosses a check, or the walk has passed an immune half. Unlike RocketMQ, which reads op messages as
it goes and sleeps for more, a check knows all ops before it starts; so it never waits. A half
that was given up can no longer be committed.

Source: RocketMQ 5.3.3, TransactionalMessageServiceImpl, EndTransactionProcessor.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import msgspec

from store.machine.errors import RecordDamagedError
from store.results import PutMessage, PutMessageResult
from store.transaction.half_message import (
    HALF_QUEUE_ID,
    check_times,
    checked_half,
    committed_message,
    given_up_message,
    half_message,
    identity_of,
    immune_half,
    immunity_ms_of,
    op_message,
    prepared_queue_offset,
)
from store.transaction.half_queue import half_in_queue, messages_from
from store.transaction.transaction import (
    CheckRound,
    CheckTransaction,
    EndTransaction,
    EndTransactionResult,
    EndTransactionStatus,
    TransactionLog,
    TransactionSettings,
)
from store.transaction.verdict import Verdict, verdict_on
from tandem.wire.ended_halves import ended_halves
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    Host,
    MessageExt,
    decode_message,
)
from tandem.wire.message_properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_UNIQUE_KEY,
)
from tandem.wire.system_topics import RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC

_log = logging.getLogger(__name__)

_SLICE_HALVES: Final = 200
"""Halves looked at in one call of `check`; then other tasks have their turn."""

_DONE: Final = object()

_OP_COPIES_MAX: Final = 64
"""Copies of one half that its op names, the last ones. RocketMQ asks about others after a crash."""

_UNKNOWN: Final = 0

_TOO_LATE: Final = (
    "the half message is older than its CHECK_IMMUNITY_TIME_IN_SECONDS: wait for the check"
)
_NOT_OPEN: Final = "the transaction has ended, was given up, or is checked at another offset"
_OTHER_END: Final = "the transaction has ended before, in the other way; nothing was changed"


class TransactionalMessageService:
    """The transactions of one master. Nothing can be ended or checked before `recover` is done."""

    def __init__(
        self,
        log: TransactionLog,
        *,
        delay: Callable[[PutMessage], PutMessage],
        put: Callable[[PutMessage], PutMessageResult],
        put_pair: Callable[[PutMessage, PutMessage], PutMessageResult],
        query_offset: Callable[[str, int], int],
        commit_offset: Callable[[str, int, int], None],
        flushed_where: Callable[[], int],
        store_host: Host,
        settings: TransactionSettings | None = None,
    ) -> None:
        """Take up where the saved progress says.

        Args:
            log: The store.
            delay: Rewrites a message with a delay level, which has to wait after its commit.
            put: Puts a message as it is, without hooks.
            put_pair: Puts two of them with nothing between them, both or none.
            query_offset: Consumer offset of CID_RMQ_SYS_TRANS for topic and queue id; -1: none.
            commit_offset: Sets it.
            flushed_where: The offset below which what was put is not lost any more.
            store_host: This broker.
            settings: None: RocketMQ's defaults.
        """
        self._log = log
        self._delay = delay
        self._put_message = put
        self._put_two = put_pair
        self._query_offset = query_offset
        self._commit_offset = commit_offset
        self._flushed_where = flushed_where
        self._store_host = store_host
        self._settings = settings or TransactionSettings()
        self._ended: dict[int, int] = {}
        self._live: dict[int, int] = {}
        self._earlier: dict[int, list[int]] = {}
        """The inverse of `_live`."""
        self._copies: dict[tuple[object, ...], int] = {}
        self._ops: dict[int, list[int]] = {}
        self._run: tuple[int, int] | None = None
        """Start time of a check under way, and where the half queue ended then."""
        self._put_end = 0
        self._not_durable: deque[tuple[int, int, int]] = deque()
        """(end of the log that must be durable, half offset, op offset) after each check."""
        self.half_offset = self._saved_offset(RMQ_SYS_TRANS_HALF_TOPIC)
        self.op_offset = self._op_read_offset = self._saved_offset(RMQ_SYS_TRANS_OP_HALF_TOPIC)
        self.damaged: RecordDamagedError | None = None
        """What has to be healed before it is known which transactions have ended."""
        self._recovery = self._recover()

    # -- the state, from the log -----------------------------------------------------------------

    def _saved_offset(self, topic: str) -> int:
        low = self._log.min_offset_in_queue(topic, HALF_QUEUE_ID)
        high = self._log.max_offset_in_queue(topic, HALF_QUEUE_ID)
        return min(max(self._query_offset(topic, HALF_QUEUE_ID), low), high)

    def recover(self, messages_max: int = sys.maxsize) -> bool:
        """Read the two queues from the saved progress on; True when that is done.

        Where a message is `damaged` this goes no further, and tries again when called again.
        """
        for _ in islice(self._recovery, messages_max):
            if self.damaged is not None:
                return False
        return next(self._recovery, _DONE) is _DONE

    def _recover(self) -> Iterator[None]:
        last: dict[tuple[object, ...], tuple[int, int]] = {}
        offset = self.half_offset

        def find_copies() -> Iterator[None]:
            nonlocal offset
            for half in messages_from(self._log, RMQ_SYS_TRANS_HALF_TOPIC, offset):
                self._find_copy(half, last)
                offset = half.queue_offset + 1
                yield

        for read in (self._read_ops, find_copies):
            while True:
                try:
                    yield from read()
                    break
                except RecordDamagedError as error:
                    self.damaged = error
                yield
                self.damaged = None

    def _read_ops(self) -> Iterator[None]:
        for op in messages_from(self._log, RMQ_SYS_TRANS_OP_HALF_TOPIC, self._op_read_offset):
            halves = ended_halves(op)
            self._ops[op.queue_offset] = halves
            for half in halves:
                self._ended.setdefault(half, _UNKNOWN)
            self._op_read_offset = op.queue_offset + 1
            yield

    def _find_copy(self, half: MessageExt, last: dict[tuple[object, ...], tuple[int, int]]) -> None:
        """Find out whether a half was put again before the last stop.

        `last` is the queue offset and the number of checks of the last half that is the same.
        """
        origin = prepared_queue_offset(half)
        if origin is not None and origin != half.queue_offset:
            self._renewed(origin, half.queue_offset)
        identity, checks = identity_of(half), check_times(half)
        before = last.get(identity)
        if before is not None and before[1] < checks:
            self._renewed(before[0], half.queue_offset)
        elif before is None and checks:
            self._copies[identity] = half.queue_offset
        last[identity] = half.queue_offset, checks

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

        Raises:
            RecordDamagedError: the half is damaged; nothing has changed.

        Source: EndTransactionProcessor.processRequest.
        """
        outcome = request.commit_or_rollback
        if outcome not in (TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE):
            return EndTransactionResult(EndTransactionStatus.UNKNOWN)
        half = self._half_at(request.commit_log_offset)
        if half is None:
            return _refused("Find prepared transaction message failed")
        if not request.from_transaction_check and self._came_too_late(half, now_ms):
            return EndTransactionResult(EndTransactionStatus.TIMED_OUT, _TOO_LATE)
        if fault := _fault(half, request):
            return _refused(fault)
        live = self._live_copy(half)
        if live < self.half_offset or self._has_ended(live):
            return self._ended_before(live, outcome)
        return self._end(half, live, outcome, now_ms)

    def _live_copy(self, half: MessageExt) -> int:
        offset = half.queue_offset
        if offset < self.half_offset and offset not in self._live:
            # A copy may have been passed before the last start.
            offset = self._copies.get(identity_of(half), offset)
        return self._live.get(offset, offset)

    def _ended_before(self, live: int, outcome: int) -> EndTransactionResult:
        known = self._ended.get(live, _UNKNOWN)
        if known == outcome:
            return EndTransactionResult(EndTransactionStatus.ENDED_BEFORE)
        return _refused(_OTHER_END if known != _UNKNOWN else _NOT_OPEN)

    def _end(self, half: MessageExt, live: int, outcome: int, now_ms: int) -> EndTransactionResult:
        copies = self._copies_of(live)
        op = op_message(copies, now_ms, self._store_host)
        if outcome == TRANSACTION_ROLLBACK_TYPE:
            put = self._put(op)
        else:
            last = half if live == half.queue_offset else half_in_queue(self._log, live)
            named = (last or half).physical_offset
            try:
                message = committed_message(half, named, self._delay)
            except ValueError as error:
                return _refused(str(error))
            put = self._put_pair(message, op)
        if not put.status.is_stored:
            return EndTransactionResult(EndTransactionStatus.NOT_STORED, put.reason, put)
        self._ended.update(dict.fromkeys(copies, outcome))
        return EndTransactionResult(EndTransactionStatus.ENDED, "", put)

    def _copies_of(self, live: int) -> list[int]:
        return [*self._earlier.get(live, [])[-_OP_COPIES_MAX:], live]

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
        own_ms = immunity_ms_of(half)
        if own_ms is None:
            return False
        timeout_ms = self._settings.transaction_timeout_ms
        return now_ms - half.born_timestamp_ms > max(own_ms, timeout_ms)

    def _put(self, message: PutMessage) -> PutMessageResult:
        return self._noted(self._put_message(message))

    def _put_pair(self, message: PutMessage, op: PutMessage) -> PutMessageResult:
        return self._noted(self._put_two(message, op))

    def _noted(self, result: PutMessageResult) -> PutMessageResult:
        if result.status.is_stored:
            self._put_end = max(self._put_end, result.end_offset)
        return result

    # -- check -----------------------------------------------------------------------------------

    def check(self, now_ms: int) -> CheckRound:
        """Go on with the walk over the half queue, or start a new one.

        Call it again at once until it is complete, then every transactionCheckInterval.

        Source: TransactionalMessageServiceImpl.check.
        """
        questions: list[CheckTransaction] = []
        try:
            self._check_some(now_ms, questions)
        except RecordDamagedError:  # logged where it was found; the walk waits for it
            self._run = None
        self._advance_op_offset()
        self._not_durable.append((self._put_end, self.half_offset, self.op_offset))
        self.save_progress()
        return CheckRound(tuple(questions), self._run is None)

    def _check_some(self, now_ms: int, questions: list[CheckTransaction]) -> None:
        for _ in self._read_ops():
            pass
        if self._run is None:
            end = self._log.max_offset_in_queue(RMQ_SYS_TRANS_HALF_TOPIC, HALF_QUEUE_ID)
            self._run = (now_ms, end)
        looked_at = 0
        while looked_at < _SLICE_HALVES and self.half_offset < self._run[1]:
            looked_at += 1
            if not self._step(now_ms, questions):
                self._run = None
                break
        if self._run is not None and self.half_offset >= self._run[1]:
            self._run = None

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
        assert self._run is not None
        match verdict_on(half, self._settings, now_ms, self._run[0]):
            case Verdict.LATER:
                return False
            case Verdict.GIVE_UP:
                return self._give_up(half, now_ms)
            case Verdict.IMMUNE:
                return self._renew(half, immune_half(half)) is not None
            case Verdict.ASK:
                return self._ask(half, questions)

    def _read_half(self, offset: int) -> MessageExt | None:
        """Return the half; if it cannot be read, move on to the next one that can."""
        half = half_in_queue(self._log, offset)
        if half is not None:
            return half
        found = self._log.get_message(RMQ_SYS_TRANS_HALF_TOPIC, HALF_QUEUE_ID, offset, 1)
        if found.next_begin_offset > offset:
            _log.warning("halves %d to %d are gone", offset, found.next_begin_offset - 1)
            self.half_offset = found.next_begin_offset
        return None

    def _give_up(self, half: MessageExt, now_ms: int) -> bool:
        """Put it where people look; its op says that it has ended."""
        op = op_message(self._copies_of(half.queue_offset), now_ms, self._store_host)
        if not self._put_pair(given_up_message(half), op).status.is_stored:
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
            for half in halves:
                self._ended.pop(half, None)
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


def _refused(reason: str) -> EndTransactionResult:
    return EndTransactionResult(EndTransactionStatus.NO_SUCH_TRANSACTION, reason)


def _fault(half: MessageExt, request: EndTransaction) -> str | None:
    """Say what is wrong with a request. Source: EndTransactionProcessor.checkPrepareMessage."""
    if half.properties.get(PROPERTY_PRODUCER_GROUP) != request.producer_group:
        return "The producer group wrong"
    if half.queue_offset != request.tran_state_table_offset:
        return "The transaction state table offset wrong"
    if half.physical_offset != request.commit_log_offset:
        return "The commit log offset wrong"
    return None

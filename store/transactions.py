"""The transactions of one broker, put together: from the step on in which it becomes master.

    put_missing_op    before this master puts anything else
    open              then reads both queues, in slices; ends that come meanwhile wait
    end               commits and rolls back
    run               asks producers about halves that stay open

The rules are those of `store.transaction`; here they get their store, their time and their turns.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from store import MessageStore, PutMessage, PutMessageResult
from store.delayed.schedule_message_service import delay_rewrite
from store.machine.errors import RecordDamagedError, StoreFullError
from store.transaction.transaction import (
    CheckTransaction,
    EndTransaction,
    EndTransactionResult,
    EndTransactionStatus,
    TransactionSettings,
)
from store.transaction.transactional_message_service import TransactionalMessageService
from store.transaction.uncovered_commit import missing_op
from tandem.wire.message import Host
from tandem.wire.system_topics import TRANS_CHECK_MAX_TIME_TOPIC

_log = logging.getLogger(__name__)

RECOVERY_SLICE: Final = 500
"""Messages read at a start, then other tasks have their turn."""

DAMAGED_RETRY_SECONDS: Final = 1.0
"""When to look again whether a message was healed without which nothing can be ended."""

EARLY_ENDS_MAX: Final = 10_000
"""Ends that came before the queues were read; beyond it their producers are asked."""


class Progress(msgspec.Struct, frozen=True):
    """Where the check keeps how far it has got.

    Attributes:
        query: Consumer offset of CID_RMQ_SYS_TRANS for topic and queue id; -1: none.
        commit: Sets it.
        is_journaled: Whether what is committed is written into the log, after all that was put.
    """

    query: Callable[[str, int], int]
    commit: Callable[[str, int, int], None]
    is_journaled: bool


class Transactions:
    """The transactions of one broker. Without `open`, as on a slave, there are none to be ended.

    `create_topic` makes sure that a topic is there; `ask` sends a question to a producer.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        store_host: Host,
        wall_clock_ms: Callable[[], int],
        settings: TransactionSettings,
        create_topic: Callable[[str], None],
        ask: Callable[[CheckTransaction], None],
    ) -> None:
        self._store = store
        self._store_host = store_host
        self._wall_clock_ms = wall_clock_ms
        self._settings = settings
        self._create_topic = create_topic
        self._ask = ask
        self._service: TransactionalMessageService | None = None
        self._is_recovered = False
        self._early: deque[EndTransaction] = deque()

    def put_missing_op(self) -> None:
        """Put the op of a commit that the log ends with. Nothing may be put before it.

        Raises:
            StoreFullError: there is no room for it.
        """
        store = self._store
        log, last = store.whole_log, store.last_record_offset
        op = missing_op(log, last, self._wall_clock_ms(), self._store_host)
        if op is None:
            return
        result = store.puts.put_message(op, hooks=False)
        if not result.status.is_stored:
            directory = store.config.directory
            raise StoreFullError(f"{directory}: {result.reason}", path=directory)
        _log.warning("the log ended with a commit: writing the record that ends its transaction")

    def open(self, progress: Progress) -> None:
        """Take up the check where its progress says; ends count from now on."""
        store = self._store
        self._service = TransactionalMessageService(
            store.whole_log,
            delay=lambda message: delay_rewrite(message, store.delay_levels),
            put=self._put,
            put_pair=self._put_pair,
            query_offset=progress.query,
            commit_offset=progress.commit,
            flushed_where=lambda: (
                store.max_physical_offset if progress.is_journaled else store.flushed_where
            ),
            store_host=self._store_host,
            settings=self._settings,
        )
        self._is_recovered = self._service.recover(RECOVERY_SLICE)

    def end(self, request: EndTransaction) -> EndTransactionResult | None:
        """Commit or roll back; None: later, as soon as it is known what has ended before."""
        service = self._service
        if service is None:
            return EndTransactionResult(
                EndTransactionStatus.NO_SUCH_TRANSACTION, "this broker is not a master yet"
            )
        if self._is_recovered:
            return service.end_transaction(request, self._wall_clock_ms())
        if len(self._early) < EARLY_ENDS_MAX:
            self._early.append(request)
        return None

    async def run(self, end_round: Callable[[], None], may_put: Callable[[], bool]) -> None:
        """Ask producers every now and then, until cancelled.

        Args:
            end_round: Called after each round of puts.
            may_put: Whether a client's message would be taken now.
        """
        service = self._service
        assert service is not None, "opened before it runs"
        while not self._is_recovered:
            await trio.sleep(0 if service.damaged is None else DAMAGED_RETRY_SECONDS)
            self._is_recovered = service.recover(RECOVERY_SLICE)
        while self._early:
            reason = self._end_early(service, self._early.popleft())
            if reason is not None:
                _log.warning("a transaction was not ended: %s", reason)
        end_round()
        interval_seconds = self._settings.transaction_check_interval_ms / 1000
        while True:
            await trio.sleep(interval_seconds)
            while may_put() and not self.check(end_round):
                await trio.lowlevel.checkpoint()

    def _end_early(
        self, service: TransactionalMessageService, request: EndTransaction
    ) -> str | None:
        """End a transaction; return why it was not ended, None if it was."""
        try:
            ended = service.end_transaction(request, self._wall_clock_ms())
        except RecordDamagedError as error:
            return f"{error}; its producer is asked again"
        return ended.reason or None

    def check(self, end_round: Callable[[], None]) -> bool:
        """Make one slice of a check; True if that was the last one for now."""
        assert self._service is not None, "opened before it checks"
        checked = self._service.check(self._wall_clock_ms())
        for question in checked.questions:
            self._ask(question)
        end_round()
        return checked.is_complete

    def _put(self, message: PutMessage) -> PutMessageResult:
        return self._store.puts.put_message(message, hooks=False)

    def _put_pair(self, first: PutMessage, second: PutMessage) -> PutMessageResult:
        if first.topic == TRANS_CHECK_MAX_TIME_TOPIC:
            self._create_topic(first.topic)
        return self._store.puts.put_pair(first, second)

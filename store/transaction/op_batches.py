"""OpBatches: which halves have ended and are in no op message yet.

Ops are written in batches, some time after the first of them, or when they fill a message.

Source: RocketMQ 5.3.3, TransactionalMessageServiceImpl.batchSendOpMessage.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from store.transaction.half_message import OFFSET_SEPARATOR, op_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.results import PutMessage, PutMessageResult
    from store.transaction.transaction import TransactionSettings
    from tandem.wire.message import Host

RETRY_MS: Final = 100


class OpBatches:
    """The ops of one service that are still to be written; `put` puts a message as it is."""

    def __init__(
        self,
        put: Callable[[PutMessage], PutMessageResult],
        store_host: Host,
        settings: TransactionSettings,
    ) -> None:
        self._put = put
        self._store_host = store_host
        self._interval_ms = settings.transaction_op_batch_interval_ms
        self._size_max = settings.transaction_op_msg_max_size
        self._unwritten: deque[int] = deque()
        self._unwritten_size = 0
        self._write_at_ms: int | None = None

    def add(self, half_offset: int, now_ms: int) -> None:
        """Take note that a half has ended."""
        self._unwritten.append(half_offset)
        self._unwritten_size += _size(half_offset)
        if self._write_at_ms is None:
            self._write_at_ms = now_ms + self._interval_ms

    def write(self, now_ms: int, *, at_once: bool = False) -> int | None:
        """Write what is due, or all `at_once`; return when to come back, None if nothing waits."""
        due = at_once or self._unwritten_size > self._size_max
        if self._write_at_ms is None or not (due or now_ms >= self._write_at_ms):
            return self._write_at_ms
        while self._unwritten:
            batch = self._next_batch()
            if not self._put(op_message(batch, now_ms, self._store_host)).status.is_stored:
                self._write_at_ms = now_ms + RETRY_MS
                return self._write_at_ms
            for _ in batch:
                self._unwritten_size -= _size(self._unwritten.popleft())
        self._write_at_ms = None
        return None

    def _next_batch(self) -> list[int]:
        batch: list[int] = []
        size = 0
        for offset in self._unwritten:
            if size >= self._size_max:
                break
            batch.append(offset)
            size += _size(offset)
        return batch


def _size(half_offset: int) -> int:
    return len(f"{half_offset}{OFFSET_SEPARATOR}")

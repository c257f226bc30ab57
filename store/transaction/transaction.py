"""What `TransactionalMessageService` is asked, what it answers, and what it needs of a store.

Source: RocketMQ 5.3.3, EndTransactionRequestHeader, CheckTransactionStateRequestHeader,
BrokerConfig.
"""

from __future__ import annotations

import enum
from typing import Protocol

import msgspec

from store.results import GetMessageResult, PhysicalOffset, PutMessageResult, QueueOffset
from tandem.wire.message import MessageExt


class TransactionSettings(msgspec.Struct, frozen=True):
    """Source: BrokerConfig, and fileReservedTime of MessageStoreConfig."""

    transaction_check_interval_ms: int = 30_000
    transaction_timeout_ms: int = 6_000
    """How old a half has to be before its producer is asked."""

    transaction_check_max: int = 15
    file_reserved_time_ms: int = 72 * 3_600_000


class EndTransaction(msgspec.Struct, frozen=True):
    """A producer's word on one of its halves; the offsets are those of the answer to the send.

    `commit_or_rollback` is a transaction type of the sysflag; anything but COMMIT and ROLLBACK
    means that the producer does not know.
    """

    producer_group: str
    tran_state_table_offset: QueueOffset
    commit_log_offset: PhysicalOffset
    commit_or_rollback: int
    from_transaction_check: bool = False


class EndTransactionStatus(enum.Enum):
    """What became of it."""

    ENDED = "ENDED"
    ENDED_BEFORE = "ENDED_BEFORE"
    """In the same way, a moment ago. Nothing was put."""

    UNKNOWN = "UNKNOWN"
    """The producer does not know; it will be asked again."""

    NO_SUCH_TRANSACTION = "NO_SUCH_TRANSACTION"
    """SYSTEM_ERROR in RocketMQ. It never was, is not this producer's, or has ended before."""

    TIMED_OUT = "TIMED_OUT"
    """ILLEGAL_OPERATION (604) in RocketMQ. The producer will be asked, and has to answer that."""

    NOT_STORED = "NOT_STORED"
    """The message could not be put, see `put`; the transaction is still open."""


class EndTransactionResult(msgspec.Struct, frozen=True):
    """`put` is what became of the last record that was put for it, if one was.

    With ENDED all of them are in the log up to its end offset.
    """

    status: EndTransactionStatus
    reason: str = ""
    put: PutMessageResult | None = None


class CheckTransaction(msgspec.Struct, frozen=True):
    """Ask a producer of this group what became of its transaction.

    `message` is the message as the producer knows it, with real topic and queue id, but the offsets
    of its half: an answer has to name those.
    """

    producer_group: str
    message: MessageExt


class CheckRound(msgspec.Struct, frozen=True):
    """What one call of `check` came to; `is_complete` if the walk has got as far as it can now."""

    questions: tuple[CheckTransaction, ...]
    is_complete: bool


class TransactionLog(Protocol):
    """What is read of the store: all of it, confirmed or not. `MessageStore.whole_log` has it."""

    def look_message_by_offset(self, offset: int) -> bytes | None:
        """The record at a physical offset, None if none starts there."""

    def get_message(
        self, topic: str, queue_id: int, offset: int, max_msg_nums: int
    ) -> GetMessageResult:
        """Records from a queue offset on."""

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The first queue offset that can be read."""

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The queue offset of the next message."""

    def queue_offset_at(self, topic: str, queue_id: int, offset: int) -> int:
        """The queue offset of the message at a physical offset, -1 if the queue names none there.

        The queue alone is asked: the record may be damaged.
        """

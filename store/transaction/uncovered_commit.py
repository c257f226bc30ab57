"""What a new master does first: see whether the log ends with a commit that lacks its op.

    ... half ... | message of the commit |          the op was lost with the last master
    ... half ... | message of the commit | op |     put before anything else

A commit and its op are put with nothing between them, so this can only be the last record. Were
anything put after it, no later master would know that the transaction has ended: its message would
come a second time with the next commit, or after the next check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.transaction.half_message import identity_of, op_message
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK, decode_message
from tandem.wire.system_topics import RMQ_SYS_TRANS_HALF_TOPIC

if TYPE_CHECKING:
    from store.results import PhysicalOffset, PutMessage
    from store.transaction.transaction import TransactionLog
    from tandem.wire.message import Host, MessageExt


def missing_op(
    log: TransactionLog, last_record_offset: PhysicalOffset, now_ms: int, store_host: Host
) -> PutMessage | None:
    """Return the op to put, None if the last record is no commit."""
    last = _message_at(log, last_record_offset)
    if last is None or last.sys_flag & TRANSACTION_MASK != TRANSACTION_COMMIT_TYPE:
        return None
    half = _message_at(log, last.prepared_transaction_offset)
    if half is None or half.topic != RMQ_SYS_TRANS_HALF_TOPIC:
        return None
    # A delayed message that was delivered names place 0, whatever its half was.
    if identity_of(half) != identity_of(last):
        return None
    return op_message([half.queue_offset], now_ms, store_host)


def _message_at(log: TransactionLog, offset: PhysicalOffset) -> MessageExt | None:
    record = log.look_message_by_offset(offset) if offset >= 0 else None
    if record is None:
        return None
    try:
        return decode_message(record)[0]
    except MalformedMessageError:
        return None

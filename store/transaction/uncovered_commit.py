"""What a new master does first: see whether the log ends with a commit that lacks its op.

    ... half ... | message of the commit |          the op was lost with the last master
    ... half ... | message of the commit | op |     put before anything else

A commit and its op are put with nothing between them, so this can only be the last record. Were
anything put after it, no later master would know that the transaction has ended: its message would
come a second time with the next commit, or after the next check.

The half may be damaged. Its number is in the queue of halves as well, which names its place, so the
op can be put all the same. Only for a half at place 0 that is not enough: a delayed message names
that place too, whatever its half was. Then no op is put: the transaction may be committed a second
time, which is better than that another one never is.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from store.machine.errors import RecordDamagedError
from store.results import PhysicalOffset, PutMessage
from store.transaction.half_message import HALF_QUEUE_ID, identity_of, op_message
from store.transaction.transaction import TransactionLog
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_MASK,
    Host,
    MessageExt,
    decode_message,
)
from tandem.wire.system_topics import RMQ_SYS_TRANS_HALF_TOPIC

_log = logging.getLogger(__name__)


class _Damaged(NamedTuple):
    """A message that cannot be read, and why."""

    reason: str


def missing_op(
    log: TransactionLog, last_record_offset: PhysicalOffset, now_ms: int, store_host: Host
) -> PutMessage | None:
    """Return the op to put, None if the last record is no commit, or nobody can say of what."""
    last = _message_at(log, last_record_offset)
    if isinstance(last, _Damaged):
        _log.error(
            "the last record of the log, at %d, is damaged (%s): if it commits a transaction, that"
            " this has ended is not noted, and its message may come twice",
            last_record_offset,
            last.reason,
        )
        return None
    if last is None or last.sys_flag & TRANSACTION_MASK != TRANSACTION_COMMIT_TYPE:
        return None
    place = last.prepared_transaction_offset
    half = _message_at(log, place)
    if isinstance(half, _Damaged):
        return _op_of_damaged(log, place, half.reason, now_ms, store_host)
    if half is None or half.topic != RMQ_SYS_TRANS_HALF_TOPIC:
        return _op_of_damaged(log, place, "no half is there", now_ms, store_host)
    if identity_of(half) != identity_of(last):
        # A delayed message that was delivered names place 0, whatever its half was.
        why = "it is not what was committed"
        return _op_of_damaged(log, place, why, now_ms, store_host) if place else None
    return op_message([half.queue_offset], now_ms, store_host)


def _op_of_damaged(
    log: TransactionLog, place: PhysicalOffset, reason: str, now_ms: int, store_host: Host
) -> PutMessage | None:
    number = log.queue_offset_at(RMQ_SYS_TRANS_HALF_TOPIC, HALF_QUEUE_ID, place)
    if place and number >= 0:
        _log.warning(
            "the half at %d, which the last record of the log commits, is damaged (%s); that it has"
            " ended is noted by its number, %d",
            *(place, reason, number),
        )
        return op_message([number], now_ms, store_host)
    if number >= 0:
        _log.error(
            "the half at 0, which the last record of the log may commit, is damaged (%s): that it"
            " has ended is not noted, and its message may come twice",
            reason,
        )
    return None


def _message_at(log: TransactionLog, offset: PhysicalOffset) -> MessageExt | _Damaged | None:
    try:
        record = log.look_message_by_offset(offset) if offset >= 0 else None
        return None if record is None else decode_message(record)[0]
    except RecordDamagedError as error:
        return _Damaged(error.reason)
    except MalformedMessageError:
        return None

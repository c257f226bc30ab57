"""Reads of the queues of halves and of ops. A damaged message is waited for, never left out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from store.transaction.half_message import HALF_QUEUE_ID
from store.transaction.transaction import TransactionLog
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import MessageExt, decode_messages
from tandem.wire.system_topics import RMQ_SYS_TRANS_HALF_TOPIC

_log = logging.getLogger(__name__)

_PULL_NUMS: Final = 32


def messages_from(log: TransactionLog, topic: str, offset: int) -> Iterator[MessageExt]:
    """Yield the messages of a queue from `offset` on.

    Raises:
        RecordDamagedError: the next one is damaged.
    """
    while True:
        found = log.get_message(topic, HALF_QUEUE_ID, offset, _PULL_NUMS)
        for view in found.body:
            yield from _decoded(view)
        if found.damaged is not None:
            raise found.damaged
        if found.next_begin_offset <= offset:
            return
        offset = found.next_begin_offset


def half_in_queue(log: TransactionLog, queue_offset: int) -> MessageExt | None:
    """Return the half with this number; None if it is gone, or says nothing.

    Raises:
        RecordDamagedError: it is damaged.
    """
    found = log.get_message(RMQ_SYS_TRANS_HALF_TOPIC, HALF_QUEUE_ID, queue_offset, 1)
    if found.damaged is not None:
        raise found.damaged
    halves = _decoded(found.body[0]) if found.body else []
    return halves[0] if halves else None


def _decoded(view: memoryview) -> list[MessageExt]:
    try:
        return decode_messages(view)
    except MalformedMessageError as error:
        _log.error("a half or op message cannot be read: %s", error)
        return []

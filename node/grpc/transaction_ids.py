"""The id of a transaction: where its half is, so that no node has to remember it.

    half1 BROKER QUEUE_OFFSET PHYSICAL_OFFSET MESSAGE_ID

Clients give it back as they got it, to whatever node, before or after a restart or a change of
master. A proxy of RocketMQ's takes the message id for it, and remembers the rest for 30 seconds.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tandem.wire.store_layout import OFFSET_MAX
from tandem.wire.untrusted import UnreadableError, whole_number

_KIND: Final = "half1"


class TransactionId(msgspec.Struct, frozen=True):
    """What is in one."""

    broker_name: str
    queue_offset: int
    physical_offset: int
    message_id: str

    def __str__(self) -> str:
        return (
            f"{_KIND} {self.broker_name} {self.queue_offset} {self.physical_offset}"
            f" {self.message_id}"
        )


def read_transaction_id(text: str) -> TransactionId:
    """Return what is in one.

    Raises:
        UnreadableError: it is none of ours.
    """
    parts = text.split(" ", 4)
    if len(parts) != 5 or parts[0] != _KIND:
        raise UnreadableError("cannot found transaction data: this id was not given by a node")
    offsets = whole_number(parts[2]), whole_number(parts[3])
    if not all(0 <= offset <= OFFSET_MAX for offset in offsets):
        raise UnreadableError("cannot found transaction data: there is no such offset")
    return TransactionId(parts[1], *offsets, parts[4])

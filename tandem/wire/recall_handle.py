"""The recall handle of a message that waits for its time: what its producer can stop it by.

    base64, URL-safe, padded, of:  v1 <topic> <broker> <TIMER_OUT_MS + 1> <UNIQ_KEY>

The time is one that falls into the slot of the message: what stops it has to be there with it.

Source: RocketMQ 5.3.3, org.apache.rocketmq.common.producer.RecallMessageHandle.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from tandem.wire.untrusted import UnreadableError, decode_text, whole_number

HANDLE_CHARACTERS_MAX: Final = 4_096
"""Ours: a topic has at most 127 characters, and a key about 32."""

_VERSION: Final = "v1"
_PARTS_MIN: Final = 5


class RecallHandle(msgspec.Struct, frozen=True):
    """What a handle says."""

    topic: str
    broker_name: str
    deliver_ms: int
    unique_key: str


def encode_recall_handle(handle: RecallHandle) -> str:
    """Return the handle as text."""
    parts = (
        _VERSION,
        handle.topic,
        handle.broker_name,
        str(handle.deliver_ms),
        handle.unique_key,
    )
    return base64.urlsafe_b64encode(" ".join(parts).encode()).decode("ascii")


def decode_recall_handle(text: str) -> RecallHandle:
    """Read a handle; its padding may be missing, and what follows the fifth part is ignored.

    Raises:
        UnreadableError: it is none, or of another version.
    """
    padded = text + "=" * (-len(text) % 4)
    if not text.isascii() or len(text) > HANDLE_CHARACTERS_MAX:
        raise UnreadableError("recall handle is invalid")
    try:
        data = base64.b64decode(padded, altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise UnreadableError("recall handle is invalid") from error
    parts = decode_text(data).split(" ")
    if len(parts) < _PARTS_MIN or parts[0] != _VERSION:
        raise UnreadableError("recall handle is invalid")
    return RecallHandle(parts[1], parts[2], whole_number(parts[3]), parts[4])

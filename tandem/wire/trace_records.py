"""Message traces: what clients say of their sends and of what they consumed, and its bytes.

A record is fields with 0x01 between them and 0x02 after the last; the first field says what it is.
Records of several messages are the body of one message, whose keys are their ids and keys: so they
are found in the index of the topic of traces. What a client did not know is `null`.

    Pub              one message was sent
    SubBefore        one message is given to a consumer
    SubAfter         what became of that; both have one request id, and may be in two messages
    EndTransaction   the end of a transaction was said

Clients of other versions write fewer fields, or more: a reader takes what is there.

Source: RocketMQ 5.3.3, TraceDataEncoder, TraceConstants, TraceBean.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import msgspec

from tandem.wire.untrusted import DIGITS_MAX, decode_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FIELD_END: Final = "\x01"
_RECORD_END: Final = "\x02"
_UNKNOWN: Final = "null"


class MessageType(enum.IntEnum):
    """What kind of message was sent. Source: MessageType."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3
    ORDER = 4


class ContextCode(enum.IntEnum):
    """How consuming ended. Source: ConsumeReturnType."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNED_NULL = 3
    FAILED = 4


class Pub(msgspec.Struct, frozen=True):
    """A message was sent, or was to be.

    Attributes:
        time_ms: When the send began.
        store_host: `ip:port` of the broker that answered.
        body_length: In bytes.
        cost_ms: From the call to the answer.
        is_success: Whether the answer was SEND_OK.
    """

    time_ms: int
    region_id: str
    group: str
    topic: str
    msg_id: str
    tags: str
    keys: str
    store_host: str
    body_length: int
    cost_ms: int
    msg_type: int
    offset_msg_id: str
    is_success: bool


class SubBefore(msgspec.Struct, frozen=True):
    """A message is given to a consumer.

    Attributes:
        retry_times: How often it came back before.
    """

    time_ms: int
    region_id: str
    group: str
    request_id: str
    msg_id: str
    retry_times: int
    keys: str


class SubAfter(msgspec.Struct, frozen=True):
    """What became of a message that was given to a consumer.

    Attributes:
        cost_ms: How long it was in the consumer's hands.
        context_code: See `ContextCode`.
        time_ms: When it ended; None: an older client, which does not say.
        group: "" of an older client.
    """

    request_id: str
    msg_id: str
    cost_ms: int
    is_success: bool
    keys: str
    context_code: int
    time_ms: int | None
    group: str


class EndTransaction(msgspec.Struct, frozen=True):
    """A producer has said how a transaction ended.

    Attributes:
        state: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW.
        from_check: Whether a broker had asked.
    """

    time_ms: int
    region_id: str
    group: str
    topic: str
    msg_id: str
    tags: str
    keys: str
    store_host: str
    msg_type: int
    transaction_id: str
    state: str
    from_check: bool


TraceRecord = Pub | SubBefore | SubAfter | EndTransaction


def encode_traces(records: Iterable[TraceRecord]) -> bytes:
    """Return the body of a message of traces."""
    return "".join(map(_encoded, records)).encode("utf-8", "replace")


def _encoded(record: TraceRecord) -> str:
    # Attributes are in the order of the fields, and a class has the name of its record.
    fields = (type(record).__name__, *msgspec.structs.astuple(record))
    return _FIELD_END.join(map(_text, fields)) + _RECORD_END


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or value == "":
        return _UNKNOWN
    # A name with a separator in it would be two fields.
    return str(value).replace(_FIELD_END, " ").replace(_RECORD_END, " ")


def decode_traces(body: bytes) -> list[TraceRecord]:
    """Return the records of a message of traces; what is none is left out.

    Raises:
        UnreadableError: the body is no text.
    """
    text = decode_text(body)
    return [record for each in text.split(_RECORD_END) for record in _decoded(each)]


def _decoded(text: str) -> Iterator[TraceRecord]:
    kind, *given = ("" if each == _UNKNOWN else each for each in text.split(_FIELD_END))
    fields = _Fields(given)
    if kind == "Pub" and len(given) >= _PUB_FIELDS_MIN:
        yield _pub(fields, count=len(given))
    elif kind == "SubBefore" and len(given) >= _SUB_BEFORE_FIELDS_MIN:
        yield SubBefore(
            time_ms=fields.number(0),
            region_id=fields.text(1),
            group=fields.text(2),
            request_id=fields.text(3),
            msg_id=fields.text(4),
            retry_times=fields.number(5),
            keys=fields.text(6),
        )
    elif kind == "SubAfter" and len(given) >= _SUB_AFTER_FIELDS_MIN:
        yield SubAfter(
            request_id=fields.text(0),
            msg_id=fields.text(1),
            cost_ms=fields.number(2),
            is_success=fields.flag(3),
            keys=fields.text(4),
            context_code=fields.number(5),
            time_ms=fields.number(6) if fields.text(6) else None,
            group=fields.text(7),
        )
    elif kind == "EndTransaction" and len(given) >= _END_FIELDS_MIN:
        yield EndTransaction(
            time_ms=fields.number(0),
            region_id=fields.text(1),
            group=fields.text(2),
            topic=fields.text(3),
            msg_id=fields.text(4),
            tags=fields.text(5),
            keys=fields.text(6),
            store_host=fields.text(7),
            msg_type=fields.number(8),
            transaction_id=fields.text(9),
            state=fields.text(10),
            from_check=fields.flag(11),
        )


_PUB_FIELDS_MIN: Final = 12
"""Without the offset id, as clients of 4.x write it."""
_SUB_BEFORE_FIELDS_MIN: Final = 5
_SUB_AFTER_FIELDS_MIN: Final = 5
_END_FIELDS_MIN: Final = 12


def _pub(fields: _Fields, count: int) -> Pub:
    has_offset_id = count > _PUB_FIELDS_MIN
    return Pub(
        time_ms=fields.number(0),
        region_id=fields.text(1),
        group=fields.text(2),
        topic=fields.text(3),
        msg_id=fields.text(4),
        tags=fields.text(5),
        keys=fields.text(6),
        store_host=fields.text(7),
        body_length=fields.number(8),
        cost_ms=fields.number(9),
        msg_type=fields.number(10),
        offset_msg_id=fields.text(11) if has_offset_id else "",
        is_success=fields.flag(12 if has_offset_id else 11),
    )


class _Fields:
    """The fields of one record; those that are missing are empty."""

    def __init__(self, fields: list[str]) -> None:
        self._fields = fields

    def text(self, index: int) -> str:
        return self._fields[index] if index < len(self._fields) else ""

    def number(self, index: int) -> int:
        """Return a number; 0 for what is none."""
        text = self.text(index)
        digits = text.removeprefix("-")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX
        return int(text) if is_number else 0

    def flag(self, index: int) -> bool:
        return self.text(index) == "true"

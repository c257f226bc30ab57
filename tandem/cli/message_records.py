"""How a message looks on the command line: all of it for programs, what matters for people."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import typer

from tandem.cli.formats import Column, Format, Section, Value, print_facts, write
from tandem.cli.times import time_cell
from tandem.plain_text import plain

if TYPE_CHECKING:
    from tandem.wire.message import MessageExt

BODY_CHARACTERS_MAX: Final = 60
WHOLE_BODY_CHARACTERS_MAX: Final = 2_000


class MessageRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message as JSON can hold it: `body` is text, or `body_base64` if it is not UTF-8."""

    msg_id: str
    """The unique key that its producer gave it, else the offset id."""
    offset_msg_id: str
    topic: str
    queue_id: int
    queue_offset: int
    keys: str
    tags: str
    born_time: str
    born_host: str
    store_time: str
    store_host: str
    born_timestamp_ms: int
    store_timestamp_ms: int
    physical_offset: int
    store_size: int
    reconsume_times: int
    flag: int
    sys_flag: int
    properties: dict[str, str]
    body: str | None = None
    body_base64: bytes | None = None


def message_record(message: "MessageExt") -> MessageRecord:
    """Return everything about a message."""
    body: str | None = None
    raw: bytes | None = None
    try:
        body = message.body.decode()
    except UnicodeDecodeError:
        raw = message.body
    return MessageRecord(
        msg_id=message.msg_id,
        offset_msg_id=message.offset_msg_id,
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        keys=message.keys,
        tags=message.tags,
        born_time=time_cell(message.born_timestamp_ms) or "",
        born_host=str(message.born_host),
        store_time=time_cell(message.store_timestamp_ms) or "",
        store_host=str(message.store_host),
        born_timestamp_ms=message.born_timestamp_ms,
        store_timestamp_ms=message.store_timestamp_ms,
        physical_offset=message.physical_offset,
        store_size=message.store_size,
        reconsume_times=message.reconsume_times,
        flag=message.flag,
        sys_flag=message.sys_flag,
        properties=message.properties,
        body=body,
        body_base64=raw,
    )


def body_preview(body: bytes, characters_max: int = BODY_CHARACTERS_MAX) -> str:
    """Return the beginning of a body as text, and how long it is if that is not all."""
    text = body[: 4 * characters_max].decode("utf-8", "backslashreplace")
    if len(text) <= characters_max and len(body) <= 4 * characters_max:
        return text
    return f"{text[:characters_max]}… ({len(body):,} bytes)"


def print_messages(messages: "Sequence[MessageExt]", output_format: Format, *, whole: bool) -> None:
    """Print messages: a row each or, if `whole`, everything about each."""
    if whole and output_format is Format.TABLE:
        for message in messages:
            print_facts(_facts(message))
        return
    if output_format is Format.TEXT:
        for message in messages:
            typer.echo(plain(message.body.decode("utf-8", "backslashreplace")))
        return
    if output_format in (Format.JSON, Format.JSONL):
        records = [message_record(message) for message in messages]
        document = records[0] if whole else None
        write(output_format, Section(records, []), document=document)
        return
    columns: list[Column[MessageExt]] = [
        Column("id", lambda each: each.msg_id),
        Column("queue", lambda each: each.queue_id),
        Column("offset", lambda each: each.queue_offset),
        Column("stored", lambda each: time_cell(each.store_timestamp_ms)),
        Column("tags", lambda each: each.tags or None),
        Column("keys", lambda each: each.keys or None),
        Column("body", lambda each: body_preview(each.body), folds_at=" "),
    ]
    write(output_format, Section(messages, columns))


def _facts(message: "MessageExt") -> dict[str, Value]:
    record = message_record(message)
    properties: dict[str, Value] = {
        f"property {name}": value for name, value in sorted(message.properties.items())
    }
    return {
        "id": record.msg_id,
        "offset id": record.offset_msg_id,
        "topic": record.topic,
        "queue": record.queue_id,
        "queue offset": str(record.queue_offset),
        "keys": record.keys or None,
        "tags": record.tags or None,
        "born": f"{record.born_time} at {record.born_host}",
        "stored": f"{record.store_time} at {record.store_host}, offset {record.physical_offset}",
        "reconsume times": record.reconsume_times,
        "flag": record.flag,
        **properties,
        "size": f"{record.store_size:,} bytes, body {len(message.body):,}",
        "body": body_preview(message.body, WHOLE_BODY_CHARACTERS_MAX),
    }

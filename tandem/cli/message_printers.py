"""What prints messages one after the other: bodies, JSON, a table, or a template."""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Self

from tandem.cli.formats import Column, Section, print_sections
from tandem.cli.message_format import (
    BodyForm,
    BodyWriter,
    Found,
    TemplateError,
    as_record,
    compiled_template,
    local_time,
)
from tandem.cli.output import json_bytes
from tandem.plain_text import one_line

if TYPE_CHECKING:
    from tandem.wire.message import MessageExt

TEXT: Final = "text"
TABLE: Final = "table"
JSON: Final = "json"
JSONL: Final = "jsonl"

BODY_CHARACTERS_MAX: Final = 80
"""Of a body in a table."""


class MessagePrinter:
    """Prints each message at once. A context manager, for what comes first and last."""

    def __init__(self, line: Callable[[Found], bytes]) -> None:
        self._line = line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return

    def show(self, message: "MessageExt", broker_name: str) -> None:
        """Print one."""
        _output().write(self._line(Found(message, broker_name)))


class _JsonArray(MessagePrinter):
    """One JSON document: an array. It is whole whatever ends it."""

    def __enter__(self) -> Self:
        self._before = b"[\n"
        return self

    def __exit__(self, *_: object) -> None:
        _output().write(b"[]\n" if self._before == b"[\n" else b"\n]\n")

    def show(self, message: "MessageExt", broker_name: str) -> None:
        """Print one, after what separates it from the one before."""
        _output().write(self._before + self._line(Found(message, broker_name)).rstrip(b"\n"))
        self._before = b",\n"


class _Row(NamedTuple):
    queue: str
    offset: int
    stored: str
    keys: str
    tags: str
    body: str


class _Table(MessagePrinter):
    """Collects the messages, since a column is as wide as its widest cell."""

    def __init__(self, form: BodyForm) -> None:
        super().__init__(lambda _: b"")
        self._body = BodyWriter(form, is_raw=False)
        self._rows: list[_Row] = []

    def __exit__(self, *_: object) -> None:
        columns: list[Column[_Row]] = [
            Column("queue", lambda row: row.queue),
            Column("offset", lambda row: str(row.offset), is_number=True),
            Column("stored", lambda row: row.stored),
            Column("keys", lambda row: row.keys, rank=1),
            Column("tags", lambda row: row.tags, rank=1),
            Column("body", lambda row: row.body, folds_at=" "),
        ]
        print_sections([Section(self._rows, columns)])

    def show(self, message: "MessageExt", broker_name: str) -> None:
        """Keep one for the table."""
        body = self._body(message.body).decode(errors="replace")
        self._rows.append(
            _Row(
                f"{broker_name}/{message.queue_id}",
                message.queue_offset,
                local_time(message.store_timestamp_ms),
                message.keys,
                message.tags,
                one_line(body, BODY_CHARACTERS_MAX),
            )
        )


def message_printer(output_format: str, form: BodyForm) -> MessagePrinter:
    """Return what prints messages in a format, or by a template.

    Raises:
        TemplateError: It is neither.
    """
    write_body = BodyWriter(form, is_raw=not sys.stdout.isatty())
    match output_format:
        case "text":
            return MessagePrinter(lambda found: write_body(found.message.body) + b"\n")
        case "jsonl":
            return MessagePrinter(lambda found: _json_line(as_record(found, form)))
        case "json":
            return _JsonArray(lambda found: _json_line(as_record(found, form)))
        case "table":
            return _Table(form)
    if "%" not in output_format:
        raise TemplateError(
            f"{output_format!r} is no format; there are {TEXT}, {TABLE}, {JSON}, {JSONL}, and"
            " templates with fields such as %k and %v"
        )
    return MessagePrinter(compiled_template(output_format, write_body))


def _json_line(record: dict[str, Any]) -> bytes:
    return json_bytes(record) + b"\n"


def _output() -> IO[bytes]:
    return sys.stdout.buffer

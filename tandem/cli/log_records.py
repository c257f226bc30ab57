"""How `tandem log` prints records and findings: in columns for people, as JSON for programs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tandem.cli.formats import Format
from tandem.cli.log_options import BodyFormat
from tandem.cli.output import print_json, print_lines, terminal_width
from tandem.plain_text import plain

if TYPE_CHECKING:
    from tandem.log import DumpedRecord
    from tandem.log.findings import FindingReport
    from tandem.wire.message import MessageExt


@contextmanager
def printed_records(
    output_format: Format, body: BodyFormat
) -> "Iterator[Callable[[DumpedRecord], None]]":
    """Give what prints one record on standard output; JSON is one array at the end."""
    match output_format:
        case Format.JSON:
            with _array() as add:
                yield lambda record: add(record_json(record, body))
        case Format.JSONL:
            yield lambda record: print_json(record_json(record, body))
        case Format.TEXT:
            yield lambda record: _print_text(record, body)
        case Format.TABLE:
            from tandem.cli.log_tables import RecordTable

            is_shown = body is not BodyFormat.NONE
            table = RecordTable(print_lines, terminal_width(), shows_body=is_shown)
            yield lambda record: table.add(record, lambda data: _body_text(data, body))


@contextmanager
def _array() -> Iterator[Callable[[object], None]]:
    """Write one JSON array an element at a time: a log may not fit into memory."""
    count = 0

    def add(element: object) -> None:
        nonlocal count
        typer.echo("," if count else "[", nl=False)
        print_json(element)
        count += 1

    yield add
    typer.echo("]" if count else "[]")


def _print_text(record: "DumpedRecord", body: BodyFormat) -> None:
    """The bodies, a line each."""
    bodies = [inner.body for inner in record.body.inner] or [record.body.body]
    for data in bodies:
        typer.echo(plain(_body_text(data, body)))


def _body_text(data: bytes, body: BodyFormat) -> str:
    if body is BodyFormat.HEX:
        return data.hex()
    return data.decode("utf-8", "backslashreplace")


def record_json(record: "DumpedRecord", body: BodyFormat) -> dict[str, Any]:
    """Return all fields of a record; the messages of an inner batch are in `messages`."""
    message = record.message
    fields = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "store_size": message.store_size,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_timestamp_ms": message.born_timestamp_ms,
        "born_host": str(message.born_host),
        "store_timestamp_ms": message.store_timestamp_ms,
        "store_host": str(message.store_host),
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "msg_id": message.msg_id,
        "body_crc": message.body_crc,
        "crc_ok": record.crc_ok,
        "properties": message.properties,
        **({"problem": record.body.problem} if record.body.problem else {}),
    }
    if record.body.inner:
        messages = [_inner_json(inner, body) for inner in record.body.inner]
        return {**fields, "messages": messages}
    return {**fields, **_body_json(record.body.body, body)}


def _inner_json(message: "MessageExt", body: BodyFormat) -> dict[str, Any]:
    return {
        "queue_offset": message.queue_offset,
        "flag": message.flag,
        "properties": message.properties,
        **_body_json(message.body, body),
    }


def _body_json(data: bytes, body: BodyFormat) -> dict[str, Any]:
    """`body`, or `body_base64` if it is not UTF-8, or `body_hex` if that was asked for."""
    if body is BodyFormat.NONE:
        return {}
    if body is BodyFormat.HEX:
        return {"body_hex": data.hex()}
    try:
        return {"body": data.decode()}
    except UnicodeDecodeError:
        return {"body_base64": data}


def report_json(report: "FindingReport") -> dict[str, Any]:
    """Return the report with what each finding means."""
    return {
        **msgspec.structs.asdict(report),
        "damage_count": report.damage_count,
        "warning_count": report.warning_count,
        "findings": [
            {
                "severity": finding.severity,
                **msgspec.structs.asdict(finding),
                "meaning": finding.meaning,
                "remedy": finding.remedy,
            }
            for finding in report.findings
        ],
    }

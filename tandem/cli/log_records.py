"""How `tandem log` prints records and findings: in columns for people, as JSON for programs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tandem.cli.log_options import BodyFormat, RecordFormat
from tandem.cli.output import print_json

if TYPE_CHECKING:
    from tandem.log import DumpedRecord
    from tandem.log.verify import VerifyReport
    from tandem.wire.message import MessageExt


def record_printer(
    output_format: RecordFormat, body: BodyFormat
) -> "Callable[[DumpedRecord], None]":
    """Return what prints one record on standard output."""
    if output_format is RecordFormat.NDJSON:
        return lambda record: _print_json(record, body)
    from tandem.cli.log_tables import RecordTable

    table = RecordTable(typer.echo, shows_body=body is not BodyFormat.NONE)
    return lambda record: table.add(record, lambda data: _body_text(data, body))


def _body_text(data: bytes, body: BodyFormat) -> str:
    if body is BodyFormat.HEX:
        return data.hex()
    return data.decode("utf-8", "backslashreplace")


def _print_json(record: "DumpedRecord", body: BodyFormat) -> None:
    print_json(record_json(record, body))


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


def report_json(report: "VerifyReport") -> dict[str, Any]:
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

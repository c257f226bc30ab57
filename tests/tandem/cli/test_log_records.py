import json
from pathlib import Path

import pytest

from tandem.cli.formats import Format
from tandem.cli.log_options import BodyFormat
from tandem.cli.log_records import printed_records, record_json, report_json
from tandem.log import (
    DumpedRecord,
    RecordFilter,
    dump_records,
    open_store_directory,
    verify_store,
)
from tandem.wire.message import Message, encode_batch_body
from tests.support.log_builder import LogBuilder
from tests.tandem.log.vectors import copy_of, log_file, overwrite


def records_of(root: Path) -> list[DumpedRecord]:
    found = list(dump_records(open_store_directory(root), RecordFilter()))
    return [record for record in found if isinstance(record, DumpedRecord)]


def a_record(tmp_path: Path, body: bytes) -> DumpedRecord:
    log = LogBuilder()
    log.put(body=body, keys="k1")
    return records_of(log.write(tmp_path))[0]


@pytest.mark.parametrize(
    ("body", "shown", "fields"),
    [
        (b"text", BodyFormat.TEXT, {"body": "text"}),
        (b"\xff", BodyFormat.TEXT, {"body_base64": b"\xff"}),
        (b"\xff", BodyFormat.HEX, {"body_hex": "ff"}),
        (b"text", BodyFormat.NONE, {}),
    ],
)
def test_a_body_is_text_if_it_can_be(
    tmp_path: Path, body: bytes, shown: BodyFormat, fields: dict[str, object]
) -> None:
    found = record_json(a_record(tmp_path, body), shown)
    assert {name: value for name, value in found.items() if name.startswith("body")} == {
        **fields,
        "body_crc": found["body_crc"],
    }
    assert "problem" not in found


def test_the_messages_of_an_inner_batch_are_in_their_record(tmp_path: Path) -> None:
    log = LogBuilder()
    body = encode_batch_body([Message("T", b"first"), Message("T", b"second")])
    log.put(body=body, sys_flag=0xC0)
    (record,) = records_of(log.write(tmp_path))
    found = record_json(record, BodyFormat.TEXT)
    assert [message["body"] for message in found["messages"]] == ["first", "second"]
    assert [message["queue_offset"] for message in found["messages"]] == [0, 1]
    assert "body" not in found


def print_as(output_format: Format, body: BodyFormat, *records: DumpedRecord) -> None:
    with printed_records(output_format, body) as print_record:
        for record in records:
            print_record(record)


def test_programs_get_a_line_for_each_record(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    print_as(Format.JSONL, BodyFormat.TEXT, a_record(tmp_path, b"hello"))
    line = json.loads(capsysbinary.readouterr().out)
    assert (line["body"], line["properties"]["KEYS"]) == ("hello", "k1")


@pytest.mark.parametrize("count", [0, 1, 3])
def test_json_is_one_array_however_many_records_there_are(
    count: int, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    print_as(Format.JSON, BodyFormat.TEXT, *[a_record(tmp_path, b"hello")] * count)
    found = json.loads(capsysbinary.readouterr().out)
    assert [each["body"] for each in found] == ["hello"] * count


def test_text_is_the_bodies_and_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_as(Format.TEXT, BodyFormat.TEXT, *[a_record(tmp_path, b"a\nb")] * 2)
    assert capsys.readouterr().out == "a\\nb\n" * 2


@pytest.mark.parametrize(
    ("shown", "text"), [(BodyFormat.TEXT, "\\xffhi"), (BodyFormat.HEX, "ff6869")]
)
def test_people_get_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shown: BodyFormat, text: str
) -> None:
    print_as(Format.TABLE, shown, a_record(tmp_path, b"\xffhi"))
    title, row = capsys.readouterr().out.splitlines()
    assert title.split()[0] == "physical"
    assert row.endswith(text)


def test_a_report_says_what_each_finding_means(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(log_file(root), 95, b"\xff")
    found = report_json(verify_store(open_store_directory(root), jobs=1))
    assert found["damage_count"] > 0
    for finding in found["findings"]:
        assert finding["severity"] in ("damage", "warning", "note")
        assert finding["meaning"]
        assert finding["remedy"]

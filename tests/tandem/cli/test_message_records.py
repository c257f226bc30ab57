import json

import msgspec
import pytest

from tandem.cli.formats import Format
from tandem.cli.message_records import body_preview, message_record, print_messages
from tests.tandem.client.fake_broker import message_ext

MESSAGE = message_ext(b"hello", properties={"UNIQ_KEY": "U1", "KEYS": "k1 k2", "own": "value"})


@pytest.mark.parametrize(
    ("body", "preview"),
    [
        (b"", ""),
        (b"hello", "hello"),
        (b"\xff", "\\xff"),
        (b"x" * 60, "x" * 60),
        (b"x" * 61, "x" * 60 + "… (61 bytes)"),
        ("ä".encode() * 1_000, "ä" * 60 + "… (2,000 bytes)"),
    ],
)
def test_the_beginning_of_a_body_is_shown(body: bytes, preview: str) -> None:
    assert body_preview(body) == preview


def test_a_record_has_everything_and_text_where_there_is_text() -> None:
    record = message_record(MESSAGE)
    assert (record.msg_id, record.body, record.body_base64) == ("U1", "hello", None)
    assert record.store_time == "2023-11-14T22:13:20.001Z"
    assert record.properties["own"] == "value"
    raw = message_record(msgspec.structs.replace(MESSAGE, body=b"\xff"))
    assert (raw.body, raw.body_base64) == (None, b"\xff")


def test_one_message_is_shown_whole_and_several_a_row_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_messages([MESSAGE], Format.TABLE, whole=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["id", "U1"]
    assert any(line.split() == ["property", "own", "value"] for line in lines)
    print_messages([MESSAGE] * 2, Format.TABLE, whole=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1].split()[-1] == "hello"


def test_programs_get_records_and_bodies(capsys: pytest.CaptureFixture[str]) -> None:
    print_messages([MESSAGE], Format.JSON, whole=True)
    assert json.loads(capsys.readouterr().out)["msg_id"] == "U1"
    print_messages([MESSAGE] * 2, Format.JSON, whole=False)
    assert len(json.loads(capsys.readouterr().out)) == 2
    print_messages([MESSAGE] * 2, Format.JSONL, whole=False)
    assert len(capsys.readouterr().out.splitlines()) == 2
    evil = msgspec.structs.replace(MESSAGE, body=b"\x1b[2J\n")
    print_messages([evil], Format.TEXT, whole=False)
    assert capsys.readouterr().out == "\\x1b[2J\\n\n"

import json

import pytest

from tandem.cli.message_format import BodyForm, TemplateError
from tandem.cli.message_printers import message_printer
from tests.tandem.client.fake_broker import message_ext


def show(output_format: str, *bodies: bytes) -> None:
    with message_printer(output_format, BodyForm.TEXT) as printer:
        for offset, body in enumerate(bodies):
            printer.show(message_ext(body, queue_offset=offset), "broker-a")


def test_bodies_are_lines(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    show("text", b"one", b"\xff")
    assert capsysbinary.readouterr().out == b"one\n\xff\n"


@pytest.mark.parametrize("bodies", [[], [b"one"], [b"one", b"two"]])
def test_json_is_one_document(
    capsysbinary: pytest.CaptureFixture[bytes], bodies: list[bytes]
) -> None:
    show("json", *bodies)
    records = json.loads(capsysbinary.readouterr().out)
    assert [record["body"].encode() for record in records] == bodies


def test_json_is_a_document_whatever_ends_it(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    def print_until_stopped() -> None:
        with message_printer("json", BodyForm.TEXT) as printer:
            printer.show(message_ext(b"one"), "broker-a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        print_until_stopped()
    assert len(json.loads(capsysbinary.readouterr().out)) == 1


def test_lines_of_json_come_one_by_one(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    show("jsonl", b"one", b"two")
    lines = capsysbinary.readouterr().out.splitlines()
    assert [json.loads(line)["body"] for line in lines] == ["one", "two"]


def test_a_table_has_a_row_a_message_and_cuts_bodies(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    show("table", b"one", b"x" * 1000)
    text = capsysbinary.readouterr().out.decode()
    assert "broker-a/0" in text
    assert "one" in text
    assert "(1,000 characters)" in text


def test_templates_are_told_by_their_fields(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    show("%o %v", b"one")
    assert capsysbinary.readouterr().out == b"0 one\n"
    with pytest.raises(TemplateError):
        show("ndjson")

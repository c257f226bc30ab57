import json
from pathlib import Path

import pytest

from tandem.cli.message_format import (
    FIELDS,
    BodyForm,
    BodyWriter,
    Found,
    TemplateError,
    as_record,
    compiled_template,
    local_time,
)
from tandem.wire.message_properties import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
)
from tests.support.paths import ROOT
from tests.tandem.client.fake_broker import message_ext

RAW = BodyWriter(BodyForm.TEXT, is_raw=True)
PROPERTIES = {
    PROPERTY_KEYS: "k1 k2",
    PROPERTY_TAGS: "t",
    PROPERTY_UNIQUE_KEY: "ABC",
    "colour": "r\x1bd",
}


def found(body: bytes = b"body", **changes: str) -> Found:
    message = message_ext(body, queue_id=3, queue_offset=17, properties={**PROPERTIES, **changes})
    return Found(message, "broker-a")


def printed(template: str, each: Found | None = None, write_body: BodyWriter = RAW) -> str:
    return compiled_template(template, write_body)(each or found()).decode(errors="replace")


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("%t %B %p@%o", "orders broker-a 3@17\n"),
        ("%k|%g|%i|%s|%v", "k1 k2|t|ABC|4|body\n"),
        ("%h", "KEYS=k1 k2, TAGS=t, UNIQ_KEY=ABC, colour=r\\x1bd\n"),
        ("%h{colour}%h{none}", "r\\x1bd\n"),
        ("%T{ms} %b{ms}", "1700000000001 1700000000000\n"),
        ("%T{%Y}", "2023\n"),
        ("%v{hex} %v{base64}", "626f6479 Ym9keQ==\n"),
        (r"%v\t%%\\%n", "body\t%\\\n"),
        (r"%v\n", "body\n"),
        (r"%v\0", "body\0"),
        (r"%v\r\n", "body\r\n"),
        ("%v\n", "body\n"),
        ("é%v", "ébody\n"),
    ],
)
def test_a_template_is_filled_in(template: str, text: str) -> None:
    assert printed(template) == text


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("%x", "%x is no field; there are %t %B"),
        ("100%", "% is no field"),
        (r"\q", r"\q means nothing"),
        ("%v\\", "means nothing"),
        ("%v{utf16}", "is no form of a body"),
        ("%k{1}", "%k has no word in braces"),
    ],
)
def test_a_template_that_means_nothing_is_refused_with_what_there_is(
    template: str, words: str
) -> None:
    with pytest.raises(TemplateError) as refused:
        printed(template)
    assert words in str(refused.value)


def test_every_field_can_be_printed_and_is_in_the_page() -> None:
    page = Path(ROOT, "docs/command-line.md").read_text(encoding="utf-8")
    for field in FIELDS:
        assert printed(f"%{field}")
        assert f"| `%{field}`" in page


@pytest.mark.parametrize(
    ("form", "is_raw", "body", "text"),
    [
        (BodyForm.TEXT, True, b"\xff\x1b", b"\xff\x1b"),
        (BodyForm.TEXT, False, b"\xff\x1b", b"\\xff\\x1b"),
        (BodyForm.HEX, True, b"\xff\x1b", b"ff1b"),
        (BodyForm.BASE64, False, b"\xff\x1b", b"/xs="),
        (BodyForm.HEX, True, b"text", b"text"),
        (BodyForm.HEX, False, b"\x1b", b"\\x1b"),
    ],
)
def test_a_body_that_is_no_text_is_written_as_was_asked_for(
    form: BodyForm, *, is_raw: bool, body: bytes, text: bytes
) -> None:
    assert BodyWriter(form, is_raw=is_raw)(body) == text


def test_a_record_has_what_json_can_hold() -> None:
    record = as_record(found())
    assert (record["body"], record["keys"], record["tags"]) == ("body", ["k1", "k2"], "t")
    assert (record["broker"], record["queue_id"], record["queue_offset"]) == ("broker-a", 3, 17)
    assert as_record(found(b"\xff"))["body_base64"] == "/w=="
    assert as_record(found(b"\xff"), BodyForm.HEX)["body_hex"] == "ff"
    assert json.dumps(record)


def test_a_time_that_is_none_is_shown_as_a_number() -> None:
    assert local_time(10**18) == str(10**18)
    assert local_time(0).startswith(("1970-01-01T", "1969-12-31T"))

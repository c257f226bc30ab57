from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.untrusted import (
    UnreadableError,
    convert,
    decode_json,
    decode_json_object,
    decode_msgpack,
    decode_text,
    json_decoder,
    msgpack_decoder,
    shown,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Record(msgspec.Struct):
    name: str
    number: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] = 0
    share: float = 0.0
    data: bytes = b""
    by_number: dict[int, int] = {}
    anything: Any = None
    later: msgspec.Raw = msgspec.Raw(b"0")


DEEP = b"[" * 100_000
HOSTILE_JSON = [
    b"",
    b"\xff",
    b"null",
    b"[]",
    DEEP,
    b"[" * 5_000 + b"]" * 5_000,
    b'{"a":' * 100_000,
    b'{"name":"\xff"}',
    b'{"\xff":1,"name":"a","anything":{"\xfe":1}}',
    b'{"name":"\\ud800"}',
    b'{"name":"a","number":18446744073709551616}',
    b'{"name":"a","number":%b}' % (b"1" * 5_000),
    b'{"name":"a","number":1e400}',
    b'{"name":"a","number":NaN}',
    b'{"name":"a","share":1e400}',
    b'{"name":"a","data":"*"}',
    b'{"name":"a","by_number":{"%b":1}}' % (b"1" * 5_000),
    b'{"name":"a","anything":' + DEEP,
    b'{"name":"a","unknown":' + DEEP,
    b'{"name":"a","later":' + DEEP,
    b'\xef\xbb\xbf{"name":"a"}',
    '{"name":"a"}'.encode("utf-16"),
]


@pytest.mark.parametrize("data", HOSTILE_JSON)
@pytest.mark.parametrize("strict", [True, False])
def test_what_is_no_such_record_is_one_error_whatever_it_is(data: bytes, *, strict: bool) -> None:
    with pytest.raises(UnreadableError):
        decode_json(data, Record, strict=strict)
    with pytest.raises(UnreadableError):
        json_decoder(Record, strict=strict)(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\x81\xa4name\xa1\xff",
        b"\xc1",
        b"\x81\x80\x01",
    ],
)
def test_the_same_for_message_pack(data: bytes) -> None:
    with pytest.raises(UnreadableError):
        decode_msgpack(data, Record)
    with pytest.raises(UnreadableError):
        msgpack_decoder(Record)(data)


@given(st.binary(max_size=40))
def test_no_bytes_are_any_other_error(data: bytes) -> None:
    readers: list[Callable[[bytes], object]] = [
        lambda data: decode_json(data, Record),
        lambda data: decode_json(data, dict[str, Any], strict=False),
        lambda data: decode_msgpack(data, Record),
        lambda data: decode_msgpack(data, dict[str, Any]),
        decode_text,
    ]
    for read in readers:
        with suppress(UnreadableError):
            read(data)


def test_what_is_right_is_read() -> None:
    record = Record("\u4e2d", 2**63 - 1)
    assert decode_json(msgspec.json.encode(record), Record) == record
    assert decode_msgpack(msgspec.msgpack.encode(record), Record) == record
    assert json_decoder(Record, strict=False)(b'{"name":"a","number":"7"}') == Record("a", 7)
    assert convert({"name": "a", "number": "7"}, Record, strict=False) == Record("a", 7)
    assert decode_text("\u4e2d".encode()) == "\u4e2d"


@pytest.mark.parametrize(
    "value",
    [{"name": 1}, {"name": "a", "number": "1" * 5_000}, {"name": "a", "data": "\ud800"}, [], None],
)
def test_values_that_do_not_fit_are_the_same_error(value: object) -> None:
    with pytest.raises(UnreadableError):
        convert(value, Record, strict=False)


def test_an_object_of_a_person_has_each_name_once() -> None:
    assert decode_json_object('{"a": {"b": 1}, "c": [{"b": 2}]}') == {
        "a": {"b": 1},
        "c": [{"b": 2}],
    }
    hostile = [data.decode("latin-1") for data in HOSTILE_JSON if data[:1] != b"{"]
    twice = ['{"a": 1, "a": 1}', '{"x": {"a": 1, "a": 2}}', '{"x": [{"a": 1, "a": 2}]}']
    for text in [*hostile, *twice, '{"a":' * 100_000, '{"a": %s}' % ("1" * 5_000)]:
        with pytest.raises(UnreadableError):
            decode_json_object(text)


def test_the_reason_is_in_words_and_not_in_pythons() -> None:
    with pytest.raises(UnreadableError, match="nested too deeply") as caught:
        json_decoder(Record | list[Any])(DEEP)
    assert isinstance(caught.value.__cause__, RecursionError)


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("-1", -1), ("007", 7), ("9" * 20, 10**20 - 1)]
)
def test_a_number_is_digits(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    "text", ["", "-", "--1", "+1", " 1", "1_0", "1.0", "1e3", "\u0663", "\u00b2", "9" * 5_000]
)
def test_what_else_python_takes_for_a_number_is_none(text: str) -> None:
    with pytest.raises(UnreadableError):
        whole_number(text)


def test_a_person_is_shown_the_beginning() -> None:
    assert shown(b"abc") == "b'abc'"
    assert shown(b"x" * 1000) == f"b'{'x' * 80}'..."

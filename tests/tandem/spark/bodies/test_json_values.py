import datetime as dt
import decimal

import pyarrow as pa
import pytest

from tandem.spark.bodies.ddl import parse_ddl
from tandem.spark.bodies.json_values import decoder_of
from tandem.wire.untrusted import UnreadableError

FIELDS = parse_ddl(
    "n long, b byte, f double, s string, yes boolean, raw binary, price decimal(10,2), day date,"
    " at timestamp, local timestamp_ntz, tags array<string>, more map<string, int>,"
    " who struct<name: string>"
)
WHOLE = (
    b'{"n": 9223372036854775807, "b": -128, "f": 1, "s": "x", "yes": true, "raw": "AAE=",'
    b' "price": 12.50, "day": "2026-01-31", "at": "2026-01-31T12:00:00+01:00",'
    b' "local": "2026-01-31T12:00:00", "tags": ["a", null], "more": {"k": 1},'
    b' "who": {"name": "n", "age": 3}, "unknown": {}}'
)


def test_a_body_has_the_values_of_its_fields() -> None:
    (row,) = pa.array([decoder_of(FIELDS)(WHOLE)], FIELDS).to_pylist()
    assert row == {
        "n": 2**63 - 1,
        "b": -128,
        "f": 1.0,
        "s": "x",
        "yes": True,
        "raw": b"\0\1",
        "price": decimal.Decimal("12.50"),
        "day": dt.date(2026, 1, 31),
        "at": dt.datetime(2026, 1, 31, 11, tzinfo=dt.UTC),
        "local": dt.datetime(2026, 1, 31, 12),  # noqa: DTZ001 - it has none
        "tags": ["a", None],
        "more": [("k", 1)],
        "who": {"name": "n"},
    }


def test_what_is_absent_or_null_is_null() -> None:
    decode = decoder_of(FIELDS)
    nothing = b"{" + b",".join(b'"%s":null' % f.name.encode() for f in FIELDS) + b"}"
    for body in (b"{}", nothing):
        (row,) = pa.array([decode(body)], FIELDS).to_pylist()
        assert set(row.values()) == {None}


@pytest.mark.parametrize(
    "body",
    [
        b'{"n": "7"}',
        b'{"n": 9223372036854775808}',
        b'{"n": 1.5}',
        b'{"b": 128}',
        b'{"s": 7}',
        b'{"s": "\xff"}',
        b'{"s": "\\ud800"}',
        b'{"raw": "="}',
        b'{"price": "x"}',
        b'{"price": true}',
        b'{"price": 1e-999999999}',
        b'{"price": "1e-10000000"}',
        b'{"price": "1e999999999"}',
        b'{"price": "NaN"}',
        b'{"at": "0001-01-01T00:00:00+14:00"}',
        b'{"at": "9999-12-31T23:59:59-14:00"}',
        b'{"day": "2026-02-30"}',
        b'{"at": 7}',
        b'{"local": "2026-01-31T12:00:00Z"}',
        b'{"who": []}',
        b'{"n": 7} {}',
        b"[]",
        b"null",
        b"\xff",
        b'{"x": ' + b"[" * 100_000,
        b'{"n": ' + b"9" * 10_000 + b"}",
    ],
)
def test_a_body_of_another_kind_is_unreadable(body: bytes) -> None:
    with pytest.raises(UnreadableError):
        decoder_of(FIELDS)(body)


@pytest.mark.parametrize("at", range(len(WHOLE)))
def test_a_body_that_was_cut_is_unreadable(at: int) -> None:
    with pytest.raises(UnreadableError):
        decoder_of(FIELDS)(WHOLE[:at])


def test_a_number_that_a_float_has_not_is_unreadable() -> None:
    decode = decoder_of(parse_ddl("f float, d double"))
    largest = 3.4028234663852886e38
    for number in (largest, -largest, 1e-300, 0, 1):
        assert decode(b'{"f": %s}' % repr(number).encode())["f"] == number
    # As Java writes the largest.
    assert decode(b'{"f": 3.4028235E38}')["f"] == 3.4028235e38
    for text in (b"1e300", b"-1e300", b"3.4028236e38", b"1" + b"0" * 39, b"1e400"):
        with pytest.raises(UnreadableError):
            decode(b'{"f": %s}' % text)
    assert decode(b'{"d": 1e300}')["d"] == 1e300
    with pytest.raises(UnreadableError):
        decode(b'{"d": 1e400}')

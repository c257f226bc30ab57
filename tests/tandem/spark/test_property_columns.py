"""Properties of many records, against the decoder that takes one string at a time."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.spark import property_columns
from tandem.spark.property_columns import parse_properties
from tandem.wire.message_properties import decode_properties


def maps_of(strings: list[bytes]) -> list[dict[str, str]]:
    parsed = parse_properties(pa.array(strings, pa.binary()))
    return [dict(pairs) for pairs in parsed.as_maps().to_pylist()]


PIECES = st.sampled_from(
    [b"KEYS", b"TAGS", b"a", b"\x01", b"\x01", b"\x02", b"\x02", b"\xc3\xa9", b"\xff", b"\xfe"]
)


@settings(deadline=None)
@given(st.lists(st.lists(PIECES, max_size=12).map(b"".join), max_size=6))
def test_property_strings_are_parsed_as_the_decoder_does(strings: list[bytes]) -> None:
    parsed = parse_properties(pa.array(strings, pa.binary()))
    expected = [decode_properties(string) for string in strings]
    assert [dict(pairs) for pairs in parsed.as_maps().to_pylist()] == expected
    assert [len(pairs) for pairs in parsed.as_maps().to_pylist()] == [len(e) for e in expected]
    assert parsed.values_of("KEYS").to_pylist() == [e.get("KEYS") for e in expected]
    assert parsed.values_of("none").to_pylist() == [None] * len(strings)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30), max_size=4))
def test_any_bytes_are_parsed_as_the_decoder_does(strings: list[bytes]) -> None:
    assert maps_of(strings) == [decode_properties(string) for string in strings]


def test_of_equal_names_the_last_wins_in_its_own_record_only() -> None:
    assert maps_of([b"a\x011\x02a\x012\x02", b"a\x013\x02"]) == [{"a": "2"}, {"a": "3"}]


def test_names_that_become_equal_by_replacement_are_one_name() -> None:
    assert maps_of([b"\xff\x011\x02\xfe\x012\x02"]) == [{"\ufffd": "2"}]


def test_a_slice_of_an_arrow_array_is_parsed() -> None:
    strings = pa.array([b"x\x01y\x02", b"a\x011", b"b\x012\x02"], pa.binary())
    parsed = parse_properties(strings.slice(1))
    assert parsed.as_maps().to_pylist() == [[("a", "1")], [("b", "2")]]


NAMES = st.sampled_from(
    ["KEYS", "TAGS", "UNIQ_KEY", "a", "TRAN_MSG", "INSTANCE_ID", "exactly8", "of sixteen bytes"]  # noqa: RUF005
    + ["of more than sixteen", "of more than sixteeN", "n\xe4me", "zero\0", "zero"]
)
STRINGS = st.lists(
    st.lists(st.tuples(NAMES, st.text("xy\1\xfc", min_size=1, max_size=3)), max_size=4).map(
        lambda pairs: "".join(f"{name}\1{value}\2" for name, value in pairs).encode()
    ),
    max_size=6,
)


@settings(deadline=None)
@given(STRINGS)
def test_well_formed_strings_are_parsed_as_the_decoder_does(strings: list[bytes]) -> None:
    parsed = parse_properties(pa.array(strings, pa.binary()))
    expected = [decode_properties(string) for string in strings]
    assert [dict(pairs) for pairs in parsed.as_maps().to_pylist()] == expected
    assert [len(pairs) for pairs in parsed.as_maps().to_pylist()] == [len(e) for e in expected]
    for name in ("KEYS", "UNIQ_KEY", "of more than sixteen", "zero", "zero\0"):
        assert parsed.values_of(name).to_pylist() == [e.get(name) for e in expected]


def test_what_producers_write_goes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(property_columns, "_any_pieces")
    strings = [b"KEYS\1a\2TAGS\1b\2", b"", b"UNIQ_KEY\1c\2of sixteen bytes\1d\2"]
    assert maps_of(strings) == [
        {"KEYS": "a", "TAGS": "b"},
        {},
        {"UNIQ_KEY": "c", "of sixteen bytes": "d"},
    ]


def test_a_separator_that_is_missing_at_an_end_moves_nothing_into_the_next_string() -> None:
    assert maps_of([b"a\0011", b"b\0012\2c\0013\2"]) == [{"a": "1"}, {"b": "2", "c": "3"}]
    assert maps_of([b"a\0011", b"\2b\0012\2"]) == [{"a": "1"}, {"b": "2"}]

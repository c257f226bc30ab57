"""Whole numbers as Java reads them."""

import pytest

from tandem.wire.java_numbers import NumberFormatError, parse_int, parse_long


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("0000000000000000000000001", 1),
        ("\uff11\uff12", 12),
        ("1\u0662", 12),
    ],
)
def test_a_number_is_read(text: str, number: int) -> None:
    assert parse_int(text) == number
    assert parse_long(text) == number


@pytest.mark.parametrize(
    "text",
    ["", "+", "-", " 1", "1 ", "1_0", "1.0", "0x1", "--1", "+-1", "\u00b2", "\U0001d7ce", "1\x00"],
)
def test_what_is_no_number_in_java_is_none(text: str) -> None:
    for parse in (parse_int, parse_long):
        with pytest.raises(NumberFormatError):
            parse(text)


def test_bounds_are_those_of_the_type() -> None:
    for text in ("2147483648", "-2147483649"):
        with pytest.raises(NumberFormatError):
            parse_int(text)
        assert parse_long(text) == int(text)
    assert parse_long("9223372036854775807") == 2**63 - 1
    assert parse_long("-9223372036854775808") == -(2**63)
    for text in ("9223372036854775808", "-9223372036854775809", "1" * 20):
        with pytest.raises(NumberFormatError):
            parse_long(text)

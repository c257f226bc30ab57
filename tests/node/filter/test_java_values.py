import math

import pytest

from node.filter.java_values import (
    EvaluationError,
    Long,
    Value,
    compare,
    double_text,
    double_value,
    integer_value,
    long_value,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("+1", 1),
        ("-01", -1),
        ("0" * 5000 + "7", 7),
        ("\uff15", 5),
        ("٣", 3),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
    ],
)
def test_integers_are_read_as_java_reads_them(text: str, value: int) -> None:
    assert integer_value(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "-",
        " 1",
        "1 ",
        "1.0",
        "1_0",
        "0x10",
        "2147483648",
        "9" * 5000,
        "--1",
        "²",
        "\U0001d7d3",
        "1L",
    ],
)
def test_what_java_takes_for_no_integer_is_none(text: str) -> None:
    with pytest.raises(EvaluationError):
        integer_value(text)


def test_a_long_has_64_bits() -> None:
    assert long_value("-9223372036854775808") == -(1 << 63)
    assert type(long_value("1")) is Long
    with pytest.raises(EvaluationError):
        long_value("9223372036854775808")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        (" 1.5\t", 1.5),
        ("1d", 1.0),
        (".5F", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1e999", math.inf),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("0x1p3", 8.0),
        ("-0x1p99999", -math.inf),
    ],
)
def test_doubles_are_read_as_java_reads_them(text: str, value: float) -> None:
    assert double_value(text) == value


@pytest.mark.parametrize(
    "text", ["", "x", "inf", "nan", "1_0", "\uff11.5", "1e", ".", "0x10", "1dd", "NaNd", "\u00a01"]
)
def test_what_java_takes_for_no_double_is_none(text: str) -> None:
    with pytest.raises(EvaluationError):
        double_value(text)


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        (1, Long(2), -1),
        (1, 1.0, 0),
        (Long(3), 2.5, 1),
        ("7", 7, 0),
        (7, "8", -1),
        ("TRUE", True, 0),
        ("yes", True, -1),
        (True, 1, -1),
        (1, True, -1),
        (True, False, 1),
        (math.nan, math.inf, 1),
        (math.nan, math.nan, 0),
        (-0.0, 0.0, -1),
        (0.0, -0.0, 1),
        (0.0, 0.0, 0),
        ("b", "a", 1),
    ],
)
def test_values_are_compared_as_rocketmq_compares_them(
    left: Value, right: Value, order: int
) -> None:
    assert compare(left, right) == order


def test_a_boolean_on_the_left_of_a_text_fails() -> None:
    with pytest.raises(EvaluationError):
        compare(left=True, right="true")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5.0, "5.0"),
        (0.001, "0.001"),
        (0.0007, "7.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (123456789.5, "1.234567895E8"),
    ],
)
def test_doubles_are_shown_as_java_shows_them(value: float, text: str) -> None:
    assert double_text(value) == text

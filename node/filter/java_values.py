"""How Java reads numbers from text, and how RocketMQ compares two values of an expression.

    Integer    int            Double   float        Boolean   bool
    Long       `Long`         String   str          null      None

A property is text. Beside a number it is read as one of that very type, by Java's rules: `+1` and
full-width digits are integers, `1.0`, ` 1` and 2147483648 are no Integer; `1d`, `NaN` and ` 1 ` are
a Double. What cannot be read fails the whole expression.

Source: RocketMQ 5.3.3, ComparisonExpression.__compare; Integer.parseInt, Double.valueOf of the JDK.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final, TypeAlias

from tandem.wire.java_numbers import parse_int, parse_long

_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""What String.trim takes away."""

_DECIMAL: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?", re.ASCII
)
_HEX: Final = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?", re.ASCII
)
_NAMED: Final = {
    f"{sign}{name}": float(f"{sign}{name}")
    for sign in ("", "+", "-")
    for name in ("NaN", "Infinity")
}


class Long(int):
    """An integer of 64 bits: text beside it may be one, too."""


Value: TypeAlias = bool | int | Long | float | str | None


class EvaluationError(Exception):
    """An expression has no value for these properties: the message does not match."""


def integer_value(text: str) -> int:
    """Integer.valueOf.

    Raises:
        EvaluationError: it is not one.
    """
    return _whole_number(parse_int, text)


def long_value(text: str) -> Long:
    """Long.valueOf.

    Raises:
        EvaluationError: it is not one.
    """
    return Long(_whole_number(parse_long, text))


def _whole_number(parse: Callable[[str], int], text: str) -> int:
    try:
        return parse(text)
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def double_value(text: str) -> float:
    """Double.valueOf.

    Raises:
        EvaluationError: it is not one.
    """
    trimmed = text.strip(_TRIMMED)
    if _DECIMAL.fullmatch(trimmed):
        return float(trimmed.rstrip("fFdD"))
    if trimmed in _NAMED:
        return _NAMED[trimmed]
    if _HEX.fullmatch(trimmed):
        return _hex_double(trimmed)
    raise EvaluationError(f"not a number: {text[:40]!r}")


def _hex_double(text: str) -> float:
    mantissa, _, exponent = text.replace("P", "p").rstrip("fFdD").partition("p")
    try:
        return float.fromhex(f"{mantissa}p{exponent}")
    except OverflowError:
        return float("-inf") if text[0] == "-" else float("inf")


def double_text(value: float) -> str:
    """Double.toString of a positive number, for messages; a few differ in the last digit."""
    number = Decimal(repr(value)).normalize()
    digits = "".join(map(str, number.as_tuple().digits))
    if 1e-3 <= value < 1e7:
        text = format(number, "f")
        return text if "." in text else f"{text}.0"
    return f"{digits[0]}.{digits[1:] or '0'}E{number.adjusted()}"


def compare(left: Value, right: Value) -> int:
    """Return -1, 0 or 1 as Java's compareTo; types that have nothing in common give -1.

    Raises:
        EvaluationError: a text is no number; or a Boolean is on the left of a text.
    """
    left_type, right_type = type(left), type(right)
    if left_type is right_type:
        return _ordered(left, right)
    if left_type is str:
        return _ordered(_converted(left, right), right)
    if right_type is str and left_type is not bool:
        return _ordered(left, _converted(right, left))
    if left_type is bool and right_type is str:
        raise EvaluationError("a Boolean on the left cannot be compared with text")
    if left_type is bool or right_type is bool:
        return -1
    if left_type is float or right_type is float:
        return _ordered(float(left), float(right))  # type: ignore[arg-type]
    return _ordered(left, right)


def _converted(text: Value, model: Value) -> Value:
    """Read `text` as what `model` is."""
    assert isinstance(text, str)
    if type(model) is bool:
        return text.lower() == "true"
    if type(model) is Long:
        return long_value(text)
    return double_value(text) if type(model) is float else integer_value(text)


def _ordered(left: Value, right: Value) -> int:
    """Compare two of one type. NaN is equal to itself and above all; -0.0 is below 0.0."""
    if type(left) is float and type(right) is float:
        return _ordered_doubles(left, right)
    return (left > right) - (left < right)  # type: ignore[operator]


def _ordered_doubles(left: float, right: float) -> int:
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) - math.isnan(right)
    if left == right == 0:
        return int(math.copysign(1, left) - math.copysign(1, right)) // 2
    return (left > right) - (left < right)

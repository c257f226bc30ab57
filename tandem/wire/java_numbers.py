"""Whole numbers in text, as Java reads them.

`+1` and digits of every script are numbers; ` 1`, `1_0` and the empty text are none. So a property
that RocketMQ refuses is refused, and one that it takes is the same number here.

Source: Integer.parseInt, Long.parseLong and Character.digit of the JDK.
"""

from __future__ import annotations

import unicodedata
from typing import Final

INTEGER_MIN: Final = -(1 << 31)
INTEGER_MAX: Final = (1 << 31) - 1
LONG_MIN: Final = -(1 << 63)
LONG_MAX: Final = (1 << 63) - 1

_BMP_MAX: Final = "\uffff"
_LONG_DIGITS_MAX: Final = 19


class NumberFormatError(ValueError):
    """A text is no number that Java takes for one, or one beyond its type."""


def parse_int(text: str) -> int:
    """Integer.parseInt.

    Raises:
        NumberFormatError: it is not one.
    """
    return _whole_number(text, INTEGER_MIN, INTEGER_MAX)


def parse_long(text: str) -> int:
    """Long.parseLong.

    Raises:
        NumberFormatError: it is not one.
    """
    return _whole_number(text, LONG_MIN, LONG_MAX)


def _whole_number(text: str, least: int, most: int) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() and digits <= _BMP_MAX * len(digits):
        digits = "".join(map(_ascii_digit, digits))
    digits = digits.lstrip("0") or digits[:1]
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _LONG_DIGITS_MAX:
        raise NumberFormatError(f"not an integer: {text[:40]!r}")
    value = -int(digits) if text[0] == "-" else int(digits)
    if not least <= value <= most:
        raise NumberFormatError(f"not an integer of this size: {text[:40]!r}")
    return value


def _ascii_digit(character: str) -> str:
    """Character.digit: decimal digits of every script, in the basic plane."""
    number = unicodedata.decimal(character, -1)
    return str(number) if number >= 0 and character <= _BMP_MAX else "x"

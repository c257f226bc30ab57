"""Parameters of a request, taken one by one; what is left over in the end is a mistake."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar, overload

from tandem.console.errors import bad_parameter

NUMBER_MAX: Final = (1 << 63) - 1

_FLAGS: Final = {"true": True, "false": False, "1": True, "0": False, "": False}

T = TypeVar("T")

_NEEDED: Final[Any] = object()


class Parameters:
    """Those of a query, which are all text, or the fields of a JSON object."""

    def __init__(self, values: Mapping[str, Any], *, is_json: bool = False) -> None:
        self._values = dict(values)
        self._is_json = is_json

    @overload
    def text(self, name: str) -> str: ...

    @overload
    def text(self, name: str, default: T) -> str | T: ...

    def text(self, name: str, default: object = _NEEDED) -> object:
        """Return text that is not empty; without a default it has to be there.

        Raises:
            APIError: it is missing, empty, or no text.
        """
        value = self._values.pop(name, None)
        if value is None or (value == "" and default is not _NEEDED):
            if default is _NEEDED:
                raise bad_parameter(name, "it is missing", "give it")
            return default
        if not isinstance(value, str) or not value:
            raise bad_parameter(name, "it is no text, or empty")
        return value

    @overload
    def number(self, name: str, low: int, high: int) -> int: ...

    @overload
    def number(self, name: str, low: int, high: int, default: T) -> int | T: ...

    def number(self, name: str, low: int, high: int, default: object = _NEEDED) -> object:
        """Return a whole number of this range.

        Raises:
            APIError: it is missing, or no such number.
        """
        value = self._values.pop(name, None)
        if value is None or value == "":
            if default is _NEEDED:
                raise bad_parameter(name, "it is missing", "give it")
            return default
        number = value if self._is_json else _number(value)
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise bad_parameter(name, f"it is no whole number from {low:,} to {high:,}")
        return number

    def flag(self, name: str) -> bool:
        """Return true or false; false if it is not there.

        Raises:
            APIError: it is neither.
        """
        value = self._values.pop(name, False)
        if not self._is_json and isinstance(value, str):
            value = _FLAGS.get(value, value)
        if not isinstance(value, bool):
            raise bad_parameter(name, "it is neither true nor false")
        return value

    def has(self, name: str) -> bool:
        """Whether it was given and not taken yet."""
        return name in self._values

    def end(self) -> None:
        """Say that all were taken.

        Raises:
            APIError: some are left that nobody knows.
        """
        for name in self._values:
            raise bad_parameter(name[:100], "there is no such parameter here", "leave it out")


def _number(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else None

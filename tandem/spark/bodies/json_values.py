"""JSON objects as values of a schema: what a decoder takes follows from the Arrow types.

A field that is absent, or null, is null. A value of another type is an error, a number in quotes as
well; fields that the schema lacks are passed over. Times are ISO 8601, those without a zone UTC;
bytes are base 64; decimals are numbers, or text.
"""

import datetime as dt
import decimal
from collections.abc import Callable
from typing import Annotated, Any, Final, TypedDict

import msgspec
import pyarrow as pa

from tandem.wire.untrusted import UnreadableError, convert, json_decoder

Decoder = Callable[[bytes], dict[str, Any]]
"""Reads a body; UnreadableError if it is none of the schema."""

EXPONENT_MAX: Final = 76
"""Of a decimal, up and down: twice what a type has. At 1e-999999999 Arrow ends the process."""

FLOAT_MAX: Final = 3.4028235677973362e38
"""The largest that is rounded to one of 32 bits, as the largest of those is that Java writes as
3.4028235E38. Arrow makes an infinity of what is larger."""

_LIST: Final[Any] = list
_MAP: Final[Any] = dict


def decoder_of(fields: pa.StructType) -> Decoder:
    """Return what reads JSON objects with these fields."""
    hooks: dict[str, Callable[..., Any]] = {"dec_hook": _hook, "float_hook": decimal.Decimal}
    return json_decoder(_record(fields, "body"), hooks=hooks)


class Exact(decimal.Decimal):
    """A decimal that Arrow can be given."""


class Instant(dt.datetime):
    """A time whose year in UTC is one that Spark and Python have."""


def _hook(kind: type, value: Any) -> Exact | Instant:  # noqa: ANN401 - any value of JSON
    return _exact(value) if kind is Exact else _instant(value)


def _instant(value: object) -> Instant:
    try:
        found = convert(value, dt.datetime)
        if found.tzinfo is not None:
            found = found.astimezone(dt.UTC)
    except UnreadableError as error:
        raise ValueError(str(error)) from None  # msgspec adds where
    except OverflowError:
        raise ValueError("Time out of range") from None
    return Instant.combine(found.date(), found.timetz())


def _exact(value: object) -> Exact:
    if isinstance(value, bool) or not isinstance(value, int | str | decimal.Decimal):
        raise TypeError("Expected `decimal`")
    try:
        found = Exact(value)
    except decimal.InvalidOperation:
        raise ValueError("Invalid decimal string") from None
    exponent = found.as_tuple().exponent
    if not isinstance(exponent, int) or abs(exponent) > EXPONENT_MAX:
        raise ValueError("Decimal out of range")
    return found


def _record(fields: pa.StructType, name: str) -> Any:  # noqa: ANN401 - a type that is made here
    kinds = {field.name: _kind(field.type, field.name) | None for field in fields}
    return TypedDict(name, kinds, total=False)  # type: ignore[operator]


def _kind(kind: pa.DataType, name: str) -> Any:  # noqa: ANN401 - as above
    """Return the type of Python that values of an Arrow type are decoded as."""
    types = pa.types
    if types.is_struct(kind):
        return _record(kind, name)
    if types.is_list(kind):
        return _LIST[_kind(kind.value_type, name) | None]
    if types.is_map(kind):
        return _MAP[str, _kind(kind.item_type, name) | None]
    if types.is_integer(kind):
        half = 1 << (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-half, le=half - 1)]
    if types.is_timestamp(kind):
        return Instant if kind.tz else Annotated[dt.datetime, msgspec.Meta(tz=False)]
    for is_one, python in (
        (types.is_boolean, bool),
        (types.is_float32, Annotated[float, msgspec.Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)]),
        (types.is_float64, float),
        (types.is_string, str),
        (types.is_binary, bytes),
        (types.is_date, dt.date),
        (types.is_decimal, Exact),
    ):
        if is_one(kind):
            return python
    raise AssertionError(f"no schema has {kind}")

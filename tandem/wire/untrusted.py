"""Bytes and text that came from somebody else: the one place where they are decoded.

A peer, a file or an operator can write anything: invalid UTF-8, ten thousand brackets, numbers of
a thousand digits. Whatever a decoder makes of that, here it becomes one error, which a caller
turns into its own: a reader of a connection answers or hangs up, a reader of a file names it.
A test sees to it that nothing else in this project calls such a decoder.

What can be raised is not what the documentation of msgspec says alone: invalid UTF-8 inside of a
value is a UnicodeDecodeError, nesting a RecursionError, a number with too many digits a ValueError.

Not in here: `struct`, which takes any bytes and is wrong only about their count, and YAML, which
`tandem.cluster_file.yaml_reader` reads.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tandem.wire.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

Bytes = bytes | bytearray | memoryview | msgspec.Raw

DIGITS_MAX: Final = 20
"""Of a number in text: more than any 64-bit one has. Python itself refuses 4,300 and more."""

SHOWN_BYTES_MAX: Final = 80

UNREADABLE: Final = (
    ValueError,  # msgspec's DecodeError and ValidationError, UnicodeError, too many digits for int
    OverflowError,
    RecursionError,
)
"""All that decoding can raise for its input alone. No others: a lack of memory is our own."""


class UnreadableError(WireError):
    """Bytes that are not what they should be; the text says what is wrong with them."""


def decode_json(data: Bytes | str, kind: type[T], *, strict: bool = True) -> T:
    """Read JSON as a `kind`. Without `strict`, numbers and flags may be written as text.

    Raises:
        UnreadableError: It is not one.
    """
    try:
        return msgspec.json.decode(data, type=kind, strict=strict)
    except UNREADABLE as error:
        raise _unreadable(error) from error


def decode_json_object(text: str) -> dict[str, Any]:
    """Read a JSON object that a person wrote, and in which no name is there twice, at any depth.

    Others take the last one, and nobody hears of it.

    Raises:
        UnreadableError: It is not one.
    """
    found = decode_json(text, dict[str, Any])
    try:
        json.loads(text, object_pairs_hook=_check_names)
    except UNREADABLE as error:
        raise _unreadable(error) from error
    return found


def _check_names(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"{name!r} is there twice")
        seen.add(name)


def decode_msgpack(data: Bytes, kind: type[T]) -> T:
    """Read MessagePack as a `kind`.

    Raises:
        UnreadableError: It is not one.
    """
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except UNREADABLE as error:
        raise _unreadable(error) from error


def json_decoder(
    kind: Any,  # noqa: ANN401 - any type, unions too
    *,
    strict: bool = True,
    hooks: Mapping[str, Callable[..., Any]] | None = None,
) -> Callable[[Bytes], Any]:
    """Return `decode_json` for one kind, made once: for what is read by the thousand.

    `hooks` are msgspec's, `dec_hook` and `float_hook`.
    """
    return _safe(msgspec.json.Decoder(kind, strict=strict, **(hooks or {})).decode)


def msgpack_decoder(kind: Any, *, strict: bool = True) -> Callable[[Bytes], Any]:  # noqa: ANN401 - see above
    """Return `decode_msgpack` for one kind, made once."""
    return _safe(msgspec.msgpack.Decoder(kind, strict=strict).decode)


def convert(value: object, kind: type[T], *, strict: bool = True) -> T:
    """Turn maps, lists and plain values into a `kind`.

    Raises:
        UnreadableError: They are not one.
    """
    try:
        return msgspec.convert(value, kind, strict=strict)
    except UNREADABLE as error:
        raise _unreadable(error) from error


def decode_text(data: bytes | bytearray | memoryview) -> str:
    """Read UTF-8.

    Raises:
        UnreadableError: It is not.
    """
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise _unreadable(error) from error


def whole_number(text: str) -> int:
    """Read a decimal number: ASCII digits, with a minus sign or without.

    `int` takes blanks, underscores, and the digits of every script; a RocketMQ takes none of them.

    Raises:
        UnreadableError: It is none, or has too many digits.
    """
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= DIGITS_MAX):
        raise UnreadableError(f"{text[:SHOWN_BYTES_MAX]!r} is no number")
    return int(text)


def shown(data: bytes) -> str:
    """As much of what cannot be read as a person needs to recognise it."""
    rest = "..." if len(data) > SHOWN_BYTES_MAX else ""
    return f"{bytes(data[:SHOWN_BYTES_MAX])!r}{rest}"


def _safe(decode: Callable[[Any], Any]) -> Callable[[Bytes], Any]:
    def decode_safely(data: Bytes) -> Any:  # noqa: ANN401 - whatever the decoder was made for
        try:
            return decode(data)
        except UNREADABLE as error:
            raise _unreadable(error) from error

    return decode_safely


def _unreadable(error: Exception) -> UnreadableError:
    # The caller's stack is an obstacle as much as the text: our words, not Python's.
    words = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return UnreadableError(words)

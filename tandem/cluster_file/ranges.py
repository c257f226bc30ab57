"""Types of settings: what a value may be, and the words for it.

A field's type carries its range, so that every value that is read is checked:

    slave_timeout_ms: Annotated[int, milliseconds(1)] = 3_000
"""

from typing import Annotated, Final

from msgspec import Meta

DAY_MS: Final = 86_400_000


def whole_number(minimum: int, maximum: int, unit: str) -> Meta:
    """The range of a number, both ends included, for the type of a record's field."""
    return Meta(ge=minimum, le=maximum, extra={"unit": unit})


def milliseconds(minimum: int, maximum: int = DAY_MS) -> Meta:
    """The range of a time in milliseconds, both ends included."""
    return whole_number(minimum, maximum, "milliseconds")


def size_bytes(minimum: int, maximum: int) -> Meta:
    """The range of a size in bytes, both ends included."""
    return whole_number(minimum, maximum, "bytes")


def text_like(pattern: str, form: str) -> Meta:
    """Text of which the whole fits `pattern`; `form` says in words what does."""
    return Meta(pattern=pattern, extra={"form": form})


Port = Annotated[int, whole_number(1, 65_535, "a TCP port")]

Name = Annotated[
    str,
    text_like(
        r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$",
        "letters, digits, '-' and '_', at most 64, starting with a letter or digit",
    ),
]

"""Whether a body that fastavro has read names a branch of a union by an index below 0.

fastavro counts such an index from the end, as Python does, and reads a body that is none. A union
is a list to it, and it lets nobody in between; so the body is walked once more, for its indexes
alone. That takes longer than reading it, and is done only for bodies with a byte that such an index
could begin with: hardly a text has one.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

Walk = Callable[[bytes, int], int]
"""Takes a body and the place of a value, and returns the place after it."""

_LAST_SHIFT: Final = 63
"""Of the tenth byte, of which a number has one bit. fastavro lets go of what does not fit and reads
on: a count of 2^63 + 1 is 1 to it, and a number of a megabyte would take minutes here."""

_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def union_check(schema: Mapping[str, Any]) -> Callable[[bytes], None] | None:
    """Return what raises an IndexError at a body with such an index; None: there is no union.

    At a number that is too long it raises a ValueError.

    The schema is one that `avro_values` has made, which has no recursion. The bodies are those that
    were read by it.
    """
    branches: list[int] = []
    walk = _walk(schema, {}, branches)
    if not branches:
        return None
    # -1 is written as 1, -2 as 3; with a bit more where bytes follow that say nothing.
    first = [2 * below + 1 for below in range(max(branches))]
    may_be = re.compile(b"[%s]" % re.escape(bytes([*first, *(0x80 | byte for byte in first)])))

    def check(body: bytes) -> None:
        if may_be.search(body):
            walk(body, 0)

    return check


def _walk(schema: Any, named: dict[str, Walk], branches: list[int]) -> Walk:  # noqa: ANN401 - JSON
    """Return the walk over a value; note how many branches each union has."""
    if isinstance(schema, list):
        branches.append(len(schema))
        return _union([_walk(each, named, branches) for each in schema])
    if isinstance(schema, str):
        return named.get(schema) or _plain(schema)
    kind = schema["type"]
    if kind == "array":
        return _blocks([_walk(schema["items"], named, branches)])
    if kind == "map":
        return _blocks([_text, _walk(schema["values"], named, branches)])
    if kind in ("record", "fixed"):
        named[schema["name"]] = (
            _of_size(schema["size"])
            if kind == "fixed"
            else _record([_walk(each["type"], named, branches) for each in schema["fields"]])
        )
        kind = schema["name"]
    return _walk(kind, named, branches)


def _plain(kind: str) -> Walk:
    if kind in _SIZES:
        return _of_size(_SIZES[kind])
    return _text if kind in ("bytes", "string") else lambda body, at: _long(body, at)[1]


def _of_size(size: int) -> Walk:
    return lambda _body, at: at + size


def _record(fields: list[Walk]) -> Walk:
    def walk(body: bytes, at: int) -> int:
        for field in fields:
            at = field(body, at)
        return at

    return walk


def _blocks(items: list[Walk]) -> Walk:
    def walk(body: bytes, at: int) -> int:
        count, at = _long(body, at)
        while count:
            if count < 0:  # and its size in bytes
                count = -count
                _, at = _long(body, at)
            for _ in range(count):
                for item in items:
                    at = item(body, at)
            count, at = _long(body, at)
        return at

    return walk


def _union(branches: list[Walk]) -> Walk:
    def walk(body: bytes, at: int) -> int:
        index, at = _long(body, at)
        if index < 0:
            raise IndexError(f"branch {index} of a union")
        return branches[index](body, at)

    return walk


def _text(body: bytes, at: int) -> int:
    size, at = _long(body, at)
    return at + size


def _long(body: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = body[at]
        at += 1
        if shift == _LAST_SHIFT and byte > 1:
            raise ValueError("a number of more than 64 bits")
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7

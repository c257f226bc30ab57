"""The columns of a DataFrame that is written: which there are, and of which types."""

import difflib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

_TEXT: Final = ("string",)
_INTS: Final = ("int", "smallint", "tinyint")
_LONGS: Final = ("bigint", *_INTS)

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "topic": _TEXT,
    "body": ("binary", "string"),
    "value": ("binary", "string"),
    "keys": ("string", "array<string>"),
    "tags": _TEXT,
    "properties": ("map<string,string>",),
    "shardingKey": _TEXT,
    "uniqueKey": _TEXT,
    "flag": _INTS,
    "queueId": _INTS,
    "delayTimeLevel": _INTS,
    "delayMs": _LONGS,
    "deliverTimeMs": (*_LONGS, "timestamp"),
}
"""Every column that a row may have, with the types that it may be of; `value` is Kafka's body."""

_REMEDIES: Final = {
    "key": "Kafka's key chooses a partition: name it shardingKey, or keys to look messages up by",
    "headers": "name it properties, as map<string,string>",
    "partition": "name it queueId",
}


class SinkColumns(msgspec.Struct, frozen=True):
    """What the rows have: `names` as in the DataFrame, `body` is the name of the body's column."""

    names: tuple[str, ...] = ()
    body: str = "body"


def read_columns(
    fields: Sequence[tuple[str, str]], refuse: Callable[..., None], *, topic_given: bool
) -> SinkColumns:
    """Return the columns; `fields` are names and Spark's names of types.

    What is wrong is given to `refuse`, with the names of the columns: see `OptionReader.refuse`.
    """
    names = tuple(name for name, _ in fields)
    for name, kind in fields:
        if name not in COLUMNS:
            refuse(_unknown(name), name)
        elif kind not in COLUMNS[name]:
            wanted = " or ".join(COLUMNS[name])
            refuse(f"column {name} is {kind}: cast it to {wanted}", name)
    for name in {n for n in names if _twice(n, names)}:
        refuse(f"column {name} is there twice", name)
    bodies = [name for name in ("body", "value") if name in names]
    if not bodies:
        refuse("no column body (or value): what a message says, as binary or string", "body")
    elif len(bodies) > 1:
        refuse("columns body and value are the same: drop one", "body", "value")
    if "topic" not in names and not topic_given:
        refuse("no topic: give the option topic, or a column topic", "topic")
    if "queueId" in names and "shardingKey" in names:
        problem = "columns queueId and shardingKey both choose the queue: drop one"
        refuse(problem, "queueId", "shardingKey")
    return SinkColumns(names, bodies[0] if bodies else "body")


def _twice(name: str, names: Sequence[str]) -> bool:
    return names.count(name) > 1


def _unknown(name: str) -> str:
    if name in _REMEDIES:
        return f"unknown column {name!r}: {_REMEDIES[name]}"
    by_lower = {known.lower(): known for known in COLUMNS}
    close = difflib.get_close_matches(name.lower(), by_lower, 1)
    hint = f" (did you mean {by_lower[close[0]]}?)" if close else ""
    return (
        f"unknown column {name!r}{hint}: select or drop it, or put it into properties;"
        f" known are {', '.join(COLUMNS)}"
    )

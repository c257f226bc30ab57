"""Places in logs as users and checkpoints write them.

    earliest, latest
    {"data/broker-a-0": 1073741824}                              by store, as in its column
    {"data/broker-a-0": {"offset": 1073741824, "tail": 305419896}}

-2 and -1 are the earliest and the latest offset, as in Kafka's source. `tail` is the CRC-32 of what
precedes the offset in its file, up to `TAIL_BYTES`: by it a stream sees that a log was cut and
written anew in the meantime.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from tandem.data_file import DataFile
from tandem.spark.commitlog.storage import Storage
from tandem.spark.errors import OptionError
from tandem.spark.option_reader import OptionReader
from tandem.wire.untrusted import UnreadableError, decode_json

EARLIEST: Final = -2
LATEST: Final = -1
TAIL_BYTES: Final = 512
"""Longer than what two records that are not the same have in common at their ends."""

_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


class Mark(msgspec.Struct, frozen=True):
    """A physical offset, and the CRC of the bytes before it if it is known."""

    offset: int
    tail: int | None = None


Position: TypeAlias = int | Mapping[str, Mark]
"""`EARLIEST` or `LATEST` of all stores, or a mark for each."""


def read_position(given: OptionReader, name: str, words: Sequence[str]) -> Position | None:
    """Return the place that the option `name` gives; None if it is not given."""
    text = given.text(name)
    if text is None:
        return None
    if text.strip().lower() in words:
        return _WORDS[text.strip().lower()]
    try:
        decoded = decode_json(text, dict[str, int | Mark])
    except UnreadableError as error:
        given.refuse(
            f"{name}={text!r}: expected {' or '.join(words)}, or JSON such as"
            f' {{"data/broker-a-0": 1073741824}} ({error})',
            name,
        )
        return None
    marks = {
        store: Mark(mark) if isinstance(mark, int) else mark for store, mark in decoded.items()
    }
    if any(mark.offset < EARLIEST for mark in marks.values()):
        given.refuse(f"{name}={text!r}: an offset is -1, -2, or not negative", name)
    return marks


def position_in(position: Position, store: str, name: str) -> Mark:
    """Return the mark of one store. `name` is the option, for the error.

    Raises:
        OptionError: the stores are named, and this one is not.
    """
    if isinstance(position, int):
        return Mark(position)
    if store not in position:
        raise OptionError(
            f"commitlog source: {name} says nothing of the store {store}; it names"
            f" {', '.join(position) or 'none'}",
            [name],
        )
    return position[store]


def check_names(position: Position | None, stores: Iterable[str], name: str) -> None:
    """See that every store that is named is one that is loaded.

    Raises:
        OptionError: one is not.
    """
    if position is None or isinstance(position, int):
        return
    known = list(stores)
    unknown = [store for store in position if store not in known]
    if unknown:
        raise OptionError(
            f"commitlog source: {name} names {', '.join(unknown)}; load() gives"
            f" {', '.join(known) or 'no store'}",
            [name],
        )


def tail_crc(storage: Storage, files: Sequence[DataFile], offset: int) -> int | None:
    """Return the CRC of what precedes `offset` in its file; None if that is not held."""
    for file in files:
        if file.offset < offset <= file.end_offset:
            size = min(TAIL_BYTES, offset - file.offset)
            data = bytearray(size)
            with storage.opened(file.path) as opened:
                got = opened.read_into(memoryview(data), offset - file.offset - size)
            return zlib.crc32(data) if got == size else None
    return None

"""Which records a query wants, by what is in them: `tags`, `startingTimestamp`, `endingTimestamp`.

The options mean the same in files and at brokers, of a batch and of a stream. Spark hands the
`where` of a query to no stream of a Python source, and to a batch in a way that gives wrong answers
(docs/spark.md). What they leave out is read and checked, and not handed to Spark.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from tandem.spark.option_reader import OptionReader
from tandem.spark.record_batches import RecordSlice
from tandem.wire.message import INNER_BATCH_FLAGS
from tandem.wire.message_properties import PROPERTY_TAGS
from tandem.wire.record_scan import Bools

_BETWEEN_TAGS: Final = re.compile(r",|\|\|")


class RowFilter(msgspec.Struct, frozen=True):
    """What is wanted; None: it does not matter. Times are store times in ms, the end excluded."""

    tags: frozenset[str] | None = None
    start_ms: int | None = None
    end_ms: int | None = None

    def of(self, part: RecordSlice, *, batches_pass: bool = False) -> Bools:
        """Say which records are wanted.

        With `batches_pass` an inner batch has every tag: its messages have theirs.
        """
        chosen = np.ones(len(part), np.bool_)
        times = part.records.store_timestamp_ms
        if self.start_ms is not None:
            chosen &= times >= self.start_ms
        if self.end_ms is not None:
            chosen &= times < self.end_ms
        return with_tags(part, chosen, self.tags, batches_pass=batches_pass)

    def taken(self, part: RecordSlice, *, batches_pass: bool = False) -> RecordSlice:
        """Return the records that are wanted."""
        if self == EVERY_ROW:
            return part
        return part.take(self.of(part, batches_pass=batches_pass))


EVERY_ROW: Final = RowFilter()


def with_tags(
    part: RecordSlice, chosen: Bools, tags: frozenset[str] | None, *, batches_pass: bool = False
) -> Bools:
    """Return which of the chosen records have one of `tags`; all of them if that is None."""
    if tags is None or not chosen.any():
        return chosen
    # Properties are parsed of those alone that are left.
    some = part.take(chosen)
    has = has_tags(some.properties.values_of(PROPERTY_TAGS), tags)
    if batches_pass:
        flags = some.records.sys_flag
        has |= (flags & INNER_BATCH_FLAGS) == INNER_BATCH_FLAGS
    chosen = chosen.copy()
    chosen[chosen] = has
    return chosen


def has_tags(values: pa.Array, tags: frozenset[str]) -> Bools:
    """Say which values are one of `tags`. A message without a tag has none of them."""
    import pyarrow.compute as pc  # noqa: PLC0415 - takes a tenth of a second, and tags are rare

    found = pc.is_in(values, pa.array(sorted(tags), pa.string()))
    has: Bools = found.to_numpy(zero_copy_only=False).astype(np.bool_)
    return has


def message_is_wanted(properties: Mapping[str, str], tags: frozenset[str] | None) -> bool:
    """Say the same of one message."""
    return tags is None or properties.get(PROPERTY_TAGS) in tags


def read_tags(given: OptionReader) -> frozenset[str] | None:
    """Return the option `tags`: texts with commas between, or RocketMQ's `||`."""
    text = given.text("tags")
    if text is None:
        return None
    tags = {each.strip() for each in _BETWEEN_TAGS.split(text)} - {""}
    if not tags or "*" in tags:
        given.refuse(f"tags={text!r}: name the tags, or leave it out to read everything", "tags")
        return None
    return frozenset(tags)


def read_queues(given: OptionReader) -> frozenset[int] | None:
    """Return the option `queues`: ids with commas between."""
    queues = given.names("queues")
    if queues is None:
        return None
    if not all(text.isdecimal() and len(text) <= 10 and int(text) < 2**31 for text in queues):
        given.refuse(f"queues={given.text('queues')!r}: expected ids such as 0,1,2", "queues")
        return None
    return frozenset(int(text) for text in queues)


def check_times(given: OptionReader, start_ms: int | None, end_ms: int | None) -> None:
    """Refuse a time window that ends before it begins."""
    if start_ms is not None and end_ms is not None and end_ms < start_ms:
        given.refuse(
            f"endingTimestamp {given.text('endingTimestamp')} is before startingTimestamp"
            f" {given.text('startingTimestamp')}",
            "endingTimestamp",
            "startingTimestamp",
        )

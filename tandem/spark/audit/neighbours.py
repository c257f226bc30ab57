"""Compares each value with the one before it of its key, in pieces, so that no task sees them all.

    piece 0   a1 b1 a2       inside a piece each value has the one before it of its key beside it,
    piece 1   b3 a3          but for the first of each key

    edges     piece 0: a 1..2, b 1..1      what a piece says to the others: for each key, its first
              piece 1: b 3..3, a 3..3      row and its last value

Edges put in the order of their pieces are again rows to compare; so `join` does both, and what is
left of it has one row a key. Joining pieces first and then what they left gives the same as all at
once: a task may join what it has read, and the driver what the tasks have left.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from tandem.wire.record_scan import Int64s

BEFORE_THE_FIRST: Final = -1
"""What the very first value of a key is compared with: offsets and sequences begin at 0."""


class Joined(msgspec.Struct, frozen=True, eq=False):
    """What `join` has found.

    `followers` are the rows with another of their key before them; the column `before` says its
    last value. `edges` are the rows without, with the last value of all of their key in `last`.
    """

    followers: pa.Table
    edges: pa.Table


def edges_of(rows: pa.Table, value: str) -> pa.Table:
    """Return rows, which are in order, as edges of pieces of one row each; compare `value`."""
    place = pa.array(np.arange(rows.num_rows, dtype=np.int64))
    return rows.append_column("piece", place).append_column("last", rows[value].cast(pa.int64()))


def join(edges: pa.Table, keys: Sequence[str]) -> Joined:
    """Put edges of the same keys side by side, in the order of the column `piece`."""
    codes = _codes(edges, keys)
    order = np.lexsort((edges["piece"].to_numpy(), codes))
    codes = codes[order]
    edges = edges.take(pa.array(order))
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = codes[1:] != codes[:-1]
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = is_first[1:]
    last = edges["last"].to_numpy()
    follows = np.flatnonzero(~is_first)
    followers = edges.take(pa.array(follows)).append_column("before", pa.array(last[follows - 1]))
    at = edges.schema.get_field_index("last")
    left = edges.filter(pa.array(is_first)).set_column(at, "last", pa.array(last[is_last]))
    return Joined(followers.drop_columns(["last"]), left)


def with_nothing_before(edges: pa.Table) -> pa.Table:
    """Return the edges that are left at the end as rows that follow nothing."""
    before = pa.array(np.full(edges.num_rows, BEFORE_THE_FIRST, np.int64))
    return edges.append_column("before", before).drop_columns(["last"])


def _codes(rows: pa.Table, keys: Sequence[str]) -> Int64s:
    """Return one number for each row, equal where all keys are."""
    codes = np.zeros(rows.num_rows, np.int64)
    for key in keys:
        column = rows[key].combine_chunks().dictionary_encode()
        codes = codes * max(len(column.dictionary), 1) + column.indices.to_numpy()
    return codes

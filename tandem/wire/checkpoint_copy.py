"""The second copy of a checkpoint's numbers, with a checksum, in the same 4,096 bytes.

`checkpoint` and `config/timercheck` are RocketMQ's: 64-bit numbers from byte 0 on. RocketMQ reads
and writes those only, and leaves the rest of the file as it is. So our own copy is in there:

    1024  8 each: numbers that RocketMQ has not, where there are any
    2048  4  magic
    2052  4  CRC-32 of what follows
    2056  8 each: the numbers again

Right behind RocketMQ's numbers is nothing of ours: its next versions have more of them, 5.5 one at
40, where a file of an earlier version of ours has its own number. That is taken if it is that of
the copy; whatever else is there is RocketMQ's, and is zero when we have written.

The copy is in another sector of the same page, and one sync makes both durable. Two copies that
differ say who wrote last:

    no copy                       RocketMQ, or an earlier version: the numbers are taken as they are
    the copy does not fit its     a byte of it has changed: the numbers are taken as they are
    checksum
    the numbers are all zero      nobody goes back to that: they have been lost, the copy is taken
    one number differs            a byte of it has changed, for a program that writes here moves
                                  several: the copy is taken
    several differ                RocketMQ has written since, or the page was torn: of each number
                                  the lower one is taken, which vouches for less
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tandem.wire.crc import raw_crc32

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OWN_AT: Final = 1024
COPY_AT: Final = 2048
_MAGIC: Final = 0x54434B31  # "TCK1"
_HEAD: Final = struct.Struct(">II")


class Settled(NamedTuple):
    """The numbers to go by, and what is wrong with the file, in words; empty if nothing is."""

    numbers: tuple[int, ...]
    trouble: str
    has_copy: bool
    """And whether there is nothing beside it that is not ours."""


def copy_of(numbers: Sequence[int]) -> bytes:
    """Return the copy, which belongs at `COPY_AT`."""
    data = struct.pack(f">{len(numbers)}q", *numbers)
    return _HEAD.pack(_MAGIC, raw_crc32(data)) + data


def pieces_of(numbers: Sequence[int], own: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield what a checkpoint has: where, and the bytes; the last `own` are not RocketMQ's."""
    count = len(numbers) - own
    # Behind RocketMQ's is what an earlier version of ours, or a later of RocketMQ has put there.
    yield 0, struct.pack(f">{count + own}q", *numbers[:count], *[0] * own)
    if own:
        yield OWN_AT, struct.pack(f">{own}q", *numbers[count:])
    yield COPY_AT, copy_of(numbers)


def settled(data: bytes, count: int, own: int = 0) -> Settled:
    """Return what to make of the `count` numbers of a checkpoint, whole, of 4,096 bytes.

    The last `own` of them are not RocketMQ's.
    """
    form = struct.Struct(f">{count}q")
    before = form.unpack_from(data)
    numbers = before[: count - own] + struct.unpack_from(f">{own}q", data, OWN_AT)
    kept = data[COPY_AT : COPY_AT + _HEAD.size + form.size]
    if not any(kept):
        return Settled(numbers, "", has_copy=False)
    magic, crc = _HEAD.unpack_from(kept)
    if magic != _MAGIC or crc != raw_crc32(kept[_HEAD.size :]):
        trouble = f"a byte of the copy at {COPY_AT} has changed; the numbers stand"
        return Settled(numbers, trouble, has_copy=False)
    copy = form.unpack_from(kept, _HEAD.size)
    behind = before[count - own :]
    if any(behind) and behind == copy[count - own :]:
        numbers = before
    changed = sum(ours != theirs for ours, theirs in zip(copy, numbers, strict=True))
    if not changed:
        return Settled(numbers, "", has_copy=not any(behind))
    if changed == 1 or not any(numbers[: count - own]):
        trouble = f"{changed} of its numbers have changed; the copy at {COPY_AT} is taken"
        return Settled(copy, trouble, has_copy=True)
    trouble = (
        "another program has written it, or a stop fell into the middle of a write; of each number"
        " and its copy the lower one is taken"
    )
    return Settled(tuple(map(min, copy, numbers)), trouble, has_copy=True)

"""Looks at a part of our own log: does it fit its fingerprints, does a record begin there."""

from __future__ import annotations

from store import MessageStore
from tandem.wire.message import BLANK_MAGIC_CODE


def look_at(store: MessageStore, start: int, end: int) -> bool:
    """Compare a part of the log with its fingerprints, and note as damage what differs.

    True if nothing of it is known to be bad then. Of a file without fingerprint nothing is found.
    """
    damage = store.commit_log.damage
    size = store.config.mapped_file_size_commit_log_bytes
    for begin in range(start - start % size, end, size):
        found = store.fingerprints.of(begin)
        if found is None:
            continue
        for number, first, last in found.blocks(start, end):
            with store.commit_log.read(first, last - first) as block:
                differs = len(block) == last - first and found.differing(first, block)
            if differs:
                damage.note(
                    first, last, f"block {number} of file {begin} does not fit its fingerprint"
                )
    return damage.within(start, end) is None


def begins_record(store: MessageStore, offset: int) -> bool:
    """True if a sound record begins there: a message, or the record that ends a file."""
    if store.commit_log.record_at(offset) is not None:
        return True
    size = store.config.mapped_file_size_commit_log_bytes
    with store.commit_log.read(offset, 8) as head:
        length, magic = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
    return magic == BLANK_MAGIC_CODE and length == size - offset % size


def bad_until(store: MessageStore, end: int) -> int:
    """Return where the last bad range ends that begins before `end`; 0 for none."""
    return max(
        (min(bad.end, end) for bad in store.commit_log.damage.ranges if bad.start < end), default=0
    )

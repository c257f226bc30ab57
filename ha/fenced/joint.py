"""The checksum of the bytes before the place where two logs are joined.

Lists of epochs say that two logs are equal up to there. They say so of every byte that a master has
written, as long as nobody gave one epoch to two masters, and no disk has changed a byte. A look at
the last bytes costs next to nothing, and finds the first for certain: two masters write different
records.
"""

from __future__ import annotations

import hashlib
from typing import Final

from store import MessageStore

_DIGEST_BYTES: Final = 16


def checksum(store: MessageStore, start: int, end: int) -> str:
    """Return the checksum of the log from `start` to `end`, in hex."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    while start < end:
        with store.commit_log.read(start, end - start) as piece:
            digest.update(piece)
            start += len(piece)
            if not piece:
                break
    return digest.hexdigest()

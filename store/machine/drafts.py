"""What is about to replace small files, brought to the disk before: by a thread, in files beside.

    will_replace(path, data) --> write(): PATH.ahead.tmp, durable --> take(path, data): rename it

To sync a file takes 30 ms where others write much, a rename a fraction of one. Only the very bytes
that were announced are taken; whatever comes instead of them is written as ever.
"""

import os
from contextlib import suppress
from typing import Final

import trio

from store.machine import kept_threads
from store.machine.disk import TEMPORARY_SUFFIX

AHEAD_SUFFIX: Final = f".ahead{TEMPORARY_SUFFIX}"


class _Draft:
    """Its bytes are durable in its file once it `is_written`."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = f"{path}{AHEAD_SUFFIX}"
        self.data = data
        self.is_begun = self.is_written = False


class Drafts:
    """Those of one disk, one for a file."""

    def __init__(self) -> None:
        self._drafts: dict[str, _Draft] = {}

    def will_replace(self, path: str, data: bytes) -> None:
        """See `Disk.will_replace`."""
        draft = self._drafts.get(path)
        # A thread may be at work on one.
        if draft is None or not draft.is_begun or draft.is_written:
            self._drafts[path] = _Draft(path, data)

    async def write(self, limiter: trio.CapacityLimiter) -> None:
        """See `Disk.write_ahead`."""
        for path, draft in list(self._drafts.items()):
            # While another one was written, this may have been taken, or something else announced.
            if draft.is_begun or self._drafts.get(path) is not draft:
                continue
            draft.is_begun = True
            try:
                call = (write_durably, draft.path, draft.data)
                await kept_threads.run_sync(*call, limiter=limiter)
            except OSError:
                del self._drafts[path]  # `replace` says what is wrong
            except BaseException:
                del self._drafts[path]
                raise
            else:
                draft.is_written = True

    def take(self, path: str, data: bytes) -> str | None:
        """Return the file that has just these bytes, to be renamed to `path`; None: none has."""
        draft = self._drafts.get(path)
        if draft is None or (draft.is_begun and not draft.is_written):
            return None
        del self._drafts[path]
        if draft.is_written and draft.data is data and os.path.exists(draft.path):
            return draft.path
        # If it is not written, there may be one from before, which nobody has taken.
        with suppress(OSError):
            os.unlink(draft.path)
        return None


def put_in_place(draft: str, path: str) -> None:
    """Give a draft the name that it is for, in the place of what has it.

    Raises:
        OSError: the system refuses, as some do where there is no room; the draft is gone.
    """
    try:
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            os.unlink(draft)
        raise


def write_durably(path: str, data: bytes) -> None:
    """Write a file of this content, durable but for its name.

    Raises:
        OSError: no room, or the disk failed; nothing is left, which would take room from others.
    """
    try:
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fdatasync(file.fileno())
    except OSError:
        with suppress(OSError):
            os.unlink(path)
        raise

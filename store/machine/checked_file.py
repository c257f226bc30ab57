"""Small files of our own on a disk: JSON, with its checksum in the last line.

What a file says is believed only if it fits; see `tandem.wire.checksum_line`. A file of an earlier
version has no checksum, is read as it is, and gets one when it is written next.

What was read and believed, or written, is kept in memory as well, for the check whether it is still
so: see `kept_files.py`.
"""

from __future__ import annotations

from typing import TypeVar

from store.machine.disk import Disk
from store.machine.kept_files import keep
from tandem.wire.checksum_line import decode_checked_json, encode_checked_json
from tandem.wire.untrusted import UnreadableError

T = TypeVar("T")


def read_checked_json(disk: Disk, path: str, kind: type[T]) -> T | None:
    """Return what the file holds, None if there is none. An empty file is a damaged one.

    Raises:
        UnreadableError: it is damaged, or the disk does not give it; says what is wrong with it.
    """
    try:
        data = disk.read(path)
    except OSError as error:
        raise UnreadableError(f"the disk does not give it: {error.strerror or error}") from error
    if data is None:
        return None
    value = decode_checked_json(_name(path), data, kind)
    keep(disk, path, data)
    return value


def replace_with_checked_json(disk: Disk, path: str, value: object) -> None:
    """Put `value` in the place of what the file holds. Durable when it returns.

    Raises:
        StoreFullError: no room; the old content is still there.
        DiskFailedError: anything else; the old content is still there.
    """
    replace_kept(disk, path, checked_json(path, value))


def checked_json(path: str, value: object) -> bytes:
    """Return what such a file says if it is of this name, to be put there by `replace_kept`."""
    return encode_checked_json(_name(path), value)


def replace_kept(disk: Disk, path: str, data: bytes) -> None:
    """Put this in the place of what a file of ours holds. Errors: as above."""
    disk.replace(path, data)
    keep(disk, path, data)


def _name(path: str) -> str:
    return path.rpartition("/")[2]

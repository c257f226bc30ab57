"""Files that are on the disk when the call returns: their bytes, and the names on the way to them.

A rename without a sync of the file may leave an empty one after a power loss, and without a sync
of the directory the old one, or none. Whatever this package replaces goes through here, unless
nobody loses anything with it, as with a report.
"""

import os
from pathlib import Path


def write_durably(path: Path, data: bytes) -> None:
    """Put a file with `data` at `path`: all of it or none, also in place of another."""
    move_durably(write_draft(path, data), path)


def write_draft(path: Path, data: bytes) -> Path:
    """Write a file beside `path`, synced, that is to get its name; return it."""
    make_directory(path.parent)
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return draft


def move_durably(source: Path, target: Path) -> None:
    """Give a file another name on the same file system, also in place of another.

    Its bytes are the caller's to sync.
    """
    make_directory(target.parent)
    source.replace(target)
    sync_directory(target.parent)


def sync_file(path: Path) -> None:
    """Make the bytes of a file durable that another library has written."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory and its parents, so that their names are durable."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

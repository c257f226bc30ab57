"""Files that are on the disk when the call returns: their bytes, and the names on the way to them.

A rename without a sync of the file may leave an empty one after a power loss, and without a sync
of the directory the old one, or none. Whatever this package replaces goes through here, unless
nobody loses anything with it, as with a report.
"""

import os
from pathlib import Path


def write_durably(path: Path, data: bytes, *, is_private: bool = False) -> None:
    """Put a file with `data` at `path`: all of it or none, also in place of another.

    `is_private`: nobody but its owner may read it, at no time.
    """
    move_durably(write_draft(path, data, is_private=is_private), path)


def write_draft(path: Path, data: bytes, *, is_private: bool = False) -> Path:
    """Write a file beside `path`, synced, that is to get its name; return it."""
    make_directory(path.parent)
    draft = path.with_name(f".{path.name}.draft")
    if is_private:
        draft.unlink(missing_ok=True)  # another's mode would stay
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, 0o600 if is_private else 0o666), "wb") as file:
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

"""What a loss of power leaves of a store, from the copy that `machine.c` keeps of what was synced.

data/INODE-BIRTH    the bytes of a file at its last sync
names/INODE-BIRTH   a line for each entry of a directory; that of the store itself is `root`
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_BLOCK_BYTES: Final = 1 << 20


def restore(kept: Path, store: Path) -> None:
    """Let a store be what was kept of it. The directory itself stays."""
    for entry in store.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    _restore(kept / "names" / "root", kept, store)


def _restore(file: Path, kept: Path, place: Path) -> None:
    """Make the entries of one directory. A file whose bytes were never synced is empty."""
    for identity, kind, name in _names(file):
        entry = place / name
        if kind == "d":
            entry.mkdir()
            _restore(kept / "names" / identity, kept, entry)
        elif (kept / "data" / identity).exists():
            _put(kept / "data" / identity, entry)
        else:
            entry.touch()


def taken(kept: Path, store: Path) -> int:
    """Return how many files and directories of a store a loss of power takes, whole or in part."""
    return _taken(kept / "names" / "root", kept, store)


def _taken(file: Path, kept: Path, place: Path) -> int:
    left = {name: (identity, kind) for identity, kind, name in _names(file)}
    there = list(place.iterdir())
    # What was deleted, and comes back.
    count = len(left.keys() - {entry.name for entry in there})
    for entry in there:
        identity, kind = left.get(entry.name, ("", ""))
        if kind == "d" and entry.is_dir():
            count += _taken(kept / "names" / identity, kept, entry)
        elif kind != "f" or not _is_same(kept / "data" / identity, entry):
            count += 1
    return count


def _is_same(kept: Path, entry: Path) -> bool:
    """Whether two files have the same bytes; where both have holes, nothing is read."""
    if not kept.exists() or not entry.is_file() or kept.stat().st_size != entry.stat().st_size:
        return not kept.exists() and entry.is_file() and not entry.stat().st_size
    with kept.open("rb", buffering=0) as one, entry.open("rb", buffering=0) as other:
        return all(
            os.pread(one.fileno(), size, at) == os.pread(other.fileno(), size, at)
            for file in (one, other)
            for at, size in _pieces(file.fileno())
        )


def _pieces(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yield where a file has data, in pieces: the offset of each and its size."""
    end = os.fstat(descriptor).st_size
    at = 0
    while at < end:
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:
            return  # there is no more
        hole = os.lseek(descriptor, at, os.SEEK_HOLE)
        for start in range(at, hole, _BLOCK_BYTES):
            yield start, min(_BLOCK_BYTES, hole - start)
        at = hole


def _names(file: Path) -> Iterator[tuple[str, str, str]]:
    """Yield identity, kind and name of each entry of a directory that was kept."""
    lines = file.read_text(errors="surrogateescape").splitlines() if file.exists() else []
    for line in lines:
        identity, kind, name = line.split(" ", 2)
        yield identity, kind, name


def _put(kept: Path, entry: Path) -> None:
    """Let a file be what was kept of it, with its holes; a link is enough on one file system."""
    try:
        entry.hardlink_to(kept)
    except OSError:
        subprocess.run(["cp", "--sparse=always", str(kept), str(entry)], check=True)

"""The names of files in a row; and what is whole at its end where one is missing or too short."""

from __future__ import annotations

from collections.abc import Sequence

from store.machine.disk import Disk
from tandem.wire.store_layout import OFFSET_MAX, offset_named


def is_file_name(name: str, file_size: int) -> bool:
    """True if a file of a row may have this name: the offset of its first byte."""
    offset = offset_named(name)
    return offset is not None and offset % file_size == 0 and offset <= OFFSET_MAX - file_size


def whole_end(
    disk: Disk, directories: Sequence[str], file_size: int
) -> tuple[list[tuple[str, int]], list[str]]:
    """Return path and offset of the files at the end that follow one another, and all other paths.

    If the last one is not whole, that is none. A file of another name is not in the row.
    """
    found = sorted(
        (int(name), size, f"{directory}/{name}")
        for directory in directories
        for name, size in disk.list_files(directory)
        if is_file_name(name, file_size)
    )
    whole: list[tuple[str, int]] = []
    while found:
        offset, size, path = found[-1]
        expected = whole[0][1] - file_size if whole else offset
        if size != file_size or offset != expected:
            break
        whole.insert(0, (path, offset))
        found.pop()
    return whole, [path for _, _, path in found]

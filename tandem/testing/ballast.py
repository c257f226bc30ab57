"""Fills a small disk, and makes room again."""

from pathlib import Path
from typing import Final

_NAME: Final = "ballast"
_CHUNK_BYTES: Final = 65_536


def fill(directory: Path) -> None:
    """Write until there is no room left on the file system of a directory."""
    with (directory / _NAME).open("ab", buffering=0) as ballast:
        for size in (_CHUNK_BYTES, 1):
            try:
                while ballast.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


def free(directory: Path) -> None:
    """Make room again."""
    (directory / _NAME).unlink(missing_ok=True)

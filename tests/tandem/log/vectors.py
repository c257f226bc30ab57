"""The stores that RocketMQ's own classes wrote, and small stores of ours, for the tools."""

import shutil
from pathlib import Path
from typing import Final

from store.machine.real_disk import RealDisk
from tests.store.store_world import open_store, put_many
from tests.support.paths import GOLDEN

NAMES: Final = ("basic", "batch", "crc", "ext", "idx", "sch", "tran", "v6")


def copy_of(name: str, folder: Path) -> Path:
    """Copy a store of RocketMQ's, to be damaged."""
    return Path(shutil.copytree(GOLDEN / name, folder / name))


def our_store(folder: Path, count: int = 60, *, body_bytes: int = 300) -> Path:
    """Write a store with files so small that they roll: three queues, several log files."""
    with open_store(RealDisk(), str(folder / "ours")) as store:
        put_many(store, count, body_bytes=body_bytes)
    return folder / "ours"


def overwrite(path: Path, position: int, data: bytes) -> None:
    """Change some bytes of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def log_file(root: Path, offset: int = 0) -> Path:
    """Return the commit log file that begins at `offset`."""
    return root / "commitlog" / f"{offset:020d}"

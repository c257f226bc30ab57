"""The stores that RocketMQ's own classes wrote, and small stores of ours, for the tools."""

import shutil
from pathlib import Path
from typing import Final

import msgspec

from store.machine.real_disk import RealDisk
from tandem.wire.checksum_line import encode_checked_json
from tandem.wire.fingerprint import Fingerprint, crcs_of
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


def take_fingerprints(root: Path, *, era: int = -1) -> list[Path]:
    """Give all files of a log but the last one theirs, as they are; return where those are.

    Without an `era` they are of the one that the store is in.
    """
    note = (root / "log-start.json").read_bytes().splitlines()[0]
    era = msgspec.json.decode(note)["era"] if era < 0 else era
    (root / "fingerprints").mkdir(exist_ok=True)
    made = []
    for file in sorted((root / "commitlog").iterdir())[:-1]:
        data, start = file.read_bytes(), int(file.name)
        fingerprint = Fingerprint(start, len(data), crcs_of(data), start, era)
        path = root / "fingerprints" / file.name
        path.write_bytes(encode_checked_json(path.name, fingerprint))
        made.append(path)
    return made

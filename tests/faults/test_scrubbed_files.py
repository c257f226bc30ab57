"""What changes in a directory while its node runs is mended by a scrub, before anybody goes by it.

Under load: all of these files are written by the node as well.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest
import trio

from tandem.log.findings import FindingList
from tandem.log.small_files import check_small_files
from tests.faults.real_group import NODES, under_load, write_group
from tests.support.patience import PATIENCE_SECONDS, until

if TYPE_CHECKING:
    from pathlib import Path

    from tandem.wire.ha_status import FencedStatus
    from tests.faults.real_group import Group

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("scrubbed files")]

SAY_NOTHING = {"lock", "abort"}


def flip(path: Path, at: int) -> None:
    """Change a bit as a disk does: the time of the file stays."""
    times = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def small_files(directory: Path) -> list[Path]:
    files = [*directory.iterdir(), *(directory / "config").iterdir()]
    return sorted(
        path
        for path in files
        if path.is_file() and path.name not in SAY_NOTHING and path.suffix != ".tmp"
    )


def findings(directory: Path) -> set[str]:
    """Return what `tandem log verify` says of the small files, each with its kind."""
    found = FindingList()
    check_small_files(directory, found)
    return {f"{each.kind} {each.file}" for each in found.all()}


async def scrubbed(group: Group, node: str, done: str) -> FencedStatus:
    """Have a node look through its disk, until it says that it has done something."""
    with trio.fail_after(PATIENCE_SECONDS):
        await group.scrub(node)
        while True:
            status = await group.status(node)
            if status and re.search(rf"[1-9]\d* {done}", status.scrub):
                return status
            await trio.sleep(0.05)


async def test_small_files_that_change_under_a_running_node_are_written_anew(
    tmp_path: Path,
) -> None:
    async with under_load(write_group(tmp_path)) as group:
        master = await group.master()
        for node in (master, next(name for name in NODES if name != master)):
            directory = group.spec.node(node).directory
            await until((directory / "config/groupJournal.json").exists)
            await until((directory / "config/topics.json.crc").exists)
            names = {path.name for path in small_files(directory)}
            assert {"replica.json", "checkpoint", "epochFileCheckpoint", "epochIds"} <= names
            assert {"groupJournal.json", "topics.json", "log-start.json"} <= names
            (directory / "abort").unlink()
            for path in small_files(directory):
                flip(path, min(30, path.stat().st_size // 3))
            (directory / "epochIds.bak").unlink()
            assert len(findings(directory)) >= 4

            status = await scrubbed(group, node, "small files written anew")
            with trio.fail_after(PATIENCE_SECONDS):
                while findings(directory):
                    await trio.sleep(0.1)
            assert (directory / "abort").exists()
            assert (directory / "epochIds.bak").exists()
            # What was written is believed by the next process: it is the same replica.
            await group.cluster.kill(node)
            await group.cluster.start(node)
            await group.in_sync(len(NODES))
            again = await group.status(node)
            assert again is not None
            assert again.incarnation == status.incarnation

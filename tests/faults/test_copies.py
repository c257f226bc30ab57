"""Real nodes, all killed, and a directory that was put back by a moment: its node starts first."""

import shutil
from pathlib import Path

import pytest
import trio

from tests.faults.real_group import NODES, PATIENT, under_load, write_group

pytestmark = [pytest.mark.fault, pytest.mark.slow]

LOOKED_AT_SECONDS = 2.0
"""Much longer than an election takes."""


async def test_a_copy_of_a_moment_ago_waits_for_one_that_has_more(tmp_path: Path) -> None:
    spec = write_group(tmp_path, coordinator=PATIENT)
    async with under_load(spec) as group:
        master = await group.master()
        copied, other = [name for name in NODES if name != master]
        directory = next(node.directory for node in spec.nodes if node.name == copied)
        group.cluster.pause(copied)  # so that the copy is of one moment
        shutil.copytree(directory, tmp_path / "copy")
        group.cluster.resume(copied)
        # More than were under way: an answer that was read late is of before the copy.
        await group.acked_more()
        epoch = await group.epoch()
        async with trio.open_nursery() as nursery:
            for name in (master, other, copied):
                nursery.start_soon(group.cluster.kill, name)
        shutil.rmtree(directory)
        shutil.move(tmp_path / "copy", directory)
        await group.cluster.start(copied)
        await group.nobody_is_master(LOOKED_AT_SECONDS)
        await group.cluster.start(other)
        await group.master()
        # Who wins next is the promise; later ones are the affair of a busy machine.
        logs = {name: (tmp_path / "data" / "logs" / f"{name}.log").read_text() for name in NODES}
        won = [name for name, log in logs.items() if f"this node won epoch {epoch + 1} " in log]
        assert won == [other], logs

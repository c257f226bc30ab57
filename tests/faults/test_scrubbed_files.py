"""What changes in a directory while its node runs is mended by a scrub, before anybody goes by it.

Under load: all of these files are written by the node as well.
"""

import os
import re
from pathlib import Path

import pytest
import trio

from tandem.client import PullConsumer
from tandem.log.findings import FindingList
from tandem.log.small_files import check_small_files
from tandem.wire.ha_status import FencedStatus
from tests.faults.real_group import NODES, TOPIC, Group, under_load, write_group
from tests.support.patience import PATIENCE_SECONDS, until
from tests.support.processes import TANDEM

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
        await order(group, "scrub", node)
        while True:
            status = await group.status(node)
            if status and re.search(rf"[1-9]\d* {done}", status.scrub):
                return status
            await trio.sleep(0.05)


def queue_files(directory: Path) -> list[list[Path]]:
    """The files of each queue of the producers' topic that has several."""
    queues = [sorted(queue.iterdir()) for queue in (directory / "consumequeue" / TOPIC).iterdir()]
    return sorted(files for files in queues if len(files) > 2)


def units_in(path: Path) -> bytes:
    return path.read_bytes().rstrip(b"\0")


async def consume_all(group: Group) -> set[str]:
    """Return the keys of what is there now, as a consumer gets them from the beginning."""
    async with PullConsumer(group.spec.name_servers, "readers") as consumer:
        with trio.fail_after(PATIENCE_SECONDS):
            return {each.keys async for each in consumer.messages(TOPIC, until_end=True)}


async def order(group: Group, *words: str, may_be_refused: bool = False) -> None:
    """Run `tandem ha`, as an operator would."""
    await trio.run_process(
        [*TANDEM, "ha", *words, "-c", str(group.spec.file)],
        capture_stdout=True,
        capture_stderr=True,
        check=not may_be_refused,
    )


async def promote(group: Group, node: str) -> None:
    """Have a node become master. Under load it may lag, or the set may change: then once more."""
    with trio.fail_after(PATIENCE_SECONDS):
        while await group.master() != node:
            await order(group, "promote", node, may_be_refused=True)
            await trio.sleep(0.05)


async def test_files_of_queues_that_are_lost_are_built_anew_running_and_at_a_start(
    tmp_path: Path,
) -> None:
    small = {"mapped_file_size_consume_queue_bytes": 2_000}
    async with under_load(write_group(tmp_path, store=small)) as group:
        master = await group.master()
        directory = group.spec.node(master).directory
        with trio.fail_after(PATIENCE_SECONDS):
            while len(queue_files(directory)) < 2:
                await trio.sleep(0.1)
        # Under the running master: one is deleted, one is cut.
        deleted, cut = (files[0] for files in queue_files(directory)[:2])
        before = [units_in(path) for path in (deleted, cut)]
        deleted.unlink()
        with cut.open("r+b") as file:
            file.truncate(700)
        status = await scrubbed(group, master, "units and [12] files of queues written anew")
        assert "0 units and" not in status.scrub
        assert [units_in(path) for path in (deleted, cut)] == before
        assert cut.stat().st_size == 2_000
        acked = set(group.acked)
        assert acked <= await consume_all(group)

        # Of a node that is stopped: it builds all queues anew when it is started.
        await group.cluster.stop(master)
        first, other = queue_files(directory)[:2]
        first[0].unlink()
        with other[1].open("r+b") as file:
            file.truncate(20)
        await group.cluster.start(master)
        await group.in_sync(len(NODES))
        assert [units_in(path) for path in (deleted, cut)] == before
        assert other[1].stat().st_size == 2_000
        # It is a follower now: as master it has to show all of it to readers.
        await promote(group, master)
        acked = set(group.acked)
        assert acked <= await consume_all(group)


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
            again = await group.answer(node)
            assert again.incarnation == status.incarnation

"""A fenced group whose three stores and whose coordinator share a disk that gets full."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import aclosing, suppress
from pathlib import Path

import pytest
import trio

from tandem.cluster import NodeStartError
from tandem.coordinator.interface import Put
from tandem.coordinator.journal import DiskFile, Journal, NotWrittenError
from tandem.coordinator.kv import KeyValueStore
from tandem.coordinator.kv_records import PutOperation
from tests.faults.real_group import NODES, Group, under_load, write_group
from tests.support.patience import PATIENCE_SECONDS, until

pytestmark = pytest.mark.fault

DISK_MIB = 96

QUIET_SECONDS = 1.0
"""An election that a full disk ends may be under way when the last master has gone."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, for the data of all nodes and of the coordinator."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a small file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Fill a file system to the last page; return the file that does it."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return filler


async def no_master_for(group: Group, disk: Path, seconds: float) -> None:
    """Keep a disk full until nobody has been master, or was about to be, for so long."""
    with trio.fail_after(PATIENCE_SECONDS):
        quiet_since = trio.current_time()
        while trio.current_time() - quiet_since < seconds:
            fill(disk)
            for node in NODES:
                status = await group.status(node)
                if status is not None and status.role in ("MASTER", "OPENING"):
                    quiet_since = trio.current_time()
            await trio.sleep(0.1)


@pytest.mark.slow
async def test_a_group_whose_disk_was_full_goes_on_by_itself_when_there_is_room(
    small_disk: Path,
) -> None:
    spec = write_group(small_disk)
    async with under_load(spec) as group:
        filler = fill(small_disk)
        await no_master_for(group, small_disk, QUIET_SECONDS)
        fill(small_disk)
        # What the coordinator writes it has room for: elections and leases go on as they do.
        await until(lambda: group.cluster.coordinator_trouble == "")
        async with aclosing(group.cluster.coordinator_client()) as client:
            lease = await client.grant(60)
            await client.transact([], [Put("/another/key", b"on a full disk", lease.lease_id)])
        # One that dies meanwhile may find enough for a start, or not; with room it starts.
        await group.cluster.kill(NODES[2])
        with suppress(NodeStartError):
            await group.cluster.start(NODES[2])
        filler.unlink()
        await group.acked_more()
        await group.make_whole()
        assert [group.cluster.status()[index].starts_count for index in (0, 1)] == [1, 1]
        assert group.cluster.coordinator_last_end == ""


def put(store: KeyValueStore, number: int) -> None:
    operation = PutOperation(b"/key/%d" % (number % 5), b"value %d" % number * 20)
    store.transact([], [operation], [], 0.0)


def write(journal: Journal, store: KeyValueStore) -> None:
    """Bring to the disk what waits, as the coordinator does."""
    taken = journal.take(store)
    try:
        taken.to_disk()
    except NotWrittenError:
        journal.take_back(taken)
        raise
    journal.settle(taken)


def test_the_coordinators_journal_goes_on_and_is_replaced_and_starts_on_a_full_disk(
    small_disk: Path,
) -> None:
    directory = small_disk / "coordinator"
    number = 0
    for life in range(3):
        journal = Journal(DiskFile(directory), replace_bytes_min=30_000)
        store = KeyValueStore(on_change=journal.record)
        journal.restore(store, 0.0)
        assert store.revision == number + 1
        if life == 0:
            fill(small_disk)
        replaced = set()
        for _ in range(500):
            put(store, number)
            write(journal, store)
            number += 1
            replaced.add((directory / "journal").stat().st_ino)
        assert len(replaced) == 2, "it was never replaced"
        journal.close()


def test_a_journal_without_a_reserve_waits_for_room(small_disk: Path) -> None:
    """As a version before this one has left it."""
    directory = small_disk / "coordinator"
    journal = Journal(DiskFile(directory))
    store = KeyValueStore(on_change=journal.record)
    journal.restore(store, 0.0)
    put(store, 0)
    write(journal, store)
    journal.close()
    (directory / "journal.new").unlink()
    old = (directory / "journal").read_bytes().rstrip(b"\0")
    (directory / "journal").write_bytes(old)
    filler = fill(small_disk)
    journal = Journal(DiskFile(directory))
    with pytest.raises(NotWrittenError, match=r"No space left on device; .*free space there"):
        journal.restore(KeyValueStore(), 0.0)
    journal.close()
    assert (directory / "journal").read_bytes() == old
    filler.unlink()
    journal = Journal(DiskFile(directory))
    again = KeyValueStore(on_change=journal.record)
    journal.restore(again, 0.0)
    assert again.image() == store.image()
    journal.close()

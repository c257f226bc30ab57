"""What this project promises to have on the disk, done once, and looked at when it says so.

Each operation takes a directory and the machine that watches its syncs. Directly after a call
returns, or in the step in which an answer comes, it asserts what a power loss would leave.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import trio
import typer
from typer.testing import CliRunner

from ha.fenced.epoch_file import EpochEntry, EpochFile
from ha.fenced.epoch_file import decode as decode_epochs
from ha.fenced.replica_file import ReplicaFile
from node.tables.topic_config_table import WRITTEN_WHOLE_MAX, TopicConfigTable
from store import FlushDiskType, PutMessageStatus
from store.__main__ import move as set_aside
from store.machine.real_disk import RealDisk
from store.machine.table_file import TableFile
from store.recovery.truncation import TRUNCATION_FILE, TruncationIntent, write_intent
from tandem.cli.cluster_init import init
from tandem.client import MessageQueue
from tandem.client.local_offsets import LocalOffsets
from tandem.cluster_file.choices import AckLevel
from tandem.coordinator.interface import Put
from tandem.coordinator.journal import DiskFile, Journal
from tandem.coordinator.kv import KeyValueStore
from tandem.coordinator.kv_records import PutOperation
from tandem.durable_file import write_durably
from tandem.wire.request_headers import TopicConfig
from tandem.wire.store_layout import TABLE_CHANGES_SUFFIX
from tests.store.store_world import a_message, open_store
from tests.support.patience import PATIENCE_SECONDS
from tests.support.strict_machine import StrictMachine
from tests.tandem.coordinator.embedded import connected, running_server

SIZE: Final = 8192
PUTS_COUNT: Final = 12
TRANSACTIONS_COUNT: Final = 5

init_app: Final = typer.Typer()
init_app.command()(init)

Operation = Callable[[Path, StrictMachine], None]


def replace_a_file(directory: Path, machine: StrictMachine) -> None:
    """A small file is replaced as a whole, in directories that did not exist."""
    path = directory / "new" / "newer" / "f"
    for data in (b"first", b"second"):
        RealDisk().replace(str(path), data)
        assert machine.read(path) == data


def replace_a_file_ahead(directory: Path, machine: StrictMachine) -> None:
    """A small file is replaced by what a thread has brought to the disk before."""
    path = directory / "f"
    disk = RealDisk()
    for data in (b"first", b"second"):
        disk.will_replace(str(path), data)
        trio.run(disk.write_ahead)
        disk.replace(str(path), data)
        assert machine.read(path) == data


def replace_a_file_of_the_package(directory: Path, machine: StrictMachine) -> None:
    """What commands, jobs and clients replace: manifests, positions of a replay, offsets."""
    path = directory / "new" / "newer" / "f"
    for data in (b"first", b"second"):
        write_durably(path, data)
        assert machine.read(path) == data


def store_offsets_of_a_broadcasting_consumer(directory: Path, machine: StrictMachine) -> None:
    """What was handled is not handled again after a power loss."""
    path = directory / "offsets.json"
    offsets = LocalOffsets(path)
    for offset in (5, 7):
        offsets.set(MessageQueue("Orders", "broker-a", 0), offset)
        offsets.save()
        assert b'"offset": %d' % offset in (machine.read(path) or b"")


def write_a_cluster_file(directory: Path, machine: StrictMachine) -> None:
    """A cluster file that was written over is the new one, or the old one, and never none."""
    path = directory / "cluster.yaml"
    for options in ([], ["--force"]):
        done = CliRunner().invoke(init_app, [str(path), *options])
        assert done.exit_code == 0, done.output
        assert machine.read(path) == path.read_bytes()


def set_a_store_aside(directory: Path, machine: StrictMachine) -> None:
    """What a repair replaces is kept, before anything is in its place."""
    RealDisk().replace(str(directory / "store" / "f"), b"data")
    set_aside(str(directory / "store" / "f"), str(directory / "aside" / "f"))
    assert machine.read(directory / "aside" / "f") == b"data"
    assert not machine.exists(directory / "store" / "f")


def create_a_file(directory: Path, machine: StrictMachine) -> None:
    """A file of the log is made in the middle of a put, and written to."""
    path = directory / "new" / "f"
    file = RealDisk().create(str(path), SIZE)
    assert machine.exists(path)
    file.buffer[:4] = b"data"
    file.sync()
    file.close()
    assert machine.read(path) == b"data".ljust(SIZE, b"\0")


def create_a_file_beforehand(directory: Path, machine: StrictMachine) -> None:
    """A file of the log is made before it is needed, and synced in the background."""
    path = directory / "new" / "f"

    async def create() -> None:
        disk = RealDisk()
        file = await disk.create_in_background(str(path), SIZE)
        assert file is not None
        assert machine.exists(path)
        file.buffer[:4] = b"data"
        await disk.sync(file)
        file.close()

    trio.run(create)
    assert machine.read(path) == b"data".ljust(SIZE, b"\0")


def sync_a_file_of_a_queue(directory: Path, machine: StrictMachine) -> None:
    """It gets its name in the middle of a put, and may lose it until its first sync."""
    path = directory / "new" / "newer" / "f"
    file = RealDisk().create(str(path), SIZE, grows=True)
    assert not machine.exists(path)
    file.buffer[:4] = b"data"
    file.sync()
    assert machine.read(path) == b"data".ljust(SIZE, b"\0")
    file.close()


def sync_files_of_queues_together(directory: Path, machine: StrictMachine) -> None:
    """All that a flush syncs is there afterwards, also what was made while it was at it."""
    disk = RealDisk()
    paths = [directory / "queues" / topic / "0" / "f" for topic in ("a", "b", "c")]

    async def sync() -> None:
        files = [disk.create(str(path), SIZE, grows=True) for path in paths[:2]]
        for file in files:
            file.buffer[:4] = b"data"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(disk.sync_together, files)
            await trio.lowlevel.checkpoint()
            files.append(disk.create(str(paths[2]), SIZE, grows=True))
        for path in paths[:2]:
            assert machine.read(path) == b"data".ljust(SIZE, b"\0")
        await disk.sync(files[2])
        assert all(machine.exists(path) for path in paths)
        for file in files:
            file.close()

    trio.run(sync)


def sync_a_tree(directory: Path, machine: StrictMachine) -> None:
    """One call brings all files of all queues to the disk, those that are closed, and their names.

    Where the file system of these tests is not known for that, each file is synced.
    """
    disk = RealDisk()
    release = disk.lock(str(directory / "lock"))
    paths = [directory / "queues" / topic / "0" / "f" for topic in ("a", "b", "c")]
    files = [disk.create(str(path), SIZE, grows=True) for path in paths]
    for file in files:
        file.buffer[:4] = b"data"
    is_synced = disk.sync_tree_now(str(directory))
    if not is_synced:
        disk.sync_now(files)
    assert [machine.read(path) for path in paths] == [b"data".ljust(SIZE, b"\0")] * 3
    for file in files:
        file.close()
    release()


def stop_with_many_queues(directory: Path, machine: StrictMachine) -> None:
    """When a stop counts as clean, all units are on the disk."""
    disk = RealDisk()
    disk.many_files = 4
    store = open_store(disk, str(directory / "store"))
    for queue_id in range(8):
        assert store.puts.put_message(a_message(queue_id=queue_id)).status.is_stored
    store.close()
    for queue_id in range(8):
        path = directory / "store" / "consumequeue" / "TopicA" / str(queue_id) / f"{0:020d}"
        assert (machine.read(path) or b"")[:20] == path.read_bytes()[:20]
    assert not machine.exists(directory / "store" / "abort")


def sync_closed_files(directory: Path, machine: StrictMachine) -> None:
    """Files that are closed are brought to the disk with their names, without being mapped."""
    disk = RealDisk()
    paths = [directory / "queues" / topic / "0" / "f" for topic in ("a", "b", "c", "d", "e")]
    for path in paths:
        file = disk.create(str(path), SIZE, grows=True)
        file.buffer[:4] = b"data"
        file.close()
    disk.sync_closed_now([str(path) for path in paths])
    assert [machine.read(path) for path in paths] == [b"data".ljust(SIZE, b"\0")] * 5


def sync_names_of_an_earlier_process(directory: Path, machine: StrictMachine) -> None:
    """What a killed process has made is made durable before anything is promised about it."""
    path = directory / "queues" / "topic" / "0" / "f"
    RealDisk().create(str(path), SIZE, grows=True).close()
    outermost_first = [str(parent) for parent in reversed(path.parents)]
    RealDisk().sync_names(outermost_first[outermost_first.index(str(directory)) :])
    assert machine.exists(path)


def remove_a_file(directory: Path, machine: StrictMachine) -> None:
    """What was removed does not come back, and neither does its directory."""
    disk, path = RealDisk(), directory / "d" / "f"
    disk.replace(str(path), b"data")
    disk.remove(str(path))
    assert not machine.exists(path)
    disk.remove_directory(str(path.parent))
    assert not machine.exists(path.parent)


def move_a_file(directory: Path, machine: StrictMachine) -> None:
    """A store that is set aside is where it was moved to, and no more where it was."""
    disk, old, new = RealDisk(), directory / "old" / "f", directory / "new" / "f"
    disk.replace(str(old), b"data")
    assert disk.rename(str(old), str(new))
    assert machine.read(new) == b"data"
    assert not machine.exists(old)


def answer_a_put(directory: Path, machine: StrictMachine) -> None:
    """SYNC_FLUSH: a put is answered when its record is on the disk, over several files."""
    was_left = trio.run(_answer_puts, directory / "store", machine)
    assert was_left == [(PutMessageStatus.PUT_OK, True)] * PUTS_COUNT


async def _answer_puts(
    directory: Path, machine: StrictMachine
) -> list[tuple[PutMessageStatus, bool]]:
    """Put one after the other; return the answer to each, and whether it was left by then."""
    store = open_store(RealDisk(), str(directory), flush_disk_type=FlushDiskType.SYNC_FLUSH)
    was_left: list[tuple[PutMessageStatus, bool]] = []
    answered = trio.Event()

    def done(body: bytes, status: PutMessageStatus, _: str) -> None:
        log = directory / "commitlog"
        left = b"".join(machine.read(log / name) or b"" for name in machine.names(log))
        was_left.append((status, body in left))
        answered.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        for number in range(PUTS_COUNT):
            message = a_message(number, body_bytes=2000)
            result = store.puts.put_message(message)
            deadline = trio.current_time() + PATIENCE_SECONDS
            store.flush_service.submit(result.end_offset, deadline, partial(done, message.body))
            store.announce()
            await answered.wait()
            answered = trio.Event()
        nursery.cancel_scope.cancel()
    store.close()
    return was_left


def promise_an_epoch(directory: Path, machine: StrictMachine) -> None:
    """replica.json: what a replica has promised, acknowledged and seen."""
    replica = ReplicaFile(RealDisk(), str(directory), Random(1))
    replica.started("boot", AckLevel.WRITTEN, 0)
    assert replica.incarnation.encode() in (machine.read(replica.path) or b"")
    replica.promise(7)
    assert b'"promised":7,' in (machine.read(replica.path) or b"")
    replica.note_acked(4711)
    assert b'"acked":4711,' in (machine.read(replica.path) or b"")


def begin_an_epoch(directory: Path, machine: StrictMachine) -> None:
    """The list of epochs, and its second copy."""
    epochs = EpochFile(RealDisk(), str(directory))
    for epoch, start in ((1, 0), (2, 512)):
        epochs.append(epoch, start)
        data = machine.read(directory / "epochFileCheckpoint")
        assert data
        assert decode_epochs(data)[-1] == EpochEntry(epoch, start)
        assert machine.read(directory / "epochFileCheckpoint.bak") == data


def create_a_topic(directory: Path, machine: StrictMachine) -> None:
    """A topic that shows is on the disk: in the table, or in the file beside a large one."""
    path = directory / "config" / "topics.json"
    table = TopicConfigTable(TableFile(RealDisk(), str(path)), lambda: 1)
    table.update(*(TopicConfig(f"T{number}") for number in range(WRITTEN_WHOLE_MAX)))
    assert b'"T0"' in (machine.read(path) or b"")
    for name in ("first", "second"):
        table.update(TopicConfig(name))
        left = (machine.read(path) or b"") + (machine.read(f"{path}{TABLE_CHANGES_SUFFIX}") or b"")
        assert b'"%b"' % name.encode() in left


def intend_a_cut(directory: Path, machine: StrictMachine) -> None:
    """The intent to cut a log is there before anything is done about it."""
    intent = TruncationIntent(cut=512, reason="it parts there", files={}, side_name="a")
    write_intent(RealDisk(), str(directory), intent)
    assert b'"cut":512,' in (machine.read(directory / TRUNCATION_FILE) or b"")


def journal_a_change(directory: Path, machine: StrictMachine) -> None:
    """The coordinator's journal: its first image, each change, and an image in its place."""
    home = directory / "new" / "coordinator"
    journal = Journal(DiskFile(home), replace_bytes_min=400)
    store = KeyValueStore(on_change=journal.record)
    journal.restore(store, 0.0)
    assert machine.read(home / "journal") == (home / "journal").read_bytes() != b""
    sizes = []
    for number in range(20):
        store.transact([], [PutOperation(b"key", b"value %d" % number, 0)], [], 0.0)
        write = journal.take(store)
        write.to_disk()
        journal.settle(write)
        left = machine.read(home / "journal") or b""
        assert b"value %d" % number in left
        sizes.append(len(left.rstrip(b"\0")))
    assert sizes != sorted(sizes), "it was never replaced"
    journal.close()


def mend_a_torn_journal(directory: Path, machine: StrictMachine) -> None:
    """What a start has read is on the disk before anything is written after it.

    The page cache may show what a sync that failed has not brought there.
    """
    journal = Journal(DiskFile(directory))
    store = KeyValueStore(on_change=journal.record)
    journal.restore(store, 0.0)
    store.transact([], [PutOperation(b"key", b"value", 0)], [], 0.0)
    write = journal.take(store)
    journal.close()
    path = directory / "journal"
    with path.open("r+b") as file:
        file.seek(write.position)
        file.write(write.data + b"\0\0\0\5")
    whole = path.read_bytes()
    assert machine.read(path) != whole
    again = Journal(DiskFile(directory))
    again.restore(KeyValueStore(on_change=again.record), 0.0)
    again.close()
    left = machine.read(path)
    assert left is not None
    assert left.rstrip(b"\0") == whole[: write.position + len(write.data)].rstrip(b"\0")


def answer_a_transaction(directory: Path, machine: StrictMachine) -> None:
    """The embedded coordinator answers when its journal is on the disk."""
    was_left = trio.run(_answer_transactions, directory, machine)
    assert was_left == [True] * TRANSACTIONS_COUNT


async def _answer_transactions(directory: Path, machine: StrictMachine) -> list[bool]:
    was_left = []
    async with running_server(DiskFile(directory)) as (_, port), connected(port) as client:
        for number in range(TRANSACTIONS_COUNT):
            value = b"value %d" % number
            await client.transact([], [Put("key", value)])
            was_left.append(value in (machine.read(directory / "journal") or b""))
    return was_left


OPERATIONS: Final[dict[str, Operation]] = {
    operation.__name__: operation
    for operation in (
        replace_a_file,
        replace_a_file_ahead,
        replace_a_file_of_the_package,
        store_offsets_of_a_broadcasting_consumer,
        write_a_cluster_file,
        set_a_store_aside,
        create_a_file,
        create_a_file_beforehand,
        sync_a_file_of_a_queue,
        sync_files_of_queues_together,
        sync_a_tree,
        stop_with_many_queues,
        sync_closed_files,
        sync_names_of_an_earlier_process,
        remove_a_file,
        move_a_file,
        answer_a_put,
        promise_an_epoch,
        begin_an_epoch,
        create_a_topic,
        intend_a_cut,
        journal_a_change,
        mend_a_torn_journal,
        answer_a_transaction,
    )
}

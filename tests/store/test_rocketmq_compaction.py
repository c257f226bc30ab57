"""A store whose compaction topic RocketMQ 5.3.3's broker has compacted: read, and made anew."""

import lzma
from typing import Any, Final

import trio

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from tandem.wire.message import decode_messages
from tests.store.store_world import open_store
from tests.support.paths import ROOT

VECTORS: Final = ROOT / "tests/data/rocketmq-5.3.3/compaction"
LOG_BYTES: Final = 1 << 20
SETTINGS: Final[dict[str, Any]] = {
    "commit_log_bytes": LOG_BYTES,
    "consume_queue_bytes": 6_000_000,
    "compaction_mapped_file_size_bytes": 23_000,
    "compaction_cq_mapped_file_size_bytes": 4_600,
    "compacted": {"State"},
}


def vectors() -> dict[str, bytes]:
    """Return the files that RocketMQ wrote, by their names in the store."""
    found = sorted(VECTORS.rglob("*.xz"))
    assert len(found) == 10
    return {
        str(path.relative_to(VECTORS)).removesuffix(".xz"): lzma.decompress(path.read_bytes())
        for path in found
    }


def disk_with(files: dict[str, bytes]) -> SimulatedDisk:
    disk = SimulatedDisk()
    for name, data in files.items():
        if name.endswith("position-checkpoint"):
            disk.replace(f"/store/{name}", data)
            continue
        size = LOG_BYTES if name.startswith("commitlog") else len(data)
        file = disk.create(f"/store/{name}", size)
        file.buffer[: len(data)] = data
        file.close()
    disk.replace("/store/abort", b"")
    return disk


def read(store: MessageStore, queue_id: int) -> list[tuple[int, str, str]]:
    found = []
    offset = 0
    while True:
        result = store.reads.get_message("State", queue_id, offset, 32)
        for message in decode_messages(b"".join(result.body)):
            text = message.body.decode().partition("-")[0]
            found.append((message.queue_offset, message.keys, text))
        if result.next_begin_offset == offset:
            return found
        offset = result.next_begin_offset


def test_from_the_same_log_the_same_files_are_made_byte_for_byte() -> None:
    files = vectors()
    log = {name: data for name, data in files.items() if name.startswith("commitlog")}
    disk = disk_with(log)
    with open_store(disk, **SETTINGS) as store:
        store.sync_log()
        trio.run(store.compaction.compact_all)
    made = {
        f"compaction/{kind}/State/{queue_id}/{name}"
        for kind in ("compactionLog", "compactionCq")
        for queue_id in range(2)
        for name, _ in disk.list_files(f"/store/compaction/{kind}/State/{queue_id}")
    }
    expected = {name: data for name, data in files.items() if name not in log}
    assert made | {"compaction/position-checkpoint"} == set(expected)
    for name, data in expected.items():
        path = f"/store/{name}"
        found = disk.read(path) if name.endswith("checkpoint") else bytes(disk.open(path).buffer)
        assert found == data, name


def test_what_rocketmq_has_compacted_is_read_and_goes_on() -> None:
    disk = disk_with(vectors())
    with open_store(disk, **SETTINGS) as store:
        found = read(store, 0)
        # What RocketMQ's broker answered to a pull consumer.
        assert found[:2] == [(182, "key0", "v364"), (183, "key4", "v366")]
        assert found[-1][0] == 199
        assert len({key for number, key, _ in found if number <= 189}) == sum(
            number <= 189 for number, *_ in found
        )
        store.sync_log()
        trio.run(store.compaction.compact_all)
        assert read(store, 0) == found, "there is nothing to be compacted"

import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store.log.fingerprints import Fingerprints
from tandem.wire.fingerprint import BLOCK_BYTES, crcs_of
from tests.store.store_world import DIRECTORY, a_message, open_store, put


async def test_a_running_store_has_a_fingerprint_of_each_closed_file(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk()
    store = open_store(disk, commit_log_bytes=BLOCK_BYTES)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        while len(store.commit_log.files.files) < 4:
            put(store, a_message(body_bytes=5000))
        await trio.sleep(2)
        nursery.cancel_scope.cancel()

    files = store.commit_log.files.files
    found = Fingerprints(disk, DIRECTORY)
    assert found.starts == [0, BLOCK_BYTES, 2 * BLOCK_BYTES]
    for file in files[:3]:
        known = found.of(file.file_from_offset)
        assert known is not None
        assert known.crcs == crcs_of(bytes(file.buffer))


async def test_what_a_start_cuts_off_loses_its_fingerprint(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk()
    store = open_store(disk, commit_log_bytes=BLOCK_BYTES)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        while len(store.commit_log.files.files) < 3:
            put(store, a_message(body_bytes=5000))
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    store.commit_log.files.truncate_dirty_files(BLOCK_BYTES + 100)
    store.checkpoint.confirm_physical_offset = 0
    store.checkpoint.flush_blocking()

    store = open_store(disk.crashed(), commit_log_bytes=BLOCK_BYTES)

    assert store.max_physical_offset < 2 * BLOCK_BYTES
    assert store.fingerprints.starts == [0]

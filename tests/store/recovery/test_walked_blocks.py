import struct
from typing import Any

import pytest
import trio

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.log import log_end
from store.log.fingerprints import Fingerprints
from store.machine.errors import CorruptLogError, LogFault
from store.recovery.closed_log import heal_closed_log
from store.recovery.walked_blocks import WalkedBlocks
from tandem.wire.fingerprint import BLOCK_BYTES, Fingerprint, crcs_of
from tests.store.store_world import Clock, a_message, check_store, log_messages, open_store, put

FILE_BYTES = 3 * BLOCK_BYTES
QUEUE_ID_AT, QUEUE_OFFSET_AT = 12, 20


def _killed(
    *, unsynced_bytes: int = 0, other_after: int = 10, other_bytes: int = 0
) -> tuple[SimulatedDisk, bytes, list[int]]:
    """Return the disk of a killed store that walks all of its log, the log, and its records."""
    disk = SimulatedDisk()
    store = open_store(disk, commit_log_bytes=FILE_BYTES, consume_queue_bytes=2000)
    for number in range(120):
        put(store, a_message(number // 2, queue_id=number % 2, body_bytes=4000))
        if number == other_after:
            put(store, a_message(topic="TopicB", body_bytes=other_bytes))
    store.sync_log()
    store.queues.sync_all()
    files = store.commit_log.files.files
    assert len(files) == 3
    for file in files[:2]:
        content = bytes(file.buffer)
        era = store.fingerprints.era
        made = Fingerprint(file.file_from_offset, FILE_BYTES, crcs_of(content), 0, era)
        trio.run(store.fingerprints.save, made)
    end = store.max_physical_offset
    store.checkpoint.confirm_physical_offset = end - unsynced_bytes
    store.checkpoint.flush_blocking()
    log = b"".join(bytes(file.buffer) for file in files)[:end]
    return disk.crashed(), log, [message.physical_offset for message in log_messages(store)]


def _change(disk: SimulatedDisk, place: int, content: bytes) -> None:
    file = disk.open(f"/store/commitlog/{place - place % FILE_BYTES:020d}")
    file.buffer[place % FILE_BYTES : place % FILE_BYTES + len(content)] = content
    file.sync()


def _open(disk: SimulatedDisk) -> MessageStore:
    return open_store(disk, commit_log_bytes=FILE_BYTES, consume_queue_bytes=2000)


def _remove_queues(disk: SimulatedDisk, topic: str, *queue_ids: int) -> None:
    for queue_id in queue_ids:
        directory = f"/store/consumequeue/{topic}/{queue_id}"
        for name, _ in disk.list_files(directory):
            disk.remove(f"{directory}/{name}")


@pytest.mark.parametrize(
    ("at", "content"),
    [
        (QUEUE_ID_AT, struct.pack(">i", 5)),
        (QUEUE_ID_AT, struct.pack(">i", 0)),  # which has a message of this number, too
        (QUEUE_OFFSET_AT, struct.pack(">q", 7_000)),
    ],
)
@pytest.mark.parametrize("stop", ["killed", "killed, queues lost", "clean, queues lost"])
def test_no_queue_is_built_from_a_number_that_has_changed(
    at: int, content: bytes, stop: str
) -> None:
    disk, log, records = _killed()
    if "clean" in stop:
        _open(disk).close()
    if "lost" in stop:  # with the other one the walk begins in the last file
        _remove_queues(disk, "TopicA", *([1] if "clean" in stop else [0, 1]))
    place = records[30] + at
    _change(disk, place, content)

    with pytest.raises(CorruptLogError) as caught:
        _open(disk)

    begin = place - place % FILE_BYTES % BLOCK_BYTES
    error = caught.value
    assert (error.offset, error.damaged_end) == (begin, begin + BLOCK_BYTES)
    assert not disk.exists("/store/consumequeue/TopicA/5")
    config = open_store(SimulatedDisk(), commit_log_bytes=FILE_BYTES).config
    part = log[error.offset : error.damaged_end]
    heal_closed_log(config, error.offset, part, disk=disk, wall_clock_ms=Clock())
    assert len(check_store(_open(disk))) == 121


def test_no_queue_gets_a_record_whose_topic_has_changed() -> None:
    """No other record of either queue shows that."""
    disk, log, _ = _killed()
    _remove_queues(disk, "TopicB", 0)
    _change(disk, log.index(b"TopicB"), b"TopicC")

    with pytest.raises(CorruptLogError) as caught:
        _open(disk)
    assert caught.value.fault is LogFault.CHANGED
    assert not disk.exists("/store/consumequeue/TopicC/0/00000000000000000000")


@pytest.mark.parametrize("changed", ["its beginning", "its end"])
def test_a_record_of_two_blocks_is_not_entered_if_either_is_bad(changed: str) -> None:
    """All others are in their queues already."""
    disk, log, records = _killed(other_after=14, other_bytes=4000)
    at, topic_at = records[15], log.index(b"TopicB")
    assert at + QUEUE_ID_AT + 4 < BLOCK_BYTES < topic_at
    _remove_queues(disk, "TopicB", 0)
    if changed == "its end":
        _change(disk, topic_at, b"TopicC")
    else:
        _change(disk, at + QUEUE_ID_AT, struct.pack(">i", 5))

    with pytest.raises(CorruptLogError) as caught:
        _open(disk)
    assert caught.value.fault is LogFault.CHANGED

    assert caught.value.offset == (BLOCK_BYTES if changed == "its end" else 0)
    assert not disk.list_files("/store/consumequeue/TopicC/0")
    assert not disk.list_files("/store/consumequeue/TopicB/5")


def test_a_fingerprint_from_before_others_had_the_store_says_nothing() -> None:
    """RocketMQ may have cut the file, and filled it again."""
    disk, _, _ = _killed()
    crcs = crcs_of(bytes(FILE_BYTES))
    fingerprints = Fingerprints(disk, "/store")
    trio.run(fingerprints.save, Fingerprint(0, FILE_BYTES, crcs, 0, era=5))
    _remove_queues(disk, "TopicA", 0, 1)

    store = _open(disk)

    assert not store.commit_log.damage
    assert len(check_store(store)) == 121


def test_a_part_is_known_only_if_all_of_its_last_block_was_on_disk() -> None:
    disk, _, _ = _killed()
    store = _open(disk)

    def are_known(end: int, synced_end: int) -> bool:
        blocks = WalkedBlocks(store.commit_log, store.queues, store.fingerprints, synced_end)
        return blocks.are_known(0, end)

    assert are_known(BLOCK_BYTES, 2 * BLOCK_BYTES)
    assert not are_known(BLOCK_BYTES + 50, BLOCK_BYTES + 100)


def test_two_changes_in_one_block_are_healed_as_one() -> None:
    disk, log, records = _killed()
    for number in (60, 62):
        _change(disk, records[number] + 200, b"?")

    with pytest.raises(CorruptLogError) as caught:
        _open(disk)

    error = caught.value
    assert error.damaged_end - error.offset == BLOCK_BYTES
    config = open_store(SimulatedDisk(), commit_log_bytes=FILE_BYTES).config
    part = log[error.offset : error.damaged_end]
    heal_closed_log(config, error.offset, part, disk=disk, wall_clock_ms=Clock())
    assert len(check_store(_open(disk))) == 121


def test_what_the_queues_know_already_is_damage_and_no_obstacle() -> None:
    disk, log, records = _killed()
    place = log.index(b"TAGS", records[60])
    _change(disk, place, b"Tags")

    store = _open(disk)

    begin = place - place % FILE_BYTES % BLOCK_BYTES
    bad = store.commit_log.damage.ranges
    assert [(found.start, found.end) for found in bad] == [(begin, begin + BLOCK_BYTES)]
    assert len(store.queues.queues()) == 3


@pytest.mark.parametrize("is_synced", [True, False])
def test_what_may_not_have_been_on_disk_is_not_compared(is_synced: bool) -> None:  # noqa: FBT001
    disk, log, records = _killed()
    place = log.index(b"TAGS", records[30])
    block_end = place - place % BLOCK_BYTES + BLOCK_BYTES
    unsynced_bytes = len(log) - block_end + (not is_synced)
    disk, log, records = _killed(unsynced_bytes=unsynced_bytes)
    _change(disk, place, b"Tags")

    assert bool(_open(disk).commit_log.damage) is is_synced


def test_of_blocks_that_fit_no_record_is_checked_and_of_others_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, log, records = _killed()
    checked: dict[int, bool] = {}
    real = log_end.next_records

    def read(*place: Any, **how: Any) -> object:  # noqa: ANN401
        checked.setdefault(place[3] // FILE_BYTES, how["check_crc"])
        return real(*place, **how)

    monkeypatch.setattr(log_end, "next_records", read)
    _change(disk, log.index(b"TAGS", records[60]), b"Tags")

    _open(disk)

    assert checked == {0: False, records[60] // FILE_BYTES: True, 2: True}

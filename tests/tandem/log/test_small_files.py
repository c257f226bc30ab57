"""No byte of a small file of a store changes without a finding."""

import os
import random
from pathlib import Path

import pytest

from ha.fenced.epoch_file import EpochFile
from ha.fenced.replica_file import ReplicaFile
from node.tables.journal.journal_file import JournalFile
from node.tables.journal.journal_records import GroupTables
from node.tables.replicated_offsets import OffsetsPart
from node.tables.replicated_topics import TopicsPart
from store.delayed.timer_checkpoint import TimerCheckpoint, TimerProgress
from store.files.store_checkpoint import StoreCheckpoint
from store.machine.checked_file import replace_with_checked_json
from store.machine.real_disk import RealDisk
from store.machine.table_file import TableFile
from store.queue.rebuild_order import RebuildOrder
from store.recovery.truncation import TruncationIntent, want_set_aside, write_intent
from tandem.cluster_file.choices import AckLevel
from tandem.log.findings import FindingList
from tandem.log.small_files import StartNote, check_small_files
from tandem.wire.request_headers import ConsumerOffsetTableBody, TopicConfig
from tests.support.paths import GOLDEN

KINDS = {
    "replica.json": "replica-file",
    "epochFileCheckpoint": "epoch-copy",
    "epochFileCheckpoint.bak": "epoch-copy",
    "epochIds": "epoch-copy",
    "epochIds.bak": "epoch-copy",
    "config/groupJournal.json": "group-file",
    "config/topics.json.new": "topic-changes",
    "truncation.json": "order-file",
    "set-aside.json": "order-file",
    "damage.json": "damage-file",
    "log-start.json": "start-file",
    "scrub.json": "progress-file",
    "healed.json": "progress-file",
    "queues.json": "queue-note",
    "queue-ends.json": "queue-ends",
    "queue-rebuild.json": "rebuild-file",
    "checkpoint": "checkpoint-changed",
    "config/timercheck": "checkpoint-changed",
    "config/consumerOffset.json": "table-changed",
    "config/consumerOffset.json.bak": "table-changed",
    "config/consumerOffset.json.crc": "table-checksum",
}


def directory(root: Path) -> Path:
    """All small files that there are, of both kinds of group."""
    disk, path = RealDisk(), str(root)
    replica = ReplicaFile(disk, path, random.Random(1))
    replica.started("boot", AckLevel.WRITTEN, 0)
    replica.promise(3)
    EpochFile(disk, path).append(3, 0, "a1")
    JournalFile(disk, path).save(
        7, GroupTables(parts=[TopicsPart({"T": TopicConfig("T")}), OffsetsPart({"T@g": {0: 5}})])
    )
    write_intent(disk, path, TruncationIntent(100, "reason", {}, "side"))
    want_set_aside(disk, path, "side")
    empty = ("log-start.json", "scrub.json", "healed.json", "damage.json", "queues.json")
    for name in (*empty, "queue-ends.json", "config/topics.json.new"):
        replace_with_checked_json(disk, f"{path}/{name}", [])
    checkpoint = StoreCheckpoint(f"{path}/checkpoint", disk)
    checkpoint.physic_msg_timestamp_ms = checkpoint.logics_msg_timestamp_ms = 5000
    checkpoint.flush_blocking()
    checkpoint.close()
    timers = TimerCheckpoint(f"{path}/config/timercheck", disk)
    timers.note(TimerProgress(1, 2, 3, 4), log_flushed=1, now_ms=5)
    timers.file.close()
    table = TableFile(disk, f"{path}/config/consumerOffset.json")
    for offset in (5, 6):
        table.save(ConsumerOffsetTableBody({"T@g": {0: offset}}))
    return root


def kinds(root: Path) -> list[str]:
    found = FindingList()
    check_small_files(root, found)
    return [finding.kind for finding in found.all()]


def note_queues(root: Path, queues: dict[str, list[int]]) -> None:
    """As a node does that has had the store open last."""
    disk, lock = RealDisk(), root / "lock"
    lock.touch()
    modified_ms = lock.stat().st_mtime_ns // 1_000_000
    replace_with_checked_json(disk, f"{root}/log-start.json", StartNote(0, modified_ms))
    replace_with_checked_json(disk, f"{root}/queues.json", queues)


def test_a_queue_that_had_files_and_has_none_is_missed(tmp_path: Path) -> None:
    for name in ("consumequeue/T/0", "batchconsumequeue/T/1", "consumequeue/T/2"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / f"consumequeue/T/0/{0:020d}").touch()
    (tmp_path / f"batchconsumequeue/T/1/{0:020d}").touch()
    note_queues(tmp_path, {"T": [0, 1, 2], "U": [3]})
    found = FindingList()
    check_small_files(tmp_path, found)
    assert [(each.kind, each.what) for each in found.all()] == [
        ("queue-gone", "T/2"),
        ("queue-gone", "U/3"),
    ]
    os.utime(tmp_path / "lock", ns=(0, 0))  # RocketMQ had it open since, and deletes queues
    assert kinds(tmp_path) == []


def test_an_order_to_build_the_queues_anew_is_shown(tmp_path: Path) -> None:
    RebuildOrder(RealDisk(), str(tmp_path)).give("T-0 has lost its first file")
    found = FindingList()
    check_small_files(tmp_path, found)
    (only,) = found.all()
    assert (only.kind, only.severity) == ("rebuild-noted", "warning")
    assert "T-0 has lost its first file" in only.what


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.thorough
def test_no_flipped_bit_goes_unnoticed(tmp_path: Path, name: str) -> None:
    path = directory(tmp_path) / name
    usual = []
    if name == "queue-rebuild.json":
        RebuildOrder(RealDisk(), str(tmp_path)).give("a reason")
        usual = ["rebuild-noted"]
    assert kinds(tmp_path) == usual
    whole, times = path.read_bytes(), path.stat()
    used = len(whole) if len(whole) < 4096 else 40
    # Each bit of the line with the checksum, and one of each byte before it.
    bits = [8 * at + at % 8 for at in range(used - 25)] + [*range(8 * max(0, used - 25), 8 * used)]
    for bit in bits:
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert kinds(tmp_path) == [KINDS[name]], bit


def test_two_damaged_copies_of_the_epochs_are_damage(tmp_path: Path) -> None:
    directory(tmp_path)
    for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak"):
        (tmp_path / name).write_bytes(b"1\n7\n3-0\n")
    assert kinds(tmp_path) == ["epoch-files", "epoch-files"]


def test_a_table_that_was_written_by_hand_is_a_note(tmp_path: Path) -> None:
    path = directory(tmp_path) / "config/consumerOffset.json"
    path.write_bytes(b"{}")
    os.utime(path, ns=(0, 0))
    assert kinds(tmp_path) == ["table-written"]


def test_what_the_node_has_noted_as_bad_is_shown(tmp_path: Path) -> None:
    ranges = [{"start": 5, "end": 9, "reason": "a scrub", "found_at_ms": 1}]
    replace_with_checked_json(RealDisk(), f"{tmp_path}/damage.json", ranges)
    found = FindingList()
    check_small_files(tmp_path, found)
    (only,) = found.all()
    assert (only.kind, only.severity, only.offset) == ("damage-noted", "warning", 5)
    assert "offsets 5 to 9: a scrub" in only.what


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"topics.json": b"{"}, ["table-lost"]),
        ({"topics.json": b"{", "topics.json.bak": b"{}"}, ["table-changed"]),
        ({"topics.json": b"{", "topics.json.bak": b"x"}, ["table-lost", "table-changed"]),
        ({"topics.json": b"{}", "topics.json.bak": b"x"}, ["table-changed"]),
        ({"topics.json": b"{", "groupJournal.json": b"{}"}, ["table-changed"]),
        ({"topics.json": b""}, []),
        ({"topics.json": b'{"table":{0:5}}'}, []),
    ],
)
def test_a_table_without_a_checksum_has_to_be_one(
    tmp_path: Path, files: dict[str, bytes], expected: list[str]
) -> None:
    (tmp_path / "config").mkdir()
    for name, content in files.items():
        (tmp_path / "config" / name).write_bytes(content)
    assert kinds(tmp_path) == expected


def test_files_of_rocketmq_and_of_an_earlier_version_have_nothing_to_fit(tmp_path: Path) -> None:
    assert kinds(GOLDEN / "config-json") == []
    assert kinds(GOLDEN / "basic") == []
    (tmp_path / "replica.json").write_bytes(b'{"incarnation":"4f"}\n')
    assert kinds(tmp_path) == []

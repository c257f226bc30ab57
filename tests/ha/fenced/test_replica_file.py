"""replica.json: what is remembered, and when the name is given up."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.errors import LocalHAError
from ha.fenced.replica_file import ReplicaFile
from node.simulated.disk import SimulatedDisk
from store.machine.errors import StoreFullError
from tandem.cluster_file.choices import AckLevel
from tests.support.reasons import words

DIRECTORY = "/store"
WRITTEN, FLUSHED = AckLevel.WRITTEN, AckLevel.FLUSHED


def replica_file(disk: SimulatedDisk, seed: int = 1) -> ReplicaFile:
    return ReplicaFile(disk, DIRECTORY, random.Random(seed))


def started(disk: SimulatedDisk, *, level: AckLevel = WRITTEN, log_end: int = 0) -> ReplicaFile:
    file = replica_file(disk)
    file.started("boot-1", level, log_end)
    return file


def test_a_new_replica_gets_a_name_without_complaint() -> None:
    file = replica_file(SimulatedDisk())
    assert file.started("boot-1", WRITTEN, 0) is None
    assert len(file.incarnation) == 16


def test_everything_survives_a_restart() -> None:
    disk = SimulatedDisk()
    file = started(disk)
    file.promise(7)
    file.note_acked(4096)
    again = replica_file(disk.crashed(), seed=2)
    assert again.started("boot-1", WRITTEN, 5000) is None
    assert (again.incarnation, again.promised, again.acked) == (file.incarnation, 7, 4096)


def test_a_promise_is_on_disk_when_it_is_given() -> None:
    disk = SimulatedDisk()
    started(disk).promise(3)
    assert replica_file(disk.powered_off(random.Random(5))).promised == 3


def test_a_promise_never_falls() -> None:
    file = started(SimulatedDisk())
    file.promise(3)
    with pytest.raises(LocalHAError, match="epoch 2 is below epoch 3"):
        file.promise(2)
    assert file.promised == 3


def test_a_promise_that_does_not_reach_the_disk_is_not_given() -> None:
    disk = SimulatedDisk()
    file = started(disk)
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(StoreFullError):
        file.promise(3)
    assert file.promised == 0


def test_a_log_without_the_file_is_a_new_replica() -> None:
    file = replica_file(SimulatedDisk())
    assert "log of 100 bytes" in words(file.started("boot-1", WRITTEN, 100))


def test_a_log_shorter_than_what_was_acknowledged_is_a_new_replica() -> None:
    disk = SimulatedDisk()
    file = started(disk)
    file.promise(4)
    file.note_acked(1000)
    again = replica_file(disk, seed=2)
    assert "100 bytes below" in words(again.started("boot-1", FLUSHED, 900))
    assert again.incarnation != file.incarnation
    assert (again.acked, again.promised) == (900, 4)


def test_a_damaged_end_is_a_new_replica_unless_power_was_lost() -> None:
    disk = SimulatedDisk()
    file = started(disk, level=FLUSHED)
    damaged = "the body does not match its CRC at 4000, where a record had begun"
    same_boot = replica_file(disk.crashed(), seed=2)
    assert words(same_boot.started("boot-1", FLUSHED, 4000, damaged)).endswith(damaged)
    assert same_boot.incarnation != file.incarnation
    next_boot = replica_file(disk.crashed(), seed=2)
    assert next_boot.started("boot-2", FLUSHED, 4000, damaged) is None


def test_a_log_cut_by_its_epochs_is_the_same_replica() -> None:
    disk = SimulatedDisk()
    file = started(disk)
    file.note_acked(1000)
    disk.replace(file.path, file.text_after_cut(900).encode())
    again = replica_file(disk, seed=2)
    assert again.started("boot-1", WRITTEN, 900) is None
    assert again.incarnation == file.incarnation


@pytest.mark.parametrize(
    ("level", "boot_id", "clean", "renewed"),
    [
        (WRITTEN, "boot-1", False, False),
        (WRITTEN, "boot-2", True, False),
        (WRITTEN, "boot-2", False, True),
        (FLUSHED, "boot-2", False, False),
    ],
)
def test_a_new_start_of_the_machine_counts_for_what_was_only_written(
    level: AckLevel, boot_id: str, *, clean: bool, renewed: bool
) -> None:
    disk = SimulatedDisk()
    file = started(disk, level=level)
    if clean:
        file.stopped_clean()
    again = replica_file(disk, seed=2)
    assert bool(again.started(boot_id, level, 100)) == renewed
    assert (again.incarnation != file.incarnation) == renewed


@pytest.mark.parametrize(("level", "renewed"), [(WRITTEN, True), (FLUSHED, False)])
def test_a_failed_sync_counts_for_what_was_only_written(level: AckLevel, *, renewed: bool) -> None:
    disk = SimulatedDisk()
    file = started(disk, level=level)
    file.sync_failed()
    again = replica_file(disk.crashed(), seed=2)
    assert bool(again.started("boot-1", level, 100)) == renewed
    assert (again.incarnation != file.incarnation) == renewed


def test_the_newest_record_of_the_group_is_remembered() -> None:
    disk = SimulatedDisk()
    file = started(disk)
    for epoch, version in ((3, 0), (2, 9), (3, 1), (3, 0)):
        file.note_seen(epoch, version)
    assert file.seen == (3, 1)
    again = replica_file(disk, seed=2)
    again.started("boot-2", WRITTEN, 100)
    assert again.seen == (3, 1)
    again.note_seen(4, 0)
    assert replica_file(disk).seen == (4, 0)


def test_what_counts_is_what_acknowledgements_meant_when_they_were_given() -> None:
    disk = SimulatedDisk()
    started(disk, level=WRITTEN)
    assert replica_file(disk, seed=2).started("boot-2", FLUSHED, 100)


def test_a_clean_stop_counts_once() -> None:
    disk = SimulatedDisk()
    started(disk).stopped_clean()
    replica_file(disk).started("boot-1", WRITTEN, 0)
    assert replica_file(disk).started("boot-2", WRITTEN, 0)


def test_giving_up_the_log_gives_up_the_name() -> None:
    disk = SimulatedDisk()
    file = started(disk)
    file.promise(4)
    file.note_acked(1000)
    before = file.incarnation
    file.renew()
    again = replica_file(disk, seed=2)
    assert again.started("boot-1", WRITTEN, 0) is None
    assert before != again.incarnation == file.incarnation
    assert again.promised == 4


@given(st.binary(max_size=80))
def test_a_damaged_file_is_no_file(data: bytes) -> None:
    disk = SimulatedDisk()
    disk.replace(f"{DIRECTORY}/replica.json", data)
    file = replica_file(disk)
    assert "cannot be read" in words(file.started("boot-1", WRITTEN, 100))
    assert file.incarnation


def test_a_flipped_bit_is_never_taken_for_what_was_noted() -> None:
    disk = SimulatedDisk()
    file = started(disk)
    file.promise(3)
    file.note_seen(3, 9)
    file.registered(2, "token")
    whole = disk.read(file.path) or b""
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        disk.replace(file.path, bytes(changed))
        again = replica_file(disk, seed=2)
        assert "cannot be read" in words(again.started("boot-1", WRITTEN, 100))
        assert (again.promised, again.seen, again.life, again.tokens) == (0, (0, 0), 0, ())


def test_a_damaged_file_is_said_also_where_the_log_is_empty() -> None:
    disk = SimulatedDisk()
    started(disk)
    disk.replace(f"{DIRECTORY}/replica.json", b"")
    assert "cannot be read" in words(replica_file(disk).started("boot-1", WRITTEN, 0))


def test_a_file_without_a_checksum_is_read_and_gets_one() -> None:
    disk = SimulatedDisk()
    disk.replace(f"{DIRECTORY}/replica.json", b'{"incarnation":"4f","promised":7}\n')
    file = replica_file(disk)
    assert file.started("", WRITTEN, 100) is None
    assert (file.incarnation, file.promised) == ("4f", 7)
    assert b'{"crc32":"' in (disk.read(file.path) or b"")


def test_one_that_stands_back_does_so_after_a_restart_but_not_after_one_of_the_machine() -> None:
    disk = SimulatedDisk()
    started(disk).stand_back(130.0)
    again = started(disk)
    assert again.stands_back_until == 130.0
    again.started("boot-2", WRITTEN, 0)
    assert again.stands_back_until == 0.0


def test_nothing_is_noted_before_the_start() -> None:
    with pytest.raises(LocalHAError):
        replica_file(SimulatedDisk()).note_acked(5)

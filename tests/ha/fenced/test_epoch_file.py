import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.errors import EpochFileError, EpochOrderError
from ha.fenced.epoch_file import (
    EpochEntries,
    EpochEntry,
    EpochFile,
    decode,
    decode_ids,
    encode,
    encode_ids,
)
from ha.fenced.epochs import expect_rising
from node.simulated.disk import SimulatedDisk
from store.machine.errors import StoreFullError

PATH = "/store/epochFileCheckpoint"


def listed(*pairs: tuple[int, int]) -> EpochEntries:
    return tuple(EpochEntry(epoch, start) for epoch, start in pairs)


def opened(disk: SimulatedDisk) -> EpochFile:
    return EpochFile(disk, "/store")


# The file


def test_the_file_is_rocketmqs() -> None:
    assert encode(listed((5, 0), (7, 81920))) == b"2\n132055803\n5-0\n7-81920\n"
    assert decode(b"1\n0\n5-100\n") == listed((5, 100))
    assert encode(()) == b"0\n0\n"
    assert decode(b"0\n0\n") == ()


def test_no_file_is_an_empty_list_and_nothing_is_written_for_it() -> None:
    disk = SimulatedDisk()
    assert opened(disk).entries == ()
    assert opened(disk).last_epoch == 0
    assert disk.list_files("/store") == []


def test_entries_are_durable_when_append_returns() -> None:
    disk = SimulatedDisk()
    epochs = opened(disk)
    epochs.append(1, 0)
    epochs.append(4, 1000)
    after = disk.powered_off(random.Random(1))
    assert opened(after).entries == listed((1, 0), (4, 1000))
    assert opened(after).last_epoch == 4


def test_an_empty_list_is_written_too() -> None:
    disk = SimulatedDisk()
    epochs = opened(disk)
    epochs.append(1, 50)
    epochs.trim_to_log(0)
    assert opened(disk).entries == ()
    assert disk.read(PATH) == b"0\n0\n"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (b"", ""),
        (b"2\n0\n1-0\n", "entries where the file says"),
        (b"x\n0\n", "entries where the file says"),
        (b"1\n17\n1-0\n", "checksum"),
        (b"1\n0\nhello\n", "epoch-offset"),
        (b"2\n0\n2-0\n1-50\n", "entry 1-50 after 2-0"),
        (b"2\n0\n1-50\n2-50\n", "entry 2-50 after 1-50"),
        (b"1\n0\n0-0\n", "entry 0-0"),
        (b"\xff\xfe", "cut short"),
        (b"0\n0", "cut short"),
        (b"1\n0\n1-10", "cut short"),
    ],
)
def test_a_damaged_file_is_read_from_its_second_copy_and_mended(damage: bytes, words: str) -> None:
    disk = SimulatedDisk()
    opened(disk).append(3, 0)
    disk.replace(PATH, damage)
    assert opened(disk).entries == listed((3, 0))
    assert disk.read(PATH) == encode(listed((3, 0)))
    if damage:
        disk.replace(PATH, damage)
        disk.replace(f"{PATH}.bak", damage)
        with pytest.raises(EpochFileError, match=words):
            opened(disk)


def test_the_second_copy_is_never_older_than_the_first() -> None:
    """A truncation replaces the file alone; what the copy says of the time before is wrong then."""
    disk = SimulatedDisk()
    opened(disk).append(3, 700)
    disk.replace(PATH, encode(listed((4, 700))))
    opened(disk)
    disk.remove(PATH)
    assert opened(disk).entries == listed((4, 700))


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_crash_between_the_copies_leaves_the_old_list_or_the_new_one(writes: int) -> None:
    disk = SimulatedDisk()
    epochs = opened(disk)
    epochs.append(1, 0)
    seen: list[SimulatedDisk] = []
    left = [writes]

    def crash(_: str) -> None:
        if not left[0] and not seen:
            seen.append(disk.crashed())
        left[0] -= 1

    disk.on_event = crash
    epochs.append(2, 10)
    found = opened(seen[0] if seen else disk).entries
    assert found == (listed((1, 0)) if writes == 0 else listed((1, 0), (2, 10)))


def test_a_full_disk_changes_nothing() -> None:
    disk = SimulatedDisk()
    epochs = opened(disk)
    epochs.append(1, 0)
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(StoreFullError):
        epochs.append(2, 10)
    assert epochs.entries == opened(disk).entries == listed((1, 0))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_list_or_a_clear_error(data: bytes) -> None:
    try:
        entries = decode(data)
    except ValueError:
        return
    expect_rising(entries)


@given(st.lists(st.tuples(st.integers(1, 2**31 - 1), st.integers(0, 2**63 - 1))))
def test_what_is_encoded_is_decoded(pairs: list[tuple[int, int]]) -> None:
    epochs = sorted({epoch for epoch, _ in pairs})
    starts = sorted({start for _, start in pairs})
    entries = listed(*zip(epochs, starts, strict=False))
    assert decode(encode(entries)) == entries


# Changing the list


def test_an_epoch_in_which_nothing_was_written_gives_way() -> None:
    epochs = opened(SimulatedDisk())
    epochs.append(4, 0)
    epochs.append(5, 1000)
    epochs.append(6, 1000)
    epochs.append(7, 1000)
    assert epochs.entries == listed((4, 0), (7, 1000))
    epochs.append(8, 0)
    assert epochs.entries == listed((8, 0))


@pytest.mark.parametrize("epoch", [1, 3])
def test_an_epoch_that_is_not_newer_is_refused(epoch: int) -> None:
    epochs = opened(SimulatedDisk())
    epochs.append(3, 1000)
    with pytest.raises(EpochOrderError, match="the list ends with 3"):
        epochs.append(epoch, 1000)
    assert epochs.entries == listed((3, 1000))


def test_entries_behind_the_end_of_the_log_are_trimmed_and_one_at_the_end_stays() -> None:
    epochs = opened(SimulatedDisk())
    for epoch, start in ((1, 0), (2, 4800), (3, 5000)):
        epochs.append(epoch, start)
    epochs.trim_to_log(4800)
    assert epochs.entries == listed((1, 0), (2, 4800))


@pytest.mark.parametrize(
    ("offset", "left"),
    [(0, 3), (99, 3), (100, 3), (101, 2), (200, 2), (201, 1), (9999, 1)],
)
def test_entries_that_end_below_the_first_byte_are_dropped_the_last_never(
    offset: int, left: int
) -> None:
    epochs = opened(SimulatedDisk())
    for epoch, start in ((1, 0), (2, 100), (3, 200)):
        epochs.append(epoch, start)
    epochs.truncate_prefix(offset)
    assert len(epochs.entries) == left
    assert epochs.last_epoch == 3


def test_a_list_that_does_not_rise_is_not_taken() -> None:
    epochs = opened(SimulatedDisk())
    with pytest.raises(ValueError, match="entry 1-20 after 2-10"):
        epochs.replace(listed((2, 10), (1, 20)))
    assert epochs.entries == ()


# Ids


def test_ids_are_kept_beside_the_file_which_stays_rocketmqs() -> None:
    disk = SimulatedDisk()
    epochs = opened(disk)
    epochs.append(5, 0, "a1")
    epochs.append(7, 81920, "b2")
    after = disk.powered_off(random.Random(1))
    assert after.read(PATH) == b"2\n132055803\n5-0\n7-81920\n"
    assert opened(after).entries == (EpochEntry(5, 0, "a1"), EpochEntry(7, 81920, "b2"))


def test_without_their_files_ids_are_unknown() -> None:
    disk = SimulatedDisk()
    epochs = opened(disk)
    epochs.append(5, 0, "a1")
    for name in ("epochIds", "epochIds.bak"):
        disk.replace(f"/store/{name}", b"rubbish")
    assert opened(disk).entries == listed((5, 0))
    for name in ("epochIds", "epochIds.bak"):
        disk.remove(f"/store/{name}")
    assert opened(disk).entries == listed((5, 0))
    opened(disk).append(6, 10, "c3")
    assert opened(disk).entries == (EpochEntry(5, 0), EpochEntry(6, 10, "c3"))


@pytest.mark.parametrize("name", ["epochIds", "epochIds.bak"])
def test_a_damaged_or_missing_file_of_ids_is_mended_from_its_second_copy(name: str) -> None:
    disk = SimulatedDisk()
    opened(disk).append(5, 0, "a1")
    whole = disk.read(f"/store/{name}")
    disk.replace(f"/store/{name}", b"rubbish")
    assert opened(disk).entries == (EpochEntry(5, 0, "a1"),)
    assert disk.read(f"/store/{name}") == whole
    disk.remove(f"/store/{name}")
    assert opened(disk).entries == (EpochEntry(5, 0, "a1"),)
    assert disk.read(f"/store/{name}") == whole


def test_an_id_counts_for_the_same_epoch_and_start_only() -> None:
    disk = SimulatedDisk()
    disk.replace("/store/epochIds", encode_ids((EpochEntry(5, 0, "a1"), EpochEntry(6, 9, "b2"))))
    disk.replace(PATH, encode(listed((5, 0), (6, 10))))
    assert opened(disk).entries == (EpochEntry(5, 0, "a1"), EpochEntry(6, 10))


@given(st.binary(max_size=200))
def test_any_bytes_are_ids_or_a_clear_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        ids = decode_ids(data)
        entries = tuple(EpochEntry(*key, epoch_id) for key, epoch_id in ids.items())
        assert decode_ids(encode_ids(entries)) == ids

"""What is kept of each key, and that a stop in the middle of it costs nothing."""

import random

import pytest

from node.simulated.disk import SimulatedDisk
from store.compaction.compacting import NewestOffsets, Swap, key_of
from store.compaction.topic_partition_log import COMPACTING
from store.machine.checked_file import read_checked_json
from store.machine.errors import CorruptLogError, DiskFailedError, LogFault
from tests.store.compaction.compaction_world import (
    CQ,
    LOG,
    LOG_BYTES,
    TOPIC,
    bodies,
    compact,
    names,
    open_compacted,
    put_keys,
)
from tests.store.step_disk import StepDisk

KEYS = "abcabcabcabcabcabcdabcdabcdabcd"


def test_the_newest_of_a_key_is_kept_and_what_came_after_the_look() -> None:
    newest = NewestOffsets(2)
    assert newest.put(b"a", 3)
    assert newest.put(b"b", 4)
    assert newest.put(b"a", 7)
    assert not newest.put(b"c", 8), "there is no room for its key"
    assert newest.last == 7
    assert not newest.keeps(b"a", 3, has_body=True)
    assert newest.keeps(b"a", 7, has_body=True)
    assert not newest.keeps(b"a", 7, has_body=False)
    assert newest.keeps(b"unknown", 1, has_body=True)
    assert not newest.keeps(b"", 1, has_body=True)
    assert newest.keeps(b"a", 8, has_body=False)


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        (b"KEYS\x01a\x02", b"a"),
        (b"KEYS\x01a b\x02", b"a b"),
        (b"KEYS\x01 \t\x02", b""),
        (b"KEYS\x01\x02", b""),
        (b"", b""),
        (b"XKEYS\x01a\x02", b""),
    ],
)
def test_the_key_is_the_whole_property_and_blanks_are_none(properties: bytes, key: bytes) -> None:
    assert key_of(properties) == key


@pytest.mark.slow
def test_for_more_keys_than_there_is_room_for_it_takes_several_times() -> None:
    disk = SimulatedDisk()
    with open_compacted(disk, max_offset_map_size_bytes=1) as store:
        keys = [f"k{number:03d}" for number in range(150)]
        put_keys(store, [*keys, *keys, "z" * 4] * 2)  # type: ignore[arg-type]
        for _ in range(8):
            compact(store)
        found = [each.split(":")[1][:4] for each in bodies(store)]
        assert sorted(found[:-8]) == sorted(set(found[:-8]))


def newest_of(found: list[str]) -> dict[str, str]:
    """Return the last of each key."""
    return {each.split(":")[1][0]: each for each in found}


@pytest.mark.parametrize("how", ["kill", "power"])
def test_a_stop_at_any_step_of_a_compaction_loses_no_newest_message(how: str) -> None:
    chance = random.Random(7)
    plain = SimulatedDisk()
    with open_compacted(plain) as store:
        put_keys(store, KEYS)
        before = bodies(store)
    disk = StepDisk(plain)
    store = open_compacted(disk)
    pictures: list[tuple[str, SimulatedDisk]] = []

    def take(step: str) -> None:
        pictures.append((step, disk.crashed() if how == "kill" else disk.powered_off(chance)))

    disk.on_step = take
    compact(store)
    disk.on_step = lambda _: None
    after = bodies(store)
    assert len(after) < len(before)
    swaps = 0
    for step, picture in pictures:
        swaps += picture.exists(f"{LOG}/{COMPACTING}/swap.json")
        with open_compacted(picture) as again:
            found = bodies(again)
            assert found in (before, after), step
            put_keys(again, "e", start=len(KEYS))
            compact(again)
            newest = newest_of(bodies(again))
            assert newest == newest_of([*before, f"{len(KEYS)}:e{len(KEYS)}"]), step
        assert not picture.list_files(f"{LOG}/{COMPACTING}")
        with open_compacted(picture) as again:
            assert newest_of(bodies(again)) == newest
    assert swaps > 5


def test_what_is_to_be_swapped_is_written_down_first() -> None:
    disk = StepDisk()
    store = open_compacted(disk)
    put_keys(store, KEYS)
    seen: list[Swap] = []

    def take(step: str) -> None:
        swap = read_checked_json(disk, f"{LOG}/{COMPACTING}/swap.json", Swap)
        if swap is not None:
            seen.append(swap)

    disk.on_step = take
    compact(store)
    old = [f"{number * LOG_BYTES:020d}" for number in range(4)]
    assert set(map(str, seen)) == {str(Swap(old, old[:1], 27))}
    assert store.compaction._logs.position(TOPIC, 0) == 27


def test_an_order_to_swap_that_cannot_be_read_stops_the_start() -> None:
    disk = SimulatedDisk()
    with open_compacted(disk) as store:
        put_keys(store, KEYS)
        bodies(store)
    disk.replace(f"{LOG}/{COMPACTING}/swap.json", b"{")
    with pytest.raises(CorruptLogError) as caught:
        open_compacted(disk)
    assert caught.value.fault is LogFault.ORDER


def test_what_was_made_for_a_swap_that_had_not_begun_is_deleted() -> None:
    disk = SimulatedDisk()
    with open_compacted(disk) as store:
        put_keys(store, KEYS)
        found = bodies(store)
    for directory in (LOG, CQ):
        disk.create(f"{directory}/{COMPACTING}/{0:020d}", 100).close()
    with open_compacted(disk) as store:
        assert bodies(store) == found
    assert names(disk, f"{LOG}/{COMPACTING}") == names(disk, f"{CQ}/{COMPACTING}") == []


def test_a_damaged_record_keeps_its_queue_from_being_compacted() -> None:
    disk = SimulatedDisk()
    with open_compacted(disk) as store:
        put_keys(store, KEYS)
        found = bodies(store)
        pair = store.compaction._logs.open_logs()[0].current.pairs[0]
        at = pair.unit(2).offset + 90
        pair.log.buffer[at] ^= 1
        compact(store)
        assert len(names(disk, LOG)) == 5
        pair.log.buffer[at] ^= 1
        assert bodies(store) == found
        compact(store)
        assert len(names(disk, LOG)) == 2


class Refusing(SimulatedDisk):
    """Refuses the renames from the `left`-th on, while that is not None."""

    left: int | None = None

    def rename(self, path: str, new_path: str) -> bool:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise DiskFailedError(f"{path}: no", path=path)
        return super().rename(path, new_path)


@pytest.mark.parametrize("renames", [0, 1])
@pytest.mark.parametrize("then", ["again", "start"])
def test_a_swap_that_the_disk_refuses_in_its_middle_is_read_on_and_finished(
    renames: int, then: str
) -> None:
    disk = Refusing()
    store = open_compacted(disk)
    put_keys(store, KEYS)
    before = bodies(store)
    disk.left = renames
    compact(store)
    assert bodies(store) == before
    put_keys(store, "ab" * 9, start=len(KEYS))
    newest = newest_of(bodies(store))
    compact(store)
    assert newest_of(bodies(store)) == newest, "it is refused again"
    disk.left = None
    if then == "start":
        disk = disk.crashed()  # type: ignore[assignment]
        store = open_compacted(disk)
    compact(store)
    assert newest_of(bodies(store)) == newest
    assert not disk.list_files(f"{LOG}/{COMPACTING}")
    store.close()
    with open_compacted(disk) as again:
        assert newest_of(bodies(again)) == newest

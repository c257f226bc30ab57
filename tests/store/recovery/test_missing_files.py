from contextlib import suppress
from functools import partial
from random import Random

import pytest
import trio
from trio.testing import MockClock

from node.simulated.disk import NothingKept, SimulatedDisk
from store import MessageStore
from store.machine.errors import CorruptLogError, LogFault
from tandem.wire.fingerprint import Fingerprint, crcs_of
from tests.store.step_disk import Interrupted, StepDisk, die_at
from tests.store.store_world import COMMIT_LOG_BYTES, Clock, check_store, open_store, put_many
from tests.support.reasons import words

SIZE = COMMIT_LOG_BYTES


def _path(start: int) -> str:
    return f"/store/commitlog/{start:020d}"


def _closed() -> tuple[SimulatedDisk, bytes, int]:
    """Return the disk of a closed fenced store of five files, its log, and its messages."""
    disk = SimulatedDisk(now_ms=Clock())
    store = _open(disk)
    put_many(store, 90)
    store.confirm(store.max_physical_offset)
    count = len(check_store(store))
    store.close()
    names = [name for name, _ in disk.list_files("/store/commitlog")]
    assert len(names) == 5
    return disk, b"".join(disk.read(f"/store/commitlog/{name}") or b"" for name in names), count


def _open(disk: SimulatedDisk) -> MessageStore:
    return open_store(disk, confirm_bounds_reads=True)


def _bad(store: MessageStore) -> list[tuple[int, int]]:
    return [(bad.start, bad.end) for bad in store.commit_log.damage.ranges]


def _shorten(disk: SimulatedDisk, start: int, size: int) -> None:
    disk.replace(_path(start), (disk.read(_path(start)) or b"")[:size])


async def _healed(store: MessageStore, log: bytes) -> None:
    for start, end in _bad(store):
        await store.healing.heal(start, log[start:end])


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_missing_file_gets_a_stand_in_and_is_healed(number: int) -> None:
    disk, log, count = _closed()
    disk.remove(_path(number * SIZE))

    store = _open(disk)

    assert _bad(store) == [(number * SIZE, (number + 1) * SIZE)]
    assert store.min_physical_offset == 0
    trio.run(_healed, store, log, clock=MockClock(autojump_threshold=0))
    assert len(check_store(store)) == count
    assert not store.commit_log.damage


@pytest.mark.parametrize("there_bytes", [1, 700, SIZE - 1])
def test_of_a_short_file_only_the_rest_is_bad(there_bytes: int) -> None:
    disk, log, count = _closed()
    _shorten(disk, SIZE, there_bytes)

    store = _open(disk)

    assert _bad(store) == [(SIZE + there_bytes, 2 * SIZE)]
    assert "bytes only" in words(store.damaged_end)
    assert [name for name, _ in disk.list_files("/store/commitlog")] == [
        f"{number * SIZE:020d}" for number in range(5)
    ]
    assert not disk.exists(_path(SIZE) + ".short.tmp")
    trio.run(_healed, store, log, clock=MockClock(autojump_threshold=0))
    assert len(check_store(store)) == count


def test_several_first_files_are_missed_also_in_the_next_starts() -> None:
    disk, _, _ = _closed()
    disk.remove(_path(0))
    disk.remove(_path(SIZE))

    for _ in range(2):
        store = _open(disk)
        assert _bad(store) == [(0, SIZE), (SIZE, 2 * SIZE)]
        store.close()


def test_what_retention_has_deleted_is_not_missed() -> None:
    disk, _, _ = _closed()
    store = _open(disk)
    store.commit_log.files.delete_expired_file_by_time(
        now_ms=1 << 62, expired_time_ms=0, interval_forcibly_ms=0, delete_file_batch_max=2
    )
    store.close()

    assert _bad(_open(disk)) == []


def test_a_last_file_of_no_length_is_none() -> None:
    disk, _, count = _closed()
    disk.replace(_path(5 * SIZE), b"")

    store = _open(disk)

    assert _bad(store) == []
    assert store.damaged_end is None
    assert not disk.exists(_path(5 * SIZE))
    assert len(check_store(store)) == count


def test_a_wrong_file_size_in_the_settings_is_told_and_no_file_is_made() -> None:
    disk, _, _ = _closed()
    before = disk.list_files("/store/commitlog")

    with pytest.raises(CorruptLogError) as caught:
        open_store(disk, commit_log_bytes=4 * SIZE, confirm_bounds_reads=True)
    assert caught.value.fault is LogFault.LENGTH

    assert disk.list_files("/store/commitlog") == before


BOTH = ("/new", "/old")


def _spread() -> SimulatedDisk:
    """Return the disk of a closed fenced store whose five files are in both directories in turn."""
    disk = SimulatedDisk(now_ms=Clock())
    with open_store(disk, confirm_bounds_reads=True, store_path_commit_log=BOTH) as store:
        put_many(store, 90)
    assert [len(disk.list_files(directory)) for directory in BOTH] == [3, 2]
    return disk


def _open_spread(disk: SimulatedDisk, *, read_only: tuple[str, ...] = ()) -> MessageStore:
    return open_store(
        disk,
        confirm_bounds_reads=True,
        store_path_commit_log=BOTH,
        read_only_commit_log_store_paths=read_only,
    )


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_stand_in_is_made_where_the_file_was(number: int) -> None:
    disk = _spread()
    path = f"{BOTH[number % 2]}/{number * SIZE:020d}"
    disk.remove(path)

    store = _open_spread(disk)

    assert _bad(store) == [(number * SIZE, (number + 1) * SIZE)]
    assert disk.exists(path)


def test_what_is_in_a_read_only_directory_is_not_missing_and_nothing_is_made_there() -> None:
    disk = _spread()

    store = _open_spread(disk, read_only=("/old/",))
    assert _bad(store) == []
    store.close()

    path = f"/old/{SIZE:020d}"
    disk.replace(path, (disk.read(path) or b"")[:700])
    with pytest.raises(CorruptLogError) as caught:
        _open_spread(disk, read_only=("/old",))
    assert caught.value.fault is LogFault.LENGTH
    assert caught.value.path == path
    assert len(disk.read(path) or b"") == 700


def test_files_of_a_read_only_directory_before_a_gap_have_left_the_log() -> None:
    disk = _spread()
    for number in (0, 2):
        disk.remove(f"/new/{number * SIZE:020d}")
    disk.remove("/store/log-start.json")

    store = _open_spread(disk, read_only=("/old",))

    assert store.min_physical_offset == 3 * SIZE
    assert _bad(store) == []


def test_a_damage_file_that_cannot_be_read_does_not_make_the_log_longer() -> None:
    """All of the log is in doubt then, which says nothing about its end."""
    disk, _, _ = _closed()
    disk.replace("/store/damage.json", b"?")

    store = _open(disk)

    assert store.commit_log.damage
    assert store.damaged_end is None


def test_retention_takes_the_fingerprint_with_the_file() -> None:
    disk, _, _ = _closed()
    store = _open(disk)
    era = store.fingerprints.era
    for start in (0, SIZE):
        crcs = crcs_of(bytes(SIZE))
        save = partial(store.fingerprints.save, Fingerprint(start, SIZE, crcs, 0, era))
        trio.run(save, clock=MockClock(autojump_threshold=0))

    store.commit_log.files.delete_expired_file_by_time(
        now_ms=1 << 62, expired_time_ms=0, interval_forcibly_ms=0, delete_file_batch_max=1
    )

    assert store.min_physical_offset == SIZE
    assert store.fingerprints.starts == [SIZE]
    assert [name for name, _ in disk.list_files("/store/fingerprints")] == [f"{SIZE:020d}"]


def test_what_others_have_deleted_is_not_missed() -> None:
    """RocketMQ's retention writes no note."""
    disk, _, _ = _closed()
    disk.remove(_path(0))
    disk.lock("/store/lock")()

    store = _open(disk)

    assert _bad(store) == []
    assert store.min_physical_offset == SIZE


def test_a_classic_store_says_that_its_first_files_are_missing_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, _, _ = _closed()
    disk.remove(_path(0))
    disk.remove(_path(SIZE))

    for _ in range(2):
        store = open_store(disk)
        assert store.min_physical_offset == 2 * SIZE
        assert not store.commit_log.damage
        store.close()

    (told,) = [record for record in caplog.records if "missing" in record.message]
    assert told.levelname == "ERROR"
    assert _path(0) in told.message


def test_a_store_without_a_note_opens_as_it_is() -> None:
    disk, _, _ = _closed()
    disk.remove("/store/log-start.json")
    disk.remove(_path(0))

    assert _bad(_open(disk)) == []


@pytest.mark.parametrize("short", [False, True])
def test_a_lost_end_of_what_was_on_disk_is_still_an_error_that_says_from_where(
    short: bool,  # noqa: FBT001
) -> None:
    disk, log, _ = _closed()
    if short:
        _shorten(disk, 4 * SIZE, 9)
    else:
        disk.remove(_path(4 * SIZE))
    with pytest.raises(CorruptLogError) as caught:
        _open(disk)

    assert caught.value.offset == 4 * SIZE
    assert 4 * SIZE < caught.value.damaged_end == caught.value.synced_end <= len(log)


def test_power_lost_at_any_step_costs_nothing_that_is_there() -> None:
    disk, log, _ = _closed()
    _shorten(disk, SIZE, 700)
    disk.remove(_path(0))
    chance = Random(7)
    pictures: list[SimulatedDisk] = []
    target = disk.crashed()

    def take_picture(event: str) -> None:
        # Before that the lock is taken, and nothing says yet that it was ours.
        if pictures or "damage.json" in event:
            pictures.append(_powered_off(target, chance))

    target.on_event = take_picture
    _open(target)

    assert len(pictures) > 5
    opened = 0
    for picture in pictures:
        try:
            store = _open(picture)
        except CorruptLogError as error:  # a killed recovery goes over the whole log, and meets it
            bad_from = error.offset
            assert bad_from == 0
            continue
        opened += 1
        bad = store.commit_log.damage
        whole = b"".join(bytes(file.buffer) for file in store.commit_log.files.files)
        assert all(
            whole[at] == log[at] or bad.within(at, at + 1)
            for at in range(store.max_physical_offset)
        )
        assert bad.within(SIZE, SIZE + 700) is None or bad.bad_bytes == 2 * SIZE
    assert opened > 5


def test_what_is_there_of_a_short_file_is_there_whenever_power_is_lost() -> None:
    disk, log, _ = _closed()
    disk.remove("/store/checkpoint")  # it is not what a start would need
    _shorten(disk, 3 * SIZE, 700)
    for step in range(1, 200):
        target = StepDisk(disk)
        target.on_step = die_at(step)
        with suppress(Interrupted, CorruptLogError):
            _open(target)
        after = target.powered_off(NothingKept())
        with suppress(CorruptLogError):  # the hard stop makes a start need it
            _open(after)
        assert (after.read(_path(3 * SIZE)) or b"")[:700] == log[3 * SIZE : 3 * SIZE + 700]
        assert not after.exists(f"{_path(3 * SIZE)}.short.tmp")
        if target.steps < step:
            assert step > 10
            return
    pytest.fail("the start never got to its end")


def test_a_file_that_is_whole_is_not_made_anew_for_what_was_set_aside() -> None:
    disk, _, count = _closed()
    disk.replace(f"{_path(SIZE)}.short.tmp", b"?" * 300)

    store = _open(disk)

    assert _bad(store) == []
    assert len(check_store(store)) == count
    assert not disk.exists(f"{_path(SIZE)}.short.tmp")


def test_what_was_set_aside_for_a_file_is_never_taken_for_another_one() -> None:
    """As when the log was cut since, and went on with other bytes."""
    disk, log, _ = _closed()
    disk.replace(f"{_path(SIZE)}.short.tmp", b"?" * 300)
    _shorten(disk, SIZE, 700)

    store = _open(disk)

    assert _bad(store) == [(SIZE + 700, 2 * SIZE)]
    assert (disk.read(_path(SIZE)) or b"")[:700] == log[SIZE : SIZE + 700]


def _powered_off(disk: SimulatedDisk, chance: Random) -> SimulatedDisk:
    hook = disk.on_event
    picture = disk.powered_off(chance)
    disk.on_event, picture.on_event = hook, lambda _: None
    return picture


def test_known_damage_is_never_taken_for_the_end_of_the_log() -> None:
    disk, _, _ = _closed()
    disk.remove("/store/checkpoint")
    disk.remove(_path(2 * SIZE))
    disk.replace("/store/abort", b"")

    with pytest.raises(CorruptLogError) as caught:
        _open(disk)

    assert (caught.value.offset, caught.value.damaged_end) == (2 * SIZE, 3 * SIZE)
    assert len(disk.list_files("/store/commitlog")) == 5

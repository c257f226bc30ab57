import errno
from random import Random

import pytest

from node.simulated.disk import SimulatedDisk
from store.log.log_start import UNKNOWN, LogStart, locked, noted_start
from store.machine.disk import Disk
from store.machine.errors import StoreLockedError
from tests.store.store_world import Clock, open_store, put_many

NOTE = "/store/log-start.json"


def _disk() -> SimulatedDisk:
    return SimulatedDisk(now_ms=Clock())


def _opened(disk: Disk) -> LogStart:
    release, start = locked(disk, "/store")
    release()
    return start


def test_a_new_store_knows_no_start_and_begins_an_era() -> None:
    assert _opened(_disk()).start == UNKNOWN


def test_where_the_log_begins_is_known_after_a_loss_of_power_in_the_same_era() -> None:
    disk = _disk()
    first = _opened(disk)
    first.move_to(8192)

    start = _opened(disk.powered_off(Random(1)))

    assert (start.start, start.era) == (8192, first.era)


def test_after_others_had_the_store_it_begins_where_it_does_in_a_new_era() -> None:
    disk = _disk()
    first = _opened(disk)
    first.move_to(8192)
    disk.lock("/store/lock")()  # as RocketMQ takes it

    start = _opened(disk)

    assert start.start == UNKNOWN
    assert start.era > first.era
    assert _opened(disk).era == start.era


def test_openings_of_our_own_that_fail_further_on_are_no_others() -> None:
    disk = _disk()
    _opened(disk).move_to(8192)
    for _ in range(3):
        assert _opened(disk).start == 8192


def test_a_note_with_a_changed_byte_is_not_believed() -> None:
    disk = _disk()
    _opened(disk).move_to(8192)
    whole = disk.read(NOTE)
    assert whole is not None
    for place in range(len(whole)):
        broken = bytearray(whole)
        broken[place] ^= 1
        disk.replace(NOTE, bytes(broken))

        assert _opened(disk).start == UNKNOWN


def test_a_store_that_is_open_is_not_noted_in() -> None:
    disk = _disk()
    locked(disk, "/store")
    before = disk.read(NOTE)

    with pytest.raises(StoreLockedError):
        locked(disk, "/store")

    assert disk.read(NOTE) == before


def test_on_a_full_disk_the_note_goes_so_that_the_file_can() -> None:
    disk = _disk()
    start = _opened(disk)
    start.move_to(8192)
    disk.capacity_bytes = disk.used_bytes
    start.move_to(16384)

    assert not disk.exists(NOTE)


def test_it_is_written_again_as_soon_as_there_is_room() -> None:
    disk = _disk()
    store = open_store(disk)
    room = disk.capacity_bytes
    disk.capacity_bytes = disk.used_bytes
    store._log_start.move_to(8192)
    store._log_start.follow(store.commit_log.files)
    assert not disk.exists(NOTE)

    disk.capacity_bytes = room
    store._log_start.follow(store.commit_log.files)

    assert noted_start(disk, "/store") == 8192
    events: list[str] = []
    disk.on_event = events.append
    store._log_start.follow(store.commit_log.files)
    assert events == []  # once is enough


def test_where_a_log_begins_is_on_the_disk_before_its_first_record() -> None:
    """Not some time later: the file may be gone by then."""
    disk = _disk()
    store = open_store(disk)
    assert noted_start(disk, "/store") == UNKNOWN
    put_many(store, 1)
    assert noted_start(disk.powered_off(Random(1)), "/store") == 0


def test_a_log_that_begins_anew_elsewhere_is_noted_there() -> None:
    disk = _disk()
    store = open_store(disk)
    put_many(store, 1)
    store.commit_log.files.destroy()
    store.commit_log.files.last_or_create(3 * 8192 + 5)
    assert noted_start(disk, "/store") == 3 * 8192


def test_a_disk_that_refuses_the_first_note_takes_the_file_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = _disk()
    store = open_store(disk)

    def refuse(path: str) -> None:
        raise OSError(errno.EIO, "refused", path)

    disk.writes_fail = True
    monkeypatch.setattr(disk, "remove", refuse)
    store.commit_log.files.last_or_create(0)
    assert store.commit_log.files.files
    monkeypatch.undo()
    disk.writes_fail = False
    store._log_start.follow(store.commit_log.files)
    assert noted_start(disk, "/store") == 0


def test_the_note_is_moved_before_a_file_is_deleted() -> None:
    disk = _disk()
    store = open_store(disk)
    put_many(store, 60)
    store.fingerprints._starts.add(0)
    events: list[str] = []
    disk.on_event = events.append
    store.commit_log.files.delete_expired_file_by_time(
        now_ms=1 << 62, expired_time_ms=0, interval_forcibly_ms=0, delete_file_batch_max=1
    )

    assert [event.split()[0] for event in events] == ["replace", "remove"]
    assert events[0].split()[1] == NOTE
    assert store.fingerprints.starts == []
    store.close()
    assert _opened(disk).start == 8192

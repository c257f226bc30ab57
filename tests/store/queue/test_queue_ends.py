import random
from typing import Any

import pytest

from node.simulated.disk import SimulatedDisk
from node.simulated.file import SimulatedFile
from store import MessageStore
from store.queue.queue_ends import VERSION
from tandem.wire.checksum_line import decode_checked_json, encode_checked_json
from tandem.wire.store_layout import QUEUE_ENDS_FILE
from tests.store.step_disk import StepDisk
from tests.store.store_world import (
    DIRECTORY,
    Clock,
    a_message,
    check_store,
    open_store,
    put,
    put_many,
)
from tests.support.logged import logged

PATH = f"{DIRECTORY}/{QUEUE_ENDS_FILE}"
FIRST = "00000000000000000000"
NO_MEETING: dict[str, Any] = {"open_queue_files_max": 1}
"""So that recovery looks into no queue that a note speaks of: they are more than that."""


class Looks(SimulatedDisk):
    """Takes note of the queues whose files are opened. Its clock moves."""

    def __init__(self) -> None:
        super().__init__(now_ms=iter(range(1, 1 << 30)).__next__)
        self.opened: set[str] = set()

    def open(self, path: str, *, read_only: bool = False, grows: bool = False) -> SimulatedFile:
        if "/consumequeue/" in path:
            self.opened.add(path.split("/consumequeue/")[1].rpartition("/")[0])
        return super().open(path, read_only=read_only, grows=grows)

    def looked_into(self) -> set[str]:
        opened, self.opened = self.opened, set()
        return opened


ALL = {"TopicA/0", "TopicA/1", "TopicB/0"}


def _stopped(disk: SimulatedDisk, count: int = 60, **settings: Any) -> None:  # noqa: ANN401
    with open_store(disk, **settings) as store:
        put_many(store, count, start=store.max_physical_offset)


def _reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = logged(caplog, "store.queue.queue_ends")
    caplog.clear()
    assert all(line[0] == PATH for line in lines)
    return [str(line[1]) for line in lines]


def _goes_on(store: MessageStore) -> None:
    """Check all that there is, and that numbers go on after it."""
    count = len(check_store(store))
    put_many(store, 9, start=10_000)
    assert len(check_store(store)) == count + 9


def test_a_start_after_a_clean_stop_looks_into_no_queue(caplog: pytest.LogCaptureFixture) -> None:
    disk = Looks()
    _stopped(disk, **NO_MEETING)
    for _ in range(2):
        disk.looked_into()
        with open_store(disk, **NO_MEETING) as store:
            assert disk.looked_into() == set()
            assert not disk.exists(PATH), "it counts for one start"
            _goes_on(store)
    assert _reasons(caplog) == []


def test_where_queues_are_few_all_are_looked_into() -> None:
    disk = Looks()
    with open_store(disk, open_queue_files_max=3) as store:
        put_many(store, 30)
    disk.looked_into()
    with open_store(disk, open_queue_files_max=3) as store:
        assert disk.looked_into() == ALL
        _goes_on(store)


def test_queues_with_records_at_the_end_of_the_log_are_looked_into_if_they_are_few() -> None:
    disk = Looks()
    with open_store(disk, open_queue_files_max=3) as store:
        put(store, a_message(1, "Quiet"))
        put_many(store, 90, start=10, body_bytes=500)
    disk.looked_into()
    with open_store(disk, open_queue_files_max=3) as store:
        assert disk.looked_into() == ALL
        quiet, busy = store.queues.find("Quiet", 0), store.queues.find("TopicA", 0)
        assert quiet is not None
        assert busy is not None
        assert (quiet.confirmed_from, quiet.next_offset) == (1, 1)
        assert busy.confirmed_from < busy.next_offset
        _goes_on(store)


def test_after_a_hard_stop_all_queues_are_looked_into() -> None:
    disk = Looks()
    _stopped(disk, **NO_MEETING)
    store = open_store(disk, **NO_MEETING)
    put_many(store, 9, start=1000)
    after = disk.crashed()
    assert not after.exists(PATH)
    with open_store(after, **NO_MEETING) as store:
        assert len(check_store(store)) == 69


def test_a_note_of_a_stop_that_was_interrupted_does_not_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Looks()
    _stopped(disk, **NO_MEETING)
    disk.replace(f"{DIRECTORY}/abort", b"")
    disk.looked_into()
    with open_store(disk, **NO_MEETING) as store:
        assert disk.looked_into() == ALL
        _goes_on(store)
    assert _reasons(caplog) == ["the last stop was not clean"]


@pytest.mark.parametrize("how", ["short", "changed"])
def test_a_note_that_is_not_whole_is_never_believed(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Looks()
    _stopped(disk, **NO_MEETING)
    whole = disk.read(PATH)
    assert whole is not None
    for at in range(0, len(whole), 7):
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        broken = bytes(data) if how == "changed" else whole[:at]
        twin = Looks()
        twin._files.update(disk.crashed()._files)
        twin.replace(PATH, broken)
        with open_store(twin, **NO_MEETING) as store:
            assert twin.looked_into() == ALL
            assert len(check_store(store)) == 60
        assert len(_reasons(caplog)) == 1
        assert twin.read(PATH) != broken


def _changed(disk: SimulatedDisk, **fields: object) -> None:
    note = decode_checked_json(QUEUE_ENDS_FILE, disk.read(PATH) or b"", dict[str, Any])
    disk.replace(PATH, encode_checked_json(QUEUE_ENDS_FILE, {**note, **fields}))


@pytest.mark.parametrize(
    ("field", "value"),
    [("version", VERSION + 1), ("log_end", 5), ("lock_modified_ms", 5), ("log_modified_ms", 5)],
)
def test_a_note_of_another_version_run_or_log_does_not_count(
    field: str, value: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Looks()
    _stopped(disk, **NO_MEETING)
    _changed(disk, **{field: value})
    disk.looked_into()
    with open_store(disk, **NO_MEETING) as store:
        assert disk.looked_into() == ALL
        _goes_on(store)
    assert len(_reasons(caplog)) == 1


@pytest.mark.parametrize("place", range(1, 8))
@pytest.mark.parametrize("value", [-7, 7, 1 << 40])
def test_a_queue_that_is_not_as_the_note_says_is_looked_into(
    place: int, value: int, caplog: pytest.LogCaptureFixture
) -> None:
    """`value` of some fields can be, but not of the others."""
    disk = Looks()
    _stopped(disk, **NO_MEETING)
    note = decode_checked_json(QUEUE_ENDS_FILE, disk.read(PATH) or b"", dict[str, Any])
    (end,) = note["topics"]["TopicB"]
    end[place] = value
    _changed(disk, topics=note["topics"])
    disk.looked_into()
    is_possible = {
        (3, 7),
        (4, 7),
        (5, 7),
        (6, 7),
        (6, -7),
        (6, 1 << 40),
    }
    with open_store(disk, **NO_MEETING) as store:
        if (place, value) not in is_possible:
            assert disk.looked_into() >= {"TopicB/0"}
            _goes_on(store)
            assert len(_reasons(caplog)) == 1


def test_an_older_note_that_was_put_back_does_not_count(caplog: pytest.LogCaptureFixture) -> None:
    disk = Looks()
    _stopped(disk, **NO_MEETING)
    older = disk.read(PATH)
    _stopped(disk, **NO_MEETING)
    assert older is not None
    disk.replace(PATH, older)
    with open_store(disk, **NO_MEETING) as store:
        assert len(check_store(store)) == 120
        _goes_on(store)
    assert len(_reasons(caplog)) == 1


def test_a_note_does_not_count_if_others_had_the_store_since(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Looks()
    _stopped(disk, **NO_MEETING)
    disk.lock(f"{DIRECTORY}/lock")()
    disk.looked_into()
    with open_store(disk, **NO_MEETING) as store:
        assert disk.looked_into() == ALL
        _goes_on(store)
    assert _reasons(caplog) == ["it is not of the run before this one"]


def test_an_older_copy_of_a_queue_that_was_put_back_is_looked_into(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Looks()
    path = f"{DIRECTORY}/consumequeue/TopicA/0/{FIRST}"
    _stopped(disk, 9, **NO_MEETING)
    older = disk.crashed()._files[path]
    with open_store(disk, **NO_MEETING) as store:
        put_many(store, 9, start=100)
    disk._files[path] = older
    disk.looked_into()
    with open_store(disk, **NO_MEETING) as store:
        assert disk.looked_into() >= {"TopicA/0"}
        assert len(check_store(store)) == 18
        _goes_on(store)
    assert len(_reasons(caplog)) == 1


def test_a_queue_that_is_gone_is_missed_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    disk = Looks()
    _stopped(disk, 9, **NO_MEETING)
    disk.remove(f"{DIRECTORY}/consumequeue/TopicA/0/{FIRST}")
    with open_store(disk, **NO_MEETING) as store:
        assert len(check_store(store)) == 9
        _goes_on(store)


def test_what_has_left_the_log_is_not_looked_for_again() -> None:
    disk = Looks()
    with open_store(disk, **NO_MEETING) as store:
        put_many(store, 90, body_bytes=500)
        store.flush_service.queues_flushed_where = store.max_physical_offset
        store.commit_log.files.delete_expired_file_by_time(
            now_ms=0, expired_time_ms=0, interval_forcibly_ms=0, clean_immediately=True
        )
        store.queues.correct_min_offset(store.min_physical_offset)
        lowest = {key: store.reads.min_offset_in_queue(*key) for key in store.list_queues()}
        assert all(lowest.values())
    disk.looked_into()
    with open_store(disk, **NO_MEETING) as store:
        assert disk.looked_into() == set()
        found = {key: store.reads.min_offset_in_queue(*key) for key in store.list_queues()}
        assert found == lowest
        _goes_on(store)


def test_a_unit_that_has_changed_unnoticed_is_handed_out_to_nobody() -> None:
    disk = Looks()
    _stopped(disk, 9, **NO_MEETING)
    disk._files[f"{DIRECTORY}/consumequeue/TopicA/0/{FIRST}"].buffer[27] ^= 1
    with open_store(disk, **NO_MEETING) as store:
        assert store.reads.get_message("TopicA", 0, 0, 1).status.name == "FOUND"
        assert store.reads.get_message("TopicA", 0, 1, 1).status.name == "MESSAGE_DAMAGED"


def test_a_note_that_cannot_be_written_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    disk = Looks()
    store = open_store(disk, **NO_MEETING)
    put_many(store, 9)
    disk.writes_fail = True
    store.close()
    assert len(_reasons(caplog)) == 1
    disk.writes_fail = False
    assert not disk.exists(f"{DIRECTORY}/abort")
    with open_store(disk, **NO_MEETING) as again:
        assert len(check_store(again)) == 9


def test_no_crash_in_a_stop_or_a_start_makes_a_wrong_note_believed() -> None:
    """At each step of both; what was on the disk by then is there, and the store goes on."""
    disk = StepDisk(now_ms=Clock())
    pictures: list[SimulatedDisk] = []
    chance = random.Random(7)

    def picture(_: str) -> None:
        pictures.append(disk.crashed())
        pictures.append(disk.powered_off(chance))

    _stopped(disk, 9, **NO_MEETING)
    disk.on_step = picture
    store = open_store(disk, **NO_MEETING)
    started = len(pictures)
    disk.on_step = lambda _: None
    put_many(store, 9, start=100)
    store.flush_service.queues_flushed_where = 0
    disk.on_step = picture
    store.close()
    disk.on_step = lambda _: None
    assert started > 4
    assert len(pictures) > started + 10
    for number, after in enumerate(pictures):
        again = open_store(after, **NO_MEETING)
        count = len(check_store(again))
        assert count == 9 if number < started else 9 <= count <= 18
        _goes_on(again)
        again.close()
        with open_store(after, **NO_MEETING) as last:
            assert len(check_store(last)) == count + 9


def test_a_queue_file_that_is_gone_at_the_stop_leaves_no_note_and_a_clean_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    put_many(store, 20)
    store.queues.sync_all()
    disk.remove(f"{DIRECTORY}/consumequeue/TopicA/0/{FIRST}")
    store.close()
    assert not disk.exists(PATH)
    assert not disk.exists(f"{DIRECTORY}/abort")
    assert len(_reasons(caplog)) == 1
    with open_store(disk) as store:
        _goes_on(store)

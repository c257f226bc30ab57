"""A process is killed at every step of everything that takes several steps.

A kill leaves the page cache: whatever was written before the step is there, nothing after it. What
a step itself writes is cut at every byte. Whenever the store opens again it must hold a prefix of
the messages, none of those answered may be missing, queues must agree with the log, and a second
recovery must find what the first one left.
"""

import random
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from node.simulated.disk import SimulatedDisk
from store import MessageStore, PutBatch, PutMessage
from tests.store.step_disk import Interrupted, StepDisk, die_at
from tests.store.store_world import (
    COMMIT_LOG_BYTES,
    DIRECTORY,
    Clock,
    a_batch,
    a_message,
    check_store,
    files_of,
    log_messages,
    number_of,
    open_store,
    put,
    put_many,
    recover_and_check,
)

COMMIT_LOG = f"{DIRECTORY}/commitlog/{0:020d}"


def pictures_of(
    disk: SimulatedDisk, act: Callable[[MessageStore], object]
) -> tuple[list[SimulatedDisk], list[str]]:
    """Do `act` on the open store of `disk`; return the disk before every step, and at the end."""
    stepping = StepDisk(disk)
    store = open_store(stepping, clock=Clock(1_800_000_000_000))
    pictures: list[SimulatedDisk] = []
    names: list[str] = []

    def take(name: str) -> None:
        pictures.append(stepping.crashed())
        names.append(name)

    stepping.on_step = take
    act(store)
    pictures.append(stepping.crashed())
    return pictures, names


def between(before: SimulatedDisk, after: SimulatedDisk) -> Iterator[SimulatedDisk]:
    """Yield the disks on which only a first part of what changed in one file was written."""
    old, new = files_of(before), files_of(after)
    for path in old.keys() & new.keys():
        if old[path] == new[path]:
            continue
        changed = [i for i, (a, b) in enumerate(zip(old[path], new[path], strict=True)) if a != b]
        for cut in range(changed[0], changed[-1] + 1):
            partly = before.crashed()
            file = partly.open(path)
            file.buffer[changed[0] : cut] = new[path][changed[0] : cut]
            yield partly


def a_store_with(count: int) -> SimulatedDisk:
    disk = SimulatedDisk()
    with open_store(disk) as store:
        put_many(store, count)
    return disk


@pytest.mark.slow
@pytest.mark.parametrize("message", [a_message(5, body_bytes=150), a_batch(range(5, 7))])
def test_a_put_killed_at_any_byte_is_there_as_a_whole_or_not_at_all(
    message: PutMessage | PutBatch,
) -> None:
    pictures, _ = pictures_of(a_store_with(5), lambda store: put(store, message))
    sizes = set()
    for before, after in pairwise(pictures):
        for disk in between(before, after):
            sizes.add(len(recover_and_check(disk).messages))
    assert sizes == {5}
    added = 1 if isinstance(message, PutMessage) else 2
    found = recover_and_check(pictures[-1]).messages
    assert [number_of(m) for m in found] == list(range(5 + added))


def test_the_length_of_a_record_is_written_last() -> None:
    _, names = pictures_of(a_store_with(1), lambda store: put(store, a_message(1)))
    assert names == [f"write {COMMIT_LOG}"]


def test_a_roll_to_the_next_file_killed_at_any_step_keeps_all_that_was_answered() -> None:
    """The next file is there before the blank record (CommitLog.asyncPutMessage has it after)."""
    disk = SimulatedDisk()
    with open_store(disk) as store:
        count = 0
        while COMMIT_LOG_BYTES - store.max_physical_offset > 500:
            put(store, a_message(count, body_bytes=300))
            count += 1
    pictures, names = pictures_of(disk, lambda store: put(store, a_message(count, body_bytes=400)))
    assert [name.split()[0] for name in names] == ["create", "write", "write", "write"]
    for index, picture in enumerate(pictures):
        found = recover_and_check(picture).messages
        answered = index == len(pictures) - 1
        assert [number_of(m) for m in found] == list(range(count + answered))


def test_replicated_bytes_killed_at_any_step_leave_whole_records() -> None:
    source = SimulatedDisk()
    with open_store(source) as master:
        put_many(master, 60)
        end = master.max_physical_offset
        runs = []
        offset = 0
        while offset < end:
            with master.read_log(offset, 5000) as view:
                data = bytes(view)
            whole = _whole_records(data) if offset + len(data) < end else len(data)
            runs.append((offset, data[:whole]))
            offset += whole
        expected = log_messages(master)

    def replicate(slave: MessageStore) -> None:
        for offset, data in runs:
            slave.append_data(offset, data)

    disk = StepDisk()
    slave = open_store(disk, is_slave=True)
    seen: list[SimulatedDisk] = []
    disk.on_step = lambda _: seen.append(disk.crashed())
    replicate(slave)
    lengths = []
    for picture in seen:
        found = recover_and_check(picture).messages
        assert found == expected[: len(found)]
        lengths.append(len(found))
    assert lengths == sorted(lengths)
    assert lengths[-1] < len(expected) == len(recover_and_check(disk).messages)


def _whole_records(data: bytes) -> int:
    position = 0
    while position + 4 <= len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        if size == 0 or position + size > len(data):
            break
        position += size
    return position


def test_the_first_start_killed_at_any_step_can_be_repeated() -> None:
    step = 0
    while True:
        step += 1
        disk = StepDisk()
        disk.on_step = die_at(step)
        try:
            open_store(disk).close()
        except Interrupted:
            assert recover_and_check(disk).messages == []
            continue
        break
    assert step > 3


@pytest.mark.slow
def test_a_clean_stop_killed_at_any_step_loses_nothing() -> None:
    step = 0
    while True:
        step += 1
        disk = StepDisk()
        store = open_store(disk)
        put_many(store, 60)
        disk.on_step = die_at(step)
        try:
            store.close()
        except Interrupted:
            assert len(recover_and_check(disk).messages) == 60
            continue
        break
    assert step > 10


def torn_store() -> SimulatedDisk:
    """Build a store with nearly everything recovery can meet.

    Several files, a torn record over the end of a file that was prepared, queues behind the log.
    """
    disk = SimulatedDisk()
    store = open_store(disk)
    put_many(store, 70)
    behind = disk.crashed()
    put_many(store, 30, start=70)
    end = store.max_physical_offset
    after = disk.crashed()
    for name, _ in after.list_files(f"{DIRECTORY}/consumequeue/TopicA/1"):
        path = f"{DIRECTORY}/consumequeue/TopicA/1/{name}"
        old = behind.read(path)
        after.open(path).buffer[:] = old or bytes(200)
    start = end - end % COMMIT_LOG_BYTES
    last = after.open(f"{DIRECTORY}/commitlog/{start:020d}")
    at = end - start
    last.buffer[at + 4 : at + 100] = b"\xda\xa3\x20\xa7" + b"torn" * 23
    prepared = after.create(f"{DIRECTORY}/commitlog/{start + COMMIT_LOG_BYTES:020d}", 8192)
    prepared.buffer[600:610] = b"torn, too!"
    return after


@pytest.mark.slow
def test_recovery_killed_at_any_step_ends_as_if_it_had_not_been() -> None:
    start = torn_store()
    expected = recover_and_check(start)
    assert len(expected.messages) == 100
    torn = [path for path in expected.files if "/torn/" in path]
    assert len(torn) == 1
    step = 0
    while True:
        step += 1
        disk = StepDisk(start)
        disk.on_step = die_at(step)
        try:
            open_store(disk)
        except Interrupted:
            assert recover_and_check(disk).messages == expected.messages
            assert recover_and_check(disk).files[torn[0]] == expected.files[torn[0]]
            continue
        break
    assert step > 10


@pytest.mark.slow
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_queues_that_were_only_half_built_anew_are_built_anew_again(end: str) -> None:
    """Those without a message in the newest files would stay empty, and nobody would notice."""
    disk = SimulatedDisk()
    with open_store(disk, clock=Clock(step_ms=200)) as store:  # files are seconds apart
        put_many(store, 12)
        for number in range(12, 100):
            put(store, a_message(number, "TopicC", body_bytes=300))
    for name, _ in disk.list_files(f"{DIRECTORY}/consumequeue/TopicC/0"):
        disk.remove(f"{DIRECTORY}/consumequeue/TopicC/0/{name}")
    if end == "killed":
        disk.replace(f"{DIRECTORY}/abort", b"")
    for step in range(1, 1000):
        stepping = StepDisk(disk)
        stepping.on_step = die_at(step)
        try:
            open_store(stepping)
        except Interrupted:
            for after in (stepping.crashed(), stepping.powered_off(random.Random(step))):
                assert len(check_store(open_store(after))) == 100
            continue
        assert step > 20
        return
    pytest.fail("recovery never got to its end")


def test_recovery_killed_again_and_again_still_gets_there() -> None:
    disk = torn_store()
    for step in range(1, 200):
        stepping = StepDisk(disk)
        stepping.on_step = die_at(step)
        try:
            store = open_store(stepping)
        except Interrupted:
            disk = stepping.crashed()
            continue
        assert len(check_store(store)) == 100
        return
    pytest.fail("recovery never got to its end")

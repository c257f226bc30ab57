"""The index over logs built in memory, over stores of RocketMQ's, and after every kind of stop."""

import logging
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.simulated.disk import SimulatedDisk
from node.simulated.file import SimulatedFile
from store.files.store_checkpoint import StoreCheckpoint
from store.index import index_service as index_service_module
from store.index.index_file import IndexFile
from store.index.index_service import PLAIN_LOOP_RECORDS_MAX, IndexService, QueryMessageResult
from store.machine.errors import CorruptLogError, LogFault, StoreFullError
from tandem.wire.message import MessageExt, decode_message
from tandem.wire.record_scan import scan_records
from tandem.wire.store_layout import index_file_bytes
from tests.store.store_world import Clock
from tests.support.log_builder import LogBuilder
from tests.support.paths import GOLDEN

DIRECTORY = "/s/index"
EARLY, LATE = 0, 2**63 - 1
NOON_MS = 1_700_000_000_000
SMALL = (7, 9)
"""Slots and units: 8 keys a file."""


class World:
    """A log in memory, and an index of it on a disk that can die."""

    def __init__(self, sizes: tuple[int, int] = SMALL, disk: SimulatedDisk | None = None) -> None:
        self.sizes = sizes
        self.log = LogBuilder(file_bytes=1 << 26)
        self.disk = disk or SimulatedDisk()
        self.clock = Clock(NOON_MS)
        self.min_offset = 0
        self.index = self.loaded(clean=True)
        self.recover()

    def loaded(self, *, clean: bool) -> IndexService:
        self.checkpoint = StoreCheckpoint("/s/checkpoint", self.disk)
        self.index = IndexService(
            DIRECTORY,
            *self.sizes,
            disk=self.disk,
            wall_clock_ms=self.clock,
            checkpoint=self.checkpoint,
            max_msgs_num_batch=64,
        )
        self.index.load(clean=clean)
        return self.index

    def recover(self) -> None:
        self.index.recover(self.min_offset, self.log.end_offset, self.record_at)

    def reopen(self, *, clean: bool, disk: SimulatedDisk | None = None) -> IndexService:
        """Open the index as the next start does; what is missing is still to be dispatched."""
        self.disk = disk or self.disk
        self.loaded(clean=clean)
        self.recover()
        return self.index

    def close(self) -> None:
        self.index.sync_all()
        self.checkpoint.flush_blocking()
        self.index.close()

    def put(self, keys: str = "", unique_key: str = "", **fields: Any) -> MessageExt:  # noqa: ANN401
        properties = {"UNIQ_KEY": unique_key} if unique_key else {}
        return self.log.put(keys=keys, properties=properties, **fields)

    def record_at(self, offset: int) -> bytes | None:
        for message in self.log.messages:
            if message.physical_offset == offset >= self.min_offset:
                return bytes(self.log.log[offset : offset + message.store_size])
        return None

    def dispatch(self, start: int | None = None, *, size: int = 10**9) -> None:
        """Dispatch the log from `start`, or where the index wants it, so many records at once."""
        columns = scan_records(self.log.log, 0).columns
        offset = max(self.min_offset, self.index.next_offset) if start is None else start
        columns = columns.take(columns.physical_offset >= offset)
        for at in range(0, len(columns), size):
            self.index.dispatch_columns(bytes(self.log.log), columns.take(slice(at, at + size)))

    def sync(self) -> None:
        """What the flush service does in the background."""
        for file in self.index.files_to_sync():
            file.file.sync()
            file.flushed_position = file.wrote_position
        self.index.synced()

    def query(self, key: str, topic: str = "TopicA", count: int = 64) -> list[int]:
        result = self.index.query_message(topic, key, count, EARLY, LATE, record_at=self.record_at)
        return [decode_message(record)[0].physical_offset for record in result.records]

    def contents(self) -> list[bytes]:
        return [bytes(file.file.buffer[:]) for file in self.index.files]

    @property
    def offsets(self) -> list[int]:
        return [message.physical_offset for message in self.log.messages]

    def names(self) -> list[str]:
        return [name for name, _ in self.disk.list_files(DIRECTORY)]

    def expect_all_found(self) -> None:
        """Every key of every record that is held finds exactly the records that have it."""
        expected: dict[tuple[str, str], list[int]] = {}
        for message in self.log.messages:
            keys = {message.properties.get("UNIQ_KEY", ""), *message.keys.split(" ")} - {""}
            for key in keys if message.physical_offset >= self.min_offset else ():
                expected.setdefault((message.topic, key), []).append(message.physical_offset)
        for (topic, key), offsets in expected.items():
            assert self.query(key, topic) == offsets[-64:], (topic, key)


def many(world: World, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        world.put(f"k{number} common{number % 3}", f"U{number}", topic=f"T{number % 2}")


# -- files of RocketMQ's -------------------------------------------------------------------------


def golden(name: str) -> World:
    """A world whose log is that of a golden store."""
    world = World((7, 5) if name == "idx" else (100, 400))
    data = (GOLDEN / name / "commitlog" / f"{0:020d}").read_bytes()
    check = scan_records(data, 0).check
    position = 0
    while position < check.end:
        message, position = decode_message(data, position)
        world.log.messages.append(message)
    world.log.log += data[: check.end]
    return world


def golden_files(name: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((GOLDEN / name / "index").iterdir())}


@pytest.mark.parametrize("size", [1, 3, 10**9])
@pytest.mark.parametrize("plain", [0, 10**9])
@pytest.mark.parametrize("name", ["basic", "batch", "crc", "ext", "idx", "sch", "tran", "v6"])
def test_the_same_records_make_the_same_index(
    name: str, plain: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether record by record or in columns. `idx` was opened again, where RocketMQ indexes the
    last record once more.
    """
    monkeypatch.setattr(index_service_module, "PLAIN_LOOP_RECORDS_MAX", plain)
    world = golden(name)
    world.dispatch(size=size)
    if name == "idx":
        world.dispatch(world.offsets[-1])
    world.index.sync_all()
    assert world.contents() == list(golden_files(name).values())


@pytest.mark.parametrize("name", ["basic", "batch", "crc", "idx", "sch", "tran", "v6"])
def test_an_index_of_rocketmqs_answers(name: str) -> None:
    world = golden(name)
    for file, content in golden_files(name).items():
        world.disk.replace(f"{DIRECTORY}/{file}", content)
    world.reopen(clean=True)
    world.expect_all_found()
    before = world.contents()
    if name != "idx":  # the last file is full there: RocketMQ would go on in a new one
        world.dispatch()
    assert world.contents() == before
    if name == "basic":
        assert world.query("k1") == [0, 136, 272]
        assert world.query("U1") == [136]
        assert world.query("k1 k2") == world.query("K1") == world.query("k1", "TopicB") == []


def test_an_index_of_rocketmqs_is_trusted_after_a_hard_stop_as_far_as_it_says() -> None:
    """IndexService.load deletes what ends behind indexMsgTimestamp; that of `idx` is full files."""
    world = golden("idx")
    for file, content in golden_files("idx").items():
        world.disk.replace(f"{DIRECTORY}/{file}", content)
    world.disk.replace("/s/checkpoint", (GOLDEN / "idx" / "checkpoint").read_bytes())
    assert len(world.reopen(clean=False).files) == 6
    world.checkpoint.index_msg_timestamp_ms = world.index.files[3].end_timestamp_ms
    world.checkpoint.flush_blocking()
    assert len(world.reopen(clean=False).files) == 4
    assert len(world.names()) == 4
    world.dispatch()
    world.expect_all_found()


# -- entering ------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from("ab中"), max_size=3), st.sampled_from([0, 4, 8, 12])),
        max_size=30,
    ),
    st.integers(1, 12),
)
def test_columns_and_single_records_make_the_same_files(
    records: list[tuple[list[str], int]], size: int
) -> None:
    worlds = [World((3, 4)) for _ in range(3)]
    for world in worlds:
        for number, (keys, sys_flag) in enumerate(records):
            world.put(" ".join(keys), f"U{number}" if number % 4 else "", sys_flag=sys_flag)
    single, plain, columns = worlds
    for message in single.log.messages:
        raw = single.record_at(message.physical_offset) or b""
        properties_bytes = len(raw) - raw.index(message.topic.encode()) - len(message.topic) - 2
        single.index.dispatch(
            message.topic,
            raw[len(raw) - properties_bytes :],
            message.physical_offset,
            message.store_timestamp_ms,
            message.sys_flag,
        )
    plain.dispatch(size=size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_service_module, "PLAIN_LOOP_RECORDS_MAX", 0)
        columns.dispatch(size=size)
    assert plain.contents() == columns.contents() == single.contents()
    assert plain.names() == columns.names() == single.names()


def test_rolled_back_messages_have_no_keys_prepared_ones_have() -> None:
    """IndexService.buildIndex."""
    world = World()
    for sys_flag in (0, 4, 8, 12):
        world.put("k", sys_flag=sys_flag)
    world.dispatch()
    assert world.query("k") == world.offsets[:3]


@pytest.mark.parametrize("plain", [0, 10**9])
def test_records_in_front_of_the_end_are_left_out_the_last_one_is_entered_again(
    plain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IndexService.buildIndex: smaller than endPhyOffset returns. A query shows it once."""
    monkeypatch.setattr(index_service_module, "PLAIN_LOOP_RECORDS_MAX", plain)
    world = World()
    many(world, 4)
    world.dispatch()
    keys = sum(file.index_count - 1 for file in world.index.files)
    world.dispatch(0)
    assert sum(file.index_count - 1 for file in world.index.files) == keys + 3
    world.expect_all_found()


@pytest.mark.parametrize("plain", [0, 10**9])
def test_a_record_without_keys_behind_a_full_file_makes_the_next_one(
    plain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IndexService.retryGetAndCreateIndexFile comes before the look at the keys."""
    monkeypatch.setattr(index_service_module, "PLAIN_LOOP_RECORDS_MAX", plain)
    world = World()
    for _ in range(8):
        world.put("k")
    world.dispatch()
    assert len(world.index.files) == 1
    world = World()
    for number in range(9):
        world.put("k" if number < 8 else "")
    world.dispatch()
    assert [file.has_keys for file in world.index.files] == [True, False]


def test_only_files_that_are_full_are_read_around(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[bool] = []

    def note(file: SimulatedFile, start: int, end: int, *, wanted: bool) -> None:
        assert (start, end) == (0, file.size)
        said.append(wanted)

    monkeypatch.setattr(SimulatedFile, "read_around", note)
    world = World()
    for _ in range(9):
        world.put("k")
    world.dispatch()
    assert said == [True]
    world.close()
    said.clear()
    world.reopen(clean=True)
    assert set(said) == {False}


def test_files_are_named_by_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        world = World()
        world.clock.now_ms = NOON_MS + 41
        world.put("k")
        world.dispatch()
        assert world.names() == ["20231115061320042"]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_names_rise_whatever_the_clock_does() -> None:
    world = World()
    world.clock.step_ms = 0
    many(world, 30)
    world.dispatch()
    names = world.names()
    assert len(names) == 12
    assert names == [str(int(names[0]) + n) for n in range(12)]
    assert [file.file.path.rpartition("/")[2] for file in world.index.files] == names
    world.clock.now_ms -= 3_600_000
    many(world, 10, start=30)
    world.dispatch(world.offsets[30])
    assert world.names()[:12] == names
    world.expect_all_found()


def test_a_name_that_is_taken_is_stepped_over() -> None:
    world = World()
    world.put("k")
    world.clock.step_ms = 0
    taken = int(world.index._new_name(None))
    world.disk.replace(f"{DIRECTORY}/{taken}", b"x")
    world.dispatch()
    assert world.names() == [str(taken), str(taken + 1)]


def test_a_full_disk_stops_the_index_and_nothing_is_lost() -> None:
    world = World()
    many(world, 4)
    world.dispatch()
    assert len(world.index.files) == 2
    many(world, 30, start=4)
    world.disk.capacity_bytes = world.disk.used_bytes
    for _ in range(2):
        with pytest.raises(StoreFullError):
            world.dispatch(world.offsets[4])
    world.disk.capacity_bytes = 1 << 30
    world.dispatch(world.offsets[4])
    world.expect_all_found()


# -- finding -------------------------------------------------------------------------------------


def test_the_newest_come_first_and_go_out_in_the_order_of_the_log() -> None:
    world = World()
    for _ in range(100):
        world.put("k")
    world.dispatch()
    assert world.query("k", count=3) == world.offsets[-3:]
    assert world.query("k", count=10**6) == world.offsets[-64:]
    assert world.query("k", count=0) == world.query("k", count=-1) == []
    assert world.index.query_offset("TopicA", "k", 3, EARLY, LATE) == world.offsets[:-4:-1]
    assert len(world.index.query_offset("TopicA", "k", 999, EARLY, LATE)) == 64


def test_a_record_with_the_same_key_twice_is_found_once() -> None:
    world = World()
    world.put("a a a", "a")
    world.dispatch()
    assert world.index.files[0].index_count == 5
    assert world.query("a") == [0]
    assert world.index.query_offset("TopicA", "a", 9, EARLY, LATE) == [0]


def test_an_answer_says_how_far_the_index_has_come() -> None:
    world = World()
    empty = world.index.query_message("T", "k", 1, EARLY, LATE, record_at=world.record_at)
    assert empty == QueryMessageResult((), 0, 0)
    last = [world.put("k"), world.put("k")][-1]
    world.dispatch()
    result = world.index.query_message("T", "k", 1, EARLY, LATE, record_at=world.record_at)
    assert result.records == ()
    assert result.index_last_update_timestamp_ms == last.store_timestamp_ms
    assert result.index_last_update_physical_offset == last.physical_offset


def found_between(world: World, begin_ms: int, end_ms: int) -> list[int]:
    result = world.index.query_message(
        "TopicA", "k", 64, begin_ms, end_ms, record_at=world.record_at
    )
    stamps = {raw: decode_message(raw)[0].store_timestamp_ms for raw in result.records}
    return [stamps[raw] - NOON_MS for raw in result.records]


def test_times_are_exact_at_the_beginning_and_to_the_second_at_the_end() -> None:
    """5.3.3 may miss what was stored in the first second behind the beginning."""
    world = World()
    for stamp in (0, 1500, 2600, 2700, 3900, 9000):
        world.put("k", store_timestamp_ms=NOON_MS + stamp)
    world.dispatch()
    assert found_between(world, NOON_MS + 2650, NOON_MS + 8000) == [2700, 3900]
    assert found_between(world, NOON_MS + 2600, NOON_MS + 2600) == [2600, 2700]
    assert found_between(world, NOON_MS + 9000, LATE) == [9000]
    assert found_between(world, NOON_MS + 9001, LATE) == []
    assert found_between(world, LATE, EARLY) == []


def test_older_files_are_not_opened_when_the_question_ends_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """IndexService.queryOffset: a file that begins before the beginning is the last one."""
    world = World()
    for number in range(40):
        world.put("k", store_timestamp_ms=NOON_MS + number * 1000)
    world.dispatch()
    asked: list[int] = []
    real = IndexFile.offsets

    def offsets(file: IndexFile, *question: int) -> Iterator[int]:
        asked.append(world.index.files.index(file))
        return real(file, *question)

    monkeypatch.setattr(IndexFile, "offsets", offsets)
    assert len(found_between(world, NOON_MS + 20_000, NOON_MS + 30_000)) == 11
    assert asked == [3, 2]


def collisions(count: int) -> list[str]:
    """Return texts of the same Java hash."""
    texts = [""]
    while len(texts) < count:
        texts = [text + end for text in texts for end in ("Aa", "BB")]
    return texts[:count]


def test_keys_with_the_hash_of_another_are_told_apart() -> None:
    """5.3.3 returns them all: it goes by hashes of 31 bits."""
    world = World((100, 2000))
    keys = collisions(256)
    for key in keys:
        world.put(key)
    world.dispatch()
    assert len(set(world.index.query_offset("TopicA", keys[0], 64, EARLY, LATE))) == 64
    for at in (0, 100, 255):
        assert world.query(keys[at]) == [world.offsets[at]]


def test_topics_with_the_hash_of_another_are_told_apart() -> None:
    world = World()
    for topic in ("Aa", "BB"):
        world.put("k", topic=topic)
    world.dispatch()
    assert len(world.index.query_offset("Aa", "k", 9, EARLY, LATE)) == 2
    assert (world.query("k", "Aa"), world.query("k", "BB")) == ([0], world.offsets[1:])


def test_keys_and_topics_are_compared_as_texts() -> None:
    world = World()
    no_text = world.put("é", topic="Tö")
    world.log.log[:] = world.log.log.replace("é".encode(), b"\xff\xfe").replace(b"\xb6", b"\xff")
    asked = world.put("??", topic="T??")
    world.dispatch()
    assert world.query("\ufffd\ufffd", "T\ufffd\ufffd") == [no_text.physical_offset]
    assert world.query("??", "T??") == [asked.physical_offset]
    assert world.query("\ud800\ud800", "T??") == []
    assert world.query("??", "T\ud800\ud800") == []


def test_somebody_who_makes_collisions_does_not_hold_us_up() -> None:
    world = World((100, 2000))
    keys = collisions(512)
    for key in keys:
        world.put(key)
    world.dispatch()
    read: list[int] = []

    def record_at(offset: int) -> bytes | None:
        read.append(offset)
        return world.record_at(offset)

    found = world.index.query_message("TopicA", keys[0], 64, EARLY, LATE, record_at=record_at)
    assert found.records == ()
    assert len(read) == 300


def test_an_answer_fits_into_a_frame() -> None:
    world = World()
    for _ in range(4):
        world.put("k", body=bytes(5 << 20))
    world.dispatch()
    assert world.query("k") == world.offsets[-2:]
    world.put("k", body=bytes(13 << 20))
    world.dispatch(world.offsets[-1])
    assert world.query("k") == world.offsets[-1:]


def test_records_that_were_deleted_are_not_found() -> None:
    world = World((7, 100))
    many(world, 10)
    world.dispatch()
    world.min_offset = world.offsets[5]
    world.expect_all_found()
    assert world.query("k4", "T0") == []


# -- stopping and starting -----------------------------------------------------------------------


def test_after_a_clean_stop_the_index_goes_on_where_it_ended() -> None:
    world = World()
    many(world, 5)
    world.dispatch()
    before = world.contents()
    world.close()
    world.reopen(clean=True)
    assert world.index.next_offset == world.offsets[-1]
    world.dispatch()
    assert world.contents() == before
    many(world, 5, start=5)
    world.dispatch()
    straight = World()
    many(straight, 10)
    straight.dispatch()
    assert world.contents() == straight.contents()


def test_an_index_that_was_off_for_a_while_catches_up() -> None:
    world = World()
    many(world, 5)
    world.dispatch()
    world.close()
    many(world, 40, start=5)
    world.reopen(clean=True)
    world.dispatch()
    world.expect_all_found()


def test_a_removed_index_is_built_again_and_not_trusted_before_it_is_on_disk() -> None:
    """Its files end at times long past: the checkpoint must not vouch for them."""
    world = World()
    many(world, 20)
    world.dispatch()
    world.close()
    for name in world.names():
        world.disk.remove(f"{DIRECTORY}/{name}")
    assert world.checkpoint.index_msg_timestamp_ms > 0
    world.reopen(clean=True)
    assert world.index.next_offset == 0
    assert StoreCheckpoint("/s/checkpoint", world.disk).index_msg_timestamp_ms == 0
    world.dispatch()
    world.expect_all_found()
    assert world.reopen(clean=False, disk=world.disk.crashed()).files == []


def test_a_clean_stop_with_a_record_half_entered_is_put_right() -> None:
    """There was no room for the next file."""
    world = World()
    for number in range(2):
        world.put("a b", f"U{number}")
    world.put("x y", "U2")
    world.disk.capacity_bytes = world.disk.used_bytes + index_file_bytes(*SMALL)
    with pytest.raises(StoreFullError):
        world.dispatch()
    assert world.query("y") == []
    world.close()
    world.disk.capacity_bytes = 1 << 30
    world.reopen(clean=True)
    world.dispatch()
    world.expect_all_found()


def test_after_a_hard_stop_only_files_known_to_be_on_disk_count() -> None:
    world = World()
    many(world, 10)
    world.dispatch()
    world.sync()
    many(world, 10, start=10)
    world.dispatch(world.offsets[10])
    world.checkpoint.flush_blocking()
    names = world.names()
    assert [file.is_full for file in world.index.files] == [True] * 7 + [False]
    world.reopen(clean=False, disk=world.disk.crashed())
    assert world.names() == names[:3]
    assert world.index.next_offset == world.index.files[-1].end_physical_offset
    world.dispatch()
    world.expect_all_found()


def test_a_file_that_is_not_full_is_not_trusted_whatever_the_checkpoint_says() -> None:
    """RocketMQ does not take the checkpoint back when its clock is set back."""
    world = World()
    many(world, 10)
    world.dispatch()
    world.sync()
    names = world.names()
    world.checkpoint.index_msg_timestamp_ms = LATE
    world.checkpoint.flush_blocking()
    world.reopen(clean=False)
    assert world.names() == names[:-1]


def test_the_load_changes_nothing_before_the_log_is_recovered() -> None:
    world = World()
    many(world, 10)
    world.dispatch()
    names = world.names()
    world.loaded(clean=False)
    assert world.index.files == []
    assert world.names() == names
    world.recover()
    assert world.names() == []


def test_one_bad_file_takes_all_behind_it_with_it() -> None:
    """Otherwise the index would have a hole that nobody fills."""
    for clean in (False, True):
        world = World()
        many(world, 20)
        world.dispatch()
        world.sync()
        world.close()
        names = world.names()
        damaged = bytearray(world.disk.read(f"{DIRECTORY}/{names[2]}") or b"")
        damaged[36:40] = b"\x7f\xff\xff\xff"
        world.disk.replace(f"{DIRECTORY}/{names[2]}", bytes(damaged))
        world.reopen(clean=clean)
        assert world.names() == names[:2]
        world.dispatch()
        world.expect_all_found()


def test_a_deletion_that_is_interrupted_leaves_no_hole() -> None:
    world = World()
    many(world, 20)
    world.dispatch()
    order: list[str] = []
    world.disk.on_event = order.append
    world.loaded(clean=False)
    world.recover()
    removed = [event.rpartition("/")[2] for event in order if event.startswith("remove")]
    assert len(removed) == 8
    assert removed == sorted(removed, reverse=True)


def test_a_file_of_another_length_is_refused_and_the_text_says_what_to_do() -> None:
    """5.3.3 maps it with the length of its settings and reads slots for units."""
    world = World()
    many(world, 2)
    world.dispatch()
    world.close()
    world.sizes = (9, 9)
    with pytest.raises(CorruptLogError) as caught:
        world.loaded(clean=True)
    # The text has to say what to do: which settings are meant, and what can be deleted.
    text = str(caught.value)
    for part in ("max_hash_slot_num 9", "max_index_num 9", "delete"):
        assert part in text
    assert caught.value.fault is LogFault.LENGTH
    assert caught.value.path.startswith(DIRECTORY)
    world.reopen(clean=False)
    world.dispatch()
    world.expect_all_found()


def test_an_empty_file_is_what_a_crash_of_rocketmqs_leaves() -> None:
    world = World()
    many(world, 2)
    world.dispatch()
    world.close()
    world.disk.replace(f"{DIRECTORY}/99991231235959999", b"")
    world.reopen(clean=True)
    assert len(world.names()) == 1
    world.dispatch()
    world.expect_all_found()


def test_other_names_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """RocketMQ logs and skips what is not a number."""
    world = World()
    for name in ("readme.txt", "2026112123541800", "2026112123541800\N{FULLWIDTH DIGIT ONE}"):
        world.disk.replace(f"{DIRECTORY}/{name}", b"x")
    with caplog.at_level(logging.WARNING):
        world.reopen(clean=True)
    assert len(caplog.records) == 3
    assert len(world.names()) == 3


# -- a log that was cut --------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [False, True])
def test_what_was_cut_off_the_log_is_not_found_and_what_replaces_it_is(clean: bool) -> None:  # noqa: FBT001
    """5.3.3 keeps the entries, and does not index what is written in front of the last of them."""
    world = World()
    many(world, 20)
    world.dispatch()
    world.sync()
    world.close()
    cut = world.offsets[12]
    del world.log.log[cut:]
    del world.log.messages[12:]
    world.reopen(clean=clean)
    assert all(file.end_physical_offset < cut for file in world.index.files)
    for number in range(30):
        world.put(f"new{number}", topic="T0")
    world.dispatch()
    world.expect_all_found()
    assert world.query("k12", "T0") == world.query("k19", "T1") == []


def test_stale_entries_never_match_a_new_record_at_their_place() -> None:
    """Should some be left: the key is compared in the record."""
    world = World((7, 100))
    many(world, 10)
    world.dispatch()
    old = world.offsets[-1]
    del world.log.log[old:]
    del world.log.messages[-1:]
    new = world.put("other", "U9", topic="T1")
    assert new.physical_offset == old
    assert world.index.query_offset("T1", "k9", 9, EARLY, LATE) == [old]
    assert world.query("k9", "T1") == []
    assert world.query("U9", "T1") == [old]


def test_an_index_of_another_log_is_thrown_away() -> None:
    world = World()
    many(world, 20)
    world.dispatch()
    world.close()
    world.log = LogBuilder(file_bytes=1 << 24)
    for number in range(60):
        world.put(f"other{number}")
    world.reopen(clean=True)
    world.dispatch()
    world.expect_all_found()
    world.log = LogBuilder(file_bytes=1 << 24)
    assert world.reopen(clean=True).files == []


def test_nobody_is_asked_for_a_record_behind_the_end_of_the_log() -> None:
    world = World()
    many(world, 20)
    world.dispatch()
    world.close()
    world.loaded(clean=True)
    end = world.offsets[4]
    asked: list[int] = []

    def record_at(offset: int) -> bytes | None:
        asked.append(offset)
        return world.record_at(offset)

    world.index.recover(0, end, record_at)
    assert asked
    assert max(asked) < end


def test_an_index_that_ends_before_the_log_begins_is_kept_until_it_expires() -> None:
    world = World()
    many(world, 20)
    world.dispatch()
    world.close()
    many(world, 20, start=20)
    world.min_offset = world.offsets[25]
    world.reopen(clean=True)
    assert len(world.index.files) == 8
    world.dispatch()
    world.expect_all_found()


# -- syncing and the checkpoint ------------------------------------------------------------------


def test_the_checkpoint_moves_when_a_full_file_is_on_disk() -> None:
    """IndexService.flush."""
    world = World()
    many(world, 5)
    world.dispatch()
    first = world.index.files[0]
    assert [file.is_full for file in world.index.files] == [True, False]
    world.index.synced()
    assert world.checkpoint.index_msg_timestamp_ms == 0
    assert world.index.files_to_sync() == [first]
    world.sync()
    assert world.index.files_to_sync() == []
    assert world.checkpoint.index_msg_timestamp_ms == first.end_timestamp_ms
    world.close()
    assert world.checkpoint.index_msg_timestamp_ms == first.end_timestamp_ms


def test_a_later_file_on_disk_does_not_vouch_for_one_before_it() -> None:
    world = World()
    many(world, 10)
    world.dispatch()
    first, second, _ = world.index.files_to_sync()
    second.flushed_position = second.wrote_position
    world.index.synced()
    assert world.checkpoint.index_msg_timestamp_ms == 0
    first.flushed_position = first.wrote_position
    world.index.synced()
    assert world.checkpoint.index_msg_timestamp_ms == second.end_timestamp_ms


@pytest.mark.parametrize("plain", [0, 10**9])
@pytest.mark.parametrize("back_ms", [0, 1, 50_000])
def test_keys_of_the_same_time_or_earlier_are_not_vouched_for(
    back_ms: int, plain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock was set back. Neither we nor RocketMQ may trust the file being written then."""
    monkeypatch.setattr(index_service_module, "PLAIN_LOOP_RECORDS_MAX", plain)
    world = World()
    for _ in range(8):
        world.put("k", store_timestamp_ms=NOON_MS)
    world.dispatch()
    world.sync()
    assert world.checkpoint.index_msg_timestamp_ms == NOON_MS
    world.checkpoint.flush_blocking()
    world.put("k", store_timestamp_ms=NOON_MS - back_ms)
    world.dispatch(world.offsets[-1])
    assert world.checkpoint.index_msg_timestamp_ms == NOON_MS - back_ms - 1
    after_power_loss = StoreCheckpoint("/s/checkpoint", world.disk.powered_off(random.Random(1)))
    assert after_power_loss.index_msg_timestamp_ms <= NOON_MS - back_ms - 1
    world.sync()
    assert world.checkpoint.index_msg_timestamp_ms == NOON_MS - back_ms - 1
    world.put("k", store_timestamp_ms=NOON_MS + 1)
    world.dispatch(world.offsets[-1])
    world.sync()
    assert world.checkpoint.index_msg_timestamp_ms == NOON_MS


def test_a_new_file_without_keys_takes_nothing_back() -> None:
    world = World()
    for _ in range(8):
        world.put("k")
    world.dispatch()
    world.sync()
    before_ms = world.checkpoint.index_msg_timestamp_ms
    world.put()
    world.dispatch(world.offsets[-1])
    assert len(world.index.files) == 2
    world.sync()
    assert world.checkpoint.index_msg_timestamp_ms == before_ms > 0


def live(world: World, chance: random.Random) -> None:
    """Let the store run for a while: messages, dispatch in pieces, now and then a sync."""
    for _ in range(chance.randrange(3, 12)):
        many(world, chance.randrange(1, 12), start=len(world.log.messages))
        world.dispatch(size=chance.choice((1, 5, 100)))
        world.index.next_offset = world.offsets[-1]
        if chance.random() < 0.5:
            for file in world.index.files_to_sync():
                if chance.random() < 0.7:
                    file.file.sync()
                    file.flushed_position = file.wrote_position
            world.index.synced()
        if chance.random() < 0.5:
            world.checkpoint.flush_blocking()


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.thorough
def test_after_every_kind_of_stop_every_key_is_found(seed: int) -> None:
    """Power loss, kill, clean stop; with and without a log that lost its end."""
    chance = random.Random(seed)
    world = World(chance.choice(((1, 5), SMALL, (50, 40))))
    stops: tuple[Callable[[SimulatedDisk], SimulatedDisk], ...] = (
        lambda disk: disk.powered_off(chance),
        lambda disk: disk.crashed(),
    )
    for _ in range(6):
        live(world, chance)
        clean = chance.random() < 0.3
        if clean:
            world.close()
        disk = chance.choice(stops)(world.disk)
        if not clean and chance.random() < 0.5:
            keep = chance.randrange(len(world.log.messages))
            del world.log.log[world.offsets[keep] :]
            del world.log.messages[keep:]
        world.reopen(clean=clean, disk=disk)
        world.dispatch()
        world.expect_all_found()


# -- cleaning ------------------------------------------------------------------------------------


def test_the_oldest_files_are_deleted_when_their_records_are_gone() -> None:
    """IndexService.deleteExpiredFile: never the last one."""
    world = World()
    many(world, 20)
    world.dispatch()
    world.sync()
    names = world.names()
    second = world.index.files[1]
    assert world.index.delete_expired_files(0) == 0
    assert world.index.delete_expired_files(second.end_physical_offset) == 1
    assert world.names() == names[1:]
    world.min_offset = second.end_physical_offset
    world.expect_all_found()
    assert world.index.delete_expired_files(LATE) == 6
    assert world.names() == names[-1:]


def test_a_file_that_may_be_on_its_way_to_the_disk_is_not_deleted() -> None:
    world = World()
    many(world, 20)
    world.dispatch()
    assert world.index.delete_expired_files(LATE) == 0
    world.sync()
    assert world.index.delete_expired_files(LATE) == 7


def test_destroy_leaves_nothing_and_the_index_can_start_again() -> None:
    world = World()
    many(world, 20)
    world.dispatch()
    world.sync()
    world.index.destroy()
    assert world.names() == []
    assert world.checkpoint.index_msg_timestamp_ms == 0
    world.dispatch()
    world.expect_all_found()


def test_real_files_are_written_and_read(tmp_path: Path) -> None:
    from store.machine.real_disk import RealDisk  # noqa: PLC0415

    disk = RealDisk()
    world = World()
    many(world, PLAIN_LOOP_RECORDS_MAX * 3)
    world.dispatch()
    checkpoint = StoreCheckpoint(str(tmp_path / "checkpoint"), disk)
    index = IndexService(
        str(tmp_path / "index"),
        *SMALL,
        disk=disk,
        wall_clock_ms=Clock(NOON_MS),
        checkpoint=checkpoint,
        max_msgs_num_batch=64,
    )
    index.load(clean=True)
    data = bytes(world.log.log)
    index.dispatch_columns(data, scan_records(data, 0).columns)
    index.sync_all()
    walk = index.files[0].offsets(1, EARLY, LATE)
    next(walk, None)
    index.close()
    checkpoint.close()
    written = [file.read_bytes() for file in sorted((tmp_path / "index").iterdir())]
    assert written == world.contents()

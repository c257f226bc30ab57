import random
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import msgspec
import pytest
import trio

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.files.store_checkpoint import StoreCheckpoint
from store.log.damage import LogDamage
from store.log.fingerprints import Fingerprints
from store.log.message_encoder import inner_batch
from store.machine.errors import (
    CorruptLogError,
    DiskFailedError,
    FileNameError,
    LogFault,
    NameTakenError,
    NoPlaceError,
    StoreFullError,
    StoreLockedError,
)
from store.machine.real_disk import RealDisk
from store.recovery.closed_log import heal_closed_log
from store.recovery.truncation import (
    CutOff,
    TruncationIntent,
    pending_intent,
    set_aside,
    want_set_aside,
    write_intent,
)
from tandem.wire.fingerprint import Fingerprint, crcs_of
from tandem.wire.message import MessageExt
from tests.store.step_disk import Interrupted, StepDisk, die_at
from tests.store.store_world import (
    BORN_MS,
    COMMIT_LOG_BYTES,
    DIRECTORY,
    Clock,
    a_batch,
    a_message,
    check_store,
    copy_log,
    files_of,
    log_messages,
    number_of,
    open_store,
    put,
    put_many,
    queue_messages,
)

COUNT = 70
EPOCHS = "epochFileCheckpoint"
OLD_EPOCHS = b"2\n0\n1-0\n2-4000\n"
NEW_EPOCHS = "1\n0\n1-0\n"
INTENT = f"{DIRECTORY}/truncation.json"


def opened(disk: SimulatedDisk, *, is_slave: bool = True, now_ms: int = BORN_MS) -> MessageStore:
    store = open_store(
        disk,
        is_slave=is_slave,
        confirm_bounds_reads=True,
        enable_consume_queue_ext=True,
        mapped_file_size_consume_queue_ext_bytes=1000,
        max_index_num=30,
        clock=Clock(now_ms, step_ms=100),
    )
    store.confirm(1 << 60)
    return store


class Original:
    """A store of several files that nobody has open, and what its log holds."""

    def __init__(self, *, end: str = "closed") -> None:
        self.disk = SimulatedDisk()
        store = opened(self.disk, is_slave=False)
        put_many(store, COUNT)
        store.confirm(1 << 60)
        while store.reput_service.is_index_behind:
            store.reput_service.index_some()
        self.messages = log_messages(store)
        self.start = store.min_physical_offset
        self.end = store.max_physical_offset
        self.disk.replace(f"{DIRECTORY}/{EPOCHS}", OLD_EPOCHS)
        self.log = _log_bytes(store)
        store.checkpoint.replicated_offset = 0
        if end == "closed":
            store.close()
            _forget_confirmed(self.disk)
        else:
            self.disk = self.disk.crashed()

    def kept_below(self, cut: int) -> list[MessageExt]:
        return [m for m in self.messages if m.physical_offset + m.store_size <= cut]

    def with_intent(self, cut: int, **fields: bool) -> SimulatedDisk:
        disk = self.disk.crashed()
        intent = TruncationIntent(cut, "epoch 2 is unknown", {EPOCHS: NEW_EPOCHS}, "epoch2")
        write_intent(disk, DIRECTORY, msgspec.structs.replace(intent, **fields))
        return disk


def _forget_confirmed(disk: SimulatedDisk) -> None:
    """Nothing of what was put has been confirmed."""
    checkpoint = StoreCheckpoint(f"{DIRECTORY}/checkpoint", disk)
    checkpoint.replicated_offset = 0
    checkpoint.flush_blocking()


def _log_bytes(store: MessageStore) -> bytes:
    data = b""
    while len(data) < store.max_physical_offset:
        with store.read_log(len(data), 1 << 30) as view:
            data += bytes(view)
    return data


@cache
def original(end: str = "closed") -> Original:
    return Original(end=end)


def a_cut(name: str, end: str = "closed") -> int:
    """An offset of the original log where a record or a file begins, or the log ends."""
    world = original(end)
    starts = [m.physical_offset for m in world.messages]
    in_last = [at for at in starts if at // COMMIT_LOG_BYTES == world.end // COMMIT_LOG_BYTES]
    return {
        "log start": 0,
        "first file": starts[3],
        "file boundary": 2 * COMMIT_LOG_BYTES,
        "before a blank": max(
            m.physical_offset + m.store_size
            for m in world.messages
            if m.physical_offset < COMMIT_LOG_BYTES
        ),
        "last file": in_last[len(in_last) // 2],
        "last record": starts[-1],
        "end": world.end,
    }[name]


CUTS = [
    "log start", "first file", "file boundary", "before a blank", "last file", "last record", "end"
]  # fmt: skip


def side_files(disk: SimulatedDisk) -> dict[str, bytes]:
    directory = f"{DIRECTORY}/truncated"
    return {name: disk.read(f"{directory}/{name}") or b"" for name, _ in disk.list_files(directory)}


def check_cut(disk: SimulatedDisk, cut: int, world: Original) -> MessageStore:
    """Open the store and check all that a truncation promises; return it open."""
    store = opened(disk)
    assert store.max_physical_offset == cut
    assert check_store(store) == world.kept_below(cut)
    _check_index(store, world, cut)
    assert store.checkpoint.confirm_physical_offset <= cut
    assert store.confirm_offset <= cut
    assert disk.read(f"{DIRECTORY}/{EPOCHS}") == NEW_EPOCHS.encode()
    assert pending_intent(disk, DIRECTORY) is None
    kept = {n: data for n, data in side_files(disk).items() if not n.endswith(".json")}
    if cut == world.end:
        assert kept == {}
        return store
    name = f"{cut:020d}-epoch2"
    assert kept == {name: world.log[cut:]}
    about = msgspec.json.decode(side_files(disk)[f"{name}.json"], type=CutOff)
    lost = len(world.messages) - len(world.kept_below(cut))
    assert about == CutOff(cut, world.end, lost, "epoch 2 is unknown")
    return store


def _check_index(store: MessageStore, world: Original, cut: int) -> None:
    while store.reput_service.is_index_behind:
        store.reput_service.index_some()
    for message in world.messages[:: len(world.messages) // 10]:
        found = store.reads.query_message(message.topic, message.keys, 32).records
        is_kept = message.physical_offset + message.store_size <= cut
        assert len(found) == is_kept
    assert store.index_service is not None
    for file in store.index_service.files:
        assert not file.has_keys or file.end_physical_offset < cut


@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize("name", CUTS)
def test_a_log_is_cut_and_what_goes_is_kept(name: str, end: str) -> None:
    cut = a_cut(name, end)
    disk = original(end).with_intent(cut)
    store = check_cut(disk, cut, original(end))
    store.close()
    assert disk.list_files(f"{DIRECTORY}/torn") == [], "nothing of it was left for recovery"
    again = check_cut(disk, cut, original(end))
    again.close()


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("death", ["killed", "power lost"])
@pytest.mark.thorough
def test_a_truncation_interrupted_at_any_step_is_done_by_the_next_start(
    name: str, death: str
) -> None:
    cut = a_cut(name)
    start = original().with_intent(cut)
    for step in range(1, 2000):
        disk = StepDisk(start)
        disk.on_step = die_at(step)
        try:
            opened(disk)
        except Interrupted:
            after = disk.crashed() if death == "killed" else disk.powered_off(random.Random(step))
            check_cut(after, cut, original())
            continue
        assert step > 8
        return
    pytest.fail("the truncation never got to its end")


def test_a_truncation_interrupted_again_and_again_gets_there() -> None:
    cut = a_cut("first file")
    disk = original().with_intent(cut)
    for step in range(1, 400):
        stepping = StepDisk(disk)
        stepping.on_step = die_at(step)
        try:
            opened(stepping)
        except Interrupted:
            disk = stepping.powered_off(random.Random(step))
            continue
        check_cut(stepping.crashed(), cut, original())
        return
    pytest.fail("the truncation never got to its end")


def replacement(cut: int) -> tuple[MessageStore, list[int]]:
    """Another master's log: the same up to `cut`, then records as long as those that went."""
    disk = original().with_intent(cut)
    store = opened(disk, now_ms=BORN_MS + 1_000_000)
    store.become_master()
    ends = []
    for number in range(len(original().kept_below(cut)), COUNT):
        topic, queue_id = (("TopicA", 0), ("TopicA", 1), ("TopicB", 0))[number % 3]
        message = a_message(number, topic, queue_id, body_bytes=300)
        body = message.body.replace(b".", b"!")
        ends.append(put(store, msgspec.structs.replace(message, body=body)))
    store.confirm(1 << 60)
    assert store.max_physical_offset == original().end
    return store, ends


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first file", "file boundary", "before a blank", "last file"])
@pytest.mark.parametrize("death", ["killed", "power lost"])
def test_what_was_cut_off_never_comes_back(name: str, death: str) -> None:
    """Records of the same lengths follow: the old ones would fit exactly behind each of them."""
    cut = a_cut(name)
    master, ends = replacement(cut)
    expected = log_messages(master)
    for count, end in enumerate(ends):
        disk = original().with_intent(cut)
        slave = opened(disk)
        offset = cut
        while offset < end:
            with master.read_log(offset, end - offset) as view:
                slave.append_data(offset, bytes(view))
                offset += len(view)
        slave.announce()
        chance = random.Random(count)
        after = disk.crashed() if death == "killed" else disk.powered_off(chance)
        store = opened(after)
        found = check_store(store)
        assert found == expected[: len(found)]
        assert store.max_physical_offset >= cut
        if death == "killed":
            assert store.max_physical_offset == end


def a_random_log(chance: random.Random) -> tuple[SimulatedDisk, list[MessageExt]]:
    """A store with a bit of everything, never synced as a whole, whose clock may step back."""
    disk = SimulatedDisk()
    clock = Clock(BORN_MS, step_ms=chance.choice((1, 700)))
    store = open_store(disk, clock=clock, max_index_num=30)
    number = 0
    while number < 90:
        topic, queue_id = f"Topic{chance.choice('ABC')}", chance.randrange(2)
        if chance.random() < 0.2:
            count = chance.randrange(1, 6)
            put(store, a_batch(range(number, number + count), topic, queue_id))
            number += count
        else:
            put(store, a_message(number, topic, queue_id, body_bytes=chance.randrange(400)))
            number += 1
        if chance.random() < 0.03:
            clock.now_ms -= 5000
        if chance.random() < 0.05:
            store.sync_log()
    while store.reput_service.is_index_behind and chance.random() < 0.9:
        store.reput_service.index_some(2000)
    messages = log_messages(store)
    if chance.random() < 0.3:
        store.close()
    else:
        store.checkpoint.confirm_physical_offset = store.flushed_where
    return disk, messages


@pytest.mark.parametrize("seed", range(16))
def test_whatever_the_log_and_whenever_power_is_lost_a_cut_ends_at_a_beginning_of_it(
    seed: int,
) -> None:
    chance = random.Random(seed)
    disk, messages = a_random_log(chance)
    cut = chance.choice(messages).physical_offset
    write_intent(disk, DIRECTORY, TruncationIntent(cut, "test", {}, "x"))
    if chance.random() < 0.5:
        disk = disk.powered_off(chance)
    for _ in range(chance.randrange(4)):
        stepping = StepDisk(disk)
        stepping.on_step = die_at(chance.randrange(1, 60))
        try:
            open_store(stepping, max_index_num=30)
        except Interrupted:
            disk = stepping.powered_off(chance) if chance.random() < 0.5 else stepping.crashed()
    store = open_store(disk.crashed(), max_index_num=30)
    found = check_store(store)
    assert store.max_physical_offset <= cut
    assert found == messages[: len(found)]
    again = open_store(disk.crashed(), max_index_num=30)
    put(again, a_message(5000))
    assert check_store(again)[:-1] == found


def test_numbers_go_on_where_the_cut_left_them() -> None:
    cut = a_cut("last file")
    store = check_cut(original().with_intent(cut), cut, original())
    kept = original().kept_below(cut)
    store.become_master()
    result = store.puts.put_message(a_message(500))
    assert result.wrote_offset == cut
    assert result.queue_offset == sum(m.topic == "TopicA" and not m.queue_id for m in kept)
    store.confirm(1 << 60)
    assert len(check_store(store)) == len(kept) + 1


def test_queues_of_batches_are_cut_as_well() -> None:
    disk = SimulatedDisk()
    open_it = partial(open_store, disk, is_batch_topic=lambda topic: topic == "Batches")

    def numbers(store: MessageStore) -> list[int]:
        return [number_of(m) for m in queue_messages(store, "Plain", 0)]

    with open_it() as store:
        for first in range(0, 40, 4):
            put(store, inner_batch(a_batch(range(first, first + 4), "Batches")))
            put(store, a_message(first, "Plain", body_bytes=900))
        queue = store.queues.find("Batches", 0)
        assert queue is not None
        cut = queue.unit(20)[0]
    write_intent(disk, DIRECTORY, TruncationIntent(cut, "test", {}, "x"))
    with open_it() as store:
        assert store.max_physical_offset == cut
        assert store.reads.max_offset_in_queue("Batches", 0) == 20
        assert numbers(store) == [0, 4, 8, 12, 16]
        put(store, inner_batch(a_batch(range(90, 94), "Batches")))
        assert store.reads.max_offset_in_queue("Batches", 0) == 24


def test_a_log_that_begins_above_0_is_cut_at_its_start() -> None:
    disk = SimulatedDisk()
    with opened(disk) as slave, open_store(SimulatedDisk()) as master:
        put_many(master, COUNT)
        master.commit_log.files.files.pop(0).destroy(SimulatedDisk(), 0, 0)
        copy_log(master, slave)
        slave.reput_service.dispatch_some()
    write_intent(disk, DIRECTORY, TruncationIntent(COMMIT_LOG_BYTES, "test", {}, "x"))
    with opened(disk) as store:
        assert store.min_physical_offset == store.max_physical_offset == COMMIT_LOG_BYTES
        assert check_store(store) == []
        store.become_master()
        put(store, a_message(0))
    write_intent(disk, DIRECTORY, TruncationIntent(5, "test", {}, "x"))
    with pytest.raises(CorruptLogError) as caught:
        opened(disk)
    assert caught.value.fault is LogFault.CUT_BELOW_START


def test_torn_bytes_behind_the_log_are_kept_as_well() -> None:
    world = original()
    cut = a_cut("last record")
    disk = world.with_intent(cut)
    file = disk.open(f"{DIRECTORY}/commitlog/{world.end - world.end % COMMIT_LOG_BYTES:020d}")
    at = world.end % COMMIT_LOG_BYTES
    file.buffer[at + 20 : at + 24] = b"torn"
    opened(disk)
    kept = side_files(disk)[f"{cut:020d}-epoch2"]
    assert kept == world.log[cut:] + bytes(20) + b"torn"


def test_damage_in_what_is_cut_off_is_no_loss_and_is_forgotten() -> None:
    """A log that was longer than it is now has lost something, unless it was to be cut."""
    world = original()
    cut = a_cut("first file")
    disk = world.with_intent(cut)
    LogDamage(disk, DIRECTORY).note(cut + 100, world.end, "a test")
    store = opened(disk)
    assert store.max_physical_offset == cut
    assert store.damaged_end is None
    assert not store.commit_log.damage


def test_what_is_damaged_below_a_cut_is_healed_although_the_file_is_whole_no_more() -> None:
    """The fingerprint of that file is one of what goes: the right bytes would not fit it."""
    world = original()
    cut = a_cut("first file")
    disk = world.with_intent(cut)
    crcs = crcs_of(world.log[:COMMIT_LOG_BYTES])
    known = Fingerprint(0, COMMIT_LOG_BYTES, crcs, COMMIT_LOG_BYTES, 0)
    trio.run(Fingerprints(disk, DIRECTORY).save, known)
    file = disk.open(f"{DIRECTORY}/commitlog/{0:020d}")
    file.buffer[world.kept_below(cut)[-1].physical_offset + 100] ^= 1
    file.sync()
    with pytest.raises(CorruptLogError) as caught:
        opened(disk)
    assert 0 not in Fingerprints(disk, DIRECTORY)
    bad = caught.value
    right = world.log[bad.offset : min(bad.damaged_end, cut)]
    config = open_store(SimulatedDisk(), confirm_bounds_reads=True).config
    heal_closed_log(config, bad.offset, right, disk=disk, wall_clock_ms=Clock())
    store = opened(disk)
    assert _log_bytes(store) == world.log[:cut]
    assert not store.commit_log.damage


def test_a_full_disk_stops_the_start_and_loses_nothing() -> None:
    cut = a_cut("first file")
    disk = original().with_intent(cut)
    before = files_of(disk)
    disk.capacity_bytes = disk.used_bytes + 100
    for _ in range(2):
        with pytest.raises(StoreFullError):
            opened(disk)
        assert files_of(disk) == before
    disk.capacity_bytes = 1 << 40
    check_cut(disk, cut, original())


def test_what_another_cut_at_the_same_place_kept_stays() -> None:
    cut = a_cut("last file")
    disk = original().with_intent(cut)
    with check_cut(disk, cut, original()) as store:
        store.become_master()
        put(store, a_message(900))
    first = side_files(disk)[f"{cut:020d}-epoch2"]
    _forget_confirmed(disk)
    write_intent(disk, DIRECTORY, TruncationIntent(cut, "once more", {}, "epoch2"))
    with opened(disk):
        pass
    kept = side_files(disk)
    assert kept[f"{cut:020d}-epoch2"] == first
    assert b"900:" in kept[f"{cut:020d}-epoch2-2"]


def test_nothing_that_was_confirmed_is_cut_unless_an_operator_says_so() -> None:
    cut = a_cut("last file")
    disk = original().with_intent(cut)
    checkpoint = StoreCheckpoint(f"{DIRECTORY}/checkpoint", disk)
    checkpoint.replicated_offset = cut + 1
    checkpoint.flush_blocking()
    before = files_of(disk)
    with pytest.raises(CorruptLogError) as caught:
        opened(disk)
    assert caught.value.fault is LogFault.CUT_CONFIRMED
    assert caught.value.offset == cut
    assert files_of(disk) == before
    intent = pending_intent(disk, DIRECTORY)
    assert intent is not None
    write_intent(disk, DIRECTORY, msgspec.structs.replace(intent, accept_loss=True))
    check_cut(disk, cut, original())


@pytest.mark.parametrize("inside", ["record", "blank"])
def test_a_cut_inside_of_a_record_is_refused(inside: str) -> None:
    cut = (a_cut("last file") if inside == "record" else a_cut("before a blank")) + 10
    disk = original().with_intent(cut)
    before = files_of(disk)
    with pytest.raises(CorruptLogError) as caught:
        opened(disk)
    assert caught.value.fault is LogFault.CUT_IN_RECORD
    assert caught.value.offset == cut
    assert files_of(disk) == before


def test_a_file_of_a_read_only_directory_is_not_cut() -> None:
    disk = SimulatedDisk()
    directories = ("/new", "/old")
    with open_store(disk, store_path_commit_log=directories) as store:
        put_many(store, COUNT)
        starts = [m.physical_offset for m in log_messages(store)]
    first = int(disk.list_files("/old")[0][0])
    cut = next(at for at in starts if at > first)
    write_intent(disk, DIRECTORY, TruncationIntent(cut, "test", {}, "x"))
    before = files_of(disk, below="/old")
    with pytest.raises(CorruptLogError) as caught:
        open_store(
            disk,
            store_path_commit_log=directories,
            read_only_commit_log_store_paths=("/old",),
        )
    assert caught.value.fault is LogFault.READ_ONLY
    assert caught.value.path.startswith("/old/")
    assert files_of(disk, below="/old") == before


def test_a_cut_behind_the_end_changes_nothing_but_the_small_files() -> None:
    """The machine lost power, and the log more than was to be cut off."""
    world = original()
    disk = world.with_intent(world.end + 100)
    with opened(disk) as store:
        assert check_store(store) == world.messages
    assert disk.read(f"{DIRECTORY}/{EPOCHS}") == NEW_EPOCHS.encode()
    assert pending_intent(disk, DIRECTORY) is None


def test_a_damaged_intent_stops_the_start() -> None:
    disk = original().disk.crashed()
    disk.replace(INTENT, b"{")
    with pytest.raises(CorruptLogError) as caught:
        opened(disk)
    assert caught.value.fault is LogFault.ORDER
    assert caught.value.path == INTENT


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a" * 201, "a\n"])
def test_names_are_those_of_files_beside_the_log(name: str) -> None:
    disk = SimulatedDisk()
    orders: list[Callable[[], None]] = [
        lambda: write_intent(disk, DIRECTORY, TruncationIntent(0, "", {}, name)),
        lambda: write_intent(disk, DIRECTORY, TruncationIntent(0, "", {name: ""}, "x")),
        lambda: want_set_aside(disk, DIRECTORY, name),
    ]
    for order in orders:
        with pytest.raises(FileNameError):
            order()
    with pytest.raises(FileNameError):
        want_set_aside(disk, DIRECTORY, "x", ["commitlog", "config/../lock"])
    with pytest.raises(NoPlaceError) as caught:
        write_intent(disk, DIRECTORY, TruncationIntent(-1, "", {}, "x"))
    assert caught.value.offset == -1
    assert files_of(disk) == {}


# -- setting a whole store aside -----------------------------------------------------------------


def below(files: dict[str, bytes], directory: str) -> dict[str, bytes]:
    return {p[len(directory) + 1 :]: c for p, c in files.items() if p.startswith(f"{directory}/")}


STAY = {"config/topics.json", "replica.json"}


def a_disk_to_set_aside() -> SimulatedDisk:
    disk = original().disk.crashed()
    for name in STAY:
        disk.replace(f"{DIRECTORY}/{name}", b"{}")
    disk.replace(f"{DIRECTORY}/config/timercheck", b"t" * 4096)
    return disk


def check_set_aside(disk: SimulatedDisk, before: dict[str, bytes], name: str) -> None:
    with opened(disk) as store:
        assert store.max_physical_offset == 0
        assert store.list_queues() == []
        assert store.confirm_offset == 0
    moved = below(files_of(disk), f"{DIRECTORY}/set-aside/{name}")
    expected = {p: c for p, c in below(before, DIRECTORY).items() if p not in STAY}
    assert moved == expected
    for kept in STAY:
        assert disk.read(f"{DIRECTORY}/{kept}") == b"{}"


@pytest.mark.parametrize("death", ["killed", "power lost"])
def test_setting_a_store_aside_interrupted_at_any_step_is_done_by_the_next_start(
    death: str,
) -> None:
    start = a_disk_to_set_aside()
    before = files_of(start)
    want_set_aside(start, DIRECTORY, "2026-11-21")
    for step in range(1, 200):
        disk = StepDisk(start)
        disk.on_step = die_at(step)
        try:
            opened(disk)
        except Interrupted:
            after = disk.crashed() if death == "killed" else disk.powered_off(random.Random(step))
            check_set_aside(after, before, "2026-11-21")
            continue
        assert step > 6
        return
    pytest.fail("it never got to its end")


def test_a_closed_store_is_set_aside_at_once() -> None:
    disk = a_disk_to_set_aside()
    before = files_of(disk)
    set_aside(disk, DIRECTORY, "first")
    assert disk.list_files(f"{DIRECTORY}/commitlog") == []
    check_set_aside(disk, before, "first")
    with pytest.raises(NameTakenError):
        set_aside(disk, DIRECTORY, "first")
    set_aside(disk, DIRECTORY, "second", ["config", "nothing"])
    assert disk.exists(f"{DIRECTORY}/set-aside/second/config/topics.json")


def test_an_open_store_is_not_set_aside() -> None:
    disk = a_disk_to_set_aside()
    with opened(disk):
        with pytest.raises(StoreLockedError):
            set_aside(disk, DIRECTORY, "x")
        assert disk.list_files(f"{DIRECTORY}/commitlog") != []


def test_a_wanted_cut_goes_aside_with_the_log_it_was_for() -> None:
    disk = original().with_intent(a_cut("first file"))
    want_set_aside(disk, DIRECTORY, "x")
    with opened(disk) as store:
        assert store.max_physical_offset == 0
    assert pending_intent(disk, DIRECTORY) is None
    assert disk.exists(f"{DIRECTORY}/set-aside/x/truncation.json")


def test_what_cannot_be_moved_stops_the_start() -> None:
    disk = a_disk_to_set_aside()
    want_set_aside(disk, DIRECTORY, "x")
    disk.replace(f"{DIRECTORY}/set-aside/x/index/1", b"?")
    with pytest.raises(DiskFailedError):
        opened(disk)
    disk.remove(f"{DIRECTORY}/set-aside/x/index/1")
    with opened(disk) as store:
        assert store.max_physical_offset == 0


def test_both_work_on_a_real_disk(tmp_path: Path) -> None:
    directory = str(tmp_path / "store")
    open_it = partial(open_store, RealDisk(), directory)
    with open_it() as store:
        put_many(store, COUNT)
        expected = log_messages(store)
        end = store.max_physical_offset
    cut = expected[20].physical_offset
    write_intent(RealDisk(), directory, TruncationIntent(cut, "test", {EPOCHS: "1"}, "x"))
    with open_it() as store:
        assert check_store(store) == expected[:20]
    kept = (tmp_path / f"store/truncated/{cut:020d}-x").read_bytes()
    assert len(kept) == end - cut
    assert (tmp_path / "store" / EPOCHS).read_text() == "1"
    assert not (tmp_path / "store/truncation.json").exists()
    set_aside(RealDisk(), directory, "old")
    with open_it() as store:
        assert check_store(store) == []
    assert len(list((tmp_path / "store/set-aside/old/commitlog").iterdir())) > 0

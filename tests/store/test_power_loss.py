"""The machine loses power at a random moment, again and again, while messages are put.

Of every page that was not synced the disk keeps the old bytes, the new ones, or 512-byte sectors
of both. Whatever comes of it: what was said to be on disk is there, the rest is a prefix, queues
agree with the log, and nobody is told of corruption.
"""

import random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store import FlushDiskType, MessageStore, PutBatch, PutMessage, PutMessageStatus
from tandem.wire.message import MessageExt
from tandem.wire.message_properties import tags_code
from tests.store.step_disk import Interrupted, StepDisk, die_at
from tests.store.store_world import (
    BORN_HOST,
    BORN_MS,
    Clock,
    a_batch,
    a_message,
    check_store,
    files_of,
    log_messages,
    open_store,
    put,
)

# Queue files of 1,000 bytes: sectors end inside units.
SIZES = {"commit_log_bytes": 16384, "consume_queue_bytes": 1000}
TOPICS = ("TopicA", "TopicB", "T")


def some_message(chance: random.Random, number: int) -> PutMessage | PutBatch:
    topic, queue_id = chance.choice(TOPICS), chance.randrange(2)
    kind = chance.random()
    if kind < 0.1:
        return a_batch(range(number, number + chance.randrange(1, 12)), topic, queue_id)
    plain = a_message(number, topic, queue_id)
    if kind < 0.7:
        body_bytes = chance.choice((0, 1, 40, 300, 700, 1400))
        return a_message(number, topic, queue_id, body_bytes=body_bytes)
    filler = bytes(chance.choice((0, 600, 1200)))
    return PutMessage(
        topic=topic,
        queue_id=queue_id,
        body=b"%d:" % number + filler,
        properties=plain.properties + b"long\x01" + b"p" * chance.choice((1, 900)) + b"\x02",
        born_timestamp_ms=plain.born_timestamp_ms,
        born_host=BORN_HOST.packed,
    )


class Life:
    """A store from one power loss to the next."""

    def __init__(self, seed: int, flush_disk_type: FlushDiskType) -> None:
        self.chance = random.Random(seed)
        self.flush_disk_type = flush_disk_type
        self.clock = Clock()
        self.disk = self._new_disk(SimulatedDisk())
        self.number = 0
        self.answered = 0

    def _new_disk(self, disk: SimulatedDisk) -> SimulatedDisk:
        disk.sync_seconds = lambda: self.chance.choice((0.0, 0.01, 0.7))
        return disk

    def open(self) -> MessageStore:
        return open_store(
            self.disk,
            clock=self.clock,
            flush_disk_type=self.flush_disk_type,
            **SIZES,  # type: ignore[arg-type] # sizes only
        )

    async def live(self, seconds: float) -> list[MessageExt]:
        """Put until the power goes; return all that was in the log then."""
        store = self.open()
        self.answered = store.max_physical_offset
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                await nursery.start(store.run)
                while True:
                    await trio.sleep(self.chance.choice((0.0, 0.003, 0.2, 4.0)))
                    self._put_some(store)
        assert store.flushed_where >= self.answered or self.flush_disk_type.name == "SYNC_FLUSH"
        self.answered = max(self.answered, store.flushed_where)
        return log_messages(store)

    def _put_some(self, store: MessageStore) -> None:
        for _ in range(self.chance.randrange(1, 8)):
            message = some_message(self.chance, self.number)
            put = store.puts.put_batch if isinstance(message, PutBatch) else store.puts.put_message
            result = put(message)  # type: ignore[arg-type] # it is of the right kind
            assert result.status is PutMessageStatus.PUT_OK, result
            self.number += result.msg_num
            self.clock.now_ms += self.chance.choice((0, 0, 3, 900))
            if self.flush_disk_type is FlushDiskType.SYNC_FLUSH:
                self._wait_for_disk(store, result.end_offset)
        store.announce()

    def _wait_for_disk(self, store: MessageStore, end_offset: int) -> None:
        def done(status: PutMessageStatus, _: str) -> None:
            if status is PutMessageStatus.PUT_OK:
                self.answered = max(self.answered, end_offset)

        store.flush_service.submit(end_offset, trio.current_time() + 5, done)

    def lose_power(self) -> None:
        self.disk = self._new_disk(self.disk.powered_off(self.chance))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 200), marks=pytest.mark.long)])
@pytest.mark.parametrize("flush_disk_type", FlushDiskType)
async def test_power_loss_takes_only_what_was_not_said_to_be_on_disk(
    flush_disk_type: FlushDiskType, seeds: range, autojump_clock: MockClock
) -> None:
    for seed in seeds:
        life = Life(seed, flush_disk_type)
        for _ in range(3):
            before = await life.live(life.chance.choice((0.05, 0.9, 6.0, 25.0)))
            life.lose_power()
            if life.chance.random() < 0.3:  # power is lost again during or right after recovery
                life.open()
                life.lose_power()
            store = life.open()
            found = check_store(store)
            assert found == before[: len(found)], seed
            assert store.max_physical_offset >= life.answered, seed
            again = open_store(life.disk.crashed(), **SIZES)  # type: ignore[arg-type]
            assert check_store(again) == found, seed
            life.disk = life.disk.crashed()


@pytest.mark.parametrize("end", ["killed", "closed, then without its queues", "closed"])
def test_what_recovery_has_found_or_built_is_on_disk_before_anything_relies_on_it(end: str) -> None:
    """Later syncs and the checkpoint take what was loaded for synced."""
    disk = SimulatedDisk()
    store = open_store(disk)
    for number in range(100):
        put(store, a_message(number, body_bytes=100))
    if end != "killed":
        store.close()
    disk = disk.crashed()
    if "without" in end:
        for path in files_of(disk):
            if "/consumequeue/" in path:
                disk.remove(path)
    store = open_store(disk)
    assert len(check_store(store)) == 100
    for path, content in files_of(disk).items():
        assert disk.open(path).durable == content, path
    assert store.flushed_where == store.max_physical_offset
    assert store.checkpoint.confirm_physical_offset == store.max_physical_offset


async def test_what_a_failed_sync_gave_up_is_on_disk_when_the_next_process_says_so(
    autojump_clock: MockClock,
) -> None:
    """Linux takes pages for written whose sync has failed; they are seen, and never written."""
    disk = SimulatedDisk()
    store = open_store(disk, **SIZES)  # type: ignore[arg-type]
    put(store, a_message(0))
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await trio.sleep(20)
        put(store, a_message(1))
        disk.sync_fails = True
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert store.disk_trouble
    disk.sync_fails = False
    disk = disk.crashed()
    store = open_store(disk, **SIZES)  # type: ignore[arg-type]
    assert store.flushed_where == store.max_physical_offset
    for seed in range(20):
        after = open_store(disk.powered_off(random.Random(seed)), **SIZES)  # type: ignore[arg-type]
        assert len(log_messages(after)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("powercuts", [6, pytest.param(60, marks=pytest.mark.long)])
def test_power_lost_at_any_step_of_a_recovery_costs_nothing_that_was_on_disk(
    powercuts: int,
) -> None:
    """The log and its queues are on disk, with torn bytes behind them: over a file's end, too."""
    start = SimulatedDisk()
    store = open_store(start, **SIZES)  # type: ignore[arg-type] # sizes only
    for number in range(100):
        put(store, a_message(number, body_bytes=600))
    end = store.max_physical_offset
    start = start.crashed()
    this, following = (f"/store/commitlog/{end // 16384 * 16384 + n:020d}" for n in (0, 16384))
    start.open(this).buffer[end % 16384 + 4 : end % 16384 + 4004] = b"torn" * 1000
    start.create(following, 16384).buffer[600:610] = b"torn, too!"
    for path in files_of(start):
        start.open(path).sync()
    for step in range(1, 100):
        disk = StepDisk(start)
        disk.on_step = die_at(step)
        try:
            open_store(disk, **SIZES)  # type: ignore[arg-type]
        except Interrupted:
            for seed in range(powercuts):
                after = disk.powered_off(random.Random(1000 * step + seed))
                assert len(check_store(open_store(after, **SIZES))) == 100  # type: ignore[arg-type]
                assert b"torn, too!" in (after.read(f"/store/torn/{end:020d}") or b"")
            continue
        assert step > 8
        return
    pytest.fail("recovery never got to its end")


@pytest.mark.slow
def test_power_lost_again_in_a_recovery_keeps_the_tags_that_were_on_disk() -> None:
    """Extensions behind the last sync were lost; those before it are not built anew."""
    settings: dict[str, Any] = {
        "enable_consume_queue_ext": True,
        "mapped_file_size_consume_queue_ext_bytes": 90,
    }
    start = SimulatedDisk()
    with open_store(start, clock=Clock(step_ms=500), **settings) as store:
        for number in range(35):
            put(store, a_message(number, body_bytes=600))
    store = open_store(start, clock=Clock(BORN_MS + 20_000, step_ms=500), **settings)
    for number in range(35, 50):
        put(store, a_message(number, body_bytes=600))
    start = start.crashed()
    for path in files_of(start):
        if "/consumequeue_ext/" in path and int(path[-20:]) >= 9 * 90:
            start.open(path).buffer[:] = bytes(90)
        start.open(path).sync()
    for step in range(1, 200):
        disk = StepDisk(start)
        disk.on_step = die_at(step)
        try:
            open_store(disk, **settings)
        except Interrupted:
            for seed in range(10):
                store = open_store(disk.powered_off(random.Random(100 * step + seed)), **settings)
                queue = store.queues.find("TopicA", 0)
                assert queue is not None
                codes = [code for n in range(0, 50, 10) for _, _, code in queue.units(n, 10)]
                assert codes == [tags_code(m.tags) for m in log_messages(store)]
                assert len(codes) == 50
            continue
        assert step > 15
        return
    pytest.fail("recovery never got to its end")

"""Crash campaign: whole stores lose their process or their power at every kind of step.

    seed --> settings, workload --> life 1 --cut--> life 2 --cut--> life 3
                                      |               |
                                   pictures        pictures, those of the recovery too
                                      |               |
                                   recover, compare with the history, recover again

A life runs a store on virtual time: flush, dispatch, index, allocation and cleaning are the real
tasks. At each step of the disk, and between puts, a picture of the disk may be taken, as it is
after kill -9 or after a power loss; of each kind of step some are kept, chosen at random. Each is
one crash point: a store is opened on it, checked by `crash_check`, and opened once more, which may
not change a byte. Then one of the pictures becomes the disk of the next life.

Between steps the kernel writes back pages of its own choice.

    python -m tests.store.crash_campaign 17          one seed, with its counts
    python -m tests.store.crash_campaign 0-999       many; those that fail are told
"""

import argparse
import logging
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Final

import msgspec
import trio

from node.simulated import deterministic_trio
from node.simulated.disk import SimulatedDisk
from store import FlushDiskType, MessageStore, PutBatch, PutMessage, PutMessageStatus
from tandem.wire.checksum_line import decode_checked_json
from tandem.wire.fingerprint import DIRECTORY as FINGERPRINTS
from tandem.wire.fingerprint import Fingerprint
from tandem.wire.message import (
    BORNHOST_V6_FLAG,
    INNER_BATCH_FLAG,
    NEED_UNWRAP_FLAG,
    STOREHOSTADDRESS_V6_FLAG,
)
from tandem.wire.untrusted import UnreadableError
from tests.store.crash_check import Bounds, BrokenPromiseError, bytes_on, check_opened, expect
from tests.store.crash_history import SCHEDULE_TOPIC, Expected, History
from tests.store.crash_plan import (
    BATCH_TOPIC,
    STORE_HOST_V6,
    Plan,
    draw_message,
    draw_plan,
    is_batch_topic,
)
from tests.store.step_disk import StepDisk
from tests.store.store_world import Clock, open_store

LIVES: Final = 3
PICTURES_A_KIND: Final = 1
"""Of each kind of step in one life, so that rare ones are not drowned by common ones."""

THOROUGH_SECONDS: Final = 60.0
"""After so long without a put everything but unfinished index files is on disk."""

AREAS: Final = {
    "commitlog": "log",
    "disk1": "log",
    "disk2": "log",
    "consumequeue": "queue",
    "consumequeue_ext": "ext",
    "batchconsumequeue": "batch queue",
    "index": "index",
    "torn": "torn",
}
"""What the directories of a store hold."""


class Cut(msgspec.Struct):
    """The disk after one crash, and what must and may be on it."""

    kind: str
    mode: str
    step: int
    disk: SimulatedDisk
    bounds: Bounds
    exact_end: int | None = None

    @property
    def name(self) -> str:
        """What was cut how."""
        return f"{self.mode} at {self.kind}"


class Pictures:
    """Takes pictures at the steps of a disk and keeps some of each kind, all alike likely.

    `bounds` is asked at each picture; pictures taken during a put learn at its end what it wrote.
    """

    def __init__(
        self, seed: str, phase: str, bounds: Callable[[str], Bounds], *, every_step: bool = False
    ) -> None:
        self.kept: list[Cut] = []
        self.exact_end: int | None = None
        self.disk: StepDisk | None = None
        self._chance = random.Random(seed)
        self._phase = phase
        self._bounds = bounds
        self._every_step = every_step
        self._seen: Counter[str] = Counter()
        self._slots: defaultdict[str, list[int]] = defaultdict(list)
        self._steps = 0

    def on_step(self, name: str) -> None:
        """Take note of a step that comes next; `name` as `StepDisk` tells it."""
        self._steps += 1
        disk, chance = self.disk, self._chance
        assert disk is not None
        if chance.random() < 0.05:
            disk.write_back(chance)
        kind = f"{self._phase}: {kind_of(name)}"
        self._seen[kind] += 1
        for mode in self._modes(name):
            slot = self._slot(kind)
            if slot is None:
                continue
            after = disk.crashed() if mode == "kill" else disk.powered_off(chance)
            cut = Cut(kind, mode, self._steps, after, self._bounds(mode), self.exact_end)
            if slot == len(self.kept):
                self.kept.append(cut)
            else:
                self.kept[slot] = cut

    def _modes(self, step: str) -> tuple[str, ...]:
        if self._every_step:
            return "kill", "power loss", "power loss"
        # What a write leaves half done a kill shows best.
        kills = 0.5 if step.startswith(("write", "commit")) else 0.25
        return ("kill",) if self._chance.random() < kills else ("power loss",)

    def _slot(self, kind: str) -> int | None:
        """Return where to put the picture, None if it is not to be taken (reservoir sampling)."""
        slots = self._slots[kind]
        if self._every_step or len(slots) < PICTURES_A_KIND:
            slots.append(len(self.kept))
            return slots[-1]
        if self._chance.randrange(self._seen[kind]) >= PICTURES_A_KIND:
            return None
        return self._chance.choice(slots)


def kind_of(step: str) -> str:
    """Return what a step does to which part of a store."""
    verb, _, path = step.partition(" ")
    parts = path.split("/")
    if len(parts) < 3:
        return step
    area = AREAS.get(parts[2], parts[2])
    return f"{verb} {area}"


class Life:
    """A store from its opening to its end. Makes `cuts`, and extends the history."""

    def __init__(
        self,
        plan: Plan,
        number: int,
        disk: StepDisk,
        history: History,
        clock: Clock,
        world: "World",
    ) -> None:
        self.plan = plan
        self.chance = random.Random(f"life {plan.seed} {number}")
        self.disk = disk
        self.history = history
        self.clock = clock
        self.world = world
        self.acknowledged = history.end
        self.completed = history.end
        self._pending: list[Bounds] = []
        self._low = 0
        self._removed: dict[int, bytes] = {}
        self.pictures = Pictures(
            f"pictures {plan.seed} {number}", "run", self._bounds, every_step=world.every_step
        )
        self.pictures.disk = disk

    async def live(self, store: MessageStore) -> None:
        """Do what the plan says."""
        self.store = store
        self._low = store.min_physical_offset
        self.disk.on_step = self._on_step
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            for _ in range(self.plan.rounds):
                await self._round()
            nursery.cancel_scope.cancel()
        self._settle()
        if self.chance.random() < 0.5:
            self.pictures._phase = "close"
            self.completed = store.commit_log.append_offset
            store.commit_log.files.commit(0)
            self._note_log()
            store.close()
        else:
            self._note_log()
        for bounds in self._pending:
            bounds.may = self.history.end
        self.disk.on_step = lambda _: None

    def _on_step(self, name: str) -> None:
        if name.startswith("remove") and kind_of(name) == "remove log":
            file = self.disk._files[name.removeprefix("remove ")]
            self._removed[int(file.path[-20:])] = file.content
        self.pictures.on_step(name)

    def _bounds(self, mode: str) -> Bounds:
        store = self.store
        durable = must = max(self.acknowledged, store.flushed_where)
        if mode == "kill":
            must = max(must, min(self.completed, store.commit_log.max_offset))
        high = max(self._low, store.min_physical_offset)
        bounds = Bounds(must, durable, -1, self._low, high)
        self._pending.append(bounds)
        return bounds

    def _settle(self) -> None:
        """Tell the pictures taken meanwhile how far the log has come, including what was torn."""
        end = self.store.commit_log.append_offset
        for bounds in self._pending:
            bounds.may = end
        self._pending.clear()

    def _note_log(self) -> None:
        """Add what the log has got in this life to the history."""
        files = {
            file.file_from_offset: _written(file) for file in self.store.commit_log.files.files
        }
        parts = {**self._removed, **files}
        data = b"".join(parts[offset] for offset in sorted(parts))
        start = min(parts, default=0)
        expect(
            data[: self.history.end - start] == self.history.log[start:],
            "what was in the log has changed",
        )
        self.history.extend(data[self.history.end - start :])

    # -- what happens ----------------------------------------------------------------------------

    async def _round(self) -> None:
        chance = self.chance
        if self.plan.cleans and chance.random() < 0.3:
            await self._clean()
        for _ in range(chance.randrange(1, 7)):
            self._put()
            if chance.random() < 0.3:
                self.disk.step("between puts")
            self.clock.now_ms += chance.choice((0, 0, 3, 900))
            if self.plan.clock_jumps and chance.random() < 0.1:
                self.store.announce()  # a put has not taken that long
                self.clock.now_ms += chance.choice((-7_200_000, -4000, 3_600_000))
        self.store.announce()
        await trio.sleep(chance.choice((0.0, 0.003, 0.2, 0.2, 1.3, 4.0)))
        self.disk.step("between rounds")
        self._settle()

    def _put(self) -> None:
        if self.plan.is_slave:
            self._append_data()
            return
        message = draw_message(self.chance, self.world.number, self.plan)
        put = (
            self.store.puts.put_batch
            if isinstance(message, PutBatch)
            else self.store.puts.put_message
        )
        result = put(message)  # type: ignore[arg-type] # it is of the right kind
        expect(result.status is PutMessageStatus.PUT_OK, "refused", result)
        self.world.number += result.msg_num
        self._expect_record(message, result.wrote_offset)
        self._settle()
        self.completed = result.end_offset
        if self.plan.settings["flush_disk_type"] is FlushDiskType.SYNC_FLUSH:
            self._wait_for_disk(result.end_offset)

    def _expect_record(self, message: PutMessage | PutBatch, offset: int) -> None:
        """Note what a put was, where that is plain to say: all but batches that were split."""
        topic, queue_id, sys_flag = message.topic, message.queue_id, message.sys_flag
        if isinstance(message, PutBatch):
            if topic != BATCH_TOPIC:
                return
            sys_flag |= INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
        elif b"DELAY\x01" in message.properties:
            level = int(message.properties.split(b"DELAY\x01")[1].split(b"\x02")[0])
            topic, queue_id = SCHEDULE_TOPIC, level - 1
        elif len(message.born_host) > 8:
            sys_flag |= BORNHOST_V6_FLAG
        if self.plan.settings.get("store_host") is STORE_HOST_V6:
            sys_flag |= STOREHOSTADDRESS_V6_FLAG
        self.history.expected[offset] = Expected(topic, queue_id, message.body, sys_flag)

    def _append_data(self) -> None:
        """Take some of a master's records, as a slave."""
        source = self.world.source
        start = self.store.commit_log.append_offset
        stops = sorted(stop for stop in source.stops if start < stop)[:9]
        if not stops:
            return
        end = self.chance.choice(stops)
        self.store.append_data(start, bytes(source.log[start:end]))
        self._settle()
        self.completed = end
        self.clock.now_ms += 20

    def _wait_for_disk(self, end_offset: int) -> None:
        def done(status: PutMessageStatus, _: str) -> None:
            if status is PutMessageStatus.PUT_OK:
                self.acknowledged = max(self.acknowledged, end_offset)

        self.store.flush_service.submit(end_offset, trio.current_time() + 5, done)

    async def _clean(self) -> None:
        """Delete old files, which are on disk by then as everything that lies in them."""
        await trio.sleep(THOROUGH_SECONDS)
        self.store.commit_log.files.delete_expired_file_by_time(
            now_ms=self.clock.now_ms,
            expired_time_ms=0,
            interval_forcibly_ms=0,
            delete_file_batch_max=self.chance.choice((1, 3)),
            clean_immediately=True,
        )
        self.disk.step("between deletions")
        await self.store.clean_service.consume_queue.clean()


def _written(file: Any) -> bytes:  # noqa: ANN401 - a MappedFile
    committed = file.committed_position
    return bytes(file.buffer[:committed]) + bytes(
        file.write_buffer[committed : file.wrote_position]
    )


class World:
    """All lives of one seed."""

    def __init__(self, seed: int, *, every_step: bool = False) -> None:
        self.plan = draw_plan(seed)
        self.chance = random.Random(f"world {seed}")
        self.every_step = every_step
        self.clock = Clock()
        self.number = 0
        self.counts: Counter[str] = Counter()
        self.history = History(self.plan.settings["commit_log_bytes"])
        self.source = History(self.plan.settings["commit_log_bytes"])
        if self.plan.is_slave:
            self._fill_source()

    @property
    def has_pool(self) -> bool:
        """Whether messages wait in memory before they are in a file."""
        return bool(self.plan.settings["transient_store_pool_enable"])

    def _fill_source(self) -> None:
        """Write the log of the master that the slave copies."""
        settings = {**self.plan.settings, "message_index_enable": False}
        store = open_store(
            SimulatedDisk(), clock=self.clock, is_batch_topic=is_batch_topic, **settings
        )
        for number in range(30 * LIVES):
            message = draw_message(self.chance, number, self.plan)
            put = store.puts.put_batch if isinstance(message, PutBatch) else store.puts.put_message
            put(message)  # type: ignore[arg-type] # it is of the right kind
            store.announce()
            self.clock.now_ms += self.chance.choice((0, 3, 300))
        log = b"".join(_written(file) for file in store.commit_log.files.files)
        self.source.extend(log)

    def open(self, disk: SimulatedDisk) -> MessageStore:
        """Open the store of this world on `disk`."""
        return open_store(
            disk,
            clock=self.clock,
            is_slave=self.plan.is_slave,
            is_batch_topic=is_batch_topic,
            **self.plan.settings,
        )

    def run(self) -> Counter[str]:
        """Live all lives; return how often what was cut.

        Raises:
            BrokenPromiseError: the store broke a promise.
        """
        cut: Cut | None = None
        for number in range(LIVES):
            cut = self._live(number, cut)
        return self.counts

    def _live(self, number: int, cut: Cut | None) -> Cut:
        chance = self.chance
        if cut is not None and self.plan.loses_queues:
            self._lose_a_queue(cut)
        disk = StepDisk(
            cut.disk if cut else None,
            now_ms=lambda: self.clock.now_ms,
            sync_seconds=lambda: chance.choice((0.0, 0.01, 0.7)),
        )
        store = self._open_stepwise(number, disk, cut)
        life = Life(self.plan, number, disk, self.history, self.clock, self)
        deterministic_trio.run(self.plan.seed, life.live, store)
        cuts = life.pictures.kept
        following = chance.choice(cuts)
        for one in cuts:
            self._check(one, keep=one is following)
        return following

    def _lose_a_queue(self, cut: Cut) -> None:
        """Delete the queue of the last message that is surely there.

        Of others nobody can know: after a hard stop only the end of the log is looked at.
        """
        rows = [row for row in self.history.rows if row.is_queued and row.end <= cut.bounds.durable]
        if rows and not rows[-1].is_batch:
            lost = "/consumequeue/{}/{}/".format(*rows[-1].queue)
            for path in [path for path in cut.disk._files if lost in path]:
                cut.disk.remove(path)

    def _open_stepwise(self, number: int, disk: StepDisk, cut: Cut | None) -> MessageStore:
        """Open the store of the next life, and take pictures while it recovers."""
        start = cut.bounds if cut is not None else Bounds(0, 0, 0, 0, 0)

        def bounds(mode: str) -> Bounds:
            must = start.must if mode == "kill" else start.durable
            return msgspec.structs.replace(start, must=must)

        pictures = Pictures(
            f"recovery {self.plan.seed} {number}", "recover", bounds, every_step=self.every_step
        )
        pictures.disk = disk
        disk.on_step = pictures.on_step
        store = self.open(disk)
        disk.on_step = lambda _: None
        end = store.max_physical_offset
        for one in pictures.kept:
            # What a recovery has seen the next one sees too, unless it was never on disk.
            if one.mode == "kill" or (cut is not None and cut.mode != "kill"):
                one.exact_end = end
            self._check(one)
        self.history.forget(end)
        return store

    def _check(self, cut: Cut, *, keep: bool = False) -> None:
        """Open the store on the disk of `cut`, compare, and open it once more.

        The disk is used up, unless it is to `keep`.
        """
        self.counts[f"{cut.mode}, {cut.kind}"] += 1
        try:
            self._check_opened(cut, cut.disk.crashed() if keep else cut.disk)
        except AssertionError as error:
            raise BrokenPromiseError(f"{cut.name} (step {cut.step}): {error}") from error

    def _check_opened(self, cut: Cut, disk: SimulatedDisk) -> None:
        was_clean = not disk.exists("/store/abort")
        seed = f"check {self.plan.seed} {cut.step}"
        store = self.open(disk)
        before = bytes_on(disk)
        again = disk.crashed()
        end = check_opened(store, disk, self.history, cut.bounds, random.Random(seed))
        if cut.kind.startswith("run") and cut.mode == "kill" and not self.has_pool:
            whole = end in (cut.bounds.must, cut.bounds.may) or end % self.history.file_bytes == 0
            expect(whole, "a part of a put has survived a kill", end, cut.bounds)
        if cut.exact_end is not None:
            expect(end == cut.exact_end, "an interrupted recovery ends elsewhere", end, cut)
        self.open(again)
        after = bytes_on(again)
        changed = {
            path
            for path in {*before, *after}
            if _what_counts(path, before.get(path)) != _what_counts(path, after.get(path))
        }
        # Each opening writes down when it took the lock.
        names = [name for name in changed if not name.endswith("/log-start.json")]
        if was_clean or self.plan.clock_jumps:
            # The first one came after a clean stop, and trusts index files that are not full; or
            # times do not rise, and the index does without more files each time.
            names = [n for n in names if "/index/" not in n and "/checkpoint" not in n]
        if names:
            raise BrokenPromiseError(f"a second recovery has changed {', '.join(sorted(names))}")


def _what_counts(path: str, content: bytes | None) -> bytes | None:
    """A fingerprint that was cut short by a crash is none, and goes when somebody reads it."""
    if content is None or f"/{FINGERPRINTS}/" not in path:
        return content
    try:
        decode_checked_json(path.rpartition("/")[2], content, Fingerprint)
    except UnreadableError:
        return None
    return content


def run_seed(seed: int, *, every_step: bool = False) -> Counter[str]:
    """Run one seed; return how often what was cut.

    Raises:
        BrokenPromiseError: the store broke a promise; the text says how to repeat it.
    """
    try:
        return World(seed, every_step=every_step).run()
    except Exception as error:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        flag = " --every-step" if every_step else ""
        raise BrokenPromiseError(
            f"seed {seed}: {type(error).__name__}: {error}\n"
            f"repeat: python -m tests.store.crash_campaign {seed}{flag}"
        ) from error


def table_of(counts: Counter[str]) -> str:
    """Return how often what was cut, for people."""
    kinds = sorted({name.split(", ")[1] for name in counts})
    lines = [f"{'kill':>8} {'power':>8}  cut before"]
    lines += [
        f"{counts[f'kill, {kind}']:8} {counts[f'power loss, {kind}']:8}  {kind}" for kind in kinds
    ]
    return "\n".join([*lines, f"{sum(counts.values())} crash points"])


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.store.crash_campaign")
    parser.add_argument("seeds", help="a seed, or a range of seeds (0-499)")
    parser.add_argument("--every-step", action="store_true", help="cut at every single step")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    counts: Counter[str] = Counter()
    failed = 0
    for seed in range(int(first), int(last or first) + 1):
        try:
            counts += run_seed(seed, every_step=options.every_step)
        except BrokenPromiseError as error:
            failed += 1
            sys.stdout.write(f"{error}\n")
            if not last:
                raise
    sys.stdout.write(f"{table_of(counts)}\n{failed} seeds failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    logging.getLogger("store").setLevel(logging.CRITICAL)
    sys.exit(main())

"""RocketMQ 5.3.3 and we open the same damaged stores, and find the same ends.

Every store is one that was stopped some time after its last checkpoint, written by RocketMQ and by
us, with and without an abort file. What is compared is where the log ends and where each queue
does. Where we mean to differ, `DIFFERENCES` has both results and tells why, by number where the
list of RocketMQ's defects (docs/store.md) has one.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from store.log.log_end import next_records
from store.machine.real_disk import RealDisk
from tandem.wire.message import BLANK_MAGIC_CODE
from tandem.wire.record_scan import RecordColumns
from tandem.wire.store_layout import CQ_STORE_UNIT_SIZE
from tests.compat.probe import Loaded, Probe, Settings
from tests.store.store_world import (
    COMMIT_LOG_BYTES,
    CONSUME_QUEUE_BYTES,
    STORE_HOST,
    Clock,
    a_message,
    open_store,
    put_many,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.xdist_group("rocketmq")]

SETTINGS: Final = Settings()
EMPTY_QUEUE_FILE: Final = bytes(CONSUME_QUEUE_BYTES)
SYNCED: Final = 30
"""So many messages were in the store when its checkpoint was written, and as many came later."""


class Torn(NamedTuple):
    """A store to damage: its directory, where each record starts, and where the last one ends."""

    root: Path
    starts: list[int]
    end: int

    def log(self, offset: int) -> Path:
        """The log file that holds `offset`."""
        return self.root / "commitlog" / f"{offset - offset % COMMIT_LOG_BYTES:020d}"

    def write(self, offset: int, data: bytes) -> None:
        """Put bytes into the log."""
        path = self.log(offset)
        content = bytearray(path.read_bytes())
        position = offset % COMMIT_LOG_BYTES
        content[position : position + len(data)] = data
        assert len(content) == COMMIT_LOG_BYTES
        path.write_bytes(content)

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes of the log."""
        position = offset % COMMIT_LOG_BYTES
        return self.log(offset).read_bytes()[position : position + size]

    def zero(self, start: int, end: int) -> None:
        """Put zeros from `start` to `end`, within one file."""
        self.write(start, bytes(end - start))

    def flip(self, offset: int) -> None:
        """Change one byte of the log."""
        self.write(offset, bytes([self.read(offset, 1)[0] ^ 0x55]))

    @property
    def blank(self) -> bytes:
        """What closes the last file."""
        left = COMMIT_LOG_BYTES - self.end % COMMIT_LOG_BYTES
        return left.to_bytes(4, "big") + BLANK_MAGIC_CODE.to_bytes(4, "big")

    def add_file(self, content: bytes) -> None:
        """Add a log file behind the last one."""
        self.log(self.end + COMMIT_LOG_BYTES).write_bytes(content)

    def queue_files(self) -> list[Path]:
        """The files of a queue."""
        return sorted((self.root / "consumequeue" / "TopicA" / "0").iterdir())

    def next_queue_file(self) -> Path:
        """The file that comes behind them."""
        return self.queue_files()[-1].with_name(f"{200 * len(self.queue_files()):020d}")

    def drop_last_unit(self) -> None:
        """Let the queue lack its last unit."""
        path = self.queue_files()[-1]
        content = path.read_bytes()
        units = [content[at : at + CQ_STORE_UNIT_SIZE] for at in range(0, 200, CQ_STORE_UNIT_SIZE)]
        used = [unit for unit in units if any(unit)]
        path.write_bytes(b"".join(used[:-1]).ljust(len(content), b"\0"))

    def remove(self, *names: str) -> None:
        """Remove files and directories."""
        for name in names:
            if (self.root / name).is_dir():
                shutil.rmtree(self.root / name)
            else:
                (self.root / name).unlink()


DAMAGES: Final[dict[str, Callable[[Torn], object]]] = {
    "nothing": lambda _: None,
    # -- the end of the log, of which the checkpoint says nothing
    "cut in the last header": lambda s: s.zero(s.starts[-1] + 6, s.end),
    "cut in the last body": lambda s: s.zero(s.starts[-1] + 200, s.end),
    "cut in the last properties": lambda s: s.zero(s.end - 9, s.end),
    "last record lost": lambda s: s.zero(s.starts[-1], s.end),
    "last two records lost": lambda s: s.zero(s.starts[-2], s.end),
    "512 bytes lost in the tail": lambda s: s.zero(s.starts[-1] - 700, s.starts[-1] - 188),
    "a bit of the last body": lambda s: s.flip(s.starts[-1] + 100),
    "a bit of a body one file before": lambda s: s.flip(s.starts[-6] + 100),
    "a bit of the last physical offset": lambda s: s.flip(s.starts[-1] + 35),
    "garbage behind the end": lambda s: s.write(s.end, b"garbage!" * 40),
    "size and magic behind the end": lambda s: s.write(s.end, s.read(s.starts[-1], 8)),
    "an old record behind the end": lambda s: s.write(
        s.end, s.read(s.starts[-3], s.starts[-2] - s.starts[-3])
    ),
    "the last file lost": lambda s: s.log(s.end).unlink(),
    "the last file empty": lambda s: s.log(s.end).write_bytes(bytes(COMMIT_LOG_BYTES)),
    "an empty file behind": lambda s: s.add_file(bytes(COMMIT_LOG_BYTES)),
    "a file of length 0 behind": lambda s: s.add_file(b""),
    "a blank at the end": lambda s: s.write(s.end, s.blank),
    "a blank at the end, an empty file behind": lambda s: (
        s.write(s.end, s.blank),
        s.add_file(bytes(COMMIT_LOG_BYTES)),
    ),
    # -- the log elsewhere
    "the first file lost": lambda s: s.log(0).unlink(),
    "a file in the middle lost": lambda s: s.log(s.end - COMMIT_LOG_BYTES).unlink(),
    "all of the log lost": lambda s: s.remove("commitlog"),
    "a bit of what was synced": lambda s: s.flip(s.starts[10] + 100),
    # -- what is built from it
    "queues lost": lambda s: s.remove("consumequeue"),
    "one queue lost": lambda s: s.remove("consumequeue/TopicA/0"),
    "last unit of a queue lost": lambda s: s.drop_last_unit(),
    "last file of a queue lost": lambda s: s.queue_files()[-1].unlink(),
    "last file of a queue empty": lambda s: s.queue_files()[-1].write_bytes(EMPTY_QUEUE_FILE),
    "an empty file behind a queue": lambda s: s.next_queue_file().write_bytes(EMPTY_QUEUE_FILE),
    "index lost": lambda s: s.remove("index"),
    "checkpoint lost": lambda s: s.remove("checkpoint"),
    "all but the log lost": lambda s: s.remove("consumequeue", "index", "checkpoint"),
}


class Ends(NamedTuple):
    """Where the log ends, and the three queues."""

    log: int
    topic_a_0: int
    topic_a_1: int
    topic_b_0: int


WHOLE: Final = Ends(25853, 20, 20, 20)
BLANKS_START: Final = (24475, WHOLE.log)
"""Where the blanks are that may be the last record."""


class Difference(NamedTuple):
    """What both make of a damage, None if the store is not opened, and why."""

    why: str
    rocketmq: Ends | None
    ours: Ends | None


CLOSED: Final = (
    "a blank closes its file: if no file follows, 5.3.3 goes back to its start and writes something"
    " else over what a slave may hold already"
)
REFUSED: Final = (
    "what was on disk when the store stopped is not given up for lost with all that lies behind:"
    " a person has to look"
)
LAGS: Final = "1: RocketMQ enters records behind the end of all queues only"

DIFFERENCES: Final = {
    ("cut in the last properties",): Difference(
        "4: only bodies have a checksum; but a page that ends in zeros was lost",
        WHOLE,
        Ends(25424, 20, 20, 19),
    ),
    ("a bit of the last physical offset",): Difference(
        "4: a record says where it lies", WHOLE, Ends(25424, 20, 20, 19)
    ),
    ("an old record behind the end",): Difference(
        "3, 4: a record says where it lies, and old ones do not come back",
        Ends(26272, 20, 20, 20),
        WHOLE,
    ),
    ("a bit of a body one file before", "clean"): Difference(
        "RocketMQ reads the last file only; we read what is behind the last sync as well",
        WHOLE,
        Ends(23198, 18, 18, 18),
    ),
    ("the last file lost",): Difference(CLOSED, Ends(24475, 19, 19, 19), Ends(24576, 19, 19, 19)),
    ("a blank at the end",): Difference(CLOSED, WHOLE, Ends(32768, 20, 20, 20)),
    ("a file in the middle lost",): Difference(REFUSED, WHOLE, None),
    # RocketMQ's checkpoint knows how far the log was checked at the start, which was nothing.
    ("all of the log lost", "ours"): Difference(REFUSED, Ends(0, 0, 0, 0), None),
    ("a bit of what was synced", "killed"): Difference(REFUSED, Ends(4230, 4, 3, 3), None),
    ("one queue lost", "clean"): Difference(LAGS, Ends(25853, 0, 20, 20), WHOLE),
    ("last unit of a queue lost", "clean"): Difference(LAGS, Ends(25853, 19, 20, 20), WHOLE),
    ("last file of a queue lost", "clean"): Difference(LAGS, Ends(25853, 10, 20, 20), WHOLE),
    ("last file of a queue empty", "clean"): Difference(
        "1, 2: the first unit of an empty file is taken for one",
        Ends(25853, 11, 20, 20),
        WHOLE,
    ),
    ("an empty file behind a queue",): Difference(
        "2: the first unit of an empty file is taken for one", Ends(25853, 21, 20, 20), WHOLE
    ),
}
"""By damage, or by damage and how the store stopped or who wrote it."""


class Case(NamedTuple):
    """Who wrote the store, how it stopped, and what happened to it then."""

    written_by: str
    stop: str
    damage: str

    @property
    def difference(self) -> Difference | None:
        """What both are expected to make of it, None if it is the same."""
        keys = ((self.damage,), (self.damage, self.stop), (self.damage, self.written_by))
        return next((DIFFERENCES[key] for key in keys if key in DIFFERENCES), None)


CASES: Final = [
    Case(written_by, stop, damage)
    for written_by in ("ours", "rocketmq")
    for stop in ("clean", "killed")
    for damage in DAMAGES
]


class Results(NamedTuple):
    """Where both found the ends, each in its own copy, and RocketMQ in our copy after us."""

    rocketmq: Ends | None
    ours: Ends | None
    rocketmq_after_us: Ends | None


def ends_of(loaded: Loaded | None) -> Ends | None:
    """Return the ends; a queue that is not there ends at 0."""
    if loaded is None:
        return None
    queues = (loaded.queues.get(name, 0) for name in ("TopicA 0", "TopicA 1", "TopicB 0"))
    return Ends(loaded.max_physical_offset, *queues)


def write_ours(root: Path) -> None:
    """Write a store, stop it cleanly, write more, be killed."""
    clock = Clock(step_ms=1000)
    with open_store(RealDisk(), str(root / "now"), clock=clock) as store:
        put_many(store, SYNCED)
    with open_store(RealDisk(), str(root / "now"), clock=clock) as store:
        put_many(store, SYNCED, start=SYNCED)
        shutil.copytree(root / "now", root / "ours")


def write_rocketmq(root: Path, rocketmq: Probe) -> None:
    """Do the same with RocketMQ."""
    store = root / "rocketmq"
    queues = (("TopicA", 0), ("TopicA", 1), ("TopicB", 0))
    messages = [a_message(n, *queues[n % 3], body_bytes=300) for n in range(2 * SYNCED)]
    for is_last in (False, True):
        assert rocketmq.open(store, SETTINGS)
        some = messages[SYNCED:] if is_last else messages[:SYNCED]
        assert set(rocketmq.put(store, some, STORE_HOST)) == {"PUT_OK"}
        rocketmq.look(store)
        if not is_last:
            # The file that is ready behind the last one goes in a clean stop.
            rocketmq.close([store])
    rocketmq.halt()
    for path in (store / "commitlog").iterdir():
        if path.read_bytes() == bytes(COMMIT_LOG_BYTES):
            path.unlink()


@pytest.fixture(scope="module")
def results(
    rocketmq: Probe, ours: Probe, tmp_path_factory: pytest.TempPathFactory
) -> dict[Case, Results]:
    """Damage copies of both stores; let both open their own copy of each."""
    root = tmp_path_factory.mktemp("torn")
    write_ours(root)
    write_rocketmq(root, rocketmq)
    found = {}
    for number, case in enumerate(CASES):
        theirs, mine = (root / f"{number}-{who}" for who in ("rocketmq", "ours"))
        for copy in (theirs, mine):
            shutil.copytree(root / case.written_by, copy)
            damage(copy, case)
        found[case] = Results(
            ends_of(rocketmq.load(theirs, SETTINGS)),
            ends_of(ours.load(mine, SETTINGS)),
            ends_of(rocketmq.load(mine, SETTINGS)),
        )
    return found


def damage(root: Path, case: Case) -> None:
    """Do to a store what the case says."""
    starts, end = records_of(root)
    DAMAGES[case.damage](Torn(root, starts, end))
    if case.stop == "clean":
        (root / "abort").unlink()


def records_of(root: Path) -> tuple[list[int], int]:
    """Return where the records of a sound log start, and where the last one ends."""
    starts: list[int] = []
    end = 0
    for path in sorted((root / "commitlog").iterdir()):
        data, offset = path.read_bytes(), int(path.name)
        _, columns = next_records(data, 0, len(data), offset, bytes_max=len(data))
        assert isinstance(columns, RecordColumns)
        starts += (offset + columns.start).tolist()
        end = starts[-1] + int(columns.size[-1])
    return starts, end


@pytest.mark.parametrize("case", CASES, ids=", ".join)
def test_both_find_the_same_ends(results: dict[Case, Results], case: Case) -> None:
    """DefaultMessageStore.load, recoverNormally, recoverAbnormally."""
    found, difference = results[case], case.difference
    if difference is None:
        assert found.rocketmq == found.ours
        assert found.ours is not None
    else:
        assert (found.rocketmq, found.ours) == (difference.rocketmq, difference.ours)
        assert found.rocketmq != found.ours


@pytest.mark.parametrize("case", CASES, ids=", ".join)
def test_rocketmq_finds_the_ends_where_we_have_put_them(
    results: dict[Case, Results], case: Case
) -> None:
    """What we cut, and what we enter in queues, is cut and entered on disk.

    A log that we end behind a blank, it ends where the blank starts: no file follows.
    """
    found = results[case]
    if found.ours is None:
        return
    assert found.rocketmq_after_us is not None
    assert found.rocketmq_after_us[1:] == found.ours[1:]
    if found.ours.log % COMMIT_LOG_BYTES:
        assert found.rocketmq_after_us.log == found.ours.log
    else:
        assert found.rocketmq_after_us.log in {0, *BLANKS_START}

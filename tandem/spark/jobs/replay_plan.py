"""What a replay reads, what it makes of it, how fast it goes, and how far it has come.

lane        the rows of one broker, file by file: what one task sends, in this order
position    a file of the lane, and how many of its rows are done. It is written down after the
            brokers have answered, so that a replay that died goes on there
UNIQ_KEY    made from the replay and the place a message comes from: what is sent twice has
            the same one, and `DuplicateFilter` tells
"""

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa

from tandem.spark.archive.columns import BROKER
from tandem.spark.archive.disk import Disk
from tandem.spark.archive.errors import (
    ArchiveDamagedError,
    ArchiveError,
    ArchiveFault,
    OtherReplayError,
)
from tandem.spark.archive.holes import warn_of_holes
from tandem.spark.archive.log_piece import LogPiece, pieces_to_archive, rows_of
from tandem.spark.archive.manifest import read_manifest
from tandem.spark.archive.read import ArchivePiece, plan_archive, read_piece
from tandem.spark.jobs.settings import ReplaySettings, UniqueKeys
from tandem.spark.jobs.windows import Window, check_times, numbers, numbers_by_queue, time_ms
from tandem.wire.compression import decompress
from tandem.wire.message import COMPRESSED_FLAG, INNER_BATCH_FLAG, Message
from tandem.wire.message_properties import (
    DELAYING_PROPERTIES,
    PROPERTY_ACK,
    PROPERTY_CLUSTER,
    PROPERTY_CRC32,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_NUM,
    PROPERTY_KEYS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
)
from tandem.wire.untrusted import UnreadableError, decode_json

StructT = TypeVar("StructT", bound=msgspec.Struct)

REPLAYED_FROM: Final = "REPLAYED_FROM"
"""Property of a replayed message: BROKER/TOPIC/QUEUE ID/QUEUE OFFSET that it had."""


_OF_THE_JOURNEY: Final = DELAYING_PROPERTIES | {
    PROPERTY_ACK,
    PROPERTY_CLUSTER,
    PROPERTY_CRC32,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_NUM,
    PROPERTY_KEYS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
}
"""What a message had for its way to the log, or what `Message` has fields for."""


class ReplayFile(msgspec.Struct, frozen=True):
    """A file of a lane: of an archive, or of a log. `name` is its own, in every run."""

    name: str
    archived: ArchivePiece | None = None
    logged: LogPiece | None = None

    def rows(self, broker: str) -> Iterator[pa.RecordBatch]:
        """Yield all its rows, in the order of the log."""
        if self.archived is not None:
            yield from read_piece(self.archived)
        elif self.logged is not None:
            for batch in rows_of(self.logged):
                yield batch.append_column(BROKER, pa.repeat(pa.scalar(broker), len(batch)))


class Lane(msgspec.Struct, frozen=True):
    """What is read of one broker."""

    broker: str
    files: tuple[ReplayFile, ...]


class Position(msgspec.Struct, frozen=True):
    """How far a lane is done: `rows` of `file`, and everything before it. `sent` is for people.

    `before` is how many files of the lane were before it, -1 if that was not written down.
    """

    file: str = ""
    rows: int = 0
    sent: int = 0
    before: int = -1


class ReplayFacts(msgspec.Struct, frozen=True):
    """The file `replay.json`: what the state is about. `key` goes into the unique keys."""

    window: Window
    source: str
    topic: str
    key: str


def window_of(settings: ReplaySettings) -> Window:
    """Return what is to be replayed.

    Raises:
        ClusterConfigError: a time, a queue id or an offset is none; it ends before it begins.
    """
    start_ms = time_ms(settings.starting_timestamp, "starting_timestamp")
    end_ms = time_ms(settings.ending_timestamp, "ending_timestamp")
    check_times(start_ms, end_ms)
    return Window(
        topic=settings.source_topic,
        queues=numbers(settings.queues, "queues") if settings.queues else None,
        start_offsets=numbers_by_queue(settings.starting_offsets, "starting_offsets"),
        end_offsets=numbers_by_queue(settings.ending_offsets, "ending_offsets"),
        start_ms=start_ms,
        end_ms=end_ms,
        tags=frozenset(settings.tags) if settings.tags else None,
        keys=frozenset(settings.keys) if settings.keys else None,
    )


def lanes_of(settings: ReplaySettings, window: Window) -> list[Lane]:
    """Return what is read, by broker.

    Raises:
        SparkSourceError: the archive or a store is not what it should be.
    """
    if settings.archive:
        return _lanes_of_archive(Path(settings.archive), window)
    return [
        Lane(
            group,
            tuple(
                ReplayFile(f"{piece.first:020d}", logged=piece)
                for piece in pieces_to_archive(group, store, [], take_open_file=True)
            ),
        )
        for group, store in settings.stores.items()
    ]


def _lanes_of_archive(archive: Path, window: Window) -> list[Lane]:
    manifest = read_manifest(archive)
    manifest.check_topics([window.topic])
    warn_of_holes(manifest, {window.topic})
    # A file is read whole, so that its rows are counted in the same way in every run.
    wanted = {
        piece.path
        for piece in plan_archive(
            manifest,
            topics=frozenset({window.topic}),
            queues=window.queues,
            start_ms=window.start_ms,
            end_ms=window.end_ms,
        )
    }
    lanes: dict[str, list[ReplayFile]] = {}
    for unit in manifest.units:
        for file in unit.in_log_order():
            path = str(archive / file.path)
            if path in wanted and file.topic == window.topic:
                piece = ArchivePiece(path, file.topic, file.rows, file.size_bytes)
                lanes.setdefault(unit.group, []).append(ReplayFile(file.path, archived=piece))
    return [Lane(broker, tuple(files)) for broker, files in lanes.items()]


def files_left(lane: Lane, position: Position) -> list[tuple[ReplayFile, int]]:
    """Return the files that are not done, with how many of their rows are.

    Raises:
        ArchiveError: the position is in none of them, or there are more before it than there were.
    """
    if not position.file:
        return [(file, 0) for file in lane.files]
    names = [file.name for file in lane.files]
    if position.file not in names:
        raise ArchiveError(
            f"the replay of {lane.broker} stopped in {position.file}, which is not there any more;"
            " restore it, or begin again with another state"
        )
    at = names.index(position.file)
    if 0 <= position.before < at:
        raise ArchiveError(
            f"the replay of {lane.broker} went past {position.before} files up to {position.file},"
            f" and now there are {at}: what was missing then has not been sent. Replay it with a"
            " window of its own and another state, or begin again with another state"
        )
    return [(lane.files[at], position.rows), *((file, 0) for file in lane.files[at + 1 :])]


def begin(settings: ReplaySettings, window: Window, disk: Disk) -> ReplayFacts:
    """Return what the state in a directory is about; make it if there is none.

    Raises:
        OtherReplayError: it is about another one.
        ArchiveDamagedError: it cannot be read.
    """
    place = Path(settings.state) / "replay.json"
    source = settings.archive or msgspec.json.encode(settings.stores, order="sorted").decode()
    topic = settings.topic or settings.source_topic
    if place.exists():
        facts = _read(place, ReplayFacts)
        if (facts.window, facts.source, facts.topic) != (window, source, topic):
            raise OtherReplayError(
                f"{settings.state} is the state of another replay, of {facts.window.topic} into"
                f" {facts.topic}; name another directory"
            )
        return facts
    facts = ReplayFacts(window, source, topic, secrets.token_hex(8))
    disk.write(place, msgspec.json.encode(facts))
    return facts


def read_position(state: Path, broker: str) -> Position:
    """Return how far a lane is done.

    Raises:
        ArchiveError: what says so is damaged.
    """
    place = _position_file(state, broker)
    return _read(place, Position) if place.exists() else Position()


def write_position(state: Path, broker: str, position: Position, disk: Disk) -> None:
    """Write down how far a lane is done."""
    disk.write(_position_file(state, broker), msgspec.json.encode(position))


def _position_file(state: Path, broker: str) -> Path:
    return state / f"lane-{broker}.json"


def _read(place: Path, kind: type[StructT]) -> StructT:
    try:
        return decode_json(place.read_bytes(), kind)
    except UnreadableError as error:
        text = f"{place} is damaged ({error}); name another directory"
        raise ArchiveDamagedError(text, ArchiveFault.UNREADABLE) from error


def replayed(row: Mapping[str, Any], facts: ReplayFacts, keys: UniqueKeys) -> Message:
    """Return the message that is sent for a row.

    Raises:
        ValueError: it cannot be sent: a batch in one record, or compressed by something unknown.
    """
    if row["sysFlag"] & INNER_BATCH_FLAG:
        raise ValueError("a batch that is one record of the log cannot be replayed")
    body = row["body"]
    if row["sysFlag"] & COMPRESSED_FLAG:
        body = decompress(body, row["sysFlag"])
    old = dict(row["properties"])
    place = f"{row[BROKER]}/{row['topic']}/{row['queueId']}/{row['queueOffset']}"
    properties = {name: value for name, value in old.items() if name not in _OF_THE_JOURNEY}
    properties[REPLAYED_FROM] = place
    unique_key = old.get(PROPERTY_UNIQUE_KEY) if keys is UniqueKeys.OLD else None
    properties[PROPERTY_UNIQUE_KEY] = unique_key or unique_key_of(
        # A topic that was made anew has its queue offsets again.
        facts.key,
        f"{place}/{row['physicalOffset']}",
    )
    return Message(
        facts.topic,
        body,
        keys=old.get(PROPERTY_KEYS, ""),
        tags=old.get(PROPERTY_TAGS, ""),
        flag=row["flag"],
        properties=properties,
        sharding_key=old.get(PROPERTY_SHARDING_KEY, ""),
    )


def unique_key_of(replay: str, place: str) -> str:
    """Return 32 upper-case hex digits, the same ones for the same replay and place."""
    return hashlib.sha256(f"{replay} {place}".encode()).hexdigest()[:32].upper()


class Pace:
    """Limits a lane to a number of messages and bytes a second; 0 is no limit.

    A second may be caught up on, not more: after a pause there is no rush.
    """

    def __init__(self, messages: float, size_bytes: float, clock: Callable[[], float]) -> None:
        self._limits = (messages, size_bytes)
        self._clock = clock
        self._free_at = clock()

    def wait_seconds(self, messages: int, size_bytes: int) -> float:
        """Count what is sent now; return how long to wait before it."""
        now = self._clock()
        self._free_at = max(self._free_at, now - 1)
        wait = max(self._free_at - now, 0.0)
        needed = zip((messages, size_bytes), self._limits, strict=True)
        self._free_at += max(count / limit if limit else 0 for count, limit in needed)
        return wait

"""Turns what pulls brought into Arrow batches: pieces joined, records as columns, each one checked.

What a broker sends is not believed. The records of a range are those of its queue, in order, and
none is missing: else the batch would be wrong without anybody noticing.
"""

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from tandem.spark.arrow_cut import repeated
from tandem.spark.errors import SparkSourceError
from tandem.spark.live.columns import OF_BROKERS
from tandem.spark.live.pull_window import Piece
from tandem.spark.live.ranges import QueueRange
from tandem.spark.record_batches import RecordSlice
from tandem.wire.message import INNER_BATCH_FLAGS
from tandem.wire.message_properties import PROPERTY_INNER_NUM
from tandem.wire.record_rule import ScanStop
from tandem.wire.record_scan import Bools, Int64s, read_columns, walk_records

CHUNK_BYTES: Final = 2 * 1024 * 1024
"""Batches of about this size cost Spark least."""


class Chunk(msgspec.Struct, frozen=True):
    """Records of one range, from offset `start` up to `end`; those in `holes` are lost."""

    place: int
    start: int
    end: int
    data: bytearray
    holes: list[tuple[int, int]]


class AnswerFault(enum.Enum):
    """What is wrong with records."""

    BROKEN = enum.auto()
    """They are no whole records."""
    OTHER_QUEUE = enum.auto()
    REPEATED = enum.auto()
    """One is there twice, or out of order."""
    MISSING = enum.auto()
    CRC = enum.auto()


class AnswerError(SparkSourceError):
    """What a broker sent is not what it was asked for.

    `offset` is the number of the first message that is wrong; -1 if it is not a single one.
    """

    def __init__(self, text: str, fault: AnswerFault, offset: int) -> None:
        super().__init__(text, fault, offset)
        self.fault = fault
        self.offset = offset


def chunks(pieces: Iterable[Sequence[Piece]], chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """Join pieces that follow one another, to about `chunk_bytes`."""
    place, start, end = 0, 0, -1
    bodies: list[bytes] = []
    holes: list[tuple[int, int]] = []
    size = 0
    for several in pieces:
        for piece in several:
            if end >= 0 and (piece.place != place or size >= chunk_bytes):
                yield Chunk(place, start, end, bytearray().join(bodies), holes)
                end = -1
            if end < 0:
                place, start, bodies, holes, size = piece.place, piece.start, [], [], 0
            end = piece.end
            bodies.append(piece.body)
            size += len(piece.body)
            if not piece.body:
                holes.append((piece.start, piece.end))
    if end >= 0:
        yield Chunk(place, start, end, bytearray().join(bodies), holes)


def records_of(
    chunk: Chunk, queue_range: QueueRange, *, check_crc: bool = True, split: bool = False
) -> RecordSlice:
    """Return the records of a chunk.

    A record that holds a batch belongs to the chunk that its first message is in. With `split` it
    is in every chunk that one of its messages is in.

    Raises:
        AnswerError: they are not those of the queue from `chunk.start` up to `chunk.end`.
    """
    queue = queue_range.queue

    def wrong(reason: str, fault: AnswerFault, offset: int = -1) -> AnswerError:
        return AnswerError(
            f"source tandem: what {queue.broker_name} sent as offsets {chunk.start} to {chunk.end}"
            f" of queue {queue.queue_id} of topic {queue.topic!r} is something else: {reason}",
            fault,
            offset,
        )

    walk = walk_records(chunk.data)
    if walk.stop is not ScanStop.END:
        reason = f"after {len(walk.starts)} records: {walk.reason or walk.stop.value}"
        raise wrong(reason, AnswerFault.BROKEN)
    records = read_columns(chunk.data, walk.starts)
    if not records.sound.all():
        raise wrong("the lengths inside a record do not add up", AnswerFault.BROKEN)
    every = RecordSlice(chunk.data, records, queue.broker_name, check_crc=check_crc)
    topics = every.topics.dictionary.to_pylist()
    if len(records) and (topics != [queue.topic] or (records.queue_id != queue.queue_id).any()):
        raise wrong(f"records of {', '.join(map(repr, topics))}", AnswerFault.OTHER_QUEUE)
    counts = _message_counts(every)
    offsets = records.queue_offset
    # A record that holds a batch comes whole to every pull that asks for a part of it.
    ends = np.maximum.accumulate(np.concatenate(([chunk.start], offsets + counts)))
    is_new: Bools = offsets >= ends[:-1]
    repeats = offsets[~is_new & (counts == 1)]
    if split:
        is_new |= offsets + counts > ends[:-1]
    if len(repeats):
        repeated = int(repeats[0])
        raise wrong(f"offset {repeated} twice, or out of order", AnswerFault.REPEATED, repeated)
    missing = _missing(np.append(offsets, max(chunk.end, ends[-1])), ends, chunk.holes)
    if missing is not None:
        raise wrong(f"no record of offset {missing}", AnswerFault.MISSING, missing)
    part = every.take(is_new)
    if check_crc and not part.crc_ok.all():
        bad = int(part.records.queue_offset[np.argmin(part.crc_ok)])
        raise wrong(f"the CRC of offset {bad} does not fit its body", AnswerFault.CRC, bad)
    return part


def arrow_batch(
    part: RecordSlice, queue_range: QueueRange, names: Sequence[str], *, one_topic: bool = True
) -> pa.RecordBatch:
    """Return the columns called `names`. With `one_topic` all records are of that of the range."""
    queue = queue_range.queue
    places = (queue.broker_name, queue_range.cluster_name)
    same = dict(zip(OF_BROKERS, places, strict=True))
    if one_topic:
        same["topic"] = queue.topic
    of_records = part.batch([name for name in names if name not in same])
    arrays = [
        repeated([same[name]], len(part)) if name in same else of_records.column(name)
        for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, list(names))


def _message_counts(part: RecordSlice) -> Int64s:
    """How many messages each record stands for: one, unless it holds a whole batch."""
    counts = np.ones(len(part), np.int64)
    rows = np.flatnonzero((part.records.sys_flag & INNER_BATCH_FLAGS) == INNER_BATCH_FLAGS)
    if len(rows):
        numbers = part.properties.values_of(PROPERTY_INNER_NUM)
        for row in rows:
            text = numbers[int(row)].as_py() or ""
            counts[row] = min(int(text), 2**31) if text.isdecimal() and len(text) < 20 else 1
    return counts


def _missing(starts: Int64s, ends_before: Int64s, holes: list[tuple[int, int]]) -> int | None:
    """Return the first offset between records that is in no hole."""
    lost = dict(holes)
    gaps = np.flatnonzero(starts > ends_before)
    for start, end in zip(ends_before[gaps].tolist(), starts[gaps].tolist(), strict=True):
        expected = start
        while expected < end and expected in lost:
            expected = lost[expected]
        if expected < end:
            return int(expected)
    return None

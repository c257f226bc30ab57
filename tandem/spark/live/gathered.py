"""Short chunks of one task, looked at and made into rows together.

A micro-batch of a thousand messages comes as a short chunk of each queue. To check one and to make
an Arrow batch of it takes as long for ten records as for a thousand, and so it does in Spark. What
is exactly as it was asked for is seen of all chunks at once; what is not goes the way of
`records_of`, one chunk at a time, which takes all there may be, and says what is wrong.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from tandem.spark.live.chunks import CHUNK_BYTES, Chunk
from tandem.spark.live.ranges import QueueRange
from tandem.spark.record_batches import RecordSlice
from tandem.wire.message import INNER_BATCH_FLAGS
from tandem.wire.record_rule import ScanStop
from tandem.wire.record_scan import Bools, read_columns, walk_records

CHUNKS_MAX: Final = 1000


def gathered(
    chunks: Iterable[Chunk], ranges: Sequence[QueueRange], bytes_max: int = CHUNK_BYTES
) -> Iterator[list[Chunk]]:
    """Put chunks of one broker of one cluster together, to about `bytes_max`, in their order."""
    group: list[Chunk] = []
    size = 0
    for chunk in chunks:
        more = size + len(chunk.data)
        if group and (
            more > bytes_max
            or len(group) >= CHUNKS_MAX
            or _place(ranges[chunk.place]) != _place(ranges[group[0].place])
        ):
            yield group
            group, more = [], len(chunk.data)
        group.append(chunk)
        size = more
    if group:
        yield group


def _place(queue_range: QueueRange) -> tuple[str, str]:
    return queue_range.queue.broker_name, queue_range.cluster_name


def records_together(
    group: Sequence[Chunk], ranges: Sequence[QueueRange], *, check_crc: bool = True
) -> RecordSlice | None:
    """Return the records of some chunks of one broker, if each is one message and none is missing.

    None: something is unusual, wrong or lost. What is lost leaves fewer records than offsets.
    """
    data = group[0].data if len(group) == 1 else bytearray().join(chunk.data for chunk in group)
    counts = np.array([chunk.end - chunk.start for chunk in group], np.int64)
    walk = walk_records(data)
    if walk.stop is not ScanStop.END or len(walk.starts) != counts.sum():
        return None
    firsts = np.cumsum(counts) - counts
    bytes_before = np.cumsum([0, *(len(chunk.data) for chunk in group[:-1])])
    records = read_columns(data, walk.starts)
    numbers = np.arange(len(records)) + np.repeat([chunk.start for chunk in group] - firsts, counts)
    queues = [ranges[chunk.place].queue for chunk in group]
    if (
        not counts.all()
        or not np.array_equal(records.start[firsts], bytes_before)
        or not records.sound.all()
        or not np.array_equal(records.queue_offset, numbers)
        or (records.queue_id != np.repeat([queue.queue_id for queue in queues], counts)).any()
        or ((records.sys_flag & INNER_BATCH_FLAGS) == INNER_BATCH_FLAGS).any()
    ):
        return None
    found = RecordSlice(data, records, queues[0].broker_name, check_crc=check_crc)
    for topic in {queue.topic for queue in queues}:
        has: Bools = np.repeat([queue.topic == topic for queue in queues], counts)
        if not np.array_equal(found.has_topic(topic), has):
            return None
    return found if not check_crc or found.crc_ok.all() else None

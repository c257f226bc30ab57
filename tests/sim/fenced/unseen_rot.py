"""What a reader may get of bytes that have rotted, before anybody can know of it.

No CRC of RocketMQ covers a message's properties and its place in the log, and a node does not look
again at what it has checked since it started: docs/store.md, "Damaged records". So between the rot
and the look of a scrub, or of another node, a reader gets them as they are. It never gets another
body, nor a message of another queue or number, because readers look at these themselves; and what a
node has noted as bad leaves it no more, which `HANDED_OUT` says.
"""

from collections.abc import Iterable

import msgspec

from tests.sim.engine.history import Read
from tests.sim.engine.walked_log import LogRecord
from tests.sim.fenced.history import HurtSeen


def as_stored(
    reads: Iterable[Read], records: Iterable[LogRecord], hurt: list[HurtSeen]
) -> list[Read]:
    """Return the reads as if nothing had rotted that no reader can see."""
    places = {(r.topic, r.queue_id, r.queue_offset): r for r in records} if hurt else {}
    return [
        _as_stored(read, places.get((read.topic, read.queue_id, read.queue_offset)), hurt)
        for read in reads
    ]


def _as_stored(read: Read, record: LogRecord | None, hurt: list[HurtSeen]) -> Read:
    if record is None or read.body_crc != record.body_crc or not _is_hurt(read, record, hurt):
        return read
    return msgspec.structs.replace(read, key=record.key, physical_offset=record.physical_offset)


def _is_hurt(read: Read, record: LogRecord, hurt: list[HurtSeen]) -> bool:
    return any(
        seen.start < record.end
        and record.physical_offset < seen.end
        and seen.at_seconds <= read.at_seconds
        for seen in hurt
    )

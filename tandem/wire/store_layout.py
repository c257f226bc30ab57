"""The files of a store beside the commit log, byte by byte. Big-endian everywhere.

    consumequeue/<topic>/<queueId>/<20 digits>        units of 20 bytes, one a message
        0   8  physical offset of the record
        8   4  size of the record
        12  8  tags code, deliver time (delayed messages) or ext address

    batchconsumequeue/<topic>/<queueId>/<20 digits>   units of 46 bytes, one an inner batch
        0   8  physical offset          28  8  queue offset of the first message
        8   4  size                     36  2  messages in the record
        12  8  tags code                38  4  -1
        20  8  store timestamp, ms      42  4  0

    compaction/compactionLog/<topic>/<queueId>/<20 digits>   records as in the log, with places here
    compaction/compactionCq/<topic>/<queueId>/<20 digits>    units as in batchconsumequeue, one a
                                                             record; place -1 and size 0: the end
    compaction/position-checkpoint                           JSON: the last number looked at, by
                                                             <topic>_<queueId>

    consumequeue_ext/<topic>/<queueId>/<20 digits>    units of 20 to 32,767 bytes
        0   2  size of the unit; -1 closes the file
        2   8  tags code
        10  8  store timestamp, ms
        18  2  bytes of filter bit map
        20  n  filter bit map

    index/<yyyyMMddHHmmssSSS>                         header, slots of 4 bytes, units of 20
        0   8  begin timestamp, ms      0   4  hash of `topic#key`
        8   8  end timestamp, ms        4   8  physical offset
        16  8  begin physical offset    12  4  seconds after the begin timestamp
        24  8  end physical offset      16  4  the unit before it in the same slot
        32  4  slots in use
        36  4  number of the next unit; unit 0 is never used

    checkpoint                                        4,096 bytes
        0   8  physicMsgTimestamp       24  8  masterFlushedOffset
        8   8  logicsMsgTimestamp       32  8  confirmPhyOffset
        16  8  indexMsgTimestamp

Source: RocketMQ 5.3.3, ConsumeQueue, BatchConsumeQueue, ConsumeQueueExt, IndexFile, IndexHeader,
StoreCheckpoint.
"""

import struct
from typing import Final, Literal, NamedTuple

from tandem.wire.message_properties import java_string_hash

CQ_STORE_UNIT: Final = struct.Struct(">qiq")
CQ_STORE_UNIT_SIZE: Final = 20
FILLER_SIZE: Final = 0x7FFFFFFF
"""Size in a unit that only fills the head of a queue whose history starts late (pre-blank)."""

BATCH_CQ_STORE_UNIT: Final = struct.Struct(">qiqqqhii")
BATCH_CQ_STORE_UNIT_SIZE: Final = 46
BATCH_CQ_COMPACTED_OFFSET: Final = -1
_LOG_PER_CQ_MIN: Final = 5
"""Of a compaction topic: so much larger is a file of records than one of units, at least."""

QueueKind = Literal["consumequeue", "batchconsumequeue"]
"""The directories of queues that lead into the log."""
QUEUE_KINDS: Final[tuple[QueueKind, ...]] = ("consumequeue", "batchconsumequeue")
UNIT_BYTES: Final[dict[QueueKind, int]] = {
    "consumequeue": CQ_STORE_UNIT_SIZE,
    "batchconsumequeue": BATCH_CQ_STORE_UNIT_SIZE,
}

EXT_UNIT_HEAD: Final = struct.Struct(">hqqh")
EXT_UNIT_BYTES_MIN: Final = 20
EXT_UNIT_BYTES_MAX: Final = 32_767
EXT_END_BLANK_BYTES: Final = 4
EXT_END_MARK: Final = -1
EXT_ADDRESS_MAX: Final = -(1 << 31) - 1
"""A tags code up to this is the address of an ext unit; every hash is larger."""
_EXT_ADDRESS_BASE: Final = -(1 << 63)

INDEX_HEADER: Final = struct.Struct(">qqqqii")
INDEX_HEADER_BYTES: Final = 40
INDEX_SLOT: Final = struct.Struct(">i")
INDEX_SLOT_BYTES: Final = 4
INDEX_UNIT: Final = struct.Struct(">iqii")
INDEX_UNIT_BYTES: Final = 20

CHECKPOINT: Final = struct.Struct(">5q")
CHECKPOINT_BYTES: Final = 4096
SAFETY_MARGIN_MS: Final = 3000
"""Clocks step and timestamps are taken before the write (StoreCheckpoint.getMinTimestamp)."""

OFFSET_MAX: Final = 2**63 - 1
"""Of any offset: RocketMQ's are signed 64-bit integers."""
FILE_NAME_DIGITS: Final = 20
"""Of a file of the log or of a queue: its first offset."""
PAGE_BYTES: Final = 4096
"""Files are a multiple of it; a disk loses or zeroes whole ones."""

REPLICA_FILE: Final = "replica.json"
EPOCH_FILE: Final = "epochFileCheckpoint"
EPOCH_IDS_FILE: Final = "epochIds"
DAMAGE_FILE: Final = "damage.json"
LOG_START_FILE: Final = "log-start.json"
QUEUE_NOTE_FILE: Final = "queues.json"
QUEUE_ENDS_FILE: Final = "queue-ends.json"
REBUILD_ORDER_FILE: Final = "queue-rebuild.json"
GROUP_JOURNAL_FILE: Final = "groupJournal.json"
TOPIC_TABLE_FILE: Final = "topics.json"
TABLE_CHANGES_SUFFIX: Final = ".new"
"""Of the file beside a table that has what changed since the table was written."""
SIDE_DIRECTORY: Final = "truncated"
"""Where bytes are kept that were cut off a log."""
SET_ASIDE_DIRECTORY: Final = "set-aside"
"""Where a store is moved as a whole, before the log is copied anew."""

assert CQ_STORE_UNIT.size == CQ_STORE_UNIT_SIZE
assert BATCH_CQ_STORE_UNIT.size == BATCH_CQ_STORE_UNIT_SIZE
assert EXT_UNIT_HEAD.size == EXT_UNIT_BYTES_MIN
assert INDEX_HEADER.size == INDEX_HEADER_BYTES
assert INDEX_UNIT.size == INDEX_UNIT_BYTES


class CompactionFileSizes(NamedTuple):
    """How many bytes the files of a compaction topic have: of records, and of units."""

    log: int
    cq: int


def compaction_file_sizes(mapped_file_size: int, cq_mapped_file_size: int) -> CompactionFileSizes:
    """Return the sizes for these settings: whole units, and for records a multiple of that.

    Source: CompactionLog.getCompactionLogSize.
    """
    cq = cq_mapped_file_size // BATCH_CQ_STORE_UNIT_SIZE * BATCH_CQ_STORE_UNIT_SIZE
    count, rest = divmod(mapped_file_size, cq)
    if count < _LOG_PER_CQ_MIN:
        return CompactionFileSizes(_LOG_PER_CQ_MIN * cq, cq)
    return CompactionFileSizes((count if 0 < rest < cq >> 1 else count + 1) * cq, cq)


def offset_named(name: str) -> int | None:
    """Return the offset that a file of the log or of a queue is named by; None for other names."""
    is_offset = len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdecimal()
    return int(name) if is_offset else None


def is_ext_address(tags_code: int) -> bool:
    """True if a queue unit's tags code is the address of an ext unit."""
    return tags_code <= EXT_ADDRESS_MAX


def ext_address(offset: int) -> int:
    """Return the address of the ext unit at byte `offset` of a queue's ext files."""
    return offset + _EXT_ADDRESS_BASE


def ext_offset(address: int) -> int:
    """Return the byte offset that an ext address stands for."""
    return address - _EXT_ADDRESS_BASE


def index_key(topic: str, key: str) -> str:
    """Return the text that is hashed for `key` of a message in `topic`."""
    return f"{topic}#{key}"


def index_key_hash(text: str) -> int:
    """Return the hash stored for `index_key`: never negative.

    Source: IndexFile.indexKeyHashMethod.
    """
    value = abs(java_string_hash(text))
    return 0 if value == 1 << 31 else value


def index_file_bytes(hash_slot_num: int, index_num: int) -> int:
    """Return the length of an index file with these settings."""
    return INDEX_HEADER_BYTES + hash_slot_num * INDEX_SLOT_BYTES + index_num * INDEX_UNIT_BYTES

"""What the store answers: records and their status enums, in RocketMQ's words and order."""

import enum
import struct
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from store.machine.errors import RecordDamagedError

PhysicalOffset: TypeAlias = int
"""A byte position in the commit log, across all its files."""

QueueOffset: TypeAlias = int
"""The number of a message in its queue."""

Arrival: TypeAlias = tuple[int, str, int, QueueOffset, int | None]
"""A queue has grown: (where in the log its last record ends, topic, queue id, new max queue offset,
tags code or None if several). No two are equal up to the last one: a queue grows with each."""


class PutMessageStatus(enum.IntEnum):
    """Outcome of a put. The first four mean: the message IS in the log.

    Source: org.apache.rocketmq.store.PutMessageStatus.
    """

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3
    SERVICE_NOT_AVAILABLE = 4
    CREATE_MAPPED_FILE_FAILED = 5
    MESSAGE_ILLEGAL = 6
    PROPERTIES_SIZE_EXCEEDED = 7
    OS_PAGE_CACHE_BUSY = 8
    UNKNOWN_ERROR = 9
    IN_SYNC_REPLICAS_NOT_ENOUGH = 10
    PUT_TO_REMOTE_BROKER_FAIL = 11
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = 12
    WHEEL_TIMER_FLOW_CONTROL = 13
    WHEEL_TIMER_MSG_ILLEGAL = 14
    WHEEL_TIMER_NOT_ENABLE = 15

    @property
    def is_stored(self) -> bool:
        """True if the message is in this node's log, whatever else went wrong."""
        return self <= PutMessageStatus.SLAVE_NOT_AVAILABLE


Done: TypeAlias = Callable[[PutMessageStatus, str], None]
"""Called exactly once when a put has waited: with its status and, unless that is PUT_OK, a reason
for people."""


class PutMessage(msgspec.Struct, frozen=True, gc=False):
    """One message as the broker hands it to the store.

    `properties` is the encoded property string, `born_host` address and port packed (8 bytes, or
    20 with BORNHOST_V6_FLAG in `sys_flag`). The store sets the rest of the record. `store_host` is
    for records that are written again, such as a delayed message when its time has come: they keep
    the host that stored them first.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    born_timestamp_ms: int
    born_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    store_host: bytes = b""
    is_usual: bool = False
    """Its properties are known to ask for nothing; see `tandem.wire.demands`."""


class PutBatch(msgspec.Struct, frozen=True, gc=False):
    """A client's batch: `body` is the batch body, `properties` are added to every message's own."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    born_timestamp_ms: int
    born_host: bytes
    sys_flag: int = 0
    reconsume_times: int = 0


class PutMessageResult(msgspec.Struct, frozen=True, gc=False):
    """What became of a put.

    `reason` is for people and empty when all is well. The positions are -1 if nothing was stored.
    `queue_offset` is the first message's; the `msg_num` messages of a batch follow one another.
    """

    status: PutMessageStatus
    reason: str = ""
    wrote_offset: PhysicalOffset = -1
    wrote_bytes: int = 0
    queue_offset: QueueOffset = -1
    msg_num: int = 0
    store_timestamp_ms: int = 0
    store_host_hex: str = ""
    record_offsets: tuple[PhysicalOffset, ...] = ()

    @property
    def end_offset(self) -> PhysicalOffset:
        """The first byte after what was written: what disk and replicas have to reach."""
        return self.wrote_offset + self.wrote_bytes

    @property
    def msg_id(self) -> str:
        """The offset message id; of a batch, all of them joined by commas."""
        if self.record_offsets:
            # As one call for all: a batch is answered with an id for each of its messages.
            packed = struct.pack(f">{len(self.record_offsets)}Q", *self.record_offsets)
            ids = packed.hex(",", 8).upper().replace(",", f",{self.store_host_hex}")
            return self.store_host_hex + ids
        return f"{self.store_host_hex}{self.wrote_offset:016X}"


class GetMessageStatus(enum.Enum):
    """Outcome of a read by queue offset.

    Source: org.apache.rocketmq.store.GetMessageStatus.
    """

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    MESSAGE_DAMAGED = "MESSAGE_DAMAGED"
    """Ours: the next message is not what its queue says. A reader waits until it is healed."""


class GetMessageResult(msgspec.Struct, frozen=True):
    """Records of one queue, as stored.

    `body` is a list of views of the log, each of one or more whole records in queue order. Copy or
    send them before the next await: they keep the file mapped.
    """

    status: GetMessageStatus
    next_begin_offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    body: tuple[memoryview, ...] = ()
    message_count: int = 0
    body_bytes: int = 0
    filtered_count: int = 0
    """Messages whose properties were looked at and that were not wanted."""
    damaged: RecordDamagedError | None = None
    """With MESSAGE_DAMAGED: which message, and why. `next_begin_offset` is its number."""

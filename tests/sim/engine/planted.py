"""Logs, sends and reads made up by hand: what tests of checkers plant their faults into."""

from collections.abc import Sequence
from typing import Final

import msgspec

from tandem.wire.crc import crc32
from tests.sim.engine.history import Contract, Outcome, Read, Send
from tests.sim.engine.walked_log import LogRecord
from tests.sim.engine.workload import TOPIC
from tests.support.log_builder import LogBuilder

FILE_BYTES: Final = 512
BORN_MS: Final = 1_700_000_000_000


def body_of(index: int) -> bytes:
    """Return the body of message number `index`."""
    return b"body %d" % index


def log_of(*entries: tuple[int, int], base_ms: int = 0) -> bytes:
    """Return a log of (message number, queue id) in this order."""
    builder = LogBuilder(file_bytes=FILE_BYTES)
    for index, queue_id in entries:
        builder.put(
            TOPIC,
            body_of(index),
            queue_id=queue_id,
            keys=f"key{index}",
            store_timestamp_ms=BORN_MS + base_ms + index,
        )
    return bytes(builder.log)


ALL: Final = tuple((index, index % 2) for index in range(8))
"""Eight messages in two queues."""


def send_of(index: int, record: LogRecord) -> Send:
    """Return what a producer was told of message number `index`.

    They were sent one after another. Number 5 has no answer, 6 was answered FLUSH_SLAVE_TIMEOUT, 3
    and 7 carry no promise.
    """
    outcome = {5: Outcome.UNKNOWN, 6: Outcome.STORED}.get(index, Outcome.OK)
    known = outcome is not Outcome.UNKNOWN
    return Send(
        key=record.key,
        body_crc=crc32(body_of(index)),
        contract=Contract.ASYNC if index % 4 == 3 else Contract.REPLICATED,
        outcome=outcome,
        invoked_at=float(index),
        answered_at=index + 0.5 if known else float("inf"),
        queue_id=record.queue_id if known else -1,
        queue_offset=record.queue_offset if known else -1,
        physical_offset=record.physical_offset if known else -1,
    )


def read_of(reader: str, record: LogRecord, at_seconds: float = 50.0) -> Read:
    """Return what a reader received that got this record."""
    return Read(
        at_seconds,
        reader,
        record.topic,
        record.key,
        record.body_crc,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
    )


OUT_OF_ORDER: Final = ((0, 0), (1, 1), (4, 0), (2, 0), (3, 1), (5, 1), (6, 0), (7, 1))
"""The same, but number 4 came before number 2, which was answered before 4 was sent."""


def sent_again(send: Send, records: Sequence[LogRecord]) -> Send:
    """Return a send that may be repeated and was told its true place in the log."""
    record = next(record for record in records if record.key == send.key)
    return msgspec.structs.replace(
        send,
        attempts_max=1_000,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
    )

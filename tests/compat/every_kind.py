"""Messages of every kind that a store can hold."""

import zlib
from typing import Final

import msgspec

from store import PutBatch, PutMessage
from store.delayed.schedule_message_service import delay_rewrite
from store.log.message_encoder import inner_batch
from tandem.wire.delay_level import DelayLevels
from tandem.wire.message import (
    COMPRESSED_FLAG,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    Host,
)
from tests.store.store_world import a_batch, a_message

LONG_RETRY_TOPIC: Final = "%RETRY%" + "g" * 200
BATCH_TOPIC: Final = "TopicWithBatches"
V6: Final = Host("2001:db8::1", 7)


def every_kind(first: int) -> list[PutMessage | PutBatch]:
    """Messages of every kind there is, enough of them for several files of everything."""
    n = iter(range(first, first + 1000))
    ordinary = [
        a_message(next(n), topic, queue_id, body_bytes=300)
        for _ in range(14)
        for topic, queue_id in (("TopicA", 0), ("TopicA", 1), ("TopicB", 0))
    ]
    transaction = [
        msgspec.structs.replace(a_message(next(n)), sys_flag=flag, prepared_transaction_offset=at)
        for flag, at in (
            (TRANSACTION_PREPARED_TYPE, 0),
            (TRANSACTION_ROLLBACK_TYPE, 7),
            (TRANSACTION_COMMIT_TYPE, 5),
        )
    ]
    compressed = msgspec.structs.replace(
        a_message(next(n)), body=zlib.compress(b"long " * 100), sys_flag=COMPRESSED_FLAG
    )
    return [
        *ordinary,
        *transaction,
        compressed,
        a_batch(range(first + 200, first + 215)),
        *(a_message(next(n), LONG_RETRY_TOPIC) for _ in range(2)),
        msgspec.structs.replace(a_message(next(n)), flag=-7, reconsume_times=3),
        msgspec.structs.replace(a_message(next(n)), born_host=V6.packed),
        msgspec.structs.replace(a_message(next(n)), properties=b""),
        msgspec.structs.replace(a_message(next(n)), body=b""),
        msgspec.structs.replace(
            a_message(next(n)), properties="KEYS\x01k中 \U0001f600 k2\x02TAGS\x01Tagé\x02".encode()
        ),
        *(delayed(next(n), level) for level in (3, 3, 30)),
        *(
            inner_batch(a_batch(range(first + at, first + at + 4), BATCH_TOPIC, queue_id))
            for at in range(300, 328, 4)
            for queue_id in (0, 1)
        ),
    ]


def delayed(number: int, level: int) -> PutMessage:
    """A message as it is stored while it waits: RocketMQ's broker does that, not its store."""
    message = a_message(number)
    return delay_rewrite(
        msgspec.structs.replace(
            message, properties=message.properties + b"DELAY\x01%d\x02" % level
        ),
        DelayLevels(),
    )

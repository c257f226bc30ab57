"""What a crash campaign does with one seed: settings of a store, and the messages it gets."""

import random
from typing import Any, Final

import msgspec

from store import FlushDiskType, PutBatch, PutMessage
from tandem.wire.message import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    Host,
)
from tests.store.crash_history import DELAYS_MS
from tests.store.store_world import a_batch, a_message

BATCH_TOPIC: Final = "Batches"
V2_TOPIC: Final = "%RETRY%" + "long" * 40
"""More characters than the length field of a V1 record can express."""

TOPICS: Final = ("TopicA", "TopicB", "T", V2_TOPIC)
TRANSACTION_TYPES: Final = (
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
BORN_HOST_V6: Final = Host("2001:db8::7", 4711)
STORE_HOST_V6: Final = Host("fe80::1", 10911)


class Plan(msgspec.Struct, frozen=True):
    """What one seed decides beforehand."""

    seed: int
    settings: dict[str, Any]
    is_slave: bool
    clock_jumps: bool
    rounds: int
    body_bytes: tuple[int, ...]
    cleans: bool
    loses_queues: bool
    """Between lives somebody deletes a queue, so that recovery has to build it anew."""


def draw_plan(seed: int) -> Plan:
    """Choose the settings of a store and of what happens to it."""
    chance = random.Random(f"plan {seed}")
    is_slave = chance.random() < 0.2
    sync_flush = chance.random() < 0.5
    pool = not is_slave and not sync_flush and chance.random() < 0.5
    crc = chance.choice((None, None, "append", "force"))
    settings: dict[str, Any] = {
        "commit_log_bytes": chance.choice((4096, 8192)),
        "consume_queue_bytes": chance.choice((200, 1000)),
        "flush_disk_type": FlushDiskType.SYNC_FLUSH if sync_flush else FlushDiskType.ASYNC_FLUSH,
        "mapper_file_size_batch_consume_queue_bytes": chance.choice((92, 690)),
        "enable_consume_queue_ext": chance.random() < 0.5,
        "mapped_file_size_consume_queue_ext_bytes": chance.choice((90, 600)),
        "max_hash_slot_num": chance.choice((5, 40)),
        "max_index_num": chance.choice((8, 12, 60)),
        "enabled_append_prop_crc": crc is not None,
        "force_verify_prop_crc": crc == "force",
        "transient_store_pool_enable": pool,
        "transient_store_pool_size": 2,
        "flush_commit_log_least_pages": chance.choice((0, 4)),
    }
    if chance.random() < 0.3:
        settings["store_path_commit_log"] = tuple(f"/store/disk{n}" for n in (1, 2))
    if chance.random() < 0.2:
        settings["store_host"] = STORE_HOST_V6
    cleans = chance.random() < 0.4
    return Plan(
        seed=seed,
        settings=settings,
        is_slave=is_slave,
        clock_jumps=chance.random() < 0.15,
        rounds=chance.randrange(3, 14),
        body_bytes=chance.choice(((0, 10, 40), (0, 40, 300, 700), (300, 1400))),
        cleans=cleans,
        # Numbers of messages that are gone cannot be known again.
        loses_queues=not cleans and chance.random() < 0.3,
    )


def draw_message(chance: random.Random, number: int, plan: Plan) -> PutMessage | PutBatch:
    """Choose the next message or batch: every kind there is."""
    topic, queue_id = chance.choice(TOPICS), chance.randrange(2)
    kind = chance.random()
    if kind < 0.10:
        return a_batch(range(number, number + chance.randrange(1, 8)), topic, queue_id)
    if kind < 0.22:
        return a_batch(range(number, number + chance.randrange(1, 6)), BATCH_TOPIC, queue_id)
    plain = a_message(number, topic, queue_id, body_bytes=chance.choice(plan.body_bytes))
    properties = plain.properties
    changes: dict[str, Any] = {}
    if kind < 0.32:
        changes["sys_flag"] = chance.choice(TRANSACTION_TYPES)
    elif kind < 0.44:
        properties += b"DELAY\x01%d\x02" % chance.randrange(1, 1 + len(DELAYS_MS))
    elif kind < 0.54:
        changes["born_host"] = BORN_HOST_V6.packed
    elif kind < 0.60:
        properties = b"p\x01" + b"x" * chance.choice((300, 900)) + b"\x02" + properties
    elif kind < 0.66:
        changes["body"] = plain.body + bytes(chance.choice((100, 700)))
    elif kind < 0.70:
        properties = b""  # no tags, no keys
    return msgspec.structs.replace(plain, properties=properties, **changes)


def is_batch_topic(topic: str) -> bool:
    """Say which topic has batch queues."""
    return topic == BATCH_TOPIC

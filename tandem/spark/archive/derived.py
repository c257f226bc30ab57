"""Columns that say in plain words what topic and properties of a message say, for any reader.

    topic             that of the file; some readers of tables do not look for it in its path
    uniqueKey         the property UNIQ_KEY, which a message has again when it is sent again
    kind              message, retry (of a topic %RETRY%GROUP) or deadLetter (%DLQ%GROUP)
    consumerGroup     of a retry or a dead letter: whose it is
    originTopic       of a retry or a dead letter: the topic where it was at first
    originMessageId   and its id there

They are written into data files, and made again from the rows whenever files are written anew. Our
own readers do not use them.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tandem.wire.message_properties import (
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_UNIQUE_KEY,
)
from tandem.wire.system_topics import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX

DERIVED_SCHEMA: Final = pa.schema(
    [
        (name, pa.string())
        for name in (
            "topic",
            "uniqueKey",
            "kind",
            "consumerGroup",
            "originTopic",
            "originMessageId",
        )
    ]
)


def with_derived(rows: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """Return rows of a topic, which have the columns of an archive, with the columns above anew."""
    rows = rows.select([name for name in rows.schema.names if name not in DERIVED_SCHEMA.names])
    return pa.RecordBatch.from_arrays(
        [*rows.columns, *derived(rows, topic)],
        schema=pa.schema([*rows.schema, *DERIVED_SCHEMA]),
    )


def derived(rows: pa.RecordBatch, topic: str) -> list[pa.Array]:
    """Return the columns above for rows of a topic, in their order."""
    kind, group = _kind(topic)
    properties = rows.column("properties")

    def value(name: str) -> pa.Array:
        return pc.map_lookup(properties, name, "last")

    if group is None:
        origins = [pa.nulls(len(rows), pa.string())] * 2
    else:
        origins = [
            pc.coalesce(value(PROPERTY_DLQ_ORIGIN_TOPIC), value(PROPERTY_RETRY_TOPIC)),
            pc.coalesce(value(PROPERTY_DLQ_ORIGIN_MESSAGE_ID), value(PROPERTY_ORIGIN_MESSAGE_ID)),
        ]
    return [
        pa.repeat(pa.scalar(topic), len(rows)),
        value(PROPERTY_UNIQUE_KEY),
        pa.repeat(pa.scalar(kind), len(rows)),
        pa.repeat(pa.scalar(group, pa.string()), len(rows)),
        *origins,
    ]


def _kind(topic: str) -> tuple[str, str | None]:
    """Return what a topic has, and of which consumer group."""
    for prefix, kind in (
        (RETRY_GROUP_TOPIC_PREFIX, "retry"),
        (DLQ_GROUP_TOPIC_PREFIX, "deadLetter"),
    ):
        if topic.startswith(prefix):
            return kind, topic.removeprefix(prefix)
    return "message", None

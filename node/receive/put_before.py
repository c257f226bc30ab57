"""Messages that an earlier master put again, and whose record it had no time to write.

    log of a new master   ... last record of POP | retry message | (no record of it)

What is put again is in the log before the record that says so. If the master dies in between, the
next one finds the message there, after the last record of POP: it writes the record, and the
message does not come twice. Nothing is read where nothing was put after that record.

A message is known by its content: for two of the same content it does not matter which of them was
put.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, TypeAlias

from node.pop.changes import QueueKey, Revived, runs_of
from node.pop.deliveries import Deliveries, Handout
from node.receive.put_again import PROPERTIES_ADDED
from node.receive.retry_topics import retry_topic_of
from store import MessageStore
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import MessageExt, decode_message
from tandem.wire.receipt_handle import TopicMark
from tandem.wire.system_topics import dlq_topic

_Content: TypeAlias = tuple[object, ...]
_Entry: TypeAlias = "tuple[QueueKey, int, Handout]"

_MARKS: Final = (TopicMark.RETRY_V1, TopicMark.RETRY_V2)


def put_before(store: MessageStore, deliveries: Deliveries, since: int, end: int) -> list[Revived]:
    """Return what is to be written by a master that opened when the log ended at `end`.

    `since` is where the last record of POP is: nothing before it was put again without a record.
    """
    put: dict[str, Counter[_Content]] = {}
    entries: defaultdict[str, list[_Entry]] = defaultdict(list)
    for key, queue in deliveries.queues.items():
        for topic in _targets(key):
            if topic not in put:
                put[topic] = Counter(_contents_of(store, topic, since, end))
            if put[topic]:
                entries[topic] += [
                    (key, offset, handout)
                    for offset, handout in queue.invisible.items()
                    if not handout.is_orderly
                ]
    found: dict[QueueKey, dict[int, list[int]]] = {}
    for topic, candidates in entries.items():
        for key, offset, handout in candidates:
            content = _content_of_entry(store, key, offset) if put[topic] else None
            if content is not None and put[topic][content] > 0:
                put[topic] -= Counter((content,))
                found.setdefault(key, {}).setdefault(handout.pop_time_ms, []).append(offset)
    return [
        Revived(*key, [(pop_time_ms, runs_of(sorted(each))) for pop_time_ms, each in done.items()])
        for key, done in found.items()
    ]


def _targets(key: QueueKey) -> list[str]:
    topics = [retry_topic_of(key.group, key.topic, mark) for mark in _MARKS]
    return [*dict.fromkeys(topics), dlq_topic(key.group)]


def _contents_of(store: MessageStore, topic: str, since: int, end: int) -> Iterator[_Content]:
    queue = store.queues.find(topic, 0)
    if queue is None:
        return
    for offset, size, _ in queue.units_below(end):
        if offset < since:
            return
        record = _read(store, offset, size)
        if record is not None:
            yield _content(record, record.reconsume_times)


def _content_of_entry(store: MessageStore, key: QueueKey, offset: int) -> _Content | None:
    result = store.reads.get_message(key.topic, key.queue_id, offset, 1)
    if not result.body:
        return None
    try:
        record = decode_message(result.body[0])[0]
    except MalformedMessageError:
        return None  # it is put once more when it is healed
    return _content(record, record.reconsume_times + 1)


def _content(record: MessageExt, reconsume_times: int) -> _Content:
    properties = tuple(
        sorted(item for item in record.properties.items() if item[0] not in PROPERTIES_ADDED)
    )
    return (
        record.born_timestamp_ms,
        record.born_host.packed,
        record.flag,
        reconsume_times,
        blake2b(record.body, digest_size=16).digest(),
        properties,
    )


def _read(store: MessageStore, offset: int, size: int) -> MessageExt | None:
    view = store.commit_log.message(offset, size)
    try:
        return decode_message(view)[0] if view is not None else None
    except MalformedMessageError:
        return None

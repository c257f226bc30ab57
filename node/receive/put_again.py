"""Messages whose time is over: they are put again, for the same group, or are given up.

    record --+--> %RETRY%<group>_<topic>   tries are left
             +--> %DLQ%<group>             no more; RocketMQ's broker tries for ever

A copy with one more reconsume time is put; the record stays where it is. What is not in the log any
more, because its time there was over, cannot come again.

Source: RocketMQ 5.3.3, PopReviveService.reviveRetry.
"""

from __future__ import annotations

import enum
import logging
from typing import Final

import msgspec

from node.errors import RequestError
from node.pop.changes import QueueKey
from node.pop.due_times import Over
from node.receive.retry_topics import retry_topic_of
from node.tables.tables import Tables
from store import MessageStore
from store.log.message_encoder import topic_fault
from store.machine.errors import StoreError
from store.messages.send_back import send_back
from store.results import GetMessageStatus, PutMessage, PutMessageStatus
from tandem.wire.errors import MalformedMessageError
from tandem.wire.java_map import encode_in_java_order
from tandem.wire.message import MessageExt, decode_message
from tandem.wire.message_properties import (
    PROPERTY_CRC32,
    PROPERTY_DELAY_LEVEL,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_FIRST_POP_TIME,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
)
from tandem.wire.receipt_handle import TopicMark, normal_topic
from tandem.wire.request_headers import TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import dlq_topic

_log = logging.getLogger(__name__)


PROPERTIES_ADDED: Final = frozenset(
    {
        PROPERTY_FIRST_POP_TIME,
        PROPERTY_DLQ_ORIGIN_TOPIC,
        PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
        PROPERTY_RETRY_TOPIC,
        PROPERTY_ORIGIN_MESSAGE_ID,
        PROPERTY_WAIT_STORE_MSG_OK,
        PROPERTY_DELAY_LEVEL,
        PROPERTY_CRC32,
    }
)
"""In what is put again, these may be others than in the record."""

RETRIES_MAX: Final = 16
"""Of a group that does not say. Source: SubscriptionGroupConfig.retryMaxTimes."""

_NEVER_STORED: Final = (
    PutMessageStatus.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
)


class Outcome(enum.Enum):
    """What became of a message whose time is over."""

    PUT = enum.auto()
    GONE = enum.auto()
    """There is nothing to put again."""
    LATER = enum.auto()
    """The store does not take it now."""
    DAMAGED = enum.auto()
    """The record has to be healed first."""


class PutAgain:
    """Puts messages again, for one broker."""

    def __init__(self, store: MessageStore, tables: Tables, retry_mark: TopicMark) -> None:
        """Put them into retry topics of this kind."""
        self._store = store
        self._reads = store.reads.for_copies()
        self._tables = tables
        self._retry_mark = retry_mark
        self._end_offset = 0
        """Where in the log the last one that was put ends."""

    @property
    def is_flushed(self) -> bool:
        """Whether all that was put would survive a power loss."""
        return self._store.flushed_where >= self._end_offset

    def sync(self) -> None:
        """Bring what was put to the disk. Where that cannot be, a start puts it once more."""
        if self.is_flushed or self._store.refusal is not None:
            return
        try:
            self._store.sync_log()
        except (OSError, StoreError) as error:
            _log.warning("some messages that were put again will be so once more: %s", error)

    def put(self, over: Over, offset: int) -> Outcome:
        """Put one message again.

        Raises:
            RequestError: its topic is not there and cannot be created now.
        """
        record = self._record(over.key, offset)
        if not isinstance(record, Outcome):
            return self._put_record(over.key, over.handout.pop_time_ms, record)
        return record

    def _record(self, key: QueueKey, offset: int) -> MessageExt | Outcome:
        result = self._reads.get_message(key.topic, key.queue_id, offset, 1)
        if result.damaged is not None:
            return Outcome.DAMAGED
        if result.status is not GetMessageStatus.FOUND:
            return Outcome.GONE
        try:
            message = decode_message(result.body[0])[0]
        except MalformedMessageError:
            return Outcome.DAMAGED
        return message if message.queue_offset == offset else Outcome.GONE

    def _put_record(self, key: QueueKey, pop_time_ms: int, record: MessageExt) -> Outcome:
        config = self._tables.groups.get(key.group)
        retries_max = RETRIES_MAX if config is None else config.retry_max_times
        if retries_max < 0:
            retries_max = RETRIES_MAX
        is_given_up = record.reconsume_times >= retries_max
        if is_given_up and topic_fault(dlq_topic(key.group)) is None:
            message = dead_letter(record, key)
        else:
            message = retried(record, key, pop_time_ms, self._retry_mark)
        if self._tables.topics.get(message.topic) is None:
            self._tables.change_topics(TopicConfig(message.topic, 1, 1))
        result = self._store.puts.put_message(message, hooks=False)
        if result.status in _NEVER_STORED:
            # There is no room for what was added to the properties.
            bare = msgspec.structs.replace(message, properties=_own_properties(record))
            result = self._store.puts.put_message(bare, hooks=False)
        if result.status in _NEVER_STORED:
            _log.error(
                "message %d of %s, queue %d, cannot be put into %s for group %s, and is passed"
                " over: %s",
                record.queue_offset,
                key.topic,
                key.queue_id,
                message.topic,
                key.group,
                result.reason,
            )
            return Outcome.GONE
        if not result.status.is_stored:
            return Outcome.LATER
        self._end_offset = result.end_offset
        return Outcome.PUT


def retried(record: MessageExt, key: QueueKey, pop_time_ms: int, mark: TopicMark) -> PutMessage:
    """Return the message to put for one whose consumer did not say that it is done."""
    properties = dict(record.properties)
    properties.pop(PROPERTY_CRC32, None)  # of the record, not of the message
    if record.reconsume_times == 0:
        properties[PROPERTY_FIRST_POP_TIME] = str(pop_time_ms)
    return PutMessage(
        topic=retry_topic_of(key.group, key.topic, mark),
        queue_id=0,
        body=record.body,
        properties=encode_in_java_order(properties),
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host.packed,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times + 1,
    )


def dead_letter(record: MessageExt, key: QueueKey) -> PutMessage:
    """Return the message to put for one that is given up: as if its consumer had sent it back."""
    origin = normal_topic(key.topic, key.group)
    message_id = record.properties.get(PROPERTY_UNIQUE_KEY) or record.offset_msg_id
    properties = {
        PROPERTY_DLQ_ORIGIN_TOPIC: origin,
        PROPERTY_DLQ_ORIGIN_MESSAGE_ID: message_id,
        PROPERTY_RETRY_TOPIC: origin,
        **record.properties,
    }
    return send_back(
        msgspec.structs.replace(record, properties=properties),
        group=key.group,
        delay_level=-1,
        max_reconsume_times=0,
        retry_queue_id=0,
    )


def _own_properties(record: MessageExt) -> bytes:
    properties = dict(record.properties)
    properties.pop(PROPERTY_CRC32, None)
    return encode_in_java_order(properties)


def check_retry_topic(group: str, topic: str, mark: TopicMark) -> None:
    """Refuse what could not come again, because its retry topic cannot have its name.

    Raises:
        RequestError: MESSAGE_ILLEGAL.
    """
    name = retry_topic_of(group, topic, mark)
    if (fault := topic_fault(name)) is not None:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"messages of topic[{topic}] could not come again for group[{group}]: {fault[1]};"
            " use shorter names",
        )

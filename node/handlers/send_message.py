"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE: the path of a put.

    check --> append --+--> answer                       nobody to wait for, or WAIT=false
                       +--> park --> submit --> answer   see `parked_puts`

A message that is answered with FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE *is*
in the log; the remark says in words what went wrong.

Replication is asked first whether this node takes puts. Whatever is refused was not stored, and the
remark says so. In a fenced group a put with TANDEM_ACK=flushed waits for the disks of the replicas,
whatever its group waits for.

Source: RocketMQ 5.3.3, SendMessageProcessor, AbstractSendMessageProcessor.msgCheck; store pipeline
in DefaultMessageStore.asyncPutMessage and CommitLog.handleDiskFlushAndHA.
"""

from __future__ import annotations

import logging
from random import Random
from typing import Final, TypeAlias

import msgspec
import trio

from ha.replication import Replication
from ha.results import Ack, PutWait
from node.errors import RequestError
from node.handlers.group_topics import dead_letter_topic
from node.handlers.parked_puts import STATUS_CODES, ParkedPuts, WaitPolicy
from node.handlers.recall_handles import recall_handle
from node.handlers.send_half import SendHalf
from node.handlers.send_properties import (
    PropertyStamp,
    check_key,
    is_half,
    placed,
    with_delay_level,
)
from node.handlers.stored_answer import (
    stored_frame,
    stored_response,
)
from node.remoting.connection import Connection
from node.remoting.dispatcher import Answer, response_to
from node.security.access import Action, Resource
from node.security.request import of_topic, serves
from node.tables.put_times import PutTimes
from node.tables.queue_locks import QueueLocks
from node.tables.tables import Tables
from node.tables.topic_attributes import is_compacted
from node.tables.topic_config_table import NOT_ALLOWED_SEND_TOPICS, topic_complaint
from store import MessageStore, PutBatch, PutMessage, PutMessageResult, PutMessageStatus
from store.messages.send_back import DLQ_QUEUE_ID
from tandem.wire.access_control import Kind, Right
from tandem.wire.demands import Demands, demands_of
from tandem.wire.remoting_command import ONEWAY_FLAG, RemotingCommand
from tandem.wire.reply_headers import RecallableResponseHeader
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    TopicConfig,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import RETRY_GROUP_TOPIC_PREFIX

_log = logging.getLogger(__name__)

# Looking up a member of an enum costs 50 ns, and this is done for every message.
_PUT_OK: Final = PutMessageStatus.PUT_OK
_SEND_MESSAGE: Final = int(RequestCode.SEND_MESSAGE)
_SEND_BATCH_MESSAGE: Final = int(RequestCode.SEND_BATCH_MESSAGE)

NO_DELAY_LEVEL: Final = -1
"""What RocketMQ writes into a message that it makes a dead letter."""

SendHeader: TypeAlias = SendMessageRequestHeader | SendMessageRequestHeaderV2


class SendMessage:
    """Serves the puts of a node: stores those of a master, refuses those of others.

    `flush` is the group commit of a store with SYNC_FLUSH, None of others.
    """

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        properties: PropertyStamp,
        replication: Replication,
        flush: PutWait | None,
        random: Random,
        locks: QueueLocks,
        broker_name: str,
        times: PutTimes,
        *,
        rejects_transactions: bool = False,
    ) -> None:
        self._store = store
        self._put = (store.puts.put_message, SendHalf(store, rejects=rejects_transactions).put)
        """Of a message, and of one that is put aside until it is committed."""
        self._tables = tables
        self._topics = tables.topics
        self._properties = properties
        self._refusal = replication.refusal
        self._random = random
        self._locks = locks
        self._broker_name = broker_name
        self._times = times
        self.parked = ParkedPuts(
            WaitPolicy(flush, replication.waits(Ack.REPLICATED)),
            WaitPolicy(flush, replication.waits(Ack.FLUSHED)),
            times,
        )
        """The puts that wait for disks or replicas."""
        self._policy_waits = self.parked.any_waits

    @serves(
        RequestCode.SEND_MESSAGE,
        (Resource.MESSAGES, Action.WRITE),
        of_topic("topic", Right.PUB),
        header=SendMessageRequestHeader,
    )
    @serves(
        RequestCode.SEND_MESSAGE_V2,
        (Resource.MESSAGES, Action.WRITE),
        of_topic("topic", Right.PUB),
        header=SendMessageRequestHeaderV2,
    )
    @serves(
        RequestCode.SEND_BATCH_MESSAGE,
        (Resource.MESSAGES, Action.WRITE),
        of_topic("topic", Right.PUB),
        header=SendMessageRequestHeaderV2,
    )
    def handle(self, connection: Connection, command: RemotingCommand) -> Answer | None:
        """Put a message or a batch. This runs once per message, so it is one flat function."""
        header: SendHeader = (
            command.decode_header(SendMessageRequestHeader)
            if command.code == _SEND_MESSAGE
            else command.decode_header(SendMessageRequestHeaderV2)
        )
        if refusal := self._refusal():
            raise RequestError(refusal.code, refusal.text)
        if (
            header.reconsume_times
            and not header.batch
            and header.topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
        ):
            header = self._retried(header)
        topic = header.topic
        config = self._topics.get(topic)
        if config is None or config.attributes or topic in NOT_ALLOWED_SEND_TOPICS:
            config = self._unusual_topic(connection, command, header, config)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._random.randrange(config.write_queue_nums)
        elif queue_id >= config.write_queue_nums and queue_id >= config.read_queue_nums:
            raise _illegal_queue(header, config)
        if self.parked.room <= 0:
            raise self.parked.overloaded()
        properties = header.properties or ""
        asked = demands_of(properties)
        place = queue_id, properties
        queue_id, properties = place if asked.is_usual else placed(asked, header, *place, config)
        if header.batch or command.code == _SEND_BATCH_MESSAGE:
            result = self._put_batch(connection, command, header, queue_id, asked)
        else:
            sys_flag, times = header.sys_flag, header.reconsume_times
            message = PutMessage(
                topic,
                queue_id,
                command.body,
                self._properties.stored(properties, is_stamped=asked.stamped),
                header.born_timestamp,
                connection.born_host,
                header.flag,
                sys_flag,
                times or 0,
                is_usual=asked.is_usual,
            )
            half = (asked.transaction or sys_flag) and is_half(asked, sys_flag, times)
            result = self._put[bool(half)](message)
        if result.status is not _PUT_OK:
            return self.not_stored(command, result)
        answer = self._recallable_response if asked.timed else stored_frame
        response = answer(command, queue_id, properties, result)
        if self._policy_waits and not command.flag & ONEWAY_FLAG and asked.waits:
            self.parked.park(connection, result.end_offset, response, for_disks=asked.flushed)
            return None
        return response

    def _recallable_response(
        self, command: RemotingCommand, queue_id: int, properties: str, result: PutMessageResult
    ) -> RemotingCommand:
        """Return the answer, with a recall handle if the message waits for its time."""
        response = stored_response(command, queue_id, properties, result)
        handle = recall_handle(self._store, result, self._broker_name)
        if handle is None or not isinstance(response.ext, SendMessageResponseHeader):
            return response
        values = msgspec.structs.asdict(response.ext)
        ext = RecallableResponseHeader(**values, recall_handle=handle)
        return msgspec.structs.replace(response, ext=ext)

    def check_takes_puts(self) -> None:
        """Raise unless this node stores messages, and has room for one more that waits.

        Raises:
            RequestError: with the reason.
        """
        if refusal := self._refusal():
            raise RequestError(refusal.code, refusal.text)
        if self.parked.room <= 0:
            raise self.parked.overloaded()

    def put_again(
        self,
        connection: Connection,
        command: RemotingCommand,
        message: PutMessage,
        response: RemotingCommand | None = None,
    ) -> RemotingCommand | None:
        """Put what a request has made of another record; SUCCESS when disk and replicas have it.

        Its WAIT is not asked: that was about the first send.
        """
        result = self._store.puts.put_message(message)
        if result.status is not _PUT_OK:
            return self.not_stored(command, result)
        properties = str(message.properties, "utf-8")
        end = result.end_offset
        return self.answer_when_stored(connection, command, end, properties, response)

    def not_stored(self, command: RemotingCommand, result: PutMessageResult) -> RemotingCommand:
        """The answer to a request whose message was refused by the store."""
        self._times.failed_count += 1
        return response_to(command, STATUS_CODES[result.status], _reason(result))

    def answer_when_stored(
        self,
        connection: Connection,
        command: RemotingCommand,
        end_offset: int,
        properties: str = "",
        response: RemotingCommand | None = None,
    ) -> RemotingCommand | None:
        """Answer when disk and replicas have the log up to an offset; None: later.

        `response` is the answer if all goes well, SUCCESS unless given.
        """
        response = response or response_to(command)
        if not self._policy_waits or command.flag & ONEWAY_FLAG:
            return response
        flushed = demands_of(properties).flushed
        self.parked.park(connection, end_offset, response, for_disks=flushed)
        return None

    def _retried(self, header: SendHeader) -> SendHeader:
        """Return where a message of a retry topic goes: to the dead letters, after too many tries.

        A group that reads in order has tried by itself before it sends.

        Source: AbstractSendMessageProcessor.handleRetryAndDLQ.
        """
        group = header.topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        most = header.max_reconsume_times
        if most is None:
            most = self._tables.groups.find(group).retry_max_times
        is_over = (header.reconsume_times or 0) > most
        if not is_over and not self._locks.is_held(group, trio.current_time()):
            return header
        return msgspec.structs.replace(
            header,
            topic=dead_letter_topic(self._tables, group),
            queue_id=DLQ_QUEUE_ID,
            properties=with_delay_level(header.properties or "", NO_DELAY_LEVEL),
        )

    def _unusual_topic(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: SendHeader,
        config: TopicConfig | None,
    ) -> TopicConfig:
        """Return the topic, which may have to be created, or want something of a message.

        A batch with messages without keys is stored: they are not in the compaction log.
        """
        if config is None or header.topic in NOT_ALLOWED_SEND_TOPICS:
            return self._created_topic(connection, header)
        is_batch = header.batch or command.code == _SEND_BATCH_MESSAGE
        if is_compacted(config.attributes) and not is_batch:
            check_key(header.properties or "")
        return config

    def _created_topic(self, connection: Connection, header: SendHeader) -> TopicConfig:
        topic = header.topic
        complaint = topic_complaint(topic)
        if complaint:
            raise RequestError(ResponseCode.INVALID_PARAMETER, complaint)
        if topic in NOT_ALLOWED_SEND_TOPICS:
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
            )
        config = self._topics.config_for_send(
            topic, header.default_topic, header.default_topic_queue_nums
        )
        # RocketMQ lets everybody create a topic who may send to one of that name.
        connection.caller.check(Kind.TOPIC, topic, Right.CREATE)
        self._tables.change_topics(config)
        _log.info("topic %s created by a send, %d queues", topic, config.write_queue_nums)
        return config

    def _put_batch(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: SendHeader,
        queue_id: int,
        asked: Demands,
    ) -> PutMessageResult:
        """Put a batch. The header's properties are not stored: each message has its own.

        Source: SendMessageProcessor.sendBatchMessage, CommitLog.asyncPutMessages.
        """
        if header.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry group"
            )
        if asked.delay_level > 0:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be delayed")
        return self._store.puts.put_batch(
            PutBatch(
                header.topic,
                queue_id,
                command.body,
                self._properties.batch_suffix,
                header.born_timestamp,
                connection.born_host,
                header.sys_flag,
                header.reconsume_times or 0,
            )
        )


def _reason(result: PutMessageResult) -> str:
    return result.reason if result.status.is_stored else f"{result.reason}; nothing was stored"


def _illegal_queue(header: SendHeader, config: TopicConfig) -> RequestError:
    return RequestError(
        ResponseCode.INVALID_PARAMETER,
        f"request queueId[{header.queue_id}] is illegal, {header.topic}"
        f" readQueueNums={config.read_queue_nums} writeQueueNums={config.write_queue_nums}",
    )

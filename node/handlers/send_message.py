"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE: the path of a put.

    check --> append --+--> answer                           nobody to wait for, or WAIT=false
                       +--> park --+--> answer               the disk, a slave, or both have it,
                                                             or their time is up

A put that waits is parked as an answer and not as a task: the `ParkedPut` is called back with the
outcome and writes the response into its connection.

A message that is answered with FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE *is*
in the log; the remark says in words what went wrong.

Source: RocketMQ 5.3.3, SendMessageProcessor, AbstractSendMessageProcessor.msgCheck; store pipeline
in DefaultMessageStore.asyncPutMessage and CommitLog.handleDiskFlushAndHA.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import trio

from node.dispatcher import response_to
from node.errors import RequestError
from node.handlers.send_properties import REGION, check_supported, is_waiting, unique_key_of
from node.topic_config_table import NOT_ALLOWED_SEND_TOPICS, RETRY_TOPIC_PREFIX, topic_complaint
from store import PutBatch, PutMessage, PutMessageStatus
from tandem.wire.remoting_command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    RemotingCommand,
    SerializeType,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from tandem.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from node.connection import Connection
    from node.handlers.send_properties import PropertyStamp
    from node.topic_config_table import TopicConfigTable
    from store import MessageStore, PutMessageResult
    from tandem.wire.request_headers import TopicConfig
_log = logging.getLogger(__name__)

PARKED_PUTS_MAX: Final = 100_000
"""Puts that wait for disk or slave, over all connections. Beyond it sends are refused."""

_CODES: Final = {
    PutMessageStatus.PUT_OK: ResponseCode.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutMessageStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.CREATE_MAPPED_FILE_FAILED: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
    PutMessageStatus.UNKNOWN_ERROR: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: ResponseCode.SYSTEM_ERROR,
}
"""Source: SendMessageProcessor.handlePutMessageResult."""

# Looking up a member of an enum costs 50 ns, and this is done for every message.
_PUT_OK: Final = PutMessageStatus.PUT_OK
_SEND_MESSAGE: Final = int(RequestCode.SEND_MESSAGE)
_SEND_BATCH_MESSAGE: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_MSGPACK: Final = SerializeType.MSGPACK

assert set(_CODES) == set(PutMessageStatus)

SendHeader: TypeAlias = SendMessageRequestHeader | SendMessageRequestHeaderV2

Submit: TypeAlias = "Callable[[int, float, Callable[[PutMessageStatus, str], None]], None]"
"""(end offset, deadline in trio's time, called once with the outcome)"""


class WaitPolicy(msgspec.Struct, frozen=True):
    """For what a put with WAIT waits, and for how long."""

    submit_flush: Submit | None = None
    """Of the flush service; None under ASYNC_FLUSH."""

    submit_replication: Submit | None = None
    """Of the group transfer service; None under ASYNC_MASTER."""

    flush_timeout_seconds: float = 5.0
    slave_timeout_seconds: float = 3.0

    @property
    def waits(self) -> bool:
        """Whether there is anything to wait for."""
        return self.submit_flush is not None or self.submit_replication is not None


class SendMessage:
    """Serves the puts of a master."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigTable,
        properties: PropertyStamp,
        policy: WaitPolicy,
        random: Random,
    ) -> None:
        self._store = store
        self._topics = topics
        self._properties = properties
        self._policy = policy
        self._random = random
        self._policy_waits = policy.waits
        self._parked_count = 0

    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Put a message or a batch. This runs once per message, so it is one flat function."""
        if command.code == _SEND_MESSAGE:
            header: SendHeader = command.decode_header(SendMessageRequestHeader)
        else:
            header = command.decode_header(SendMessageRequestHeaderV2)
        topic = header.topic
        config = self._topics.get(topic)
        if config is None or topic in NOT_ALLOWED_SEND_TOPICS:
            config = self._created_topic(header)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._random.randrange(config.write_queue_nums)
        elif queue_id >= config.write_queue_nums and queue_id >= config.read_queue_nums:
            raise _illegal_queue(header, config)
        if self._parked_count >= PARKED_PUTS_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]{self._parked_count} puts wait for the disk or a slave; send again",
            )
        properties = header.properties or ""
        if header.batch or command.code == _SEND_BATCH_MESSAGE:
            result = self._put_batch(connection, command, header, queue_id)
        else:
            check_supported(header.sys_flag, properties)
            result = self._store.put_message(
                PutMessage(
                    topic,
                    queue_id,
                    command.body,
                    self._properties.stored(properties),
                    header.born_timestamp,
                    connection.born_host,
                    header.flag,
                    header.sys_flag,
                    header.reconsume_times or 0,
                )
            )
        if result.status is not _PUT_OK:
            return response_to(command, _CODES[result.status], result.reason)
        if self._policy_waits and not command.flag & ONEWAY_FLAG and is_waiting(properties):
            self._park(ParkedPut(connection, command, queue_id, properties, result, self._unpark))
            return None
        return stored_response(command, queue_id, properties, result)

    def _created_topic(self, header: SendHeader) -> TopicConfig:
        topic = header.topic
        complaint = topic_complaint(topic)
        if complaint:
            raise RequestError(ResponseCode.INVALID_PARAMETER, complaint)
        if topic in NOT_ALLOWED_SEND_TOPICS:
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
            )
        config = self._topics.create_for_send(
            topic, header.default_topic, header.default_topic_queue_nums
        )
        _log.info("topic %s created by a send, %d queues", topic, config.write_queue_nums)
        return config

    def _put_batch(
        self, connection: Connection, command: RemotingCommand, header: SendHeader, queue_id: int
    ) -> PutMessageResult:
        """Put a batch. The header's properties are not stored: each message has its own.

        Source: SendMessageProcessor.sendBatchMessage.
        """
        if header.topic.startswith(RETRY_TOPIC_PREFIX):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry group"
            )
        return self._store.put_batch(
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

    def _park(self, parked: ParkedPut) -> None:
        """Source: CommitLog.handleDiskFlushAndHA: both waits run side by side."""
        policy = self._policy
        self._parked_count += 1
        parked.connection.put_parked()
        now = trio.current_time()
        end_offset = parked.result.end_offset
        parked.open_waits = (policy.submit_flush is not None) + (
            policy.submit_replication is not None
        )
        if policy.submit_flush is not None:
            policy.submit_flush(end_offset, now + policy.flush_timeout_seconds, parked.flushed)
        if policy.submit_replication is not None:
            policy.submit_replication(
                end_offset, now + policy.slave_timeout_seconds, parked.replicated
            )

    def _unpark(self) -> None:
        self._parked_count -= 1


class ParkedPut:
    """A put whose answer waits for the disk, a slave, or both. Every wait calls back once."""

    __slots__ = (
        "_on_answered",
        "_reason",
        "_status",
        "command",
        "connection",
        "open_waits",
        "properties",
        "queue_id",
        "result",
    )

    def __init__(
        self,
        connection: Connection,
        command: RemotingCommand,
        queue_id: int,
        properties: str,
        result: PutMessageResult,
        on_answered: Callable[[], None],
    ) -> None:
        self.connection = connection
        self.command = command
        self.queue_id = queue_id
        self.properties = properties
        self.result = result
        self.open_waits = 0
        self._status = PutMessageStatus.PUT_OK
        self._reason = ""
        self._on_answered = on_answered

    def flushed(self, status: PutMessageStatus, reason: str) -> None:
        """The disk has it, or its time is up. A bad word about the slaves counts more."""
        if self._status is PutMessageStatus.PUT_OK:
            self._status, self._reason = status, reason
        self._wait_ended()

    def replicated(self, status: PutMessageStatus, reason: str) -> None:
        """Enough slaves have it, or their time is up."""
        if status is not PutMessageStatus.PUT_OK:
            self._status, self._reason = status, reason
        self._wait_ended()

    def _wait_ended(self) -> None:
        self.open_waits -= 1
        if self.open_waits:
            return
        response = stored_response(
            self.command,
            self.queue_id,
            self.properties,
            self.result,
            _CODES[self._status],
            self._reason or None,
        )
        self.connection.respond(self.command, response)
        self.connection.put_answered()
        self._on_answered()


def stored_response(
    command: RemotingCommand,
    queue_id: int,
    properties: str,
    result: PutMessageResult,
    code: int = ResponseCode.SUCCESS,
    reason: str | None = None,
) -> RemotingCommand:
    """The answer to a put that is in the log. Our own client needs only the first three fields."""
    if command.serialize_type is _MSGPACK:
        ext = SendMessageResponseHeader(result.msg_id, queue_id, result.queue_offset)
    else:
        ext = SendMessageResponseHeader(
            result.msg_id,
            queue_id,
            result.queue_offset,
            unique_key_of(properties),
            None,
            REGION,
            "true",
        )
    return RemotingCommand(
        code,
        command.opaque,
        RESPONSE_FLAG,
        reason,
        ext,
        serialize_type=command.serialize_type,
    )


def _illegal_queue(header: SendHeader, config: TopicConfig) -> RequestError:
    return RequestError(
        ResponseCode.INVALID_PARAMETER,
        f"request queueId[{header.queue_id}] is illegal, {header.topic}"
        f" readQueueNums={config.read_queue_nums} writeQueueNums={config.write_queue_nums}",
    )


class SlaveRefusal:
    """Answers the puts that reach a slave."""

    def __init__(self, master_name: str, master_address: str) -> None:
        self._remark = (
            "[REJECTREQUEST]this broker is a slave and takes no messages;"
            f" send to the master {master_name} at {master_address}"
        )

    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Any of the send requests."""
        return response_to(command, ResponseCode.SYSTEM_BUSY, self._remark)

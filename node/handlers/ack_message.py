"""ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME: what becomes of popped messages.

A handle that is not good any more changes nothing: the message is done already, or its time was
over. Acknowledging by it is answered SUCCESS, as RocketMQ answers it, with `isStale` in the header
for our clients. Its time cannot be changed: NO_MESSAGE, where RocketMQ would hand the message out
once more.

Whoever may read the topic may acknowledge its messages, in its retry topics, too.

Source: RocketMQ 5.3.3, AckMessageProcessor, ChangeInvisibleTimeProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from node.errors import RequestError
from node.receive.pop_service import PopService
from node.receive.requests import Changed, Handle
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_group, of_popped_topic, of_topic, serves
from node.tables.names import check_group_of_clients
from node.tables.tables import Tables
from store import MessageStore
from tandem.wire.access_control import Right
from tandem.wire.batch_ack import BatchAck, decode_batch_ack
from tandem.wire.pop_headers import (
    AckMessageRequestHeader,
    AckMessageResponseHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from tandem.wire.receipt_handle import Receipt, decode_receipt, normal_topic
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode

ACKS_MAX: Final = 4_096
"""Ours: entries of one request, and as many messages. Clients send those of a few pops at once."""


def _topic_of_ack(command: RemotingCommand) -> Iterator[str]:
    header = command.decode_header(AckMessageRequestHeader)
    yield normal_topic(header.topic, header.consumer_group)


def _topic_of_change(command: RemotingCommand) -> Iterator[str]:
    header = command.decode_header(ChangeInvisibleTimeRequestHeader)
    yield normal_topic(header.topic, header.consumer_group)


def _topics_of_acks(command: RemotingCommand) -> list[str]:
    acks = decode_batch_ack(command.body).acks
    return list(dict.fromkeys(normal_topic(ack.topic, ack.consumer_group) for ack in acks))


def _groups_of_acks(command: RemotingCommand) -> list[str]:
    return list(dict.fromkeys(ack.consumer_group for ack in decode_batch_ack(command.body).acks))


class AckMessage:
    """Serves those who have popped messages."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        service: PopService,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._tables = tables
        self._service = service
        self._wall_clock_ms = wall_clock_ms

    @serves(
        RequestCode.ACK_MESSAGE,
        (Resource.MESSAGES, Action.READ),
        of_popped_topic("topic", _topic_of_ack, Right.SUB),
        of_group("consumer_group", Right.SUB),
        header=AckMessageRequestHeader,
    )
    def ack(self, connection: Connection, command: RemotingCommand) -> None:
        """ACK_MESSAGE: one message is done."""
        header = command.decode_header(AckMessageRequestHeader)
        receipt = self._receipt(header)
        last = self._store.reads.max_offset_in_queue(header.topic, header.queue_id)
        self._check_offset(header, last)
        self._acknowledge(connection, command, [_handle(header, receipt)])

    @serves(
        RequestCode.BATCH_ACK_MESSAGE,
        (Resource.MESSAGES, Action.READ),
        of_topic(_topics_of_acks, Right.SUB),
        of_group(_groups_of_acks, Right.SUB),
    )
    def batch_ack(self, connection: Connection, command: RemotingCommand) -> None:
        """BATCH_ACK_MESSAGE: messages are done; those of queues that are not there are left out.

        Source: AckMessageProcessor.appendAck.
        """
        acks = decode_batch_ack(command.body).acks
        if not acks:
            raise RequestError(ResponseCode.NO_MESSAGE, "the request acknowledges no message")
        if len(acks) > ACKS_MAX:
            raise _too_many(len(acks))
        handles: list[Handle] = []
        count = 0
        for ack in acks:
            check_group_of_clients(ack.consumer_group)
            count += ack.count
            if count > ACKS_MAX:
                raise _too_many(count)
            handles += self._handles(ack)
        self._acknowledge(connection, command, handles)

    def _handles(self, ack: BatchAck) -> Iterator[Handle]:
        topic, queue_id = ack.real_topic, ack.queue_id
        offsets = ack.offsets()
        config = self._tables.topics.get(topic)
        if config is None or not 0 <= queue_id < config.read_queue_nums:
            return
        first = self._store.reads.min_offset_in_queue(topic, queue_id)
        last = self._store.reads.max_offset_in_queue(topic, queue_id)
        for offset in offsets:
            if first <= offset <= last:
                yield Handle(ack.consumer_group, topic, queue_id, offset, ack.pop_time_ms)

    def _acknowledge(
        self, connection: Connection, command: RemotingCommand, handles: list[Handle]
    ) -> None:
        owed = connection.owe()

        def done(good: list[bool] | RequestError) -> None:
            if isinstance(good, RequestError):
                owed.respond(command, response_to(command, good.code, good.remark))
                return
            ext = None if all(good) else AckMessageResponseHeader(is_stale=True)
            owed.respond(command, response_to(command, ext=ext))

        self._service.ack(handles, done)

    @serves(
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        (Resource.MESSAGES, Action.READ),
        of_popped_topic("topic", _topic_of_change, Right.SUB),
        of_group("consumer_group", Right.SUB),
        header=ChangeInvisibleTimeRequestHeader,
    )
    def change(self, connection: Connection, command: RemotingCommand) -> None:
        """CHANGE_MESSAGE_INVISIBLETIME: a message comes again at another time."""
        header = command.decode_header(ChangeInvisibleTimeRequestHeader)
        receipt = self._receipt(header)
        last = self._store.reads.max_offset_in_queue(header.topic, header.queue_id) - 1
        self._check_offset(header, last)
        owed = connection.owe()

        def done(changed: Changed | RequestError | None) -> None:
            if isinstance(changed, RequestError):
                owed.respond(command, response_to(command, changed.code, changed.remark))
                return
            if changed is None:
                remark = "the message is not with this consumer any more"
                owed.respond(command, response_to(command, ResponseCode.NO_MESSAGE, remark))
                return
            invisible_ms = changed.invisible_ms
            if receipt.is_ordered:
                # The pop time stays, so all of the time since then is said.
                invisible_ms += self._wall_clock_ms() - changed.pop_time_ms
            ext = ChangeInvisibleTimeResponseHeader(
                changed.pop_time_ms, invisible_ms, receipt.revive_queue_id
            )
            owed.respond(command, response_to(command, ext=ext))

        move = self._service.extend if header.keeps_handle else self._service.change
        move(_handle(header, receipt), header.invisible_time, done)

    def _receipt(
        self, header: AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader
    ) -> Receipt:
        """Return what a handle says of a queue that is there.

        Raises:
            RequestError: it is not there.
            UnreadableError: the handle is none.
        """
        check_group_of_clients(header.consumer_group)
        config = self._tables.topics.get(header.topic)
        if config is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please!",
            )
        if not 0 <= header.queue_id < config.read_queue_nums:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]"
                f" topicConfig.readQueueNums:[{config.read_queue_nums}]",
            )
        return decode_receipt(header.extra_info)

    def _check_offset(
        self, header: AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader, last: int
    ) -> None:
        first = self._store.reads.min_offset_in_queue(header.topic, header.queue_id)
        if not first <= header.offset <= last:
            raise RequestError(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{header.topic}@{header.queue_id}, commit:{header.offset},"
                f" store:{first}~{last}",
            )


def _handle(
    header: AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader, receipt: Receipt
) -> Handle:
    return Handle(
        header.consumer_group, header.topic, header.queue_id, header.offset, receipt.pop_time_ms
    )


def _too_many(count: int) -> RequestError:
    return RequestError(
        ResponseCode.INVALID_PARAMETER,
        f"{count} messages cannot be acknowledged by one request; {ACKS_MAX} can",
    )

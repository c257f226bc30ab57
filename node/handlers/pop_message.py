"""POP_MESSAGE, NOTIFICATION, POLLING_INFO and PEEK_MESSAGE: messages without a queue of one's own.

What is handed out, and how long it is waited for, is decided in `node.receive`. Here requests are
read and checked, and answers are written as RocketMQ's clients want them.

A record of a retry topic comes under the name of the topic that was asked for, and has its handle
in the property POP_CK; of all others the client makes the handle. Unlike RocketMQ's broker, ours
does not look at the time at which a request was made: clocks of other machines say nothing.

Source: RocketMQ 5.3.3, PopMessageProcessor, NotificationProcessor, PeekMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

import msgspec
import trio

from node.errors import RequestError
from node.handlers.held_pops import HeldPop, HeldPops
from node.handlers.reading import check_reader, readable_topic
from node.handlers.subscription import Subscriptions
from node.receive.pop_service import PopService
from node.receive.requests import ALL_QUEUES, MESSAGES_MAX, Batch, Found, Receive, Received
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_group, of_topic, serves
from node.tables.broker_stats import BrokerStats
from node.tables.names import check_group_of_clients
from node.tables.tables import Tables
from store import GetMessageResult, MessageStore
from store.results import GetMessageStatus
from tandem.wire.access_control import Right
from tandem.wire.demands import PROPERTY_POP_CK
from tandem.wire.message import decode_messages, encode_record
from tandem.wire.message_properties import (
    PROPERTIES_BYTES_MAX,
    PROPERTY_CRC32,
    encode_properties,
)
from tandem.wire.pop_headers import (
    INIT_MODE_MAX,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from tandem.wire.pop_offsets import (
    PoppedOffset,
    PoppedQueue,
    encode_message_offsets,
    encode_order_counts,
    encode_start_offsets,
)
from tandem.wire.receipt_handle import (
    ReceiptHandle,
    TopicMark,
    encode_receipt_handle,
    pop_retry_topic,
)
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import (
    JOURNAL_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)

POLL_MS_MAX: Final = 60_000
"""Longest wait a client gets. Ours: RocketMQ takes any; its clients ask for 15 and 20 s."""

NOT_POPPED: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        JOURNAL_TOPIC,
        RMQ_SYS_TRANS_HALF_TOPIC,
        RMQ_SYS_TRANS_OP_HALF_TOPIC,
    }
)
"""What waits there is not for consumers; each pop of the journal would be written into it."""

NOTHING: Final = "NO_MESSAGE_IN_QUEUE"
"""The remark where nothing was found. Source: GetMessageStatus."""


class PopMessage:
    """Serves those who receive by POP."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        subscriptions: Subscriptions,
        service: PopService,
        stats: BrokerStats,
        random: Random,
        broker_name: str,
    ) -> None:
        self._store = store
        self._tables = tables
        self._subscriptions = subscriptions
        self._service = service
        self._stats = stats
        self._random = random
        self._broker_name = broker_name
        self.held = HeldPops()

    @serves(
        RequestCode.POP_MESSAGE,
        (Resource.MESSAGES, Action.READ),
        of_topic("topic", Right.SUB),
        of_group("consumer_group", Right.SUB),
        header=PopMessageRequestHeader,
        at_vip_channel=False,
    )
    def pop(self, connection: Connection, command: RemotingCommand) -> None:
        """POP_MESSAGE: hand out messages, or hold the request until there is one."""
        header = command.decode_header(PopMessageRequestHeader)
        request = self._request(header)
        may_wait = self._may_wait(connection, header.poll_time)
        if may_wait:
            request = msgspec.structs.replace(request, deadline=_deadline(header.poll_time))
        is_full = header.poll_time > 0 and not may_wait

        def done(received: Received | RequestError) -> None:
            self.held.answered(pop)
            if isinstance(received, RequestError):
                connection.respond(command, response_to(command, received.code, received.remark))
                return
            self._count(pop, header, received)
            answer, records = self._answer(command, header, received, is_full=is_full)
            connection.respond(command, answer, records)

        pop = HeldPop(
            connection, header.topic, header.consumer_group, _refuser(connection, command)
        )
        waiting = self._service.receive(request, done, connection)
        if waiting is not None:
            self.held.hold(pop, waiting)

    def _request(self, header: PopMessageRequestHeader) -> Receive:
        """Return what is asked for.

        Raises:
            RequestError: it may not be had, or makes no sense.
        """
        queue_count = self._checked(header.consumer_group, header.topic, header.queue_id)
        if not 0 < header.max_msg_nums <= MESSAGES_MAX:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{self._broker_name}] pop message's num {header.max_msg_nums} is"
                f" greater than {MESSAGES_MAX}, or is none",
            )
        wanted = self._subscriptions.said(header.exp, header.exp_type)
        return Receive(
            group=header.consumer_group,
            topic=header.topic,
            queue_id=max(header.queue_id, ALL_QUEUES),
            queue_count=queue_count,
            count_max=header.max_msg_nums,
            invisible_ms=header.invisible_time,
            starts_at_end=header.init_mode == INIT_MODE_MAX,
            tags_codes=wanted.tags_codes,
            message_filter=wanted.message_filter,
            is_orderly=bool(header.order),
            attempt_id=header.attempt_id or "",
        )

    def _checked(self, group_name: str, topic: str, queue_id: int) -> int:
        """Return how many queues a topic has for a group that may read it.

        Raises:
            RequestError: it may not, or there is no such queue.
        """
        check_group_of_clients(group_name)
        if topic in NOT_POPPED:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"topic[{topic}] is the broker's own, and what is in it is not handed out",
            )
        config = readable_topic(self._tables, topic)
        if queue_id >= config.read_queue_nums:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic}]"
                f" topicConfig.readQueueNums:[{config.read_queue_nums}]",
            )
        check_reader(self._tables, self._tables.groups.find(group_name), topic)
        return config.read_queue_nums

    def _may_wait(self, connection: Connection, poll_ms: int) -> bool:
        return poll_ms > 0 and self.held.has_room(connection)

    def _count(self, pop: HeldPop, header: PopMessageRequestHeader, received: Received) -> None:
        if not received.batches:
            self._stats.missed += 1
        size = 0
        for batch in received.batches:
            size += len(batch.records)
            self._stats.handed_out(
                header.consumer_group,
                batch.topic,
                batch.queue_id,
                batch.offsets[-1] + 1,
                len(batch.offsets),
                len(batch.records),
            )
        if (share := pop.caller.share) is not None:
            share.read(trio.current_time(), size)

    def _answer(
        self,
        command: RemotingCommand,
        header: PopMessageRequestHeader,
        received: Received,
        *,
        is_full: bool,
    ) -> tuple[RemotingCommand, list[memoryview]]:
        starts = {_queue(batch): batch.start_offset for batch in received.batches}
        offsets = {_queue(batch): batch.offsets for batch in received.batches}
        counts = encode_order_counts(_order_counts(received)) if header.order else None
        ext = PopMessageResponseHeader(
            received.pop_time_ms,
            header.invisible_time,
            received.revive_queue_id,
            received.rest_count,
            encode_start_offsets(starts),
            encode_message_offsets(offsets),
            counts,
        )
        if received.batches:
            topic = header.topic
            records = [
                memoryview(self._records(topic, received, each)) for each in received.batches
            ]
            return response_to(command, ResponseCode.SUCCESS, "FOUND", ext=ext), records
        is_full = is_full or received.found is Found.FULL
        code = ResponseCode.POLLING_FULL if is_full else ResponseCode.POLLING_TIMEOUT
        return response_to(command, code, NOTHING, ext=ext), []

    def _records(self, topic: str, received: Received, batch: Batch) -> bytes:
        """Return the records of a batch, those of a retry topic with their handles.

        Source: PopMessageProcessor.popMsgFromQueue, with popResponseReturnActualRetryTopic false.
        """
        mark = TopicMark(batch.mark)
        if mark is TopicMark.NORMAL:
            return batch.records
        records = []
        for message in decode_messages(batch.records):
            handle = ReceiptHandle(
                batch.start_offset,
                received.pop_time_ms,
                received.invisible_ms,
                received.revive_queue_id,
                mark,
                self._broker_name,
                batch.queue_id,
                message.queue_offset,
            )
            properties = message.properties | {PROPERTY_POP_CK: encode_receipt_handle(handle)}
            properties.pop(PROPERTY_CRC32, None)  # of the record as it is stored
            given = message
            if len(encode_properties(properties)) <= PROPERTIES_BYTES_MAX:
                given = msgspec.structs.replace(message, topic=topic, properties=properties)
            # Else there is no room for the handle: the client makes it, as of all other records.
            records.append(encode_record(given))
        return b"".join(records)

    @serves(
        RequestCode.NOTIFICATION,
        (Resource.MESSAGES, Action.READ),
        of_topic("topic", Right.SUB),
        of_group("consumer_group", Right.SUB),
        header=NotificationRequestHeader,
        at_vip_channel=False,
    )
    def notification(self, connection: Connection, command: RemotingCommand) -> None:
        """NOTIFICATION: say when there is something to pop."""
        header = command.decode_header(NotificationRequestHeader)
        queue_count = self._checked(header.consumer_group, header.topic, header.queue_id)
        may_wait = self._may_wait(connection, header.poll_time)
        request = Receive(
            group=header.consumer_group,
            topic=header.topic,
            queue_id=max(header.queue_id, ALL_QUEUES),
            queue_count=queue_count,
            count_max=1,
            invisible_ms=1,
            deadline=_deadline(header.poll_time) if may_wait else 0.0,
            is_orderly=bool(header.order),
            attempt_id=header.attempt_id or "",
        )
        is_full = header.poll_time > 0 and not may_wait

        def done(found: Found) -> None:
            self.held.answered(pop)
            has_message = found is Found.FOUND
            full = found is Found.FULL or (is_full and not has_message)
            ext = NotificationResponseHeader(has_message, full)
            connection.respond(command, response_to(command, ext=ext))

        pop = HeldPop(
            connection, header.topic, header.consumer_group, _refuser(connection, command)
        )
        waiting = self._service.notify(request, done)
        if waiting is not None:
            self.held.hold(pop, waiting)

    @serves(
        RequestCode.POLLING_INFO,
        (Resource.CLIENTS, Action.READ),
        of_topic("topic", Right.GET),
        of_group("consumer_group", Right.GET),
        header=PollingInfoRequestHeader,
        at_vip_channel=False,
    )
    def polling_info(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """POLLING_INFO: how many requests wait under exactly this queue."""
        header = command.decode_header(PollingInfoRequestHeader)
        self._checked(header.consumer_group, header.topic, header.queue_id)
        queue_id = max(header.queue_id, ALL_QUEUES)
        count = self._service.waiting_count(header.consumer_group, header.topic, queue_id)
        return response_to(command, ext=PollingInfoResponseHeader(count))

    @serves(
        RequestCode.PEEK_MESSAGE,
        (Resource.MESSAGES, Action.READ),
        of_topic("topic", Right.SUB),
        of_group("consumer_group", Right.SUB),
        header=PeekMessageRequestHeader,
        at_vip_channel=False,
    )
    def peek(self, connection: Connection, command: RemotingCommand) -> None:
        """PEEK_MESSAGE: what a pop would give, as stored; nothing changes by it."""
        header = command.decode_header(PeekMessageRequestHeader)
        queue_count = self._checked(header.consumer_group, header.topic, header.queue_id)
        if not 0 < header.max_msg_nums <= MESSAGES_MAX:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"{header.max_msg_nums} messages cannot be peeked at; 1 to {MESSAGES_MAX} can",
            )
        records: list[memoryview] = []
        found = rest = 0
        for topic, queue_id in self._places(header, queue_count):
            result = self._peeked(
                header.consumer_group, topic, queue_id, header.max_msg_nums - found
            )
            rest += max(result.max_offset - result.next_begin_offset, 0)
            found += result.message_count
            records += result.body
        ext = PopMessageResponseHeader(0, 0, 0, rest)
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_NOT_FOUND
        remark = "FOUND" if found else NOTHING
        if (share := connection.caller.share) is not None:
            share.read(trio.current_time(), sum(map(len, records)))
        connection.respond(command, response_to(command, code, remark, ext=ext), records)

    def _places(
        self, header: PeekMessageRequestHeader, queue_count: int
    ) -> Iterator[tuple[str, int]]:
        if header.queue_id >= 0:
            yield header.topic, header.queue_id
        else:
            start = self._random.randrange(queue_count)
            for number in range(queue_count):
                yield header.topic, (start + number) % queue_count
        for mark in (TopicMark.RETRY_V1, TopicMark.RETRY_V2):
            retry = pop_retry_topic(header.topic, header.consumer_group, mark)
            if self._tables.topics.get(retry) is not None:
                yield retry, 0

    def _peeked(self, group: str, topic: str, queue_id: int, count: int) -> GetMessageResult:
        reads = self._store.reads
        offset = self._service.pop_offset(group, topic, queue_id)
        if offset is None:
            offset = self._tables.offsets.query(group, topic, queue_id)
        first = reads.min_offset_in_queue(topic, queue_id)
        begin = first if offset is None else max(offset, first)
        result = reads.get_message(topic, queue_id, begin, max(count, 1))
        if result.status is GetMessageStatus.FOUND and count > 0:
            return result
        return msgspec.structs.replace(result, body=(), message_count=0, next_begin_offset=begin)


def _refuser(connection: Connection, command: RemotingCommand) -> Callable[[RequestError], None]:
    def refuse(error: RequestError) -> None:
        connection.respond(command, response_to(command, error.code, error.remark))

    return refuse


def _deadline(poll_ms: int) -> float:
    return trio.current_time() + min(poll_ms, POLL_MS_MAX) / 1000


def _queue(batch: Batch) -> PoppedQueue:
    return PoppedQueue(TopicMark(batch.mark), batch.queue_id)


def _order_counts(received: Received) -> dict[PoppedOffset, int]:
    """How often messages in order came before: one by one, and the least of their queue.

    Source: ConsumerOrderInfoManager.update.
    """
    counts: dict[PoppedOffset, int] = {}
    for batch in received.batches:
        mark, queue_id = _queue(batch)
        earlier = [count - 1 for count in batch.counts]
        for offset, count in zip(batch.offsets, earlier, strict=True):
            if count > 0:
                counts[PoppedOffset(mark, queue_id, offset)] = count
        counts[PoppedOffset(mark, queue_id, None)] = min(earlier)
    return counts

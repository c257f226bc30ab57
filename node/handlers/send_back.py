"""What a consumer could not handle: CONSUMER_SEND_MSG_BACK, and sends to a retry topic.

    36 -----> the record, once more: %RETRY%<group> after a delay, or %DLQ%<group>
    send to %RETRY%<group>, with more tries than the group has --> %DLQ%<group>

A consumer that is answered SUCCESS goes on to the next message and never asks for this one again.
So the answer waits for disk and replicas like that of a send, whatever WAIT says in the record;
RocketMQ's does not.

Source: RocketMQ 5.3.3, AbstractSendMessageProcessor.consumerSendMsgBack and .handleRetryAndDLQ.
"""

from __future__ import annotations

from random import Random

from node.errors import RequestError
from node.handlers.found_record import check_found, check_only_topic
from node.handlers.group_topics import ensure_topic
from node.handlers.send_message import SendMessage
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_found_topic, of_group, serves
from node.tables.broker_stats import BrokerStats
from node.tables.tables import Tables
from store import MessageStore
from store.messages.send_back import send_back
from tandem.wire.access_control import Right
from tandem.wire.message import decode_messages
from tandem.wire.message_properties import PROPERTY_RETRY_TOPIC
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import ConsumerSendMsgBackRequestHeader
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import retry_topic


class SendBack:
    """Serves messages that come back."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        send: SendMessage,
        random: Random,
        stats: BrokerStats,
    ) -> None:
        self._reads = store.reads.for_copies()
        self._tables = tables
        self._send = send
        self._random = random
        self._stats = stats

    @serves(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        (Resource.MESSAGES, Action.WRITE),
        of_group("group", Right.SUB),
        of_found_topic(Right.SUB),
        header=ConsumerSendMsgBackRequestHeader,
    )
    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """CONSUMER_SEND_MSG_BACK. The record itself stays where it is."""
        header = command.decode_header(ConsumerSendMsgBackRequestHeader)
        self._send.check_takes_puts()
        config = self._tables.groups.find(header.group)
        if config.retry_queue_nums <= 0:
            return response_to(command)  # as it was set up: what fails is dropped
        record = self._reads.look_message_by_offset(header.offset)
        if record is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}"
            )
        check_only_topic(record, header.only_topic, header.group)
        check_found(connection.caller, record, Right.SUB)
        times = header.max_reconsume_times
        connection.note_read(len(record))
        original = decode_messages(record)[0]
        message = send_back(
            original,
            group=header.group,
            delay_level=header.delay_level,
            max_reconsume_times=config.retry_max_times if times is None else times,
            retry_queue_id=self._random.randrange(config.retry_queue_nums),
        )
        queues = config.retry_queue_nums if message.topic == retry_topic(header.group) else 1
        ensure_topic(self._tables, message.topic, queues)
        answer = self._send.put_again(connection, command, message)
        if answer is None or answer.code == ResponseCode.SUCCESS:
            topic = original.properties.get(PROPERTY_RETRY_TOPIC, original.topic)
            self._stats.sent_back(header.group, topic)
        return answer

"""SEND_REPLY_MESSAGE and _V2: a reply goes to the client that asked, on its own connection.

    requester --send, REPLY_TO_CLIENT = its client id--> topic --pull--> replier
        ^                                                                  |
        |  PUSH_REPLY_MESSAGE_TO_CLIENT               SEND_REPLY_MESSAGE   |
        +------------------------------- broker <--------------------------+
                                            `--> <cluster>_REPLY_TOPIC, if it is to be kept

The requester is found by the heartbeats of its producers. The answer to the replier says whether
the requester took the reply; the record in the log, which nobody reads, does not wait for
replicas. A new master knows a requester from its next heartbeat on, 30 s later at the latest:
a reply before that is answered with SYSTEM_ERROR, and the requester's time runs out.

Source: RocketMQ 5.3.3, ReplyMessageProcessor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from node.errors import RequestError
from node.handlers.send_message import SendHeader, SendMessage
from node.handlers.send_properties import PropertyStamp, unique_key_of
from node.remoting.client_requests import ClientRequests
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_topic, serves
from node.tables.producer_table import ProducerTable
from node.tables.tables import Tables
from store import MessageStore, PutMessage
from tandem.wire.access_control import Right
from tandem.wire.demands import is_stamped
from tandem.wire.message import Host
from tandem.wire.message_properties import (
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_SEPARATOR,
    REGION,
    decode_properties,
    encode_properties,
)
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.reply_headers import ReplyMessageRequestHeader
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from tandem.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)

PROPERTY_PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"

CLIENT_SECONDS: Final = 10.0
"""For the requester to take a reply. Source: Broker2Client.callClient."""


class ReplyMessage:
    """Serves replies."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        send: SendMessage,
        stamp: PropertyStamp,
        producers: ProducerTable,
        to_clients: ClientRequests,
        store_host: Host,
        *,
        store_reply_message_enable: bool,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._tables = tables
        self._send = send
        self._stamp = stamp
        self._producers = producers
        self._to_clients = to_clients
        self._store_host = store_host
        self._is_kept = store_reply_message_enable
        self._wall_clock_ms = wall_clock_ms

    @serves(
        RequestCode.SEND_REPLY_MESSAGE,
        (Resource.MESSAGES, Action.WRITE),
        of_topic("topic", Right.PUB),
        header=SendMessageRequestHeader,
    )
    @serves(
        RequestCode.SEND_REPLY_MESSAGE_V2,
        (Resource.MESSAGES, Action.WRITE),
        of_topic("topic", Right.PUB),
        header=SendMessageRequestHeaderV2,
    )
    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """SEND_REPLY_MESSAGE, SEND_REPLY_MESSAGE_V2."""
        header: SendHeader = (
            command.decode_header(SendMessageRequestHeader)
            if command.code == RequestCode.SEND_REPLY_MESSAGE
            else command.decode_header(SendMessageRequestHeaderV2)
        )
        self._send.check_takes_puts()
        config = self._tables.topics.get(header.topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        if header.queue_id >= max(config.write_queue_nums, config.read_queue_nums):
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{header.queue_id}] is illegal, {header.topic}"
                f" readQueueNums={config.read_queue_nums}"
                f" writeQueueNums={config.write_queue_nums}",
            )
        kept = self._keep(connection, header, command.body)
        self._push(connection, command, header, kept)
        return None

    def _keep(
        self, connection: Connection, header: SendHeader, body: bytes
    ) -> SendMessageResponseHeader:
        """Store the reply if it is to be kept; return what the answer says of it."""
        properties = header.properties or ""
        message_id, queue_id, queue_offset = "0", max(header.queue_id, 0), 0
        if self._is_kept:
            result = self._store.puts.put_message(
                PutMessage(
                    header.topic,
                    queue_id,
                    body,
                    self._stamp.stored(properties, is_stamped=is_stamped(properties)),
                    header.born_timestamp,
                    connection.born_host,
                    header.flag,
                    header.sys_flag,
                    header.reconsume_times or 0,
                )
            )
            if result.status.is_stored:
                message_id, queue_offset = result.msg_id, result.queue_offset
            else:
                _log.warning("a reply was not kept: %s", result.reason)
        return SendMessageResponseHeader(
            message_id, queue_id, queue_offset, unique_key_of(properties), None, REGION, "true"
        )

    def _push(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: SendHeader,
        kept: SendMessageResponseHeader,
    ) -> None:
        """Send the reply to the requester; answer the replier when that is done."""
        owed = connection.owe()

        def done(reason: str) -> None:
            code = ResponseCode.SYSTEM_ERROR if reason else ResponseCode.SUCCESS
            owed.respond(command, response_to(command, code, reason or None, ext=kept))

        values = decode_properties((header.properties or "").encode())
        requester = values.get(PROPERTY_REPLY_TO_CLIENT)
        if requester is None:
            done("reply message properties[REPLY_TO_CLIENT] is null")
            return
        channel = self._producers.connection_of(requester)
        if channel is None:
            done(f"push reply message fail, channel of <{requester}> not found.")
            return

        def answered(answer: RemotingCommand | None, reason: str) -> None:
            if answer is None:
                done(f"push reply message to {requester} fail: {reason}")
            elif answer.code != ResponseCode.SUCCESS:
                done(f"push reply message to {requester} fail: it answers {answer.code}")
            else:
                done("")

        try:
            self._to_clients.ask(
                channel,
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
                self._push_header(connection, header),
                command.body,
                deadline=trio.current_time() + CLIENT_SECONDS,
                done=answered,
            )
        except RequestError as error:
            done(error.remark)

    def _push_header(self, connection: Connection, header: SendHeader) -> ReplyMessageRequestHeader:
        now_ms = self._wall_clock_ms()
        properties = header.properties or ""
        if properties and not properties.endswith(PROPERTY_SEPARATOR):
            properties += PROPERTY_SEPARATOR
        properties += encode_properties({PROPERTY_PUSH_REPLY_TIME: str(now_ms)}).decode("ascii")
        return ReplyMessageRequestHeader(
            header.producer_group,
            header.topic,
            header.default_topic,
            header.default_topic_queue_nums,
            header.queue_id,
            header.sys_flag,
            header.born_timestamp,
            header.flag,
            str(connection.peer),
            str(self._store_host),
            now_ms,
            properties,
            header.reconsume_times,
            header.unit_mode,
        )

"""What operators ask about clients, here or of the clients themselves.

    GET_CONSUMER_CONNECTION_LIST, GET_PRODUCER_CONNECTION_LIST, GET_ALL_PRODUCER_INFO
    QUERY_TOPICS_BY_CONSUMER, QUERY_SUBSCRIPTION_BY_CONSUMER
    GET_CONSUMER_RUNNING_INFO, CONSUME_MESSAGE_DIRECTLY     asked of one client
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS                    asked of all of a group

Source: RocketMQ 5.3.3, AdminBrokerProcessor.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import trio

from node.errors import RequestError
from node.handlers.found_record import check_found
from node.handlers.subscription import as_told
from node.remoting.client_requests import ClientRequests
from node.remoting.connection import Connection, OwedAnswers
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, of_found_topic, of_group, of_topic, serves
from node.tables.client_table import ClientTable
from node.tables.producer_table import ProducerTable
from node.tables.tables import Tables
from store import MessageStore
from tandem.wire.access_control import Right
from tandem.wire.admin_headers import (
    ClientConnection,
    ClientRequestHeader,
    ConsumerConnection,
    ConsumerStatusRequestHeader,
    GroupTopicRequestHeader,
    ProducerConnection,
    ProducerGroupRequestHeader,
    ProducerInfo,
    ProducerTableInfo,
    SubscriptionBody,
)
from tandem.wire.message import decode_offset_msg_id
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import GroupRequestHeader
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import TopicList, encode_json_body

_STRING_OR_BRACE: Final = re.compile(rb'(?s)"(?:[^"\\]|\\.)*"|[{}]')

CLIENT_SECONDS: Final = 10.0
"""For the answer of a client. Source: AdminBrokerProcessor.callConsumer."""


class _Gathered:
    """What the clients of a group answer, for one answer to who asked."""

    def __init__(self, owed: OwedAnswers, command: RemotingCommand, count: int) -> None:
        self._owed = owed
        self._command = command
        self._missing = count
        self._tables: dict[str, bytes] = {}

    def answered(self, client_id: str, answer: RemotingCommand | None, _reason: str) -> None:
        if answer is not None and answer.code == 0:
            table = object_after(answer.body, b'"messageQueueTable":')
            if table is not None:
                self._tables[client_id] = table
        self._missing -= 1
        if not self._missing:
            entries = (
                b"%b:%b" % (msgspec.json.encode(name), table)
                for name, table in self._tables.items()
            )
            body = b'{"consumerTable":{%b},"messageQueueTable":{}}' % b",".join(entries)
            self._owed.respond(self._command, response_to(self._command, body=body))


def object_after(text: bytes, name: bytes) -> bytes | None:
    """Return the JSON object that follows `name`, as it is: None if there is no whole one.

    Java writes maps whose keys are objects, which no reader of JSON takes; so it is cut out.
    """
    start = text.find(name)
    start = text.find(b"{", start + len(name)) if start >= 0 else -1
    if start < 0:
        return None
    depth = 0
    for match in _STRING_OR_BRACE.finditer(text, start):
        depth += {b"{": 1, b"}": -1}.get(match.group(), 0)
        if not depth:
            return text[start : match.end()]
    return None


class ClientInfo:
    """Serves what is known of clients, and asks them for the rest."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        clients: ClientTable,
        producers: ProducerTable,
        to_clients: ClientRequests,
        *,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._tables = tables
        self._clients = clients
        self._producers = producers
        self._to_clients = to_clients
        self._wall_clock_ms = wall_clock_ms

    @serves(
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        (Resource.CLIENTS, Action.READ),
        of_group("consumer_group", Right.GET),
        header=GroupRequestHeader,
    )
    def consumers(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_CONSUMER_CONNECTION_LIST: a group with its clients and what it subscribes to."""
        group = command.decode_header(GroupRequestHeader).consumer_group
        consumption = self._clients.consumption(group)
        if consumption is None:
            raise RequestError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online"
            )
        body = ConsumerConnection(
            connection_set=[
                ClientConnection(
                    each.client_id, str(each.connection.peer), each.language, each.version
                )
                for each in self._clients.consumers(group)
            ],
            subscription_table={
                topic: as_told(wanted) for topic, wanted in consumption.subscriptions.items()
            },
            consume_type=consumption.consume_type,
            message_model=consumption.message_model,
            consume_from_where=consumption.consume_from_where,
        )
        return response_to(command, body=encode_json_body(body))

    @serves(
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        (Resource.CLIENTS, Action.READ),
        of_group("producer_group", Right.GET),
        header=ProducerGroupRequestHeader,
    )
    def producers(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_PRODUCER_CONNECTION_LIST."""
        group = command.decode_header(ProducerGroupRequestHeader).producer_group
        producers = self._producers.producers(group)
        if not producers:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        body = ProducerConnection(
            [
                ClientConnection(
                    each.client_id, str(each.connection.peer), each.language, each.version
                )
                for each in producers
            ]
        )
        return response_to(command, body=encode_json_body(body))

    @serves(
        RequestCode.GET_ALL_PRODUCER_INFO,
        (Resource.CLIENTS, Action.READ),
        of_cluster(Right.GET),
    )
    def all_producers(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_PRODUCER_INFO."""
        started_ms = self._wall_clock_ms() - round(trio.current_time() * 1000)
        data = {
            group: [
                ProducerInfo(
                    each.client_id,
                    str(each.connection.peer),
                    each.language,
                    each.version,
                    started_ms + round(each.last * 1000),
                )
                for each in self._producers.producers(group)
            ]
            for group in self._producers.groups()
        }
        return response_to(command, body=encode_json_body(ProducerTableInfo(data)))

    @serves(
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        (Resource.OFFSETS, Action.READ),
        of_group("group", Right.GET),
        header=GroupTopicRequestHeader,
    )
    def topics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_TOPICS_BY_CONSUMER: those in which a group has committed an offset."""
        group = command.decode_header(GroupTopicRequestHeader).group
        topics = self._tables.offsets.topics_of(group)
        return response_to(command, body=encode_json_body(TopicList(topics)))

    @serves(
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        (Resource.CLIENTS, Action.READ),
        of_topic("topic", Right.GET),
        of_group("group", Right.GET),
        header=GroupTopicRequestHeader,
    )
    def subscription(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_SUBSCRIPTION_BY_CONSUMER: what a group wants of a topic."""
        header = command.decode_header(GroupTopicRequestHeader)
        topic = header.topic or ""
        found = self._clients.subscription(header.group, topic)
        return response_to(
            command,
            body=encode_json_body(SubscriptionBody(header.group, topic, found and as_told(found))),
        )

    @serves(
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        (Resource.CLIENTS, Action.READ),
        of_group("consumer_group", Right.GET),
        header=ClientRequestHeader,
    )
    def running_info(self, connection: Connection, command: RemotingCommand) -> None:
        """GET_CONSUMER_RUNNING_INFO, of one client."""
        self._pass_on(connection, command, command.decode_header(ClientRequestHeader))

    @serves(
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        (Resource.CLIENTS, Action.WRITE),
        of_group("consumer_group", Right.SUB),
        of_found_topic(Right.SUB),
        header=ClientRequestHeader,
    )
    def consume_directly(self, connection: Connection, command: RemotingCommand) -> None:
        """CONSUME_MESSAGE_DIRECTLY: have one client handle a message of this store."""
        header = command.decode_header(ClientRequestHeader)
        _, offset = decode_offset_msg_id(header.msg_id or "")
        record = self._store.reads.look_message_by_offset(offset)
        if record is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"there is no message {header.msg_id} in this store"
            )
        check_found(connection.caller, record, Right.SUB)
        self._pass_on(connection, command, header, record)

    @serves(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        (Resource.CLIENTS, Action.READ),
        of_topic("topic", Right.GET),
        of_group("group", Right.GET),
        header=ConsumerStatusRequestHeader,
    )
    def status(self, connection: Connection, command: RemotingCommand) -> None:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: how far each client of a group is, in its memory.

        Source: Broker2Client.getConsumeStatus. Clients that do not answer are left out.
        """
        header = command.decode_header(ConsumerStatusRequestHeader)
        consumers = [
            each
            for each in self._clients.consumers(header.group)
            if header.client_addr in (None, "", each.client_id)
        ]
        if not consumers:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{header.group}]",
            )
        asked = ConsumerStatusRequestHeader(header.topic, header.group)
        gathered = _Gathered(connection.owe(), command, len(consumers))
        for each in consumers:
            try:
                self._to_clients.ask(
                    each.connection,
                    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                    asked,
                    deadline=trio.current_time() + CLIENT_SECONDS,
                    done=partial(gathered.answered, each.client_id),
                )
            except RequestError as error:
                gathered.answered(each.client_id, None, error.remark)

    def _pass_on(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: ClientRequestHeader,
        body: bytes = b"",
    ) -> None:
        """Ask a client, and answer with what it says."""
        consumers = self._clients.consumers(header.consumer_group)
        found = [each for each in consumers if each.client_id == header.client_id]
        if not found:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{header.consumer_group}> <{header.client_id}> not online",
            )
        owed = connection.owe()

        def answered(answer: RemotingCommand | None, reason: str) -> None:
            if answer is None:
                owed.respond(
                    command,
                    response_to(
                        command,
                        ResponseCode.CONSUME_MSG_TIMEOUT,
                        f"consumer <{header.consumer_group}> <{header.client_id}>: {reason}",
                    ),
                )
            else:
                owed.respond(
                    command, response_to(command, answer.code, answer.remark, body=answer.body)
                )

        try:
            self._to_clients.ask(
                found[0].connection,
                command.code,
                header,
                body,
                deadline=trio.current_time() + CLIENT_SECONDS,
                done=answered,
            )
        except RequestError as error:
            owed.respond(command, response_to(command, error.code, error.remark))

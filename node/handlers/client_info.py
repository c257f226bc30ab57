"""What operators ask about clients, here or of the clients themselves.

    GET_CONSUMER_CONNECTION_LIST, GET_PRODUCER_CONNECTION_LIST, GET_ALL_PRODUCER_INFO
    QUERY_TOPICS_BY_CONSUMER, QUERY_SUBSCRIPTION_BY_CONSUMER
    GET_CONSUMER_RUNNING_INFO, CONSUME_MESSAGE_DIRECTLY     asked of one client

Source: RocketMQ 5.3.3, AdminBrokerProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from node.errors import RequestError
from node.remoting.dispatcher import response_to
from tandem.wire.admin_headers import (
    ClientConnection,
    ClientRequestHeader,
    ConsumerConnection,
    GroupTopicRequestHeader,
    ProducerConnection,
    ProducerGroupRequestHeader,
    ProducerInfo,
    ProducerTableInfo,
    SubscriptionBody,
)
from tandem.wire.message import decode_offset_msg_id
from tandem.wire.request_headers import GroupRequestHeader
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import TopicList, encode_json_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.remoting.client_requests import ClientRequests
    from node.remoting.connection import Connection
    from node.tables.client_table import ClientTable
    from node.tables.producer_table import ProducerTable
    from node.tables.tables import Tables
    from store import MessageStore
    from tandem.wire.remoting_command import RemotingCommand

CLIENT_SECONDS: Final = 10.0
"""For the answer of a client. Source: AdminBrokerProcessor.callConsumer."""


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
            subscription_table=consumption.subscriptions,
            consume_type=consumption.consume_type,
            message_model=consumption.message_model,
            consume_from_where=consumption.consume_from_where,
        )
        return response_to(command, body=encode_json_body(body))

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

    def topics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_TOPICS_BY_CONSUMER: those in which a group has committed an offset."""
        group = command.decode_header(GroupTopicRequestHeader).group
        topics = self._tables.offsets.topics_of(group)
        return response_to(command, body=encode_json_body(TopicList(topics)))

    def subscription(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_SUBSCRIPTION_BY_CONSUMER: what a group wants of a topic."""
        header = command.decode_header(GroupTopicRequestHeader)
        topic = header.topic or ""
        found = self._clients.subscription(header.group, topic)
        return response_to(
            command, body=encode_json_body(SubscriptionBody(header.group, topic, found))
        )

    def running_info(self, connection: Connection, command: RemotingCommand) -> None:
        """GET_CONSUMER_RUNNING_INFO, of one client."""
        self._pass_on(connection, command, command.decode_header(ClientRequestHeader))

    def consume_directly(self, connection: Connection, command: RemotingCommand) -> None:
        """CONSUME_MESSAGE_DIRECTLY: have one client handle a message of this store."""
        header = command.decode_header(ClientRequestHeader)
        _, offset = decode_offset_msg_id(header.msg_id or "")
        record = self._store.look_message_by_offset(offset)
        if record is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"there is no message {header.msg_id} in this store"
            )
        self._pass_on(connection, command, header, record)

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

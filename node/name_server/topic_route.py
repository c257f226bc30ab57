"""What a name server answers: the brokers of a topic and of the cluster; and registrations."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from node.errors import RequestError
from node.name_server.route_table import RouteTable
from node.remoting.connection import Connection
from node.remoting.dispatcher import Pieces, in_pieces, response_to
from node.security.access import Action, Resource
from node.security.request import ANY_USER, of_cluster, of_topic, serves
from tandem.wire.access_control import Right
from tandem.wire.compressed_registration import decode_compressed_registration, is_zlib
from tandem.wire.crc import crc32
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    GetRouteInfoRequestHeader,
    KVTable,
    RegisterBrokerBody,
    RegisterBrokerRequestHeader,
    TopicConfigSerializeWrapper,
    UnregisterBrokerRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import TopicList, decode_json_body, encode_json_body

_log = logging.getLogger(__name__)

LARGE_BYTES: Final = 256 * 1024
"""A registration that is decoded in a piece of its own: some 1,500 topics."""


class TopicRoute:
    """Serves one route table."""

    def __init__(
        self,
        routes: RouteTable,
        on_registered: Callable[[str], None],
        why_not_ready: Callable[[bool], str | None],
    ) -> None:
        """Serve `routes`.

        `on_registered` is called with the address of each broker that is new; `why_not_ready`
        says why that a route is known, or is not, cannot be answered yet; "" if it can.
        """
        self._routes = routes
        self._why_not_ready = why_not_ready
        self._on_registered = on_registered

    @serves(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        (Resource.ROUTES, Action.READ),
        of_topic("topic", Right.PUB, Right.SUB, Right.GET),
        header=GetRouteInfoRequestHeader,
    )
    def route(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ROUTEINFO_BY_TOPIC."""
        topic = command.decode_header(GetRouteInfoRequestHeader).topic
        route = self._routes.route(topic)
        reason = self._why_not_ready(route is not None)
        if reason is not None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"name remoting not ready: {reason}")
        if route is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}",
            )
        return response_to(command, body=encode_json_body(route))

    @serves(
        RequestCode.GET_BROKER_CLUSTER_INFO,
        (Resource.ROUTES, Action.READ),
        ANY_USER,
    )
    def cluster_info(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CLUSTER_INFO."""
        return response_to(command, body=encode_json_body(self._routes.cluster_info()))

    @serves(
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        (Resource.ROUTES, Action.READ),
        of_cluster(Right.LIST),
    )
    def topic_list(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
        return response_to(command, body=encode_json_body(TopicList(self._routes.topics())))

    @serves(
        RequestCode.REGISTER_BROKER,
        (Resource.ROUTES, Action.WRITE),
        of_cluster(Right.UPDATE),
        header=RegisterBrokerRequestHeader,
    )
    @in_pieces
    def register(self, connection: Connection, command: RemotingCommand) -> Pieces:
        """REGISTER_BROKER. The broker is forgotten when this connection closes.

        Source: DefaultRequestProcessor.registerBroker.
        """
        header = command.decode_header(RegisterBrokerRequestHeader)
        _check_body(header, command.body)
        topics, removed = TopicConfigSerializeWrapper(), []
        if command.body:
            # With `compressedRegister=true` 5.3.3 compresses, and says that it does not.
            if header.compressed or is_zlib(command.body):
                body = yield from decode_compressed_registration(command.body)
            else:
                body = decode_json_body(command.body, RegisterBrokerBody)
            topics = body.topic_config_serialize_wrapper
            removed = body.removed_topics or []
        if len(command.body) > LARGE_BYTES:
            yield
        is_new = not self._routes.is_live(header.broker_addr)
        answer = self._routes.register(
            header, topics, removed, connection=connection, now=trio.current_time()
        )
        # Asked now, too: once it is ready it stays so, also if this broker leaves again.
        self._why_not_ready(True)  # noqa: FBT003  by position, as every callable
        if is_new:
            _log.info(
                "broker %s id %d at %s registered, %d topics",
                header.broker_name,
                header.broker_id,
                header.broker_addr,
                len(topics.topic_config_table),
            )
            self._on_registered(header.broker_addr)
        return response_to(command, ext=answer, body=encode_json_body(KVTable()))

    @serves(
        RequestCode.UNREGISTER_BROKER,
        (Resource.ROUTES, Action.WRITE),
        of_cluster(Right.UPDATE),
        header=UnregisterBrokerRequestHeader,
    )
    def unregister(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UNREGISTER_BROKER."""
        self._routes.unregister(command.decode_header(UnregisterBrokerRequestHeader))
        return response_to(command)


def _check_body(header: RegisterBrokerRequestHeader, body: bytes) -> None:
    if header.body_crc32 and header.body_crc32 != crc32(body):
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, "register broker failed: the body's CRC does not match"
        )

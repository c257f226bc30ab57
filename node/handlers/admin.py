"""Requests of operators and of slaves: topics, whole tables, the state of replication."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from node.errors import RequestError
from node.handlers.settled import answer_when_settled
from node.remoting.dispatcher import response_to
from node.tables.topic_attributes import TopicAttributeError, changed_attributes
from node.tables.topic_config_table import NOT_ALLOWED_SEND_TOPICS, QUEUES_MAX, topic_complaint
from tandem.wire.request_headers import CreateTopicRequestHeader, TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import PERM_INHERIT, PERM_READ, PERM_WRITE, encode_json_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.remoting.connection import Connection
    from node.tables.tables import Tables
    from tandem.wire.remoting_command import RemotingCommand
    from tandem.wire.request_headers import HARuntimeInfo

_log = logging.getLogger(__name__)


class Admin:
    """Serves what is not about messages."""

    def __init__(
        self,
        tables: Tables,
        runtime_info: Callable[[], HARuntimeInfo],
        when_known: Callable[[Callable[[], None]], None],
        *,
        timeout_seconds: float,
    ) -> None:
        """Serve what these hold; a change has `timeout_seconds` to be settled.

        `when_known` calls back when the name servers know the topics there are.
        """
        self._tables = tables
        self._runtime_info = runtime_info
        self._when_known = when_known
        self._timeout_seconds = timeout_seconds

    def create_topic(self, connection: Connection, command: RemotingCommand) -> None:
        """UPDATE_AND_CREATE_TOPIC, answered when the topic is there to stay, and known.

        Source: AdminBrokerProcessor.updateAndCreateTopic.
        """
        header = command.decode_header(CreateTopicRequestHeader)
        self._tables.check_change()
        complaint = _complaint(header)
        if complaint:
            raise RequestError(ResponseCode.INVALID_PARAMETER, complaint)
        current = self._tables.topics.get(header.topic)
        try:
            attributes = changed_attributes(
                current.attributes if current is not None else None, header.attributes or ""
            )
        except TopicAttributeError as error:
            raise RequestError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        self._tables.change_topics(
            TopicConfig(
                topic_name=header.topic,
                read_queue_nums=header.read_queue_nums,
                write_queue_nums=header.write_queue_nums,
                perm=header.perm,
                topic_filter_type=header.topic_filter_type,
                topic_sys_flag=header.topic_sys_flag,
                order=header.order,
                attributes=attributes,
            )
        )
        _log.info(
            "topic %s: %d read queues, %d write queues, perm %d, by %s",
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            connection.peer,
        )
        deadline = trio.current_time() + self._timeout_seconds
        answer_when_settled(self._tables, connection, command, deadline, then=self._when_known)

    def topic_configs(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_TOPIC_CONFIG: what a slave copies."""
        return response_to(command, body=encode_json_body(self._tables.topics.configs))

    def consumer_offsets(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_CONSUMER_OFFSET: what a slave copies."""
        return response_to(command, body=self._tables.offsets.encode())

    def ha_status(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_HA_STATUS."""
        return response_to(command, body=encode_json_body(self._runtime_info()))


def _complaint(header: CreateTopicRequestHeader) -> str | None:
    bad_name = topic_complaint(header.topic)
    if bad_name:
        return bad_name
    if header.topic in NOT_ALLOWED_SEND_TOPICS:
        return f"The topic[{header.topic}] is conflict with system topic."
    if any(not 1 <= n <= QUEUES_MAX for n in (header.read_queue_nums, header.write_queue_nums)):
        return (
            f"readQueueNums {header.read_queue_nums} and writeQueueNums {header.write_queue_nums}"
            f" must be from 1 to {QUEUES_MAX}"
        )
    if header.perm & ~(PERM_READ | PERM_WRITE | PERM_INHERIT):
        return f"perm {header.perm} must be made of 4 (read), 2 (write) and 1 (inherit)"
    return None

"""Requests of operators and of slaves: topics, whole tables, the state of replication."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from node.errors import RequestError
from node.remoting.dispatcher import response_to
from node.tables.topic_config_table import NOT_ALLOWED_SEND_TOPICS, QUEUES_MAX, topic_complaint
from tandem.wire.request_headers import CreateTopicRequestHeader, TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import PERM_INHERIT, PERM_READ, PERM_WRITE, encode_json_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.remoting.connection import Connection
    from node.tables.consumer_offset_table import ConsumerOffsetTable
    from node.tables.topic_config_table import TopicConfigTable
    from tandem.wire.remoting_command import RemotingCommand
    from tandem.wire.request_headers import HARuntimeInfo

_log = logging.getLogger(__name__)


class Admin:
    """Serves what is not about messages."""

    def __init__(
        self,
        topics: TopicConfigTable,
        offsets: ConsumerOffsetTable,
        runtime_info: Callable[[], HARuntimeInfo],
        *,
        is_slave: Callable[[], bool],
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._runtime_info = runtime_info
        self._is_slave = is_slave

    def create_topic(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_TOPIC. Source: AdminBrokerProcessor.updateAndCreateTopic."""
        header = command.decode_header(CreateTopicRequestHeader)
        if self._is_slave():
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                "Can't modify topic or subscription group from slave broker,"
                " please execute it from master broker.",
            )
        complaint = _complaint(header)
        if complaint:
            raise RequestError(ResponseCode.INVALID_PARAMETER, complaint)
        self._topics.update(
            TopicConfig(
                topic_name=header.topic,
                read_queue_nums=header.read_queue_nums,
                write_queue_nums=header.write_queue_nums,
                perm=header.perm,
                topic_filter_type=header.topic_filter_type,
                topic_sys_flag=header.topic_sys_flag,
                order=header.order,
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
        return response_to(command)

    def topic_configs(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_TOPIC_CONFIG: what a slave copies."""
        return response_to(command, body=encode_json_body(self._topics.configs))

    def consumer_offsets(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_CONSUMER_OFFSET: what a slave copies."""
        return response_to(command, body=self._offsets.encode())

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

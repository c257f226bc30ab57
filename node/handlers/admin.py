"""Requests of operators and of slaves: topics, whole tables, the state of replication."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec
import trio

from node.errors import RequestError
from node.handlers.settled import answer_when_settled
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, of_topic, serves
from node.tables.tables import Tables
from node.tables.topic_attributes import TopicAttributeError, changed_attributes
from node.tables.topic_config_table import NOT_ALLOWED_SEND_TOPICS, QUEUES_MAX, topic_complaint
from tandem.wire.access_control import Right
from tandem.wire.admin_headers import TopicConfigList, TopicQueueMappingDetail
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import CreateTopicRequestHeader, HARuntimeInfo, TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    decode_json_body,
    encode_json_body,
)
from tandem.wire.system_topics import is_system_topic

_log = logging.getLogger(__name__)


class Admin:
    """Serves what is not about messages."""

    def __init__(
        self,
        tables: Tables,
        runtime_info: Callable[[], HARuntimeInfo],
        when_known: Callable[[Callable[[], None]], None],
        own_names: frozenset[str],
        *,
        timeout_seconds: float,
    ) -> None:
        """Serve what these hold; a change has `timeout_seconds` to be settled.

        `when_known` calls back when the name servers know the topics there are; `own_names` are
        those of broker and cluster, topics as well.
        """
        self._tables = tables
        self._runtime_info = runtime_info
        self._when_known = when_known
        self._own_names = own_names
        self._timeout_seconds = timeout_seconds

    # Of a topic of the system: see `Guard`.
    @serves(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        (Resource.TOPICS, Action.WRITE),
        of_topic("topic", Right.CREATE),
        header=CreateTopicRequestHeader,
    )
    def create_topic(self, connection: Connection, command: RemotingCommand) -> None:
        """UPDATE_AND_CREATE_TOPIC, answered when the topic is there to stay, and known.

        Source: AdminBrokerProcessor.updateAndCreateTopic.
        """
        header = command.decode_header(CreateTopicRequestHeader)
        self._tables.check_change()
        checked = self._checked(_config_of(header), header.attributes or "")
        self._change(connection, command, [checked])

    @serves(
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        (Resource.ORDINARY_TOPICS, Action.WRITE),
        of_topic("topic", Right.CREATE),
        header=CreateTopicRequestHeader,
    )
    def create_static_topic(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | None:
        """UPDATE_AND_CREATE_STATIC_TOPIC: the queues that it has here, as an ordinary topic.

        That is what a static topic is until its queues move, and they do not move here. Of one
        whose queues are all at other brokers there is nothing to make.

        Source: AdminBrokerProcessor.updateAndCreateStaticTopic.
        """
        header = command.decode_header(CreateTopicRequestHeader)
        self._tables.check_change()
        detail = decode_json_body(command.body, TopicQueueMappingDetail)
        config = _config_of(header)
        if is_system_topic(config.topic_name) or config.topic_name in self._own_names:
            raise _invalid(f"The topic[{config.topic_name}] is conflict with system topic.")
        if complaint := _static_complaint(config, detail, self._own_names):
            raise _invalid(complaint)
        if not detail.hosted_queues and not config.write_queue_nums:
            return response_to(command)
        self._change(connection, command, [self._checked(config, "")])
        return None

    # Refused for topics of the system, for every sender.
    @serves(
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        (Resource.ORDINARY_TOPICS, Action.WRITE),
        of_topic(lambda command: [each.topic_name for each in _configs(command)], Right.CREATE),
    )
    def create_topics(self, connection: Connection, command: RemotingCommand) -> None:
        """UPDATE_AND_CREATE_TOPIC_LIST: all of them or none, and none of the system's.

        Source: AdminBrokerProcessor.updateAndCreateTopicList.
        """
        self._tables.check_change()
        configs = _configs(command)
        for config in configs:
            if is_system_topic(config.topic_name) or config.topic_name in self._own_names:
                raise _invalid(f"The topic[{config.topic_name}] is conflict with system topic.")
        self._change(
            connection,
            command,
            [
                self._checked(
                    config, ",".join(f"{name}={value}" for name, value in config.attributes.items())
                )
                for config in configs
            ],
        )

    def _checked(self, config: TopicConfig, attributes: str) -> TopicConfig:
        """The configuration with its attributes as they will be: RocketMQ's "+name=value,-name"."""
        if complaint := _complaint(config):
            raise _invalid(complaint)
        current = self._tables.topics.get(config.topic_name)
        try:
            changed = changed_attributes(
                current.attributes if current is not None else None, attributes
            )
        except TopicAttributeError as error:
            raise _invalid(str(error)) from error
        return msgspec.structs.replace(config, attributes=changed)

    def _change(
        self, connection: Connection, command: RemotingCommand, configs: list[TopicConfig]
    ) -> None:
        self._tables.change_topics(*configs)
        for config in configs:
            _log.info(
                "topic %s: %d read queues, %d write queues, perm %d, by %s",
                config.topic_name,
                config.read_queue_nums,
                config.write_queue_nums,
                config.perm,
                connection.peer,
            )
        deadline = trio.current_time() + self._timeout_seconds
        answer_when_settled(self._tables, connection, command, deadline, then=self._when_known)

    @serves(
        RequestCode.GET_ALL_TOPIC_CONFIG,
        (Resource.TOPICS, Action.READ),
        of_cluster(Right.GET),
    )
    def topic_configs(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_TOPIC_CONFIG: what a slave copies."""
        return response_to(command, body=encode_json_body(self._tables.topics.configs))

    @serves(
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        (Resource.OFFSETS, Action.READ),
        of_cluster(Right.GET),
    )
    def consumer_offsets(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_CONSUMER_OFFSET: what a slave copies."""
        return response_to(command, body=self._tables.offsets.encode())

    @serves(
        RequestCode.GET_BROKER_HA_STATUS,
        (Resource.REPLICATION, Action.READ),
        of_cluster(Right.GET),
    )
    def ha_status(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_HA_STATUS."""
        return response_to(command, body=encode_json_body(self._runtime_info()))

    @serves(
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
        (Resource.REPLICATION, Action.READ),
        of_cluster(Right.UPDATE),
    )
    def reset_master_flush_offset(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand:
        """RESET_MASTER_FLUSH_OFFSET: nothing to do for a master, as in RocketMQ.

        Source: AdminBrokerProcessor.resetMasterFlushOffset.
        """
        if not self._runtime_info().master:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                "a slave of TandemMQ takes its master's offset from the link alone: nothing to set",
            )
        return response_to(command)


def _invalid(complaint: str) -> RequestError:
    return RequestError(ResponseCode.INVALID_PARAMETER, complaint)


def _complaint(config: TopicConfig) -> str | None:
    bad_name = topic_complaint(config.topic_name)
    if bad_name:
        return bad_name
    if config.topic_name in NOT_ALLOWED_SEND_TOPICS:
        return f"The topic[{config.topic_name}] is conflict with system topic."
    if any(not 1 <= n <= QUEUES_MAX for n in (config.read_queue_nums, config.write_queue_nums)):
        return (
            f"readQueueNums {config.read_queue_nums} and writeQueueNums {config.write_queue_nums}"
            f" must be from 1 to {QUEUES_MAX}"
        )
    if config.perm & ~(PERM_READ | PERM_WRITE | PERM_INHERIT):
        return f"perm {config.perm} must be made of 4 (read), 2 (write) and 1 (inherit)"
    return None


def _config_of(header: CreateTopicRequestHeader) -> TopicConfig:
    return TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=header.topic_filter_type,
        topic_sys_flag=header.topic_sys_flag,
        order=header.order,
    )


def _static_complaint(
    config: TopicConfig, detail: TopicQueueMappingDetail, own_names: frozenset[str]
) -> str | None:
    """Say why the queues of a static topic cannot be those of an ordinary one, None if they can."""
    if detail.topic != config.topic_name:
        return f"the mapping is of topic {detail.topic!r}, the request of {config.topic_name}"
    placed: set[int] = set()
    for number, items in detail.hosted_queues.items():
        if len(items) != 1 or items[0].logic_offset > 0 or items[0].start_offset:
            return (
                f"queue {number} of the static topic {config.topic_name} was moved: queues do not"
                " move between brokers here; create an ordinary topic"
            )
        queue_id, broker = items[0].queue_id, items[0].bname
        if broker not in own_names:
            return f"queue {number} of the static topic {config.topic_name} is at broker {broker!r}"
        if not 0 <= queue_id < config.write_queue_nums or queue_id in placed:
            return (
                f"queue {number} of the static topic {config.topic_name} is queue {queue_id} here:"
                f" that must be from 0 to {config.write_queue_nums - 1}, and of no other queue"
            )
        placed.add(queue_id)
    return None


def _configs(command: RemotingCommand) -> list[TopicConfig]:
    return decode_json_body(command.body, TopicConfigList).topic_config_list

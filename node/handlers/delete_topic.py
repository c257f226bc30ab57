"""DELETE_TOPIC_IN_BROKER: a topic is forgotten, with how far groups have got in it.

Its messages stay in the log until that is cleaned, and nobody reads them: a topic that is created
again under the same name begins after them.

Source: RocketMQ 5.3.3, AdminBrokerProcessor.deleteTopic.
"""

from __future__ import annotations

import logging
from itertools import product

import trio

from ha.replication import Replication
from node.errors import RequestError
from node.handlers.settled import answer_when_settled
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_topic, serves
from node.tables.reset_offsets import ResetOffsets
from node.tables.tables import Tables
from tandem.wire.access_control import Right
from tandem.wire.admin_headers import DeleteTopicRequestHeader
from tandem.wire.receipt_handle import TopicMark, pop_retry_topic
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import is_system_topic

_log = logging.getLogger(__name__)


class DeleteTopic:
    """Serves the end of topics. `own_names` are those of broker and cluster, topics as well."""

    def __init__(
        self,
        tables: Tables,
        replication: Replication,
        resets: ResetOffsets,
        own_names: frozenset[str],
        *,
        timeout_seconds: float,
    ) -> None:
        """Change what these hold; a change has `timeout_seconds` to be settled."""
        self._tables = tables
        self._replication = replication
        self._resets = resets
        self._own_names = own_names
        self._timeout_seconds = timeout_seconds

    # Refused for topics of the system, for every sender.
    @serves(
        RequestCode.DELETE_TOPIC_IN_BROKER,
        (Resource.ORDINARY_TOPICS, Action.WRITE),
        of_topic("topic", Right.DELETE),
        header=DeleteTopicRequestHeader,
    )
    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """DELETE_TOPIC_IN_BROKER, answered when it is gone for good; one that is not there is.

        Tools ask every node. One that is not the master has nothing to do: it follows the master.
        """
        topic = command.decode_header(DeleteTopicRequestHeader).topic
        if not self._replication.is_master:
            return response_to(command, remark="this node follows its master's table of topics")
        self._tables.check_change()
        if not topic.strip():
            raise RequestError(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        if is_system_topic(topic) or topic in self._own_names:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic."
            )
        if self._tables.topics.get(topic) is not None:
            groups = self._tables.offsets.groups_of(topic)
            for group in groups:
                self._resets.forget(group, topic)
            self._tables.delete_topic(topic)
            # What was to come again to a group that pops (clearRetryTopicWhenDeleteTopic).
            for group, mark in product(groups, (TopicMark.RETRY_V1, TopicMark.RETRY_V2)):
                retry = pop_retry_topic(topic, group, mark)
                if self._tables.topics.get(retry) is not None:
                    self._tables.delete_topic(retry)
            _log.info("topic %s deleted by %s", topic, connection.peer)
        deadline = trio.current_time() + self._timeout_seconds
        answer_when_settled(self._tables, connection, command, deadline)
        return None

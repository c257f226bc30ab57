"""QUERY_ASSIGNMENT and the message request modes: queues that the broker shares out.

A client may leave it to its broker which queues of a group it reads. It is given those that it
would take by itself: all clients of the group and all queues, both sorted, shared out evenly. How
it reads them, the mode, is always PULL; POP is refused.

Source: RocketMQ 5.3.3, QueryAssignmentProcessor, AllocateMessageQueueAveragely and .._ByCircle,
MessageRequestModeManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from node.errors import RequestError
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, of_group, of_topic, serves
from node.tables.client_table import BROADCASTING
from node.tables.names import check_name
from tandem.wire.access_control import Right
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import MessageQueueBody
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import PERM_READ, decode_json_body, encode_json_body
from tandem.wire.stats_requests import (
    MessageQueueAssignment,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from tandem.wire.system_topics import RETRY_GROUP_TOPIC_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from node.remoting.connection import Connection
    from node.tables.client_table import ClientTable
    from tandem.wire.remoting_command import RemotingCommand
    from tandem.wire.route import TopicRouteData

PULL: Final = "PULL"

QUEUES_MAX: Final = 65_536
"""Queues of one topic, over all brokers, that are shared out here."""

MODES_MAX: Final = 4_096
"""Groups whose mode was set. It can only be what it is anyway."""


class QueryAssignment:
    """Serves these requests. `route_of` says where a topic is, None if nowhere."""

    def __init__(
        self, clients: ClientTable, route_of: Callable[[str], TopicRouteData | None]
    ) -> None:
        self._clients = clients
        self._route_of = route_of
        self._modes: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
        self._mode_count = 0

    @serves(
        RequestCode.QUERY_ASSIGNMENT,
        (Resource.CLIENTS, Action.READ),
        of_topic(lambda command: [_assignment(command).topic], Right.SUB),
        of_group(lambda command: [_assignment(command).consumer_group], Right.SUB),
    )
    def query(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_ASSIGNMENT. A client that is not of the group is given nothing.

        Source: QueryAssignmentProcessor.doLoadBalance.
        """
        request = _assignment(command)
        queues = self._queues(request.topic)
        if request.message_model != BROADCASTING:
            allocate = ALLOCATIONS.get(request.strategy_name)
            if allocate is None:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"there is no strategy {request.strategy_name!r}; there are"
                    f" {', '.join(ALLOCATIONS)}",
                )
            clients = sorted(self._clients.client_ids(request.consumer_group))
            queues = allocate(request.client_id, queues, clients)
        assignments = [MessageQueueAssignment(queue, PULL) for queue in queues]
        return response_to(command, body=encode_json_body(QueryAssignmentResponseBody(assignments)))

    def _queues(self, topic: str) -> list[MessageQueueBody]:
        route = self._route_of(topic)
        if route is None:
            return []
        readable = [data for data in route.queue_datas if data.perm & PERM_READ]
        if sum(data.read_queue_nums for data in readable) > QUEUES_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"topic {topic} has more than {QUEUES_MAX} queues"
            )
        return [
            MessageQueueBody(data.broker_name, queue_id, topic)
            for data in sorted(readable, key=lambda data: data.broker_name)
            for queue_id in range(data.read_queue_nums)
        ]

    @serves(
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        (Resource.CLIENTS, Action.WRITE),
        of_topic(lambda command: [_mode(command).topic], Right.UPDATE),
        of_group(lambda command: [_mode(command).consumer_group], Right.UPDATE),
    )
    def set_mode(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """SET_MESSAGE_REQUEST_MODE: PULL is kept, until this broker ends; POP is refused.

        Source: QueryAssignmentProcessor.setMessageRequestMode.
        """
        request = _mode(command)
        if request.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            raise RequestError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if request.mode != PULL:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"this broker does not serve the mode {request.mode[:20]}, only {PULL};"
                " nothing was changed",
            )
        check_name("topic", request.topic)
        check_name("consumer group", request.consumer_group)
        if request.consumer_group not in self._modes.get(request.topic, {}):
            if self._mode_count >= MODES_MAX:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"the mode of {MODES_MAX} groups was set, and no more are kept; every group"
                    f" has the mode {PULL} anyway",
                )
            self._mode_count += 1
        self._modes.setdefault(request.topic, {})[request.consumer_group] = request
        return response_to(command)

    @serves(
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        (Resource.CLIENTS, Action.READ),
        of_cluster(Right.GET),
    )
    def modes(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_MESSAGE_REQUEST_MODE: what was set."""
        body = MessageRequestModeSerializeWrapper(self._modes)
        return response_to(command, body=encode_json_body(body))


def _assignment(command: RemotingCommand) -> QueryAssignmentRequestBody:
    return decode_json_body(command.body, QueryAssignmentRequestBody)


def _mode(command: RemotingCommand) -> SetMessageRequestModeRequestBody:
    return decode_json_body(command.body, SetMessageRequestModeRequestBody)


def averagely(
    client: str, queues: Sequence[MessageQueueBody], clients: Sequence[str]
) -> list[MessageQueueBody]:
    """Give each client a run of queues; the first ones get one more if it does not come out even.

    Source: AllocateMessageQueueAveragely.
    """
    if client not in clients:
        return []
    index = clients.index(client)
    least, more = divmod(len(queues), len(clients))
    start = index * least + min(index, more)
    return list(queues[start : start + least + (index < more)])


def by_circle(
    client: str, queues: Sequence[MessageQueueBody], clients: Sequence[str]
) -> list[MessageQueueBody]:
    """Deal the queues out one by one. Source: AllocateMessageQueueAveragelyByCircle."""
    if client not in clients:
        return []
    return list(queues[clients.index(client) :: len(clients)])


ALLOCATIONS: Final = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}
"""By the names of AllocateMessageQueueStrategy."""

"""QUERY_ASSIGNMENT and the message request modes: queues that the broker shares out.

A client may leave it to its broker which queues of a group it reads. One that pulls is given those
that it would take by itself: all clients of the group and all queues, both sorted, shared out
evenly. One that pops is given all queues of a broker at once (-1), or, if `popShareQueueNum` says
so, its share and those of the next clients.

Source: RocketMQ 5.3.3, QueryAssignmentProcessor, AllocateMessageQueueAveragely and .._ByCircle,
MessageRequestModeManager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec
import trio

from node.errors import RequestError
from node.handlers.settled import answer_when_settled
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, of_group, of_topic, serves
from node.tables.client_table import BROADCASTING, ClientTable
from node.tables.replicated_modes import ModesChanged, ModesPart
from node.tables.tables import Tables
from tandem.wire.access_control import Right
from tandem.wire.pop_headers import ANY_QUEUE
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import MessageQueueBody
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import PERM_READ, TopicRouteData, decode_json_body, encode_json_body
from tandem.wire.stats_requests import (
    MessageQueueAssignment,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from tandem.wire.system_topics import RETRY_GROUP_TOPIC_PREFIX

Allocate: TypeAlias = (
    "Callable[[str, Sequence[MessageQueueBody], Sequence[str]], list[MessageQueueBody]]"
)
"""Of the queues and clients of a group: those of one client."""

PULL: Final = "PULL"
POP: Final = "POP"
MODES: Final = (PULL, POP)

QUEUES_MAX: Final = 65_536
"""Queues of one topic, over all brokers, that are shared out here."""

MODES_MAX: Final = 4_096
"""Groups whose mode was set. All others have the default."""


class QueryAssignment:
    """Serves these requests. `route_of` says where a topic is, None if nowhere."""

    def __init__(
        self,
        clients: ClientTable,
        tables: Tables,
        route_of: Callable[[str], TopicRouteData | None],
        *,
        timeout_seconds: float,
    ) -> None:
        """Serve what these hold; a change has `timeout_seconds` to be settled."""
        self._clients = clients
        self._tables = tables
        self._route_of = route_of
        self._timeout_seconds = timeout_seconds

    @property
    def _modes(self) -> ModesPart:
        return self._tables.shown.part_table(ModesPart).part

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
        set_mode = self._modes.find(request.topic, request.consumer_group)
        mode = PULL if set_mode is None else set_mode.mode
        if request.message_model != BROADCASTING:
            allocate = ALLOCATIONS.get(request.strategy_name)
            if allocate is None:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"there is no strategy {request.strategy_name!r}; there are"
                    f" {', '.join(ALLOCATIONS)}",
                )
            clients = sorted(self._clients.client_ids(request.consumer_group))
            if set_mode is not None and mode == POP:
                share = set_mode.pop_share_queue_num
                queues = for_pop(request.client_id, queues, clients, allocate, share)
            else:
                queues = allocate(request.client_id, queues, clients)
        assignments = [MessageQueueAssignment(queue, mode) for queue in queues]
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
    def set_mode(self, connection: Connection, command: RemotingCommand) -> None:
        """SET_MESSAGE_REQUEST_MODE. It is answered when every later master knows of it.

        Source: QueryAssignmentProcessor.setMessageRequestMode.
        """
        request = _mode(command)
        if request.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            raise RequestError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if request.mode not in MODES:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"there is no mode {request.mode[:20]!r}; there are {' and '.join(MODES)}",
            )
        self._tables.check_change()
        if self._tables.topics.get(request.topic) is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{request.topic}] not exist")
        self._tables.groups.find(request.consumer_group)
        modes = self._modes
        earlier = modes.find(request.topic, request.consumer_group)
        if earlier is None and modes.count >= MODES_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the mode of {MODES_MAX} groups was set, and no more are kept; delete groups or"
                " topics that are not used",
            )
        if earlier != request:
            change = ModesChanged({request.topic: {request.consumer_group: request}})
            self._tables.change(change)
        deadline = trio.current_time() + self._timeout_seconds
        answer_when_settled(self._tables, connection, command, deadline)

    @serves(
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        (Resource.CLIENTS, Action.READ),
        of_cluster(Right.GET),
    )
    def modes(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_MESSAGE_REQUEST_MODE: what was set."""
        modes = self._modes.content()["messageRequestModeMap"]
        body = MessageRequestModeSerializeWrapper(modes)
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


def for_pop(
    client: str,
    queues: Sequence[MessageQueueBody],
    clients: Sequence[str],
    allocate: Allocate,
    share: int,
) -> list[MessageQueueBody]:
    """Return what a client pops: all queues of each broker as one, or its share and others'.

    Source: QueryAssignmentProcessor.allocate4Pop.
    """
    if share <= 0 or share >= len(clients) - 1:
        whole = (msgspec.structs.replace(queue, queue_id=ANY_QUEUE) for queue in queues)
        return list(dict.fromkeys(whole))
    if client not in clients or not queues:
        return []
    index = clients.index(client)
    if len(clients) > len(queues):
        return [queues[index % len(queues)]]
    sharing = (clients[(index + more) % len(clients)] for more in range(share + 1))
    return list(
        dict.fromkeys(queue for each in sharing for queue in allocate(each, queues, clients))
    )


ALLOCATIONS: Final[dict[str, Allocate]] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}
"""By the names of AllocateMessageQueueStrategy."""

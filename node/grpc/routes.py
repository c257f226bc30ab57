"""QueryRoute and QueryAssignment: where a topic is.

A broker's address is the one that the client has dialled: every node serves every client, and
passes on what it cannot answer. So a client keeps its connections whichever node is master, and of
several addresses takes the next when one is gone. Clients use only brokers with the id 0.

Source: RocketMQ 5.3.3, RouteActivity; recorded answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from node.grpc.call import Call
from node.grpc.errors import CallError, error_of
from node.grpc.protocol import messages as pb
from node.grpc.session import Session
from node.grpc.topic_types import TopicTypes, checked_topic
from node.grpc.ways import Ways
from node.tables.subscription_group_table import group_complaint
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import GetRouteInfoRequestHeader
from tandem.wire.route import PERM_READ, PERM_WRITE, QueueData, TopicRouteData, decode_json_body
from tandem.wire.subscription_group import SubscriptionGroupConfig

QUEUES_MAX: Final = 65_536
"""In one answer."""

ENDPOINTS_BYTES_MAX: Final = 4_096
"""Some dozens of addresses. Unknown fields count, too: they would be sent back."""

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"


def checked_group(resource: pb.Resource) -> str:
    """Return the name of a consumer group that clients may use.

    Raises:
        CallError: it is none (ILLEGAL_CONSUMER_GROUP).
    """
    name = resource.name
    if complaint := group_complaint(name):
        raise CallError(pb.ILLEGAL_CONSUMER_GROUP, complaint)
    if name.startswith(SYSTEM_GROUP_PREFIX):
        raise CallError(pb.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group")
    return name


class Routes:
    """Answers both."""

    def __init__(
        self,
        ways: Ways,
        types: TopicTypes,
        group_of: Callable[[str], SubscriptionGroupConfig | None],
    ) -> None:
        """`group_of` finds a consumer group that somebody set up."""
        self._ways = ways
        self._types = types
        self._group_of = group_of

    def query_route(self, session: Session, call: Call, request: pb.QueryRouteRequest) -> None:
        """QueryRoute."""
        topic = checked_topic(request.topic)
        _check_endpoints(request.endpoints)

        def found(route: TopicRouteData) -> None:
            answer = pb.QueryRouteResponse()
            for queue_id, broker_name, permission in _queues(route):
                queue = answer.message_queues.add()
                _fill(queue, topic, broker_name, queue_id, permission, request.endpoints)
                queue.accept_message_types.extend(self._types.accepted(topic))
            answer.status.code, answer.status.message = pb.OK, "OK"
            call.answer(answer.SerializeToString())

        self._route(session, call, topic, found)

    def query_assignment(
        self, session: Session, call: Call, request: pb.QueryAssignmentRequest
    ) -> None:
        """QueryAssignment. Every client of a group is given everything: POP shares messages out."""
        topic, group = checked_topic(request.topic), checked_group(request.group)
        _check_endpoints(request.endpoints)
        config = self._group_of(group)
        is_fifo = config is not None and config.consume_message_orderly

        def found(route: TopicRouteData) -> None:
            answer = pb.QueryAssignmentResponse()
            for data in _by_name(route):
                if not data.perm & PERM_READ:
                    continue
                for queue_id in range(data.read_queue_nums) if is_fifo else (-1,):
                    queue = answer.assignments.add().message_queue
                    name, permission = data.broker_name, _permission(data)
                    _fill(queue, topic, name, queue_id, permission, request.endpoints)
            if not answer.assignments:
                raise CallError(pb.FORBIDDEN, "no readable queue")
            answer.status.code, answer.status.message = pb.OK, "OK"
            call.answer(answer.SerializeToString())

        self._route(session, call, topic, found)

    def _route(
        self, session: Session, call: Call, topic: str, found: Callable[[TopicRouteData], None]
    ) -> None:
        def done(answer: RemotingCommand) -> None:
            if (error := error_of(answer)) is not None:
                raise error
            found(decode_json_body(answer.body, TopicRouteData))

        header = GetRouteInfoRequestHeader(topic)
        session.ask(call, self._ways.local, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, done)


def _check_endpoints(endpoints: pb.Endpoints) -> None:
    """Raise if a client has dialled more than it can have: each queue of the answer has all of it.

    Raises:
        CallError: ILLEGAL_ACCESS_POINT.
    """
    if endpoints.ByteSize() > ENDPOINTS_BYTES_MAX:
        raise CallError(
            pb.ILLEGAL_ACCESS_POINT, f"endpoints of more than {ENDPOINTS_BYTES_MAX} bytes"
        )


def _by_name(route: TopicRouteData) -> list[QueueData]:
    """Return the queues of each broker name, also while it has no master: that is waited for."""
    known = {data.broker_name for data in route.broker_datas if data.broker_addrs}
    return sorted(
        (data for data in route.queue_datas if data.broker_name in known),
        key=lambda data: data.broker_name,
    )


def _queues(route: TopicRouteData) -> Iterator[tuple[int, str, pb.Permission]]:
    """Yield number, broker and permission of each queue.

    Numbers count on through those that can be read only, written only, and both.

    Source: RouteActivity.genMessageQueueFromQueueData.
    """
    count = 0
    for data in _by_name(route):
        reads = data.read_queue_nums if data.perm & PERM_READ else 0
        writes = data.write_queue_nums if data.perm & PERM_WRITE else 0
        both = min(reads, writes)
        count += max(reads, writes)
        if count > QUEUES_MAX:
            raise CallError(pb.INTERNAL_ERROR, f"the topic has more than {QUEUES_MAX} queues")
        kinds = [pb.READ] * (reads - both) + [pb.WRITE] * (writes - both) + [pb.READ_WRITE] * both
        for queue_id, permission in enumerate(kinds):
            yield queue_id, data.broker_name, permission


def _permission(data: QueueData) -> pb.Permission:
    if data.perm & PERM_READ and data.perm & PERM_WRITE:
        return pb.READ_WRITE
    return pb.READ if data.perm & PERM_READ else pb.WRITE


def _fill(
    queue: pb.MessageQueue,
    topic: str,
    broker_name: str,
    queue_id: int,
    permission: pb.Permission,
    endpoints: pb.Endpoints,
) -> None:
    queue.topic.name = topic
    queue.id = queue_id
    queue.permission = permission
    queue.broker.name = broker_name
    queue.broker.id = 0
    queue.broker.endpoints.CopyFrom(endpoints)

"""The calls that are served, by name: `apache.rocketmq.v2.MessagingService`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from node.grpc.errors import CallError
from node.grpc.protocol import messages as pb
from node.grpc.session import Method

if TYPE_CHECKING:
    from node.grpc.call import Call
    from node.grpc.routes import Routes
    from node.grpc.sends import Sends
    from node.grpc.session import Session
    from node.grpc.telemetry import Telemetry

NOT_CONSUMED: Final = (
    "messages are not received by gRPC from this node yet: receive them with a client of the"
    " remoting protocol, from the same topics, or through a proxy of RocketMQ's"
)


def methods_of(routes: Routes, sends: Sends, telemetry: Telemetry) -> dict[str, Method]:
    """Return what is done with each call. Those that are not here do not exist."""
    return {
        "QueryRoute": Method(pb.QueryRouteRequest, pb.QueryRouteResponse, routes.query_route),
        "QueryAssignment": Method(
            pb.QueryAssignmentRequest, pb.QueryAssignmentResponse, routes.query_assignment
        ),
        "Heartbeat": Method(pb.HeartbeatRequest, pb.HeartbeatResponse, telemetry.heartbeat),
        "NotifyClientTermination": Method(
            pb.NotifyClientTerminationRequest,
            pb.NotifyClientTerminationResponse,
            telemetry.terminate,
        ),
        "Telemetry": Method(
            pb.TelemetryCommand, pb.TelemetryCommand, telemetry.telemetry, is_stream=True
        ),
        "SendMessage": Method(pb.SendMessageRequest, pb.SendMessageResponse, sends.send),
        "EndTransaction": Method(
            pb.EndTransactionRequest, pb.EndTransactionResponse, sends.end_transaction
        ),
        "RecallMessage": Method(pb.RecallMessageRequest, pb.RecallMessageResponse, sends.recall),
        "ReceiveMessage": Method(
            pb.ReceiveMessageRequest, pb.ReceiveMessageResponse, _not_consumed
        ),
        "AckMessage": Method(pb.AckMessageRequest, pb.AckMessageResponse, _not_consumed),
        "ChangeInvisibleDuration": Method(
            pb.ChangeInvisibleDurationRequest, pb.ChangeInvisibleDurationResponse, _not_consumed
        ),
        "ForwardMessageToDeadLetterQueue": Method(
            pb.ForwardMessageToDeadLetterQueueRequest,
            pb.ForwardMessageToDeadLetterQueueResponse,
            _not_consumed,
        ),
    }


def _not_consumed(_session: Session, _call: Call, _request: object) -> None:
    raise CallError(pb.NOT_IMPLEMENTED, NOT_CONSUMED)

"""The calls that are served, by name: `apache.rocketmq.v2.MessagingService`."""

from __future__ import annotations

from node.grpc.acknowledgements import Acknowledgements
from node.grpc.protocol import messages as pb
from node.grpc.receives import Receives
from node.grpc.routes import Routes
from node.grpc.sends import Sends
from node.grpc.session import Method
from node.grpc.telemetry import Telemetry


def methods_of(
    routes: Routes,
    sends: Sends,
    telemetry: Telemetry,
    receives: Receives,
    acknowledgements: Acknowledgements,
) -> dict[str, Method]:
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
            pb.ReceiveMessageRequest,
            pb.ReceiveMessageResponse,
            receives.receive,
            closing=receives.closing,
        ),
        "AckMessage": Method(pb.AckMessageRequest, pb.AckMessageResponse, acknowledgements.ack),
        "ChangeInvisibleDuration": Method(
            pb.ChangeInvisibleDurationRequest,
            pb.ChangeInvisibleDurationResponse,
            acknowledgements.change,
        ),
        "ForwardMessageToDeadLetterQueue": Method(
            pb.ForwardMessageToDeadLetterQueueRequest,
            pb.ForwardMessageToDeadLetterQueueResponse,
            acknowledgements.forward,
        ),
    }

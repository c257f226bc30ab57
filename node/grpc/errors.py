"""What a call is answered instead of what it wanted: codes of RocketMQ's gRPC protocol.

gRPC itself says OK for nearly all of them: the code is in the answer's `status`.

Source: RocketMQ 5.3.3, ResponseBuilder.buildStatus and its table of codes; recorded answers.
"""

from __future__ import annotations

from typing import Final

from node.grpc.protocol import messages as pb
from tandem.wire.errors import WireError
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.response_code import ResponseCode

GRPC_OK: Final = 0
GRPC_INVALID_ARGUMENT: Final = 3
GRPC_RESOURCE_EXHAUSTED: Final = 8
GRPC_UNIMPLEMENTED: Final = 12
GRPC_INTERNAL: Final = 13

_CODES: Final[dict[int, pb.Code]] = {
    ResponseCode.SUCCESS: pb.OK,
    ResponseCode.SYSTEM_BUSY: pb.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: pb.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: pb.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.TOPIC_NOT_EXIST: pb.TOPIC_NOT_FOUND,
    ResponseCode.FLUSH_DISK_TIMEOUT: pb.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: pb.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: pb.HA_NOT_AVAILABLE,
    # Clients wait a moment before they try again, which they do not after any other code.
    ResponseCode.SERVICE_NOT_AVAILABLE: pb.TOO_MANY_REQUESTS,
}

_SIGNATURE_WORDS: Final = (
    "username cannot be null.",
    "datetime is null.",
    "authentication header is incorrect.",
    "check signature failed",
)


class CallError(WireError):
    """The answer to a call is this.

    Attributes:
        code: What `status` says.
    """

    def __init__(self, code: pb.Code, text: str) -> None:
        self.code = code
        super().__init__(text)


def error_of(answer: RemotingCommand) -> CallError | None:
    """Return what a broker's answer is to a client; None: it is a success."""
    if not answer.code:
        return None
    remark = answer.remark or ""
    if answer.code == ResponseCode.NO_PERMISSION:
        is_unknown = remark.startswith(_SIGNATURE_WORDS)
        return CallError(pb.UNAUTHORIZED if is_unknown else pb.FORBIDDEN, remark)
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        remark = f"CODE: {answer.code}  DESC: {remark}"
    return CallError(_CODES.get(answer.code, pb.INTERNAL_SERVER_ERROR), remark)

"""What a broker asks its clients, on the connections that they have opened.

    NOTIFY_CONSUMER_IDS_CHANGED, CHECK_TRANSACTION_STATE, ...     one way: no answer
    GET_CONSUMER_RUNNING_INFO, PUSH_REPLY_MESSAGE_TO_CLIENT, ...  answered, at once or later

What a client does not know is refused in words, so that the sender need not wait.

Source: RocketMQ 5.3.3, ClientRemotingProcessor; NettyRemotingAbstract.processRequestCommand.
"""

from collections.abc import Callable

import msgspec

from tandem.wire.remoting_command import RESPONSE_FLAG, RemotingCommand
from tandem.wire.response_code import ResponseCode


class BrokerRequest(msgspec.Struct, frozen=True):
    """One request of the broker at `address`.

    `respond` takes the answer and sends it, unless the connection has ended meanwhile.
    """

    address: str
    command: RemotingCommand
    respond: Callable[[RemotingCommand], None]

    def answer(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str = "",
        *,
        ext: msgspec.Struct | dict[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        """Answer it; nothing is sent if it is one way."""
        if self.command.is_oneway:
            return
        self.respond(
            RemotingCommand(
                code,
                self.command.opaque,
                flag=RESPONSE_FLAG,
                remark=remark or None,
                ext=ext,
                body=body,
                serialize_type=self.command.serialize_type,
            )
        )


class BrokerRequests:
    """Who serves which request of a broker, for one client.

    A request of a kind that nobody serves is refused.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[BrokerRequest], None]] = {}

    def on(self, code: int, handler: Callable[[BrokerRequest], None]) -> None:
        """Let `handler` serve requests of this code.

        It is called with each and returns at once. What takes long it starts as a task, which
        calls `BrokerRequest.answer` when it is done.
        """
        self._handlers[code] = handler

    def serve(self, request: BrokerRequest) -> None:
        """Give one to its handler."""
        handler = self._handlers.get(request.command.code)
        if handler is None:
            request.answer(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"this client serves no request {request.command.code}",
            )
        else:
            handler(request)

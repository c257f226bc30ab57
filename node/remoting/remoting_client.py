"""A small client for the requests that nodes send to each other: one request at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from store.machine.network import ConnectionLost, Network, Stream
from tandem.wire.errors import WireError
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import Ext, RemotingCommand, SerializeType, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_signature import ChallengeBody, is_rightly_answered, signed
from tandem.wire.route import decode_json_body

RECEIVE_BYTES_MAX: Final = 64 * 1024

Sign = Callable[[RemotingCommand], RemotingCommand]


class RequestFailedError(Exception):
    """The other node answered, but not with success.

    Attributes:
        answer: The whole answer.
    """

    def __init__(self, answer: RemotingCommand) -> None:
        self.answer = answer
        super().__init__(f"answered with code {answer.code}: {answer.remark or 'no remark'}")


class AnswerNotSignedError(WireError):
    """An answer that has to be signed is not, or not rightly."""


class RemotingClient:
    """One connection to another node. Use `open_client`."""

    def __init__(self, stream: Stream, sign: Sign | None = None) -> None:
        self._stream = stream
        self._sign = sign
        self._frames = FrameBuffer()
        self._opaque = 0

    async def request(self, code: int, *, ext: Ext = None, body: bytes = b"") -> RemotingCommand:
        """Send a request and return its answer. If it is cancelled the connection is finished.

        Raises:
            ConnectionLost: The stream broke or ended.
            WireError: The answer is malformed.
            RequestFailedError: The answer is not success.
        """
        self._opaque += 1
        command = RemotingCommand(
            code, self._opaque, ext=ext, body=body, serialize_type=SerializeType.JSON
        )
        if self._sign is not None:
            command = self._sign(command)
        await self._stream.send_all(encode_frame(command))
        answer = await self._receive(self._opaque)
        if answer.code:
            raise RequestFailedError(answer)
        return answer

    async def request_signed(
        self,
        code: int,
        *,
        ext: Ext = None,
        body: bytes = b"",
        key: bytes,
        target: str,
        is_answer_signed: bool = False,
    ) -> RemotingCommand:
        """Send a request that shows that we know the secret; see `tandem.wire.request_signature`.

        `target` is the client address of the node that is meant. With `is_answer_signed` its answer
        has to show the same.

        Raises:
            AnswerNotSignedError: it does not; do not believe it.
            ConnectionLost, WireError, RequestFailedError: see `request`.
        """
        answer = await self.request(RequestCode.NODE_CHALLENGE)
        challenge = decode_json_body(answer.body, ChallengeBody).challenge
        fields = RemotingCommand(code, ext=ext).ext_fields()
        own = signed(key, code, fields, body, challenge=challenge, target=target)
        answer = await self.request(code, ext=own, body=body)
        if is_answer_signed:
            said = answer.ext_fields()
            if not is_rightly_answered(key, code, challenge, said, answer.body):
                raise AnswerNotSignedError(
                    f"{self._stream.peer} does not show that it knows the secret of the cluster"
                )
        return answer

    async def _receive(self, opaque: int) -> RemotingCommand:
        while True:
            while (command := self._frames.next_command()) is not None:
                if command.is_response and command.opaque == opaque:
                    return command
            data = await self._stream.receive_some(RECEIVE_BYTES_MAX)
            if not data:
                raise ConnectionLost(f"{self._stream.peer} closed the connection")
            self._frames.receive_data(data)


@asynccontextmanager
async def open_client(
    network: Network,
    host: str,
    port: int,
    *,
    source: str | None,
    timeout_seconds: float,
    sign: Sign | None = None,
) -> AsyncIterator[RemotingClient]:
    """Connect, and close at the end. `sign` makes of each request a signed one.

    Raises:
        ConnectionLost: Nobody answered in time.
    """
    stream: Stream | None = None
    with trio.move_on_after(timeout_seconds):
        stream = await network.connect(host, port, source=source)
    if stream is None:
        raise ConnectionLost(f"{host}:{port} did not answer within {timeout_seconds} s")
    try:
        yield RemotingClient(stream, sign)
    finally:
        await stream.aclose()

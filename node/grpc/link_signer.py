"""How a node seals what it passes on for clients, where nodes ask who sends a request.

It seals as the operator, with the secret of the cluster: it has asked itself who its client is, and
what they may. See `tandem.wire.frame_seal`.
"""

from __future__ import annotations

from typing import Final

from store.machine.network import ConnectionLost, Stream
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.frame_seal import FrameSeal, SignInHeader, connection_key
from tandem.wire.remoting_command import (
    ONEWAY_FLAG,
    RemotingCommand,
    SerializeType,
    encode_frame,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_signature import ChallengeBody
from tandem.wire.route import decode_json_body
from tandem.wire.secret_keys import OPERATOR_ACCESS_KEY

RECEIVE_BYTES_MAX: Final = 16 * 1024


class LinkSigner:
    """Seals the requests of one connection."""

    def __init__(self, secret_key: str, target: str) -> None:
        """Seal with the operator's key; `target` is the `host:port` that is dialled."""
        self._secret_key = secret_key
        self._target = target
        self._seal: FrameSeal | None = None

    async def sign_in(self, stream: Stream, frames: FrameBuffer, first: int, second: int) -> None:
        """Ask for the number of the connection and say who seals; takes two opaques.

        Raises:
            ConnectionLost: the stream broke or ended.
            WireError: the answer is malformed.
        """
        await stream.send_all(encode_frame(RemotingCommand(RequestCode.NODE_CHALLENGE, first)))
        while (answer := frames.next_command()) is None:
            data = await stream.receive_some(RECEIVE_BYTES_MAX)
            if not data:
                raise ConnectionLost(f"{stream.peer} closed the connection")
            frames.receive_data(data)
        number = decode_json_body(answer.body, ChallengeBody).connection
        key = connection_key(self._secret_key, OPERATOR_ACCESS_KEY, number, self._target)
        self._seal = FrameSeal(key)
        header = SignInHeader(OPERATOR_ACCESS_KEY, self._target)
        command = RemotingCommand(
            RequestCode.SIGN_IN,
            second,
            ONEWAY_FLAG,
            ext=header,
            serialize_type=SerializeType.MSGPACK,
        )
        await stream.send_all(self.sealed(command))

    def sealed(self, command: RemotingCommand) -> bytes:
        """Return the frame of a request. They leave in the order in which they are sealed."""
        assert self._seal is not None, "asked for after `sign_in`"
        return self._seal.sealed(encode_frame(command), command.opaque)

"""Requests that are sealed, as our own clients seal them, and their frames."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from store.machine.network import ConnectionLost, Stream
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.frame_seal import FrameSeal, SignInHeader, connection_key
from tandem.wire.remoting_command import Ext, RemotingCommand, SerializeType, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import PullMessageRequestHeader, SendMessageRequestHeaderV2
from tandem.wire.request_signature import ChallengeBody
from tandem.wire.route import decode_json_body
from tests.node.security.users_world import Keys
from tests.node.world import MASTER, World

_MACHINES = count()

PACKED, JSON, ROCKETMQ = SerializeType.MSGPACK, SerializeType.JSON, SerializeType.ROCKETMQ


class Sealed:
    """One connection and who seals on it.

    Attributes:
        opaque: Of the last request.
        sign_in: The frame that has said who it is.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.opaque = 0
        self.sign_in = b""
        self.seal = FrameSeal(bytes(32))
        self._frames = FrameBuffer()

    async def challenge(self) -> str:
        answer = await self.give(encode_frame(RemotingCommand(RequestCode.NODE_CHALLENGE, 0)))
        return decode_json_body(answer.body, ChallengeBody).connection

    async def signed_in(self, keys: Keys, target: str) -> RemotingCommand:
        """Sign in; return the answer."""
        name, secret = keys
        number = await self.challenge()
        self.seal = FrameSeal(connection_key(secret, name, number, target))
        self.sign_in = self.frame(RequestCode.SIGN_IN, SignInHeader(name, target))
        return await self.give(self.sign_in)

    def plain(
        self, code: int, ext: Ext = None, body: bytes = b"", encoding: SerializeType = PACKED
    ) -> bytes:
        self.opaque += 1
        return encode_frame(
            RemotingCommand(code, self.opaque, ext=ext, body=body, serialize_type=encoding)
        )

    def frame(
        self, code: int, ext: Ext = None, body: bytes = b"", encoding: SerializeType = PACKED
    ) -> bytes:
        """Return the sealed frame of the next request."""
        return self.seal.sealed(self.plain(code, ext, body, encoding), self.opaque)

    async def give(self, frame: bytes) -> RemotingCommand:
        """Send a frame; return the next answer."""
        await self.stream.send_all(frame)
        if not (found := await self.answers(1)):
            raise ConnectionLost("it ended without an answer")
        return found[0]

    async def answers(self, count: int) -> list[RemotingCommand]:
        """Return the next answers; fewer if the node ends the connection."""
        found: list[RemotingCommand] = []
        while len(found) < count:
            while len(found) < count and (answer := self._frames.next_command()) is not None:
                found.append(answer)
            if len(found) < count:
                data = await self.stream.receive_some(65_536)
                if not data:
                    break
                self._frames.receive_data(data)
        return found

    async def send(self, body: bytes, topic: str = "T") -> RemotingCommand:
        return await self.give(self.frame(RequestCode.SEND_MESSAGE_V2, send_header(topic), body))

    async def pull(self, topic: str = "T") -> RemotingCommand:
        header = PullMessageRequestHeader("g", topic, 0, 0, 32, 4, 0, 0, 0, "*")
        return await self.give(self.frame(RequestCode.PULL_MESSAGE, header))


def send_header(topic: str = "T", properties: str = "WAIT\x01false\x02") -> Ext:
    return SendMessageRequestHeaderV2("PG", topic, "TBW102", 4, 0, 0, 1, 0, properties)


@asynccontextmanager
async def open_sealed(
    world: World, keys: Keys | None, host: str = MASTER, *, port: int = 10911, target: str = ""
) -> AsyncIterator[Sealed]:
    """Connect, and sign in if there are keys."""
    number = next(_MACHINES)
    ip = f"10.1.{number // 250 % 250}.{1 + number % 250}"
    stream = await world.network.machine(ip).connect(host, port, source=ip)
    try:
        sealed = Sealed(stream)
        if keys is not None:
            answer = await sealed.signed_in(keys, target or f"{host}:{port}")
            assert answer.code == 0, answer.remark
        yield sealed
    finally:
        await stream.aclose()

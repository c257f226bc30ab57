"""A follower made of bytes, for the tests of the master's side of a link."""

import hashlib

import msgspec
import trio

from ha.fenced.protocol import (
    ENVELOPE,
    HEAD_BYTES,
    Attach,
    Challenge,
    FrameHeader,
    HandshakeMessage,
    Hello,
    Joined,
    Report,
    Welcome,
    decode_frame_header,
    decode_message,
    encode_message,
    encode_report,
    proven,
)
from ha.fenced.seal import FRAMES, REPORTS, SEAL_BYTES, Seal
from store.machine.errors import ConnectionLost
from store.machine.network import Stream
from tests.ha.world import CLUSTER, FILE_SIZE_BYTES, GROUP, IPS, PORT, SECRET, World
from tests.support.patience import PATIENCE_SECONDS


class RawFollower:
    """What it hears and says; `attach` does the whole handshake."""

    def __init__(self, stream: Stream, *, name: str = "b", epoch: int = 1) -> None:
        self.stream = stream
        self.name = name
        self.epoch = epoch
        self.data = b""
        self.nonces = "", ""
        self.reports_seal = self.frames_seal = Seal("", "")

    async def receive_exactly(self, size: int) -> bytes:
        with trio.fail_after(PATIENCE_SECONDS):
            while len(self.data) < size:
                part = await self.stream.receive_some(65536)
                if not part:
                    raise ConnectionLost("end of stream")
                self.data += part
        data, self.data = self.data[:size], self.data[size:]
        return data

    async def receive_message(self) -> HandshakeMessage:
        head = await self.receive_exactly(ENVELOPE.size)
        size, _ = ENVELOPE.unpack(head)
        found = decode_message(head + await self.receive_exactly(size), 1 << 20)
        assert found is not None
        return found[0]

    async def say_hello(self, *, secret: str = SECRET, **changes: object) -> HandshakeMessage:
        challenge = await self.receive_message()
        assert isinstance(challenge, Challenge)
        hello = Hello(
            cluster=CLUSTER,
            group=GROUP,
            node=self.name,
            incarnation="raw",
            epoch=self.epoch,
            file_size_bytes=FILE_SIZE_BYTES,
            nonce="once",
        )
        hello = msgspec.structs.replace(hello, **changes)
        self.nonces = challenge.nonce, hello.nonce
        hello = proven(hello, secret, *self.nonces)
        await self.stream.send_all(encode_message(hello))
        return await self.receive_message()

    async def attach(self, offset: int = 0) -> Welcome:
        welcome = await self.say_hello()
        assert isinstance(welcome, Welcome), welcome
        nothing = hashlib.blake2b(digest_size=16).hexdigest()
        attach = Attach(offset=offset, check_from=offset, checksum=nothing)
        self.reports_seal = Seal(SECRET, REPORTS, *self.nonces)
        self.frames_seal = Seal(SECRET, FRAMES, *self.nonces)
        proof = proven(attach, SECRET, *self.nonces)
        await self.stream.send_all(encode_message(proof))
        joined = await self.receive_message()
        assert isinstance(joined, Joined), joined
        return welcome

    async def receive_frame(self) -> tuple[FrameHeader, bytes]:
        head = await self.receive_exactly(HEAD_BYTES)
        header, _, _ = decode_frame_header(head, 0)
        assert self.frames_seal.fits(head[:-SEAL_BYTES], head[-SEAL_BYTES:])
        return header, await self.receive_exactly(header.size)

    async def report(self, written: int, flushed: int = 0, *, epoch: int | None = None) -> None:
        epoch = self.epoch if epoch is None else epoch
        said = encode_report(Report(epoch, written, flushed))
        await self.stream.send_all(said + self.reports_seal.next(said))


async def dial(world: World, name: str = "b", *, target: str = "a") -> RawFollower:
    machine = world.network.machine(IPS[name]) if name in IPS else world.network.machine(name)
    stream = await machine.connect(IPS[target], PORT, source=None)
    return RawFollower(stream, name=name)

"""A proxy between clients and brokers that forgets, doubles or reorders one message: a program.

    python -m tests.support.lying_proxy forget 127.9.9.101:10911=127.9.9.201:10911 ...

Each pair is where it listens, and for whom. The addresses are as long as those of the brokers: it
puts itself into the routes that name servers answer. To clients it says what a sound broker says.
It says `ready`, `lied` when it has, and ends with its standard input.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
import trio

from tandem.wire.remoting_command import (
    FRAME_HEAD,
    RemotingCommand,
    decode_frame_parts,
    encode_frame,
)

SEND_MESSAGE_V2: Final = 310
QUEUE_ID: Final = "e"
"""In the header of that request, as are its properties."""

PROPERTIES: Final = "i"
OF_A_SYNC_SEND: Final = "TAGS\x01sync"
FIRST_LIE: Final = 3
"""Sends of one client that are let through before one is lied about."""

OWN_OPAQUE: Final = 1 << 30


class Liar:
    """Lies once, and says so."""

    def __init__(self, lie: str) -> None:
        self.lie = lie
        self._has_lied = False

    def lies_now(self) -> bool:
        """Whether this is the time."""
        if self._has_lied:
            return False
        self._has_lied = True
        print("lied", flush=True)  # noqa: T201 - a program of tests
        return True


class Pair:
    """One connection of a client, and the one to the broker that it stands for."""

    def __init__(
        self,
        liar: Liar,
        swapped: Mapping[bytes, bytes],
        client: trio.abc.Stream,
        broker: trio.abc.Stream,
    ) -> None:
        self._liar = liar
        self._swapped = swapped
        self._client = client
        self._broker = broker
        self._to_client = trio.Lock()
        self._to_broker = trio.Lock()
        self._sends = 0
        self._asked: set[int] = set()
        self._answer: RemotingCommand | None = None
        self._held: RemotingCommand | None = None
        self._after = -1

    async def requests(self) -> None:
        """Pass on what the client asks."""
        async for command, data in _frames(self._client):
            if command.code == SEND_MESSAGE_V2 and not command.is_response:
                await self._send(command, data)
            else:
                await self._ask(data)

    async def answers(self) -> None:
        """Pass on what the broker answers, but for what the client has not asked."""
        async for command, data in _frames(self._broker):
            if command.opaque >= OWN_OPAQUE:
                continue
            if command.opaque in self._asked and command.code == 0:
                self._answer = command
            said = data
            for real, own in self._swapped.items():
                said = said.replace(real, own)
            await self._say(said)
            if command.opaque == self._after and self._held is not None:
                late, self._held = self._held, None
                await self._ask(_with_opaque(late, OWN_OPAQUE))

    async def _send(self, command: RemotingCommand, data: bytes) -> None:
        lie = self._liar.lie
        self._asked.add(command.opaque)
        is_sync = OF_A_SYNC_SEND in command.ext_fields().get(PROPERTIES, "")
        self._sends += is_sync
        is_time = is_sync and self._sends >= FIRST_LIE and self._answer is not None
        if self._held is not None and _queue(command) == _queue(self._held):
            self._after = command.opaque
        is_lie = is_time and self._liar.lies_now()
        if is_lie and lie in ("forget", "reorder"):
            if lie == "reorder":
                self._held = command
            assert self._answer is not None
            await self._say(_with_opaque(self._answer, command.opaque))
            return
        await self._ask(data)
        if is_lie and lie == "double":
            await self._ask(_with_opaque(command, OWN_OPAQUE))

    async def _say(self, data: bytes) -> None:
        async with self._to_client:
            await self._client.send_all(data)

    async def _ask(self, data: bytes) -> None:
        async with self._to_broker:
            await self._broker.send_all(data)


async def _serve(
    liar: Liar, swapped: Mapping[bytes, bytes], back: str, client: trio.SocketStream
) -> None:
    host, _, port = back.rpartition(":")
    try:
        async with client, await trio.open_tcp_stream(host, int(port)) as broker:
            pair = Pair(liar, swapped, client, broker)
            async with trio.open_nursery() as nursery:
                for work in (pair.requests, pair.answers):
                    nursery.start_soon(_until_one_ends, work, nursery.cancel_scope)
    except OSError:
        return  # the broker is down


async def _until_one_ends(work: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
    # A broken connection is an end as good as an orderly one.
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await work()
    scope.cancel()


async def _frames(stream: trio.abc.Stream) -> AsyncIterator[tuple[RemotingCommand, bytes]]:
    data = bytearray()
    while part := await stream.receive_some():
        data += part
        while len(data) >= FRAME_HEAD.size:
            total, word = FRAME_HEAD.unpack_from(data)
            if len(data) < 4 + total:
                break
            frame = bytes(data[: 4 + total])
            del data[: 4 + total]
            body_at = FRAME_HEAD.size + (word & 0xFFFFFF)
            header, body = frame[FRAME_HEAD.size : body_at], frame[body_at:]
            yield decode_frame_parts(word >> 24, header, body), frame


def _with_opaque(command: RemotingCommand, opaque: int) -> bytes:
    return encode_frame(msgspec.structs.replace(command, ext=command.ext_fields(), opaque=opaque))


def _queue(command: RemotingCommand) -> str | None:
    return command.ext_fields().get(QUEUE_ID)


async def main(*arguments: str) -> None:
    """Serve until standard input ends."""
    lie, *pairs = arguments
    liar = Liar(lie)
    swapped = {}
    for front, back in (pair.split("=") for pair in pairs):
        swapped[back.encode()] = front.encode()
    async with trio.open_nursery() as nursery:
        for front, back in (pair.split("=") for pair in pairs):
            assert len(front) == len(back), "an address takes the place of another in a frame"
            host, _, port = front.rpartition(":")
            serve = partial(_serve, liar, swapped, back)
            await nursery.start(partial(trio.serve_tcp, serve, int(port), host=host))
        print("ready", flush=True)  # noqa: T201 - a program of tests
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])

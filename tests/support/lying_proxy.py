"""A proxy between clients and a broker that forgets, doubles or reorders messages.

It is at addresses beside those of the nodes, as long as they are, and puts itself into the routes
that name servers answer. To clients it says what a sound broker says.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from tandem.wire.remoting_command import (
    FRAME_HEAD,
    RemotingCommand,
    decode_frame_parts,
    encode_frame,
)

SEND_MESSAGE_V2: Final = 310
QUEUE_ID: Final = "e"
"""In the header of that request."""

OF_A_SYNC_SEND: Final = b"TAGS\x01sync"
FIRST_LIE: Final = 12
"""Sends of one client that are let through before one is lied about."""

OWN_OPAQUE: Final = 1 << 30


class _Client:
    """One connection of a client, and the one to the broker that it stands for."""

    def __init__(self, proxy: "LyingProxy", client: socket.socket, broker: socket.socket) -> None:
        self.proxy = proxy
        self._client = client
        self._broker = broker
        self._sends = 0
        self._asked: set[int] = set()
        self._answer: RemotingCommand | None = None
        self._held: RemotingCommand | None = None
        self._after = -1
        self._lock = threading.Lock()
        self._ended = 0

    def until_it_ends(self, work: Callable[[], None]) -> None:
        """Do one direction; when it ends, end the other, and with that close both connections."""
        with contextlib.suppress(OSError):
            work()
        ends = (self._client, self._broker)
        with self._lock:
            self._ended += 1
            for end in ends:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                if self._ended == len(ends):
                    end.close()

    def requests(self) -> None:
        for command, data in _frames(self._client):
            if command.code == SEND_MESSAGE_V2 and not command.is_response:
                self._send(command, data)
            else:
                self._broker.sendall(data)

    def answers(self) -> None:
        for command, data in _frames(self._broker):
            if command.opaque >= OWN_OPAQUE:
                continue
            if command.opaque in self._asked and command.code == 0:
                self._answer = command
            self._client.sendall(data.replace(self.proxy.back.encode(), self.proxy.front.encode()))
            if command.opaque == self._after and self._held is not None:
                late, self._held = self._held, None
                self._broker.sendall(_with_opaque(late, OWN_OPAQUE))

    def _send(self, command: RemotingCommand, data: bytes) -> None:
        self._asked.add(command.opaque)
        is_sync = OF_A_SYNC_SEND in data
        self._sends += is_sync
        is_lie = is_sync and self._sends >= FIRST_LIE and self.proxy.may_lie()
        if self._held is not None and _queue(command) == _queue(self._held):
            self._after = command.opaque
        if is_lie and self._answer is not None and self.proxy.lie in ("forget", "reorder"):
            if self.proxy.lie == "reorder":
                self._held = command
            self._client.sendall(_with_opaque(self._answer, command.opaque))
            return
        self._broker.sendall(data)
        if is_lie and self.proxy.lie == "double":
            self._broker.sendall(_with_opaque(command, OWN_OPAQUE))


class LyingProxy:
    """Passes on what goes to `back`, at `front`; lies once, about one sync send."""

    def __init__(self, front: str, back: str, ports: Sequence[int], lie: str) -> None:
        assert len(front) == len(back), "an address takes the place of another in a frame"
        self.front = front
        self.back = back
        self.lie = lie
        self.lies = 0
        self._lock = threading.Lock()
        self._listeners = [socket.create_server((front, port)) for port in ports]

    def may_lie(self) -> bool:
        """Whether this is the time; it is only once."""
        with self._lock:
            if not self.lie or self.lies:
                return False
            self.lies += 1
            return True

    def start(self) -> None:
        """Serve in threads, until the listeners are closed."""
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        port = listener.getsockname()[1]
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection((self.back, port))
            except OSError:
                client.close()
                continue
            both = _Client(self, client, broker)
            for work in (both.requests, both.answers):
                threading.Thread(target=both.until_it_ends, args=(work,), daemon=True).start()


def _frames(stream: socket.socket) -> Iterator[tuple[RemotingCommand, bytes]]:
    with stream.makefile("rb") as source:
        while len(head := source.read(FRAME_HEAD.size)) == FRAME_HEAD.size:
            total, word = FRAME_HEAD.unpack(head)
            rest = source.read(total - 4)
            header_bytes = word & 0xFFFFFF
            command = decode_frame_parts(word >> 24, rest[:header_bytes], rest[header_bytes:])
            yield command, head + rest


def _with_opaque(command: RemotingCommand, opaque: int) -> bytes:
    other = msgspec.structs.replace(command, ext=dict(command.ext_fields()), opaque=opaque)
    return encode_frame(other)


def _queue(command: RemotingCommand) -> str | None:
    return command.ext_fields().get(QUEUE_ID)

"""Connections to the masters of all brokers, for calls that this node cannot answer by itself.

    ask --> waiting --+--> sent --> answered                            --> done
             ^        |     |
             |        |     +--> the link broke, or nobody is master there
             +--------+-----+        (again, once there is a master)
             |
             +--> the deadline is over                                  --> done: try again

A request that was sent when a link broke is sent again: that is what its client would do next. So a
message may be stored twice, as with any producer that tries again; both have the same id.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

import msgspec
import trio

from node.grpc.link_signer import LinkSigner
from store.machine.network import ConnectionLost, Network, Stream
from store.machine.signal import Signal
from tandem.wire.errors import WireError
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.pop_headers import PopMessageRequestHeader
from tandem.wire.remoting_command import (
    RESPONSE_FLAG,
    Ext,
    RemotingCommand,
    SerializeType,
    encode_frame,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)

WAITING_MAX: Final = 4_096
"""Requests to one master that wait for their answers; see `OWED_ANSWERS_MAX`."""

WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of their bodies: all of them wait for seconds where there is no master."""

RETRY_SECONDS: Final = 0.05
"""Between two looks for a master. It is this node's own name server that is asked."""

LOOK_SECONDS: Final = 0.1
"""Between two looks at requests that wait."""

CONNECT_SECONDS_MAX: Final = 1.0
RECEIVE_BYTES_MAX: Final = 256 * 1024


class _Waiting(msgspec.Struct, eq=False):
    command: RemotingCommand
    deadline: float
    done: Callable[[RemotingCommand], None]
    since: float
    refusal: RemotingCommand | None = None
    """What a master has answered that may take it a moment later."""


class Link:
    """What is asked of the master of one broker name."""

    def __init__(
        self,
        broker_name: str,
        network: Network,
        source: str,
        master_of: Callable[[str], str | None],
        new_signer: Callable[[str], LinkSigner | None],
        questioned: Callable[[RemotingCommand], None],
        after_round: Callable[[], None],
    ) -> None:
        self._broker_name = broker_name
        self._network = network
        self._source = source
        self._master_of = master_of
        self._new_signer = new_signer
        self._questioned = questioned
        self._after_round = after_round
        self._opaques = count(1)
        self._waiting: dict[int, _Waiting] = {}
        """By the number under which each was sent last; below 0: not yet."""
        self._unsent = count(1)
        self._wanted = Signal()
        self._signer: LinkSigner | None = None
        self._out = bytearray()
        self._is_up = False
        self._bytes = 0

    def ask(
        self, command: RemotingCommand, deadline: float, done: Callable[[RemotingCommand], None]
    ) -> None:
        """See `AsksMasters.ask`."""
        size = len(command.body)
        if len(self._waiting) >= WAITING_MAX or self._bytes + size > WAITING_BYTES_MAX:
            count = len(self._waiting)
            done(_trouble(f"{count} requests wait for the master of {self._broker_name}"))
            return
        self._bytes += size

        def settled(answer: RemotingCommand) -> None:
            self._bytes -= size
            done(answer)

        waiting = _Waiting(command, deadline, settled, trio.current_time())
        if self._is_up:
            self._send(waiting)
        else:
            self._waiting[-next(self._unsent)] = waiting
        self._wanted.notify()

    def look(self, now: float) -> None:
        """Answer what waits no more, and send again what was refused."""
        for number, each in list(self._waiting.items()):
            if now >= each.deadline:
                text = f"no master of {self._broker_name} has answered in time; try again"
                del self._waiting[number]
                each.done(each.refusal or _trouble(text))
            elif number < 0 and self._is_up:
                del self._waiting[number]
                self._send(each)
        self._wanted.notify()

    async def run(self) -> None:
        """Keep a link while something waits, and after that until it breaks."""
        while True:
            while not self._waiting:
                await self._wanted.wait()
            address = self._master_of(self._broker_name)
            if address is not None:
                try:
                    await self._serve(address)
                except (ConnectionLost, WireError) as error:
                    _log.info("the link to %s of %s ended: %s", address, self._broker_name, error)
                finally:
                    self._is_up = False
            await trio.sleep(RETRY_SECONDS)

    async def _serve(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        stream: Stream | None = None
        with trio.move_on_after(CONNECT_SECONDS_MAX):
            stream = await self._network.connect(host, int(port), source=self._source)
        if stream is None:
            raise ConnectionLost(f"{address} did not answer within {CONNECT_SECONDS_MAX:g} s")
        try:
            frames = FrameBuffer()
            self._out.clear()
            signer = self._signer = self._new_signer(address)
            if signer is not None:
                first, second = next(self._opaques), next(self._opaques)
                with trio.fail_after(CONNECT_SECONDS_MAX):
                    await signer.sign_in(stream, frames, first, second)
            self._is_up = True
            for waiting in self._take_all():
                self._send(waiting)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, stream)
                await self._read(stream, frames)
                nursery.cancel_scope.cancel()
        except trio.TooSlowError as error:
            raise ConnectionLost(f"{address} did not answer") from error
        finally:
            stream.close_nowait()

    async def _read(self, stream: Stream, frames: FrameBuffer) -> None:
        """Take answers until the link breaks, or the other node is no master."""

        def take(data: bytes) -> bool:
            frames.receive_data(data)
            is_good = True
            while (command := frames.next_command()) is not None:
                is_good = self._take(command) and is_good
            self._after_round()
            return is_good

        try:
            await stream.receive_while(RECEIVE_BYTES_MAX, take)
        except (ConnectionLost, WireError) as error:
            _log.info("the link to %s of %s broke: %s", stream.peer, self._broker_name, error)

    async def _write(self, stream: Stream) -> None:
        while True:
            while not self._out:
                await self._wanted.wait()
            out, self._out = self._out, bytearray()
            try:
                await stream.send_all(out)
            except ConnectionLost:
                stream.close_nowait()
                return

    def _take(self, command: RemotingCommand) -> bool:
        """Take what the master has sent; whether it still is one."""
        if not command.flag & RESPONSE_FLAG:
            self._questioned(command)
            return True
        waiting = self._waiting.pop(command.opaque, None)
        if waiting is None:
            return True
        is_elsewhere = _is_elsewhere(waiting.command.code, command.code)
        if is_elsewhere or _is_refused_for_now(waiting.command.code, command.code):
            waiting.refusal = command
            self._waiting[-next(self._unsent)] = waiting
            return not is_elsewhere
        waiting.done(command)
        return True

    def _take_all(self) -> list[_Waiting]:
        """Those that wait, those that were sent first."""
        waiting = [self._waiting[number] for number in sorted(self._waiting, key=_order)]
        self._waiting.clear()
        return waiting

    def _send(self, waiting: _Waiting) -> None:
        opaque = next(self._opaques) & 0x7FFFFFFF
        command = msgspec.structs.replace(
            waiting.command,
            opaque=opaque,
            flag=0,
            ext=_what_is_left(waiting),
            serialize_type=SerializeType.MSGPACK,
        )
        try:
            signer = self._signer
            frame = encode_frame(command) if signer is None else signer.sealed(command)
        except (OverflowError, ValueError) as error:
            remark = f"this cannot be passed on: {error}"
            waiting.done(
                RemotingCommand(ResponseCode.SYSTEM_ERROR, flag=RESPONSE_FLAG, remark=remark)
            )
            return
        self._waiting[opaque] = waiting
        self._out += frame


def _what_is_left(waiting: _Waiting) -> Ext:
    """Return the header of a request; a long poll that is begun late, or again, ends when it would.

    Else the master holds it when its client has been answered already, and hands out a message that
    nobody takes: it comes when its invisible time is over.
    """
    ext = waiting.command.ext
    if not isinstance(ext, PopMessageRequestHeader):
        return ext
    gone_ms = int(1000 * (trio.current_time() - waiting.since))
    return msgspec.structs.replace(ext, poll_time=max(0, ext.poll_time - gone_ms))


def _is_elsewhere(code: int, answer_code: int) -> bool:
    """Whether a node says that it is no master, or is none yet: nothing was done."""
    return answer_code == ResponseCode.SERVICE_NOT_AVAILABLE or (
        answer_code == ResponseCode.SLAVE_NOT_AVAILABLE and code == RequestCode.END_TRANSACTION
    )


def _is_refused_for_now(code: int, answer_code: int) -> bool:
    """Whether a master has stored nothing, for it may be short of replicas for a moment."""
    return answer_code == ResponseCode.SYSTEM_ERROR and code == RequestCode.SEND_MESSAGE_V2


def _order(number: int) -> tuple[bool, int]:
    return number < 0, abs(number)


def _trouble(text: str) -> RemotingCommand:
    return RemotingCommand(ResponseCode.SYSTEM_BUSY, flag=RESPONSE_FLAG, remark=text)


class Links:
    """The links of one node, each made when it is first needed."""

    def __init__(
        self,
        new_link: Callable[[str], Link],
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        after_round: Callable[[], None],
    ) -> None:
        """`spawn` starts a task that ends with the broker."""
        self._new_link = new_link
        self._spawn = spawn
        self._after_round = after_round
        self._links: dict[str, Link] = {}

    def ask(
        self,
        broker_name: str,
        command: RemotingCommand,
        deadline: float,
        done: Callable[[RemotingCommand], None],
    ) -> None:
        """See `AsksMasters`."""
        link = self._links.get(broker_name)
        if link is None:
            link = self._links[broker_name] = self._new_link(broker_name)
            self._spawn(link.run)
        link.ask(command, deadline, done)

    async def run(self) -> None:
        """Answer what waits for too long, and send again what was refused, until cancelled."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            now = trio.current_time()
            for link in self._links.values():
                link.look(now)
            if self._links:
                self._after_round()

"""Reads off the wire what nodes answer clients, in the step in which it leaves a node.

A producer that was told SEND_OK keeps that as its own word, but by then time has passed. What was
promised has to be true when the answer is given, whoever receives it, if anybody does.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import trio

from tandem.wire.errors import WireError
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.message import Host, decode_offset_msg_id
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import PullMessageRequestHeader, SendMessageResponseHeader
from tandem.wire.response_code import ResponseCode
from tests.sim.engine.node import SimulatedNode

SENDS: Final = frozenset(
    {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
)
PULLS: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})


class AskedPull(msgspec.Struct, frozen=True):
    """A pull, as it left its reader."""

    asked_at: float
    topic: str
    queue_id: int
    queue_offset: int


class ClientWatch:
    """Follows every connection to a node's client port.

    `on_stored` hears of each SEND_OK with the offsets of its messages, `on_empty` of each pull for
    which there was nothing. Both may look at the disks as they are then.
    """

    def __init__(
        self,
        nodes: Iterable[SimulatedNode],
        *,
        on_stored: Callable[[SimulatedNode, list[int]], None],
        on_empty: Callable[[SimulatedNode, AskedPull], None],
    ) -> None:
        self._on_stored = on_stored
        self._on_empty = on_empty
        self._servers = {Host(node.ip, node.config.node.port): node for node in nodes}
        self._frames: dict[tuple[Host, Host], FrameBuffer | None] = {}
        """By sender and receiver; None: somebody sends nonsense there."""
        self._asked: dict[tuple[Host, Host, int], AskedPull | None] = {}
        """What waits for an answer, by client, node and number; None: a send."""

    def was_sent(self, source: Host, target: Host, data: bytes) -> None:
        """Bytes were handed to the network."""
        is_request = target in self._servers
        node = self._servers.get(source)
        if not is_request and (node is None or not node.is_up):
            return
        ends = (source, target)
        if ends not in self._frames:
            self._frames[ends] = FrameBuffer()
        frames = self._frames[ends]
        if frames is None:
            return
        frames.receive_data(data)
        try:
            while (command := frames.next_command()) is not None:
                if is_request:
                    self._note_request(source, target, command)
                elif node is not None:
                    self._note_answer(node, (target, source, command.opaque), command)
        except WireError:
            self._frames[ends] = None

    def _note_request(self, client: Host, server: Host, command: RemotingCommand) -> None:
        if command.code in SENDS:
            self._asked[client, server, command.opaque] = None
        elif command.code in PULLS:
            header = command.decode_header(PullMessageRequestHeader)
            self._asked[client, server, command.opaque] = AskedPull(
                trio.current_time(), header.topic, header.queue_id, header.queue_offset
            )

    def _note_answer(
        self, node: SimulatedNode, which: tuple[Host, Host, int], command: RemotingCommand
    ) -> None:
        if which not in self._asked or not command.is_response:
            return
        asked = self._asked.pop(which)
        if asked is None:
            if command.code == ResponseCode.SUCCESS:
                header = command.decode_header(SendMessageResponseHeader)
                offsets = [decode_offset_msg_id(part)[1] for part in header.msg_id.split(",")]
                self._on_stored(node, offsets)
        elif command.code == ResponseCode.PULL_NOT_FOUND:
            self._on_empty(node, asked)

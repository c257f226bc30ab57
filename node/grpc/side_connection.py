"""The connection by which the calls of one gRPC connection reach the broker's handlers.

Handlers know remoting connections: they answer on them, and ask questions of a client. This one has
no bytes on any wire. What is written to it is given to whom it belongs, as commands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from node.remoting.connection import Connection, Outbox
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import RemotingCommand


class SideConnection(Connection):
    """Gives each command that is written to it to `take`, when the outbox is flushed."""

    def __init__(
        self, outer: Connection, outbox: Outbox, take: Callable[[RemotingCommand], None]
    ) -> None:
        """Be `outer` to handlers: its peer, and whoever shows a certificate there."""
        super().__init__(outer.stream, outbox)
        self.reading = outer.reading
        self.has_asked = True
        self.counted_as = outer
        self._take = take
        self._frames = FrameBuffer()
        self._answers: list[RemotingCommand] = []

    def respond(
        self,
        request: RemotingCommand,
        response: RemotingCommand,
        body: Sequence[memoryview] = (),
    ) -> None:
        """See `Connection.respond`. Nothing is encoded."""
        if self.is_closed:
            return
        if self.when_answered and (told := self.when_answered.pop(request.opaque, None)):
            told(response.code, response.remark or "")
        if body:
            response = msgspec.structs.replace(response, body=b"".join(body))
        self._answers.append(response)
        self.write(b"")

    def flush(self) -> None:
        """Give what has gathered."""
        self._in_outbox = False
        answers, self._answers = self._answers, []
        frames, self._out = self._out, bytearray()
        for answer in answers:
            self._take(answer)
        if frames:
            self._frames.receive_data(bytes(frames))
            while (command := self._frames.next_command()) is not None:
                self._take(command)
        calls, self._when_drained = self._when_drained, []
        for call in calls:
            call()
        self._wake()

    def write_now(self, frames: memoryview) -> None:
        """See `Connection.write_now`."""
        self.write(frames)

    def close(self) -> None:
        """See `Connection.close`. Who takes has this one, too: that is a cycle no longer."""
        super().close()
        self._take = _nothing


def _nothing(_: RemotingCommand) -> None:
    """Do nothing."""

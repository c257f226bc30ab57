"""An ordinary client beside the attack: sends a message and pulls it, ten times a second.

    python -m tests.fuzz.canary '{"f": ["127.1.1.1:10911", ...], "c": [...]}'

Prints a line of JSON for each round: how long it took, its waiting for a master included. It opens
its own sockets and knows its addresses, so that it measures brokers and not routes.
"""

import json
import socket
import sys
import time
from collections.abc import Sequence
from typing import Final

from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import RemotingCommand, SerializeType, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    PULL_FLAG_SUBSCRIPTION,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from tandem.wire.response_code import ResponseCode

PAUSE_SECONDS: Final = 0.1
TIMEOUT_SECONDS: Final = 3.0


class Canary:
    """One client of one group."""

    def __init__(self, group: str, addresses: Sequence[str]) -> None:
        self.group = group
        self._addresses = list(addresses)
        self._socket: socket.socket | None = None
        self._frames = FrameBuffer()
        self._opaque = 0
        self.trouble = ""

    def sing(self) -> None:
        """Send and pull one message, wherever that is possible; return when it was."""
        while True:
            try:
                self._send_and_pull()
            except (OSError, RefusedError) as error:
                self.trouble = f"{type(error).__name__}: {error}"
                self._leave()
            else:
                return

    def _leave(self) -> None:
        """Try the next node."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._addresses.append(self._addresses.pop(0))
        time.sleep(0.01)

    def _send_and_pull(self) -> None:
        now_ms = int(time.time() * 1000)
        sent = self._ask(
            RequestCode.SEND_MESSAGE_V2,
            SendMessageRequestHeaderV2("canary", "Canary", "TBW102", 1, 0, 0, now_ms, 0),
            b"tweet",
        )
        place = sent.decode_header(SendMessageResponseHeader)
        pull = PullMessageRequestHeader(
            "canary",
            "Canary",
            place.queue_id,
            place.queue_offset,
            1,
            PULL_FLAG_SUBSCRIPTION,
            0,
            0,
            0,
            "*",
        )
        # Reads end at the confirm offset, which may be a moment after the answer to a send.
        for _ in range(100):
            try:
                pulled = self._ask(RequestCode.PULL_MESSAGE, pull, b"")
            except RefusedError as error:
                if error.code != ResponseCode.PULL_NOT_FOUND:
                    raise
                time.sleep(0.002)
                continue
            if b"tweet" not in pulled.body:
                raise RefusedError(0, "the message that was pulled is another one")
            return

    def _ask(
        self, code: int, ext: SendMessageRequestHeaderV2 | PullMessageRequestHeader, body: bytes
    ) -> RemotingCommand:
        if self._socket is None:
            host, _, port = self._addresses[0].rpartition(":")
            self._socket = socket.create_connection((host, int(port)), TIMEOUT_SECONDS)
            self._frames = FrameBuffer()
        self._opaque += 1
        command = RemotingCommand(
            code, self._opaque, ext=ext, body=body, serialize_type=SerializeType.JSON
        )
        self._socket.sendall(encode_frame(command))
        while True:
            while (answer := self._frames.next_command()) is not None:
                if answer.opaque == self._opaque and answer.is_response:
                    if answer.code:
                        raise RefusedError(answer.code, answer.remark or "")
                    return answer
            data = self._socket.recv(65_536)
            if not data:
                raise ConnectionResetError("closed by the node")
            self._frames.receive_data(data)


class RefusedError(Exception):
    """An answer that is no success."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"code {code}: {remark}")
        self.code = code


def main() -> None:
    """Sing until standard output is closed."""
    canaries = [Canary(group, addresses) for group, addresses in json.loads(sys.argv[1]).items()]
    while True:
        for canary in canaries:
            start = time.monotonic()
            canary.trouble = ""
            canary.sing()
            line = {
                "group": canary.group,
                "start": start,
                "seconds": time.monotonic() - start,
                "trouble": canary.trouble,
            }
            try:
                print(json.dumps(line), flush=True)  # noqa: T201 - for the program that started it
            except BrokenPipeError:
                return
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()

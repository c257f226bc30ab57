"""What does a message cost that is popped and acknowledged, here and at RocketMQ 5.3.3?

    python benchmarks/pop.py [--rounds 5] [--seconds 1.0] [--markdown] [--alone]

One node of ours and one broker of RocketMQ's are up at the same time, with the settings of
benchmarks/rivals.py and the timer wheel, without which RocketMQ has no POP. N connections pop up to
32 messages each (POP_MESSAGE, all queues), acknowledge each by a request of its own (ACK_MESSAGE),
all of them at a time, and pop again when all are answered. The loads go to one and then to the
other, round by round. The messages, of 1,024 bytes, are written before each load.

A row has the medians (lowest to highest), ours : RocketMQ, and the CPU in microseconds a message of
each server and of what makes the load. `--alone` measures ours only.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import struct
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from benchmarks.pipelined import Answered, Load, LoadError, send_all, send_frames
from benchmarks.rivals import (
    Server,
    our_group,
    rocketmq_group,
    wait_in_sync,
    wait_until_idle,
)
from benchmarks.side_by_side import (
    Loads,
    again,
    head_of,
    line_of,
    measured,
    print_table,
    say,
    settle,
    shown_cpu,
    shown_rate,
)
from benchmarks.stopwatch import Stopwatch
from tandem.wire.pop_headers import (
    ANY_QUEUE,
    INIT_MODE_MAX,
    AckMessageRequestHeader,
    PopMessageRequestHeader,
)
from tandem.wire.pop_offsets import PoppedQueue, decode_start_offsets
from tandem.wire.receipt_handle import ReceiptHandle, TopicMark, encode_receipt_handle
from tandem.wire.remoting_command import RemotingCommand, SerializeType, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.compat.programs import NotToBeHadError, classpath

TOPIC: Final = "BenchPop"
GROUP: Final = "bench-pop"
BROKER: Final = "broker-a"
CONNECTIONS: Final = (1, 16, 64)
POPPED: Final = 32
BATCH: Final = 64
INVISIBLE_MS: Final = 60_000
POLL_MS: Final = 5_000
WARM_UP_SECONDS: Final = 5.0
POPPED_A_SECOND_MAX: Final = 32_768
"""Messages that are written before they are popped."""

STILL_SECONDS_MAX: Final = 60.0
_PLACE: Final = struct.Struct(">i4xq")
_PLACE_AT: Final = 12
_NOTHING: Final = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND})


class Connection:
    """One of those that pop."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, STILL_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.left = 0
        """Acknowledgements that are not answered."""
        self._rest = b""
        self._opaque = 0

    def request(self, code: RequestCode, header: object) -> bytes:
        """Return a frame."""
        self._opaque += 1
        command = RemotingCommand(
            code,
            self._opaque,
            ext=header,  # type: ignore[arg-type]
            serialize_type=SerializeType.JSON,
        )
        return encode_frame(command)

    def pop(self) -> None:
        """Ask for messages."""
        header = PopMessageRequestHeader(
            GROUP,
            TOPIC,
            ANY_QUEUE,
            POPPED,
            INVISIBLE_MS,
            POLL_MS,
            INIT_MODE_MAX,
            born_time=time.time_ns() // 1_000_000,
            exp_type="TAG",
            exp="*",
            order=False,
        )
        self.socket.sendall(self.request(RequestCode.POP_MESSAGE, header))

    def acknowledge(self, header: dict[str, str], records: memoryview) -> int:
        """Acknowledge all messages of an answer; return how many there are."""
        starts = decode_start_offsets(header.get("startOffsetInfo", ""))
        numbers = (int(header["popTime"]), int(header["invisibleTime"]), int(header["reviveQid"]))
        out, at = bytearray(), 0
        while at < len(records):
            size = int.from_bytes(records[at : at + 4], "big")
            queue_id, offset = _PLACE.unpack_from(records, at + _PLACE_AT)
            at += size
            start = starts[PoppedQueue(TopicMark.NORMAL, queue_id)]
            handle = ReceiptHandle(start, *numbers, TopicMark.NORMAL, BROKER, queue_id, offset)
            given = encode_receipt_handle(handle)
            ack = AckMessageRequestHeader(GROUP, TOPIC, queue_id, given, offset)
            out += self.request(RequestCode.ACK_MESSAGE, ack)
            self.left += 1
        self.socket.sendall(out)
        return self.left

    def answers(self) -> Iterator[tuple[int, dict[str, str], memoryview]]:
        """Receive once; yield code, fields and body of each whole answer."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise LoadError("the server has closed the connection")
        data = self._rest + data
        at, view = 0, memoryview(data)
        while len(data) - at >= 8:
            size, head = struct.unpack_from(">II", data, at)
            end = at + 4 + size
            if end > len(data):
                break
            body_at = at + 8 + (head & 0xFFFFFF)
            header = msgspec.json.decode(view[at + 8 : body_at])
            yield header["code"], header.get("extFields") or {}, view[body_at:end]
            at = end
        self._rest = data[at:]


def pops(address: tuple[str, int], count: int, seconds: float) -> Answered:
    """Pop by `count` connections, and acknowledge.

    Raises:
        LoadError: a request fails.
    """
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        stopwatch = Stopwatch(seconds)
        for _ in range(count):
            connection = Connection(address)
            stack.callback(connection.socket.close)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.pop()
        busy, still_at = count, time.monotonic() + STILL_SECONDS_MAX
        while busy:
            for key, _ in selector.select(1.0):
                still_at = time.monotonic() + STILL_SECONDS_MAX
                busy -= _take(key.data, stopwatch)
            if time.monotonic() > still_at:
                raise LoadError("nothing moves any more")
        return stopwatch.answered()


def _take(connection: Connection, stopwatch: Stopwatch) -> bool:
    """Take what is there; return whether it was the last of this connection."""
    for code, header, body in connection.answers():
        if code and not connection.left and code not in _NOTHING:
            raise LoadError(f"a pop is answered {code}")
        is_over = stopwatch.is_over()
        if connection.left:
            stopwatch.done += not code
            stopwatch.failed += bool(code)
            connection.left -= 1
        elif not code and connection.acknowledge(header, body):
            continue
        if not connection.left and is_over:
            return True
        if not connection.left:
            connection.pop()
    return False


def load(server: Server, count: int, seconds: float) -> Load:
    """Put one load on one server."""
    frames = send_frames(TOPIC, 1, wait=True, batch=BATCH)
    wanted = (int(POPPED_A_SECOND_MAX * seconds) + 2 * count * POPPED) // BATCH
    send_all(server.address, (frames * (wanted // len(frames) + 1))[:wanted])
    settle(server)
    return measured(server, partial(pops, server.address, count, seconds))


def run(rounds: int, seconds: float, *, is_alone: bool) -> Loads:
    """Run all rows on both, in turns."""
    loads: Loads = defaultdict(list)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        ours = our_group(directory / "ours", 0, store={"timer_wheel_enable": True})
        servers = [stack.enter_context(ours)]
        if not is_alone:
            theirs = rocketmq_group(directory / "rocketmq", 0, {"timerWheelEnable": "true"})
            servers.insert(0, stack.enter_context(theirs))
        for server in servers:
            wait_in_sync(server, TOPIC)
            while pops(server.address, 1, 0.0).messages_in_all:
                pass  # a group begins at the end
            wait_until_idle(server)
            warm_up = 0.5 if server.name == "ours" else WARM_UP_SECONDS
            for count in CONNECTIONS:
                again(f"{count} on {server.name}", partial(load, server, count, warm_up))
        for number in range(rounds):
            for count in CONNECTIONS:
                for server in servers if number % 2 else servers[::-1]:
                    what = f"{count} on {server.name}"
                    found = again(what, partial(load, server, count, seconds))
                    loads[str(count), server.name].append(found)
                    say(f"{what}: {shown_rate([found])}/s, {shown_cpu([found])}")
            say(f"round {number + 1} of {rounds} is done")
    return loads


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one load")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", action="store_true", help="the table for a page")
    parser.add_argument("--alone", action="store_true", help="ours, without RocketMQ")
    options = parser.parse_args()
    try:
        if not options.alone:
            classpath("pom.xml", "tools")
        loads = run(options.rounds, options.seconds, is_alone=options.alone)
    except NotToBeHadError as error:
        print(f"skipped: RocketMQ 5.3.3 cannot be had here: {error}")
        return
    words = {count: f"pops and acknowledgements, {count} connections" for count in CONNECTIONS}
    if options.alone:
        for count, what in words.items():
            ours = loads[str(count), "ours"]
            print(f"{what}: {shown_rate(ours)}/s, CPU us a message: {shown_cpu(ours)}")
        return
    lines = [
        line_of(what, loads[str(count), "ours"], loads[str(count), "RocketMQ"])
        for count, what in words.items()
    ]
    print_table(head_of("RocketMQ"), lines, markdown=options.markdown)


if __name__ == "__main__":
    main()

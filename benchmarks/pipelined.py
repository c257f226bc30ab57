"""A load of ready-made frames over one connection, as lean as Python allows.

Frames are made before the load begins, all of one size, in a ring; `depth` of them are in flight.
For each answer that came, the next frame of the ring goes out, all of them in one send. Of every
answer the length and the code are looked at: one that is not SUCCESS ends the load. This costs
0.3 to 0.6 us an answer when several come at a time, so the generator is no limit of what it loads.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from tandem.client.tls import TLSSocket
from tandem.wire.batch_body import encode_batch_entry
from tandem.wire.message_properties import encode_properties
from tandem.wire.remoting_command import RemotingCommand, SerializeType, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    PullMessageRequestHeader,
    QueueRequestHeader,
    SendMessageRequestHeaderV2,
)

BODY: Final = b"x" * 1024
QUEUES: Final = 4
RING_FRAMES: Final = 1024
"""Each with keys of its own."""

PULLED: Final = 32
WARM_SHARE: Final = 0.2
"""Of the measured time, before it."""

ANSWER_SECONDS_MAX: Final = 30.0

_LENGTH: Final = struct.Struct(">I")
_SUCCESS: Final = b'{"code":0,'
_PACKED_SUCCESS: Final = b"\x97\x00"
_OPAQUE_FIRST: Final = 1 << 20
"""So that all have the same number of digits, and all frames one size."""


class LoadError(Exception):
    """A server, or a client, did not do what it was asked. Says what it said."""


class Load(msgspec.Struct, frozen=True):
    """What came of one load. CPU in microseconds a message, by the name of the process."""

    rate: float
    """Messages a second."""
    cpu_us: dict[str, float]


class Answered(msgspec.Struct, frozen=True):
    """What a generator did: messages and seconds after it was warm, and messages in all."""

    messages: int
    seconds: float
    messages_in_all: int


def send_frames(
    topic: str, depth: int, *, wait: bool, batch: int = 1, body: bytes = BODY
) -> list[bytes]:
    """Return a ring of SEND_MESSAGE_V2 frames with JSON headers, or of batches.

    Each message has KEYS and UNIQ_KEY as RocketMQ's client sends them.
    """
    count = max(depth, RING_FRAMES // batch)
    return [
        send_frame(topic, number, wait=wait, batch=batch, queue_id=number % QUEUES, body=body)
        for number in range(count)
    ]


def send_frame(
    topic: str,
    number: int,
    *,
    wait: bool,
    queue_id: int,
    batch: int = 1,
    queues: int = QUEUES,
    body: bytes = BODY,
) -> bytes:
    """Return the frame with this number; a topic that is new gets this many queues."""
    properties = [
        {
            "KEYS": f"order-{number:06d}-{index:03d}",
            "UNIQ_KEY": f"7F0000010000{number * batch + index:020X}",
            "WAIT": "true" if wait else "false",
        }
        for index in range(batch)
    ]
    if batch > 1:
        body = b"".join(encode_batch_entry(0, body, encode_properties(each)) for each in properties)
    header = SendMessageRequestHeaderV2(
        producer_group="bench",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=queues,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        # Of a batch, it is this one that says whether to wait.
        properties=encode_properties(
            properties[0] if batch == 1 else {"WAIT": properties[0]["WAIT"]}
        ).decode(),
        reconsume_times=0,
        unit_mode=False,
        batch=batch > 1,
    )
    code = RequestCode.SEND_BATCH_MESSAGE if batch > 1 else RequestCode.SEND_MESSAGE_V2
    return _frame(code, number, header, body)


def pull_frames(topic: str, first_offset_of: Mapping[int, int], each: int) -> list[bytes]:
    """Return a ring of PULL_MESSAGE frames: `each` messages of every queue, 32 by 32."""
    frames: list[bytes] = []
    for step in range(each // PULLED):
        for queue_id, first in first_offset_of.items():
            header = PullMessageRequestHeader(
                consumer_group="bench",
                topic=topic,
                queue_id=queue_id,
                queue_offset=first + step * PULLED,
                max_msg_nums=PULLED,
                sys_flag=4,  # the subscription comes with the pull
                commit_offset=0,
                suspend_timeout_millis=0,
                sub_version=0,
                subscription="*",
            )
            frames.append(_frame(RequestCode.PULL_MESSAGE, len(frames), header, b""))
    return frames


def max_offset_frame(topic: str, queue_id: int) -> bytes:
    """Return a GET_MAX_OFFSET frame."""
    return _frame(
        RequestCode.GET_MAX_OFFSET,
        0,
        QueueRequestHeader(topic=topic, queue_id=queue_id),
        b"",
    )


def _frame(code: RequestCode, number: int, header: object, body: bytes) -> bytes:
    command = RemotingCommand(
        code,
        _OPAQUE_FIRST + number,
        ext=header,  # type: ignore[arg-type]
        body=body,
        serialize_type=SerializeType.JSON,
    )
    return encode_frame(command)


class Frames(Protocol):
    """What a load sends."""

    def take(self, count: int) -> bytes | memoryview:
        """Return the next `count` frames."""


class Ring:
    """Frames in one piece of memory, twice in a row: any run of them is one slice."""

    def __init__(self, frames: list[bytes]) -> None:
        self._count = len(frames)
        self._all = memoryview(b"".join(frames * 2))
        starts = [0]
        for frame in frames * 2:
            starts.append(starts[-1] + len(frame))
        self._starts = starts
        self._position = 0

    def take(self, count: int) -> memoryview:
        """Return the next `count` frames; there must be that many."""
        first = self._position
        self._position = (first + count) % self._count
        return self._all[self._starts[first] : self._starts[first + count]]


def answer_load(
    address: tuple[str, int],
    frames: list[bytes],
    depth: int,
    seconds: float,
    *,
    messages_per_frame: int = 1,
    secure: Callable[[socket.socket], TLSSocket] | None = None,
    ring_of: Callable[[Any, list[bytes]], Frames] | None = None,
) -> Answered:
    """Keep `depth` frames in flight on one connection for a while, then take all answers.

    `secure` makes a connection with TLS out of one that is open; `ring_of` gets that connection and
    the frames.

    Raises:
        LoadError: An answer is no success.
        OSError: The connection is lost, or nothing comes for half a minute.
    """
    warm_messages = done = 0
    with socket.create_connection(address, ANSWER_SECONDS_MAX) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream: Any = plain if secure is None else secure(plain)
        ring: Frames = Ring(frames) if ring_of is None else ring_of(stream, frames)
        start = time.perf_counter()
        warm = start + WARM_SHARE * seconds
        end = warm + seconds
        warm_at = 0.0
        rest = b""
        stream.sendall(ring.take(depth))
        while True:
            count, rest = count_answers(rest + _received(stream))
            done += count
            now = time.perf_counter()
            if not warm_at and now >= warm:
                warm_at, warm_messages = now, done
            if now >= end:
                break
            if count:
                stream.sendall(ring.take(count))
        measured = done - warm_messages
        left = depth - count
        while left:
            count, rest = count_answers(rest + _received(stream))
            left -= count
            done += count
    return Answered(measured * messages_per_frame, now - warm_at, done * messages_per_frame)


def send_all(address: tuple[str, int], frames: list[bytes]) -> None:
    """Send each frame once, eight in flight."""
    with socket.create_connection(address, ANSWER_SECONDS_MAX) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = answered = 0
        rest = b""
        while answered < len(frames):
            room = answered + 8 - sent
            stream.sendall(b"".join(frames[sent : sent + room]))
            sent = min(sent + room, len(frames))
            count, rest = count_answers(rest + _received(stream))
            answered += count


def _received(stream: socket.socket) -> bytes:
    data = stream.recv(1 << 18)
    if not data:
        raise LoadError("the server has closed the connection")
    return data


def count_answers(data: bytes) -> tuple[int, bytes]:
    """Return how many whole answers `data` starts with, and what comes after them.

    Raises:
        LoadError: One is not a success.
    """
    count = position = 0
    unpack = _LENGTH.unpack_from
    last = len(data) - 4
    end = len(data)
    while position <= last:
        following = position + 4 + unpack(data, position)[0]
        if following > end:
            break
        # Both write the code first.
        if (
            data[position + 8 : position + 18] != _SUCCESS
            and data[position + 8 : position + 10] != _PACKED_SUCCESS
        ):
            check_answer(data[position:following])
        position = following
        count += 1
    return count, data[position:]


def check_answer(frame: bytes) -> None:
    """Check that an answer is a success.

    Raises:
        LoadError: It is not.
    """
    header_bytes = _LENGTH.unpack_from(frame, 4)[0] & 0xFFFFFF
    header = msgspec.json.decode(frame[8 : 8 + header_bytes])
    if header.get("code") != 0:
        raise LoadError(f"an answer is {header.get('code')}: {header.get('remark')}")


def ask(address: tuple[str, int], frame: bytes) -> dict[str, object]:
    """Send one frame; return the header of the answer, whatever its code."""
    with socket.create_connection(address, ANSWER_SECONDS_MAX) as stream:
        stream.sendall(frame)
        data = b""
        while len(data) < 4 or len(data) < 4 + _LENGTH.unpack_from(data)[0]:
            data += _received(stream)
    header_bytes = _LENGTH.unpack_from(data, 4)[0] & 0xFFFFFF
    header: dict[str, object] = msgspec.json.decode(data[8 : 8 + header_bytes])
    return header


_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return what a process has used up so far, in user and in system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def cpu_of(pids: Mapping[str, int], own: Iterable[str] = ("load",)) -> dict[str, float]:
    """Return what processes have used up, by name; `own` are names of this one."""
    used = {name: cpu_seconds(pid) for name, pid in pids.items()}
    return used | dict.fromkeys(own, time.process_time())

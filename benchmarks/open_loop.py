"""An open loop of sends: each leaves when its time has come, whatever became of those before it.

A latency is counted from the intended time of a send, so one that could not leave in time has
waited already: a server that stands still for a second has it in the sends of that second.

Latencies are kept in counters whose bounds grow by a fixed share, as in an HdrHistogram: a
percentile is at most 1.1 % above what it was.
"""

from __future__ import annotations

import math
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

import msgspec

from benchmarks.pipelined import BODY, LoadError, send_frames

STEPS: Final = 64
"""Counters for each doubling."""

_MICROSECOND: Final = 1e-6
_LENGTH: Final = struct.Struct(">I")
_OPAQUE: Final = b'"opaque":'
_OPAQUE_FIRST: Final = 1 << 20
_OPAQUE_LAST: Final = 9_999_999
RECEIVE_BYTES_MAX: Final = 256 * 1024
WAIT_SECONDS_MAX: Final = 0.05
SENDS_A_STEP: Final = 256


class Histogram:
    """How often each latency was seen, to about one percent."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.max_seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        step = math.ceil(math.log2(max(seconds / _MICROSECOND, 1.0)) * STEPS)
        self._counts[step] = self._counts.get(step, 0) + 1
        self.count += 1
        self.max_seconds = max(self.max_seconds, seconds)

    def merge(self, other: Histogram) -> None:
        """Add all of another one."""
        for step, count in other._counts.items():
            self._counts[step] = self._counts.get(step, 0) + count
        self.count += other.count
        self.max_seconds = max(self.max_seconds, other.max_seconds)

    def add_steps(self, counts: Mapping[int, int], max_seconds: float) -> None:
        """Count what another program has counted, by the same steps."""
        for step, count in counts.items():
            self._counts[step] = self._counts.get(step, 0) + count
            self.count += count
        self.max_seconds = max(self.max_seconds, max_seconds)

    def percentile(self, share: float) -> float:
        """Return the seconds within which this share of all was; 0 if there was none."""
        seen = 0
        for step in sorted(self._counts):
            seen += self._counts[step]
            if seen >= share * self.count:
                return float(min(2 ** (step / STEPS) * _MICROSECOND, self.max_seconds))
        return 0.0


class Interval:
    """What came of one piece of a load.

    Attributes:
        latencies: Of sends that were answered with success.
        failed: Other answers, by their code.
        sent: How many sends left.
    """

    def __init__(self) -> None:
        self.latencies = Histogram()
        self.failed: Counter[int] = Counter()
        self.sent = 0

    def merge(self, other: Interval) -> None:
        """Add all of another one."""
        self.latencies.merge(other.latencies)
        self.failed.update(other.failed)
        self.sent += other.sent


class Header(msgspec.Struct):
    """Of an answer, as far as it is looked at."""

    code: int
    opaque: int


class _Connection:
    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.out = bytearray()
        self.received = b""


class OpenLoop:
    """Sends at a fixed rate over some connections, and takes what is answered."""

    def __init__(
        self,
        stack: ExitStack,
        address: tuple[str, int],
        topic: str,
        *,
        rate: float,
        connections: int,
        wait: bool,
        body: bytes = BODY,
        in_flight_max: int | None = None,
    ) -> None:
        """Connect; nothing is sent before `run_until`.

        With `in_flight_max` a send waits until fewer are without an answer: that is no open loop,
        and with a rate of `math.inf` it says what a server takes.
        """
        self.rate = rate
        self._in_flight_max = in_flight_max
        frames = send_frames(topic, 64, wait=wait, body=body)[:64]
        self._templates = [_cut(frame) for frame in frames]
        self._poll = stack.enter_context(select.epoll())
        self._connections: dict[int, _Connection] = {}
        for _ in range(connections):
            sock = stack.enter_context(socket.create_connection(address, 30.0))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)  # noqa: FBT003
            self._connections[sock.fileno()] = _Connection(sock)
            self._poll.register(sock, select.EPOLLIN)
        self._row = list(self._connections.values())
        self._due_at: dict[int, float] = {}
        self._number = 0
        self.begin = time.perf_counter()

    @property
    def unanswered(self) -> int:
        """How many sends have no answer yet."""
        return len(self._due_at)

    def run_until(self, end: float, into: Interval, *, sends: bool = True) -> None:
        """Go on until a moment of `time.perf_counter`; without `sends`, until all is answered.

        Raises:
            LoadError: A connection was lost.
        """
        while (now := time.perf_counter()) < end:
            if sends:
                self._send_due(now, into)
            elif not self._due_at:
                return
            for fd, events in self._poll.poll(self._wait_seconds() if sends else WAIT_SECONDS_MAX):
                one = self._connections[fd]
                if events & select.EPOLLIN:
                    self._receive(one, into)
                if events & select.EPOLLOUT:
                    self._flush(one)
                if events & (select.EPOLLHUP | select.EPOLLERR):
                    raise LoadError("a connection was lost")

    def _wait_seconds(self) -> float:
        """Return for how long there is nothing to send, at most."""
        if self._is_full:
            return WAIT_SECONDS_MAX
        next_due = self.begin + self._number / self.rate
        return min(max(next_due - time.perf_counter(), 0.0), WAIT_SECONDS_MAX)

    @property
    def _is_full(self) -> bool:
        return self._in_flight_max is not None and len(self._due_at) >= self._in_flight_max

    def _send_due(self, now: float, into: Interval) -> None:
        touched = set()
        for _ in range(SENDS_A_STEP):
            due = self.begin + self._number / self.rate
            if due > now or self._is_full:
                break
            opaque = _OPAQUE_FIRST + self._number % (_OPAQUE_LAST - _OPAQUE_FIRST)
            before, after = self._templates[self._number % len(self._templates)]
            one = self._row[self._number % len(self._row)]
            one.out += before + b"%d" % opaque + after
            self._due_at[opaque] = due
            self._number += 1
            into.sent += 1
            touched.add(one.socket.fileno())
        for fd in touched:
            self._flush(self._connections[fd])

    def _flush(self, one: _Connection) -> None:
        try:
            sent = one.socket.send(one.out)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise LoadError(f"a connection was lost: {error}") from error
        del one.out[:sent]
        events = select.EPOLLIN | (select.EPOLLOUT if one.out else 0)
        self._poll.modify(one.socket, events)

    def _receive(self, one: _Connection, into: Interval) -> None:
        try:
            data = one.socket.recv(RECEIVE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError as error:
            raise LoadError(f"a connection was lost: {error}") from error
        if not data:
            raise LoadError("the server has closed a connection")
        now = time.perf_counter()
        data = one.received + data
        position = 0
        while position + 8 <= len(data):
            end = position + 4 + _LENGTH.unpack_from(data, position)[0]
            if end > len(data):
                break
            header_bytes = _LENGTH.unpack_from(data, position + 4)[0] & 0xFFFFFF
            header = msgspec.json.decode(
                data[position + 8 : position + 8 + header_bytes], type=Header
            )
            due = self._due_at.pop(header.opaque, None)
            if due is None:
                raise LoadError(f"an answer of nothing that was asked: {header}")
            if header.code == 0:
                into.latencies.add(now - due)
            else:
                into.failed[header.code] += 1
            position = end
        one.received = data[position:]


def _cut(frame: bytes) -> tuple[bytes, bytes]:
    """Return a frame before and after its opaque, which has seven digits."""
    at = frame.index(_OPAQUE) + len(_OPAQUE)
    size = len(str(_OPAQUE_FIRST))
    assert frame[at : at + size].isdigit()
    assert not frame[at + size : at + size + 1].isdigit()
    return frame[:at], frame[at + size :]

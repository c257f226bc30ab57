"""What does a group take for long, and how long is it out of sync after a fault?

    python benchmarks/sustained.py --kind sync --rate 5000 | --disk-share 50 80 95 | --own-share …
        [--seconds 3600] [--interval 60] [--body-bytes 1024] [--rocketmq]
        [--fault stopped slow --fault-seconds 60 --bound 60] [--cold-reader]
        [--cleaning --file-bytes 16777216 | --disks DIRECTORY ...]

An open loop (`open_loop.py`): sends leave at a fixed rate, and a latency counts from the intended
time. --disk-share measures how fast the disk takes what is written and synced, and goes on at these
percentages of that, one after the other on one group, each for its part of --seconds: every node
is on that disk, so each has a part of it. --own-share does the same with what the group itself
takes, with 32 sends in flight on each connection all the time: where cores end before the disk
does, that is the rate that cannot be passed. Kinds:

    async     one node; a put is answered when it is in the log
    sync      master and slave, SYNC_MASTER; answered when the slave has it
    fenced    a group of three; answered when all of the in-sync set have it
    flushed   as sync, and both have it on the disk (SYNC_FLUSH)

A line for each interval: sends, answers that were no success by code, p50, p99, p99.9 and the
longest, sends without an answer at its end, and how many bytes the others are behind.

--fault has a slave or follower stopped (SIGSTOP) for a while, or made slow: stopped for 45 of each
50 ms. One begins after a third of the run, two after a quarter and a half, the second when the
group is in sync. Afterwards the load goes on, and it is measured how long until the group is in
sync: everybody connected, and less than a second of the load behind. If that takes longer than
--bound seconds, the exit status is 1. --cold-reader pulls from the oldest message on, ten times a
second, with the files dropped from the page cache before each pull. --cleaning has small files that
are deleted as soon as another is begun, ten in ten seconds at most. With several shares there are
the faults in each. --rocketmq does the same with brokers of RocketMQ 5.3.3, of all kinds but
fenced.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading  # noqa: TID251 - nothing that waits for a server may keep the load from sending
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from benchmarks.open_loop import Interval, OpenLoop
from benchmarks.pipelined import LoadError
from benchmarks.rivals import (
    Server,
    our_fenced_group,
    our_group,
    pause,
    rocketmq_group,
    wait_in_sync,
)
from benchmarks.side_by_side import say
from benchmarks.sustained_options import FOLLOWERS, Options, options_of
from tandem.wire.remoting_command import RemotingCommand, SerializeType, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import HARuntimeInfo

TOPIC: Final = "Bench"
SLOW_STOPPED_SECONDS: Final = 0.045
RECORD_BYTES: Final = 276
"""What a message of the load takes in the log beside its body, a little more; with its place in a
queue."""

DISK_SECONDS: Final = 20.0
DISK_FILE_BYTES: Final = 1 << 30
DISK_STEP_BYTES: Final = 16 << 20

OWN_SECONDS: Final = 30.0
OWN_WARM_SECONDS: Final = 5.0
JAVA_WARM_SECONDS: Final = 60.0
"""Before it is measured what servers in Java take: they compile what they run."""

OWN_IN_FLIGHT: Final = 32
"""On each connection, while it is measured what a group takes."""

IN_SYNC_BYTES_MIN: Final = 64 * 1024
LOOK_SECONDS: Final = 0.2
REST_SECONDS: Final = 30.0
"""For answers after the last send."""

OWN_DISK_RATIO: Final = 75
_LENGTH: Final = struct.Struct(">I")


def start(stack: ExitStack, directory: Path, options: Options) -> Server:
    """Have a group up."""
    place_nodes(stack, directory, options)
    if options.rocketmq:
        # As it is by default: without it, requests of an overload are kept until nobody waits.
        more = {"brokerFastFailureEnable": "true"}
        if options.kind == "flushed":
            more["flushDiskType"] = "SYNC_FLUSH"
        if options.cleaning:
            more["mappedFileSizeCommitLog"] = str(options.file_bytes)
        elif options.disks:
            more["diskMaxUsedSpaceRatio"] = str(OWN_DISK_RATIO)
        else:
            more |= {"fileReservedTime": "72", "diskMaxUsedSpaceRatio": "90"}
        return stack.enter_context(rocketmq_group(directory, FOLLOWERS[options.kind], more))
    store: dict[str, Any] = {"file_reserved_time_hours": 72, "disk_max_used_space_ratio": 90}
    if options.cleaning:
        store = {"mapped_file_size_commit_log_bytes": options.file_bytes}
    elif options.disks:
        store = {"disk_max_used_space_ratio": OWN_DISK_RATIO}
    if options.kind == "flushed":
        store["flush_disk_type"] = "SYNC_FLUSH"
    if options.kind == "fenced":
        return stack.enter_context(our_fenced_group(directory, 3, store=store))
    return stack.enter_context(our_group(directory, FOLLOWERS[options.kind], store=store))


def place_nodes(stack: ExitStack, directory: Path, options: Options) -> None:
    """Have each node's directory on the disk that it was given; they are removed at the end."""
    roles = ["master", "slave"]
    for broker_id, disk in enumerate(options.disks or []):
        # As the group will look for it.
        number = broker_id + (options.kind == "fenced")
        name = roles[broker_id] if options.rocketmq else f"data/broker-a-{number}"
        place = directory / name
        place.parent.mkdir(parents=True, exist_ok=True)
        own = stack.enter_context(tempfile.TemporaryDirectory(prefix="node-", dir=disk))
        place.symlink_to(Path(own).absolute())


def behind(server: Server, followers: int) -> int | None:
    """Return how many bytes the last of the others is behind; None: not all are connected."""
    frame = encode_frame(
        RemotingCommand(RequestCode.GET_BROKER_HA_STATUS, 1, serialize_type=SerializeType.JSON)
    )
    with socket.create_connection(server.address, REST_SECONDS) as stream:
        stream.sendall(frame)
        data = b""
        while len(data) < 8 or len(data) < 4 + _LENGTH.unpack_from(data)[0]:
            received = stream.recv(1 << 16)
            if not received:
                raise LoadError("the master has closed the connection")
            data += received
    body = data[8 + (_LENGTH.unpack_from(data, 4)[0] & 0xFFFFFF) :]
    info = msgspec.json.decode(body, type=HARuntimeInfo)
    # Ours names those that are not connected, too; RocketMQ's has heard nothing yet of a new one.
    links = [link for link in info.ha_connection_info if link.slave_ack_offset >= 0]
    if len(links) < followers:
        return None
    return max((max(0, link.diff) for link in links), default=0)


class Lag:
    """How many bytes the last of the others is behind, asked again and again by a thread.

    A master that is slow to say it does not keep the load from sending.
    """

    def __init__(self, stack: ExitStack, server: Server, followers: int) -> None:
        self._server = server
        self._followers = followers
        self._is_over = threading.Event()
        self.bytes: int | None = None
        """None: not all are connected, or the master did not answer."""
        self.asked_at = 0.0
        self.answered_at = 0.0
        thread = threading.Thread(target=self._ask, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(self._is_over.set)

    def _ask(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            asked_at = time.perf_counter()
            try:
                found = behind(self._server, self._followers)
            except (OSError, LoadError):
                found = None
            self.bytes, self.answered_at = found, time.perf_counter()
            self.asked_at = asked_at


class Fault:
    """A follower that is stopped, or slow, for a while; by a process of its own.

    It is let go on at the end, also if that process ends early.
    """

    def __init__(self, stack: ExitStack, pid: int, kind: str, seconds: float) -> None:
        stopped = seconds if kind == "stopped" else SLOW_STOPPED_SECONDS
        command = [sys.executable, "-c", HOLD, str(pid), str(seconds), str(stopped)]
        self._process = subprocess.Popen(command)
        stack.callback(os.kill, pid, signal.SIGCONT)
        stack.callback(self._process.wait)
        stack.callback(self._process.kill)

    @property
    def is_over(self) -> bool:
        """Whether its time is over."""
        return self._process.poll() is not None


HOLD: Final = """
import os, signal, sys, time
pid, seconds, stopped = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
end = time.monotonic() + seconds
while (left := end - time.monotonic()) > 0:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(min(left, stopped))
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.005)
"""
"""Its slow kind runs for 5 ms between two stops."""


class Run:
    """One load, with what happens to the group meanwhile."""

    def __init__(self, stack: ExitStack, server: Server, options: Options, load: OpenLoop) -> None:
        self._stack = stack
        self._server = server
        self._options = options
        self._load = load
        self._lag = Lag(stack, server, FOLLOWERS[options.kind])
        self._all = Interval()
        self._bytes_max = max(
            IN_SYNC_BYTES_MIN, int(load.rate * (options.body_bytes + RECORD_BYTES))
        )

    def go(self, seconds: float) -> bool:
        """Run it and print its lines; return whether the group was in sync within the bound."""
        load = self._load
        end = load.begin + seconds
        kinds = self._options.fault or []
        ahead = [
            (load.begin + share * seconds, kind)
            for share, kind in zip(self._options.faults_at, kinds, strict=True)
        ]
        is_well = True
        fault: Fault | None = None
        over_at: float | None = None
        print(HEAD, flush=True)
        next_line = load.begin + self._options.interval
        interval = Interval()
        while (now := time.perf_counter()) < end:
            if ahead and now >= ahead[0][0] and fault is None:
                fault, over_at = self._begin_fault(ahead.pop(0)[1]), None
            if fault is not None and fault.is_over:
                over_at = over_at or now
                if (after := self._since(over_at)) is not None:
                    is_well = self._verdict(after) and is_well
                    fault = None
            if now >= next_line:
                self._line(interval)
                next_line += self._options.interval
                interval = Interval()
            load.run_until(min(now + LOOK_SECONDS, end), interval)
        load.run_until(time.perf_counter() + REST_SECONDS, interval, sends=False)
        self._line(interval)
        self._summary()
        if fault is not None:
            is_well = self._verdict(self._wait_in_sync(fault, over_at)) and is_well
        return not is_left_out(ahead) and is_well

    def _wait_in_sync(self, fault: Fault, over_at: float | None) -> float | None:
        """Return how long after the fault the group is in sync, without a load; None: it is not."""
        while over_at is None or time.perf_counter() <= over_at + self._options.bound:
            if fault.is_over:
                over_at = over_at or time.perf_counter()
                if (after := self._since(over_at)) is not None:
                    return after
            pause(LOOK_SECONDS)
        return None

    def _begin_fault(self, kind: str) -> Fault:
        options = self._options
        name, pid = next((name, pid) for name, pid in self._server.pids.items() if name != "master")
        say(f"{name} is {kind} for {options.fault_seconds:g} s")
        return Fault(self._stack, pid, kind, options.fault_seconds)

    def _since(self, over_at: float) -> float | None:
        """Return how long after the fault the group is in sync, if it is."""
        lag = self._lag
        if lag.asked_at < over_at or lag.bytes is None or lag.bytes > self._bytes_max:
            return None
        return lag.answered_at - over_at

    def _line(self, interval: Interval) -> None:
        self._all.merge(interval)
        lag = self._lag.bytes
        print_line(
            f"{time.perf_counter() - self._load.begin:8.1f}",
            interval,
            f"{self._load.unanswered:>9} {'away' if lag is None else lag:>12}",
        )

    def _summary(self) -> None:
        print_line(f"{'all':>8}", self._all, "")
        if self._load.unanswered:
            print(f"{self._load.unanswered} sends have no answer after {REST_SECONDS:g} s")

    def _verdict(self, in_sync_after: float | None) -> bool:
        bound = self._options.bound
        if in_sync_after is None or in_sync_after > bound:
            print(f"NOT in sync within {bound:g} s after the fault", flush=True)
            return False
        print(f"in sync {in_sync_after:.1f} s after the fault (bound: {bound:g} s)", flush=True)
        return True


def is_left_out(ahead: Sequence[tuple[float, str]]) -> bool:
    """Whether faults have not begun, and say so: the group was out of sync for that long."""
    for _, kind in ahead:
        print(f"NOT begun: a follower that is {kind}; the group was out of sync until the end")
    return bool(ahead)


HEAD: Final = (
    f"{'seconds':>8} {'sent':>9} {'failed':>12} {'p50 ms':>9} {'p99 ms':>9} {'p99.9 ms':>9}"
    f" {'max ms':>9} {'no answer':>9} {'bytes behind':>12}"
)


def print_line(name: str, interval: Interval, more: str) -> None:
    """Print a line of the table; `more` are its last columns."""
    found = interval.latencies
    ms = [found.percentile(share) * 1000 for share in (0.5, 0.99, 0.999)]
    failed = " ".join(f"{code}:{count}" for code, count in sorted(interval.failed.items())) or "0"
    print(
        f"{name} {interval.sent:>9} {failed:>12} {ms[0]:>9.2f} {ms[1]:>9.2f} {ms[2]:>9.2f}"
        f" {found.max_seconds * 1000:>9.2f} {more}",
        flush=True,
    )


def measure(options: Options) -> bool:
    """Run a load on a group of its own; return whether it was in sync again in time."""
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as at, ExitStack() as stack:
        rates = [options.rate] if options.rate is not None else []
        if options.disk_share is not None:
            copies = 1 + FOLLOWERS[options.kind]
            rates = rates_of(options.disk_share, options.body_bytes, copies, Path(at))
        server = start(stack, Path(at) / "group", options)
        wait_in_sync(server, TOPIC)
        if options.own_share is not None:
            own = own_rate(server, options)
            rates = [share / 100 * own for share in options.own_share]
        reader = _cold_reader(stack, server, Path(at)) if options.cold_reader else None
        is_well = True
        for rate in rates:
            say(f"{rate:,.0f} messages a second of {options.body_bytes:,} bytes")
            with ExitStack() as connections:
                load = OpenLoop(
                    connections,
                    server.address,
                    TOPIC,
                    rate=rate,
                    connections=options.connections,
                    wait=True,
                    body=os.urandom(options.body_bytes),
                )
                run = Run(stack, server, options, load)
                is_well = run.go(options.seconds / len(rates)) and is_well
        if reader is not None:
            said, _ = reader.communicate()
            print(said or "the cold reader has failed", end="")
            is_well = is_well and reader.returncode == 0
    return is_well


def rates_of(shares: Sequence[float], body_bytes: int, copies: int, directory: Path) -> list[float]:
    """Return how many messages a second are these percentages of what the disk takes.

    Each message is written `copies` times.
    """
    bytes_a_second = disk_rate(directory)
    say(f"the disk takes {bytes_a_second / 1e6:,.0f} MB/s, written and synced")
    each = (body_bytes + RECORD_BYTES) * copies
    return [share / 100 * bytes_a_second / each for share in shares]


def disk_rate(directory: Path, seconds: float = DISK_SECONDS) -> float:
    """Return how many bytes a second a disk takes: one file, written anew, each part synced."""
    step = os.urandom(DISK_STEP_BYTES)
    place = directory / "disk"
    written = 0
    begin = time.perf_counter()
    with place.open("wb", buffering=0) as file:
        while (taken := time.perf_counter() - begin) < seconds:
            if written % DISK_FILE_BYTES == 0:
                file.truncate(0)
                file.seek(0)
            file.write(step)
            os.fdatasync(file.fileno())
            written += DISK_STEP_BYTES
    place.unlink()
    return written / taken


def own_rate(server: Server, options: Options) -> float:
    """Return how many messages a second a group takes with so many in flight all the time."""
    seconds = min(OWN_SECONDS, options.seconds)
    with ExitStack() as stack:
        load = OpenLoop(
            stack,
            server.address,
            TOPIC,
            rate=math.inf,
            connections=options.connections,
            wait=True,
            body=os.urandom(options.body_bytes),
            in_flight_max=OWN_IN_FLIGHT * options.connections,
        )
        warm_seconds = JAVA_WARM_SECONDS if options.rocketmq else min(OWN_WARM_SECONDS, seconds)
        load.run_until(load.begin + warm_seconds, Interval())
        begin, interval = time.perf_counter(), Interval()
        load.run_until(begin + seconds, interval)
        taken = time.perf_counter() - begin
        load.run_until(time.perf_counter() + REST_SECONDS, Interval(), sends=False)
    if interval.failed or not interval.latencies.count:
        raise LoadError(f"the group refuses what is sent to measure it: {dict(interval.failed)}")
    found = interval.latencies.count / taken
    say(f"the group takes {found:,.0f} messages a second of {options.body_bytes:,} bytes")
    return found


def _cold_reader(stack: ExitStack, server: Server, directory: Path) -> subprocess.Popen[str]:
    program = Path(__file__).with_name("cold_reader.py")
    ip, port = server.address
    command = [sys.executable, str(program), ip, str(port), TOPIC, str(directory)]
    reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.callback(reader.wait)
    stack.callback(reader.kill)
    return reader


def leave_nothing_behind() -> None:
    """Have SIGTERM end the program as Ctrl-C does: servers are stopped, their files removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


if __name__ == "__main__":
    leave_nothing_behind()
    try:
        sys.exit(0 if measure(options_of()) else 1)
    except LoadError as failure:
        sys.exit(f"the load ended: {failure}")

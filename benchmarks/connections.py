"""What does a put cost a node when each comes over a connection of its own?

    python benchmarks/connections.py [--connections 64 500] [--kinds async sync fenced rocketmq]
                                     [--seconds 2] [--rounds 3] [--markdown]

So most applications send: each of their processes has one connection with one put in flight. Ready-
made frames as in `pipelined.py`, bodies of 1,024 bytes; for each answer the next frame goes out on
the same connection. async is one node; sync a master that waits for its slave; fenced a group of
three; rocketmq is sync of RocketMQ 5.3.3, which comes from Maven (benchmarks/rivals.py has its
settings), and is warm: it has had each load once before. Every round has a fresh group.

CPU is what each process takes for a message, with what it puts off until after the answer. It
depends less than rates on who else uses the machine, but it does: compare what ran in turns.
"""

from __future__ import annotations

import argparse
import resource
import select
import socket
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.pipelined import (
    ANSWER_SECONDS_MAX,
    WARM_SHARE,
    Answered,
    Load,
    LoadError,
    count_answers,
    send_frames,
)
from benchmarks.rivals import (
    our_fenced_group,
    our_group,
    rocketmq_group,
    wait_in_sync,
    wait_until_idle,
)
from benchmarks.side_by_side import measured, print_table, say, shown_cpu, shown_rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.rivals import Server

TOPIC: Final = "Bench"
WARM_SECONDS: Final = 8.0
ANSWER_BYTES_MAX: Final = 64 * 1024
KINDS: Final = ("async", "sync", "fenced", "rocketmq")


class Connections:
    """Connections with one frame in flight each."""

    def __init__(self, stack: ExitStack, address: tuple[str, int], count: int) -> None:
        self._poll = stack.enter_context(select.epoll())
        self._sockets: dict[int, socket.socket] = {}
        self._rest: dict[int, bytes] = {}
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(address, ANSWER_SECONDS_MAX))
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets[one.fileno()] = one
            self._poll.register(one, select.EPOLLIN)

    def send_each(self, frames: Iterator[bytes]) -> None:
        """Send one frame on each connection."""
        for one in self._sockets.values():
            one.sendall(next(frames))

    def answered(self) -> list[socket.socket]:
        """Wait for answers; return the connections that have had theirs.

        Raises:
            LoadError: An answer is no success, or none comes.
        """
        ready = self._poll.poll(ANSWER_SECONDS_MAX)
        if not ready:
            raise LoadError(f"no answer for {ANSWER_SECONDS_MAX:g} seconds")
        done = []
        for fd, _ in ready:
            one = self._sockets[fd]
            data = one.recv(ANSWER_BYTES_MAX)
            if not data:
                raise LoadError("the server has closed a connection")
            count, rest = count_answers(self._rest.pop(fd, b"") + data)
            if rest:
                self._rest[fd] = rest
            if count:
                done.append(one)
        return done


def connections_load(
    address: tuple[str, int], frames: list[bytes], connections: int, seconds: float
) -> Answered:
    """Keep one frame in flight on each of many connections for a while, then take all answers.

    Raises:
        LoadError: An answer is no success.
        OSError: A connection is lost.
    """
    ring = _endless(frames)
    with ExitStack() as stack:
        load = Connections(stack, address, connections)
        start = time.perf_counter()
        warm = start + WARM_SHARE * seconds
        end = warm + seconds
        warm_at, warm_messages, done, left = 0.0, 0, 0, connections
        load.send_each(ring)
        while (now := time.perf_counter()) < end:
            if not warm_at and now >= warm:
                warm_at, warm_messages = now, done
            for one in load.answered():
                done += 1
                one.sendall(next(ring))
        measured_messages = done - warm_messages
        while left:
            count = len(load.answered())
            left -= count
            done += count
    return Answered(measured_messages, now - warm_at, done)


def _endless(frames: list[bytes]) -> Iterator[bytes]:
    while True:
        yield from frames


def run(
    kinds: Sequence[str], counts: Sequence[int], rounds: int, seconds: float
) -> dict[tuple[str, int], list[Load]]:
    """Put each load on a fresh group of each kind, round by round."""
    loads: dict[tuple[str, int], list[Load]] = defaultdict(list)
    frames = send_frames(TOPIC, max(counts), wait=True)
    for number in range(rounds):
        for kind in kinds:
            say(f"{kind}: round {number + 1} of {rounds}")
            with tempfile.TemporaryDirectory(prefix="tandem-bench-") as at, ExitStack() as stack:
                server = _group(stack, Path(at) / "group", kind)
                wait_in_sync(server, TOPIC)
                wait_until_idle(server)
                if kind == "rocketmq":
                    for count in counts:
                        connections_load(server.address, frames, count, WARM_SECONDS)
                    wait_until_idle(server)
                for count in counts:
                    load = measured(
                        server,
                        lambda: connections_load(server.address, frames, count, seconds),  # noqa: B023
                    )
                    loads[kind, count].append(load)
    return loads


def _group(stack: ExitStack, directory: Path, kind: str) -> Server:
    if kind == "rocketmq":
        return stack.enter_context(rocketmq_group(directory, 1))
    if kind == "fenced":
        return stack.enter_context(our_fenced_group(directory, 3))
    return stack.enter_context(our_group(directory, int(kind == "sync")))


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--connections", type=int, nargs="+", default=[64, 500])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["sync"])
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", action="store_true", help="the table for a page")
    options = parser.parse_args()
    if min(options.connections) < 1 or options.rounds < 1 or options.seconds <= 0:
        parser.error("--connections, --rounds and --seconds are 1 or more")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    loads = run(options.kinds, options.connections, options.rounds, options.seconds)
    lines = [
        (f"{kind}, {count} connections", shown_rate(found), shown_cpu(found))
        for (kind, count), found in sorted(loads.items())
    ]
    print_table(("", "messages/s", "CPU us a message"), lines, markdown=options.markdown)


if __name__ == "__main__":
    main()

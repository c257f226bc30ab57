"""What does a message of a gRPC client cost, here and at RocketMQ's proxy with its broker?

    python benchmarks/grpc.py [--rounds 5] [--seconds 1.0] [--only 'send-*' ...] [--list]
                              [--markdown] [--alone]

One node of ours, which serves gRPC by itself, and a broker of RocketMQ 5.3.3 with its proxy 5.3.3
before it (CLUSTER mode) are up at the same time, with the settings of benchmarks/rivals.py and the
timer wheel, without which RocketMQ has no POP. The same frames go to one and then to the other, row
by row, round by round; benchmarks/grpc_load.py makes them. RocketMQ comes from Maven; without
Java, Maven or the network the program says so.

    send-N      N clients with a connection each, one message of 1,024 bytes under way at a time
    receive-N   N clients; each receives up to 32 messages (4 of 1,000 clients), acknowledges each
                by a call of its own, and receives again; a message counts when that is answered

A row has the medians (lowest to highest), ours : RocketMQ, and the CPU in microseconds a message of
each process. `--alone` measures ours only.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from benchmarks.grpc_load import begin_group, receives, sends
from benchmarks.pipelined import Answered, Load, send_all, send_frames
from benchmarks.rivals import (
    Server,
    our_group,
    rocketmq_group,
    rocketmq_proxy,
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
from tests.compat.programs import NotToBeHadError, classpath

TOPIC: Final = "BenchGrpc"
RECEIVED_TOPIC: Final = "BenchGrpcReceived"
GROUP: Final = "bench-grpc"
CLIENTS: Final = (1, 64, 1_000)
BATCH: Final = 64
WARM_UP_SECONDS: Final = 3.0
RECEIVED_A_SECOND_MAX: Final = 16_384
"""That are written before they are received."""


class Row(msgspec.Struct, frozen=True):
    """One line of the table. `batch` is of a receive; 0: messages are sent."""

    name: str
    what: str
    clients: int
    batch: int = 0


ROWS: Final = [
    *(Row(f"send-{n}", f"sends, {n:,} clients", n) for n in CLIENTS),
    *(
        Row(f"receive-{n}", f"receives and acknowledgements, {n:,} clients", n, batch)
        for n, batch in zip(CLIENTS, (32, 32, 4), strict=True)
    ),
]


class Target(msgspec.Struct, frozen=True):
    """A server of remoting, to fill topics by, and where it is served gRPC."""

    server: Server
    grpc: tuple[str, int]

    def fill(self, count: int) -> None:
        """Write messages that are then received."""
        frames = send_frames(RECEIVED_TOPIC, 1, wait=True, batch=BATCH)
        repeated = frames * (count // BATCH // len(frames) + 1)
        send_all(self.server.address, repeated[: count // BATCH])
        settle(self.server)

    def load(self, row: Row, seconds: float) -> Load:
        """Put one load on it."""
        if not row.batch:
            return measured(self.server, partial(sends, self.grpc, TOPIC, row.clients, seconds))
        self.fill(int(RECEIVED_A_SECOND_MAX * seconds) + 2 * row.clients * row.batch)
        return measured(self.server, partial(self._receive, row, seconds))

    def _receive(self, row: Row, seconds: float) -> Answered:
        return receives(self.grpc, RECEIVED_TOPIC, GROUP, row.clients, row.batch, seconds)


def open_targets(stack: ExitStack, directory: Path, *, is_alone: bool) -> list[Target]:
    """Have both up, with topics and the group."""
    ours = stack.enter_context(
        our_group(
            directory / "ours",
            0,
            store={"timer_wheel_enable": True},
            broker={"grpc_enable": True, "connections_max": 4_096},
        )
    )
    targets = [Target(ours, ours.address)]
    if not is_alone:
        theirs = stack.enter_context(
            rocketmq_group(directory / "rocketmq", 0, {"timerWheelEnable": "true"})
        )
        for topic in (TOPIC, RECEIVED_TOPIC):
            wait_in_sync(theirs, topic)
        address, pid = stack.enter_context(rocketmq_proxy(directory, theirs.name_server))
        both = {"broker": theirs.pids["master"], "proxy": pid}
        targets.insert(0, Target(msgspec.structs.replace(theirs, pids=both), address))
    for target in targets:
        for topic in (TOPIC, RECEIVED_TOPIC):
            wait_in_sync(target.server, topic)
        begin = partial(begin_group, target.grpc, RECEIVED_TOPIC, GROUP)
        again(f"the group at {target.server.name}", begin)  # type: ignore[arg-type]
        wait_until_idle(target.server)
    return targets


def run(rows: Sequence[Row], rounds: int, seconds: float, *, is_alone: bool) -> Loads:
    """Run all rows on both, in turns."""
    loads: Loads = defaultdict(list)
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        targets = open_targets(stack, Path(directory), is_alone=is_alone)
        for target in targets:
            warm_up = 0.5 if target.server.name == "ours" else WARM_UP_SECONDS
            for row in rows:
                what = f"{row.name} on {target.server.name}"
                again(what, partial(target.load, row, warm_up))
        for number in range(rounds):
            for row in rows:
                for target in targets if number % 2 else targets[::-1]:
                    name = target.server.name
                    load = again(f"{row.name} on {name}", partial(target.load, row, seconds))
                    loads[row.name, name].append(load)
                    say(f"{row.name} on {name}: {shown_rate([load])}/s, {shown_cpu([load])}")
            say(f"round {number + 1} of {rounds} is done")
    return loads


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one load")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="ROWS", help="such as 'send-*'")
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    parser.add_argument("--markdown", action="store_true", help="the table for a page")
    parser.add_argument("--alone", action="store_true", help="ours, without RocketMQ")
    options = parser.parse_args()
    rows = [row for row in ROWS if any(fnmatch(row.name, each) for each in options.only)]
    if not rows:
        parser.error(f"no row is named {' or '.join(options.only)}; --list names them")
    if options.list:
        for row in rows:
            print(f"{row.name:<14} {row.what}")
        return
    try:
        if not options.alone:
            classpath("pom.xml", "tools")
            classpath("pom.xml", "proxy")
        loads = run(rows, options.rounds, options.seconds, is_alone=options.alone)
    except NotToBeHadError as error:
        print(f"skipped: RocketMQ 5.3.3 cannot be had here: {error}")
        return
    if options.alone:
        for row in rows:
            ours = loads[row.name, "ours"]
            print(f"{row.what}: {shown_rate(ours)}/s, CPU us a message: {shown_cpu(ours)}")
        return
    lines = [
        line_of(row.what, loads[row.name, "ours"], loads[row.name, "RocketMQ"]) for row in rows
    ]
    print_table(head_of("RocketMQ"), lines, markdown=options.markdown)


if __name__ == "__main__":
    main()

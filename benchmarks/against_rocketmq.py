"""How fast is a group of ours beside one of RocketMQ 5.3.3's, on the same machine, in turns?

    python benchmarks/against_rocketmq.py [--quick] [--rounds 5] [--seconds 1.0]
                                          [--only 'sync-*' ...] [--list] [--markdown]

Both groups are up at the same time, with the same settings (benchmarks/rivals.py says which). The
loads go to one and then to the other, row by row, round by round: both see the same machine.
RocketMQ comes from Maven; without Java, Maven or the network the program says so and ends well.

Rows:

    async-*   one node, ASYNC_MASTER; a put is answered when it is in the log
    pull-*    one node; each pull takes 32 messages that were just written, counted are messages
    sync-*    master and slave, SYNC_MASTER; a put is answered when the slave has it

Raw rows are ready-made frames with JSON headers over one connection (benchmarks/pipelined.py), the
same bytes for both, N in flight; bodies of 1,024 bytes, with KEYS and UNIQ_KEY, index on. `batch`
is 8 batches of 64 in flight. `java` is RocketMQ's own client in a process of its own that lasts
(benchmarks/java/ClientBench.java): 64 threads that send and wait, or 256 sends in flight. Every
answer's code is checked. Both are warm: before the first round
RocketMQ gets some 300,000 messages, and each row is run once.

A row has the medians (lowest to highest), ours : RocketMQ, and the CPU in microseconds a message of
each server and of what makes the load. After each load the server may finish what it has put off
(queues, index, the next file) before the other has its turn; that CPU counts. Files go below the
temporary directory; a run has up to 5 GB of them at a time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Final, Literal

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from benchmarks.java_client import JavaClient, java_client
from benchmarks.pipelined import (
    PULLED,
    QUEUES,
    Load,
    answer_load,
    ask,
    max_offset_frame,
    pull_frames,
    send_all,
    send_frames,
)
from benchmarks.rivals import (
    Server,
    our_group,
    pause,
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
)
from tests.compat.programs import NotToBeHadError, classpath

TOPIC: Final = "Bench"
BATCH: Final = 64
WARM_UP_SECONDS: Final = 6.0
CLIENT_LOADS: Final = ("threads", "async")
PULL_TOPIC: Final = "BenchPull"
PULLED_EACH: Final = 8192
"""Messages of each queue that are pulled, again and again."""

QUEUED_SECONDS_MAX: Final = 30.0


class Row(msgspec.Struct, frozen=True):
    """One line of the table."""

    name: str
    what: str
    stage: str
    """The group it needs: "async" or "sync"."""
    depth: int
    load: Literal["send", "pull", "threads", "async"] = "send"
    """Raw sends, raw pulls, or what RocketMQ's client does."""
    batch: int = 1


ROWS: Final = [
    *(Row(f"async-{n}", f"async, {n} in flight", "async", n) for n in (1, 64, 256)),
    Row("async-batch", "async, batches of 64, 8 at once", "async", 8, batch=BATCH),
    Row("async-java-threads", "async, Java client, 64 threads", "async", 64, "threads"),
    Row("async-java-async", "async, Java client, 256 in flight", "async", 256, "async"),
    *(Row(f"pull-{n}", f"pulls of 32, {n} in flight", "async", n, "pull") for n in (1, 4, 16)),
    *(Row(f"sync-{n}", f"sync, 1 slave, {n} in flight", "sync", n) for n in (1, 64, 256)),
    Row("sync-batch", "sync, 1 slave, batches of 64, 8 at once", "sync", 8, batch=BATCH),
    Row("sync-java-threads", "sync, 1 slave, Java client, 64 threads", "sync", 64, "threads"),
    Row("sync-java-async", "sync, 1 slave, Java client, 256 in flight", "sync", 256, "async"),
]


class Stage:
    """Two groups of one kind, and the loads that they can take."""

    def __init__(
        self, rows: Sequence[Row], seconds: float, stack: ExitStack, directory: Path
    ) -> None:
        self._rows = rows
        self._seconds = seconds
        slaves_count = int(rows[0].stage == "sync")
        self.servers = [
            stack.enter_context(rocketmq_group(directory / "rocketmq", slaves_count)),
            stack.enter_context(our_group(directory / "ours", slaves_count)),
        ]
        self._clients: dict[str, JavaClient] = {}
        for server in self.servers:
            wait_in_sync(server, TOPIC)
            if any(row.load in CLIENT_LOADS for row in rows):
                home = directory / f"client-{server.name}"
                client = java_client(home, server.name_server, TOPIC)
                self._clients[server.name] = stack.enter_context(client)
            wait_until_idle(server)

    def warm_up(self) -> None:
        """Let RocketMQ and its client compile what they run, and run each row once."""
        frames = send_frames(TOPIC, 256, wait=True)
        for server in self.servers:
            seconds = WARM_UP_SECONDS if server.name != "ours" else 1.0
            answer_load(server.address, frames, 256, seconds)
            for row in self._rows:
                client_seconds = WARM_UP_SECONDS / 2 if row.load in CLIENT_LOADS else 0.5
                again(
                    f"{row.name} on {server.name}", partial(self.load, server, row, client_seconds)
                )

    def load(self, server: Server, row: Row, seconds: float) -> Load:
        """Put one load on one server."""
        if row.load in CLIENT_LOADS:
            client = self._clients[server.name]
            return measured(server, partial(client.run, row.load, row.depth, seconds), client.pid)
        if row.load == "pull":
            frames = fresh_pulls(server)
            settle(server)
        else:
            frames = send_frames(TOPIC, row.depth, wait=True, batch=row.batch)
        load = partial(
            answer_load,
            server.address,
            frames,
            row.depth,
            seconds,
            messages_per_frame=PULLED if row.load == "pull" else row.batch,
        )
        return measured(server, load)


def fresh_pulls(server: Server) -> list[bytes]:
    """Write what is pulled then: no file with it is deleted while it is."""
    queues = range(QUEUES)

    def ends() -> dict[int, int]:
        return {queue: max_offset(server, queue) for queue in queues}

    frames = send_frames(PULL_TOPIC, 1, wait=True, batch=BATCH)
    send_all(server.address, frames * (PULLED_EACH * QUEUES // BATCH // len(frames) + 1))
    deadline = time.monotonic() + QUEUED_SECONDS_MAX
    # Of a batch the whole goes to one queue, and queues follow the log.
    while min((after := ends()).values()) < PULLED_EACH or after != ends():
        if time.monotonic() > deadline:
            sys.exit(f"{server.name}: the queues do not follow the log")
        pause(0.05)
    return pull_frames(PULL_TOPIC, {q: end - PULLED_EACH for q, end in after.items()}, PULLED_EACH)


def max_offset(server: Server, queue_id: int) -> int:
    """Return how many messages a queue has had."""
    header = ask(server.address, max_offset_frame(PULL_TOPIC, queue_id))
    fields = header["extFields"]
    assert isinstance(fields, dict)
    return int(fields["offset"])


def run(rows: Sequence[Row], rounds: int, seconds: float) -> Loads:
    """Run all rows on both, in turns."""
    loads: Loads = defaultdict(list)
    for name in dict.fromkeys(row.stage for row in rows):
        mine = [row for row in rows if row.stage == name]
        say(f"{name}: starting and warming both")
        with tempfile.TemporaryDirectory(prefix="tandem-bench-") as at, ExitStack() as stack:
            stage = Stage(mine, seconds, stack, Path(at))
            stage.warm_up()
            for number in range(rounds):
                say(f"{name}: round {number + 1} of {rounds}")
                for row in mine:
                    for server in stage.servers[:: 1 if number % 2 else -1]:
                        load = partial(stage.load, server, row, seconds)
                        what = f"{row.name} on {server.name}"
                        loads[row.name, server.name].append(again(what, load))
    return loads


def chosen(patterns: Sequence[str]) -> list[Row]:
    """Return the rows that one of the patterns names."""
    return [row for row in ROWS if any(fnmatch(row.name, pattern) for pattern in patterns)]


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one load")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="3 rounds of 0.6 s")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="ROWS", help="such as 'sync-*'")
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    parser.add_argument("--markdown", action="store_true", help="the table for a page")
    options = parser.parse_args()
    rows = chosen(options.only)
    if not rows:
        parser.error(f"no row is named {' or '.join(options.only)}; --list names them")
    if options.list:
        for row in rows:
            print(f"{row.name:<20} {row.what}")
        return
    rounds, seconds = (3, 0.6) if options.quick else (options.rounds, options.seconds)
    try:
        classpath("pom.xml", "tools")
        loads = run(rows, rounds, seconds)
    except NotToBeHadError as error:
        print(f"skipped: RocketMQ 5.3.3 cannot be had here: {error}")
        return
    lines = [
        line_of(row.what, loads[row.name, "ours"], loads[row.name, "RocketMQ"]) for row in rows
    ]
    print_table(head_of("RocketMQ"), lines, markdown=options.markdown)


if __name__ == "__main__":
    main()

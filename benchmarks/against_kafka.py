"""How fast is a fenced group of three beside three nodes of Kafka 4.1, on one machine, in turns?

    python benchmarks/against_kafka.py [--quick] [--rounds 5] [--seconds 1.0] [--only ROWS ...]
                                       [--list] [--markdown]

Both groups are up at the same time; loads go to one and then to the other, row by row, round by
round. Kafka comes from Maven (benchmarks/kafka.py says how it is set up); without Java, Maven or
the network the program says so and ends well. A message has a body of 1,024 bytes and a key. With
ours it is answered when all replicas in sync have it, at least two of three; with Kafka, acks=all
and `min.insync.replicas` 2 say the same. Neither syncs a disk for it.

The two loads are not the same program. Kafka's is Kafka's own producer, with four partitions whose
leaders are spread over its nodes (benchmarks/java/KafkaBench.java): there is no lean way to make
its frames. Ours is ready-made frames with JSON headers over one connection to the master
(benchmarks/pipelined.py), which costs the machine far less than a client does; the CPU of the load
is reported. Rows:

    single-N    N sends in flight, one message each; Kafka with linger 0 and a batch for each record
    default     256 single sends in flight; Kafka's producer as it is by default, 4,096 in flight
    batch       8 batches of 64 in flight; Kafka with linger 5 ms, 128 KiB a batch, 4,096 in flight

Every answer's code is checked. Both are warm. A row has the medians (lowest to highest), ours :
Kafka, and the CPU in microseconds a message of each node and of what makes the load. After each
load a group may finish what it has put off before the other has its turn; that CPU counts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from benchmarks.java_client import JavaClient, java_program
from benchmarks.kafka import NODES, kafka_group, kafka_jars
from benchmarks.pipelined import Load, answer_load, send_frames
from benchmarks.rivals import our_fenced_group, wait_in_sync, wait_until_idle
from benchmarks.side_by_side import Loads, again, head_of, line_of, measured, print_table, say
from tests.compat.programs import NotToBeHadError

TOPIC: Final = "Bench"
UNBATCHED: Final = "0 1"
DEFAULT: Final = "-1 0"
TUNED: Final = f"5 {128 << 10}"
AT_ONCE: Final = 4096
WARM_UP_SECONDS: Final = 3.0


class Row(msgspec.Struct, frozen=True):
    """One line of the table. `kafka` are the settings of its producer: linger and batch."""

    name: str
    what: str
    depth: int
    kafka: str
    kafka_depth: int
    batch: int = 1


ROWS: Final = [
    *(Row(f"single-{n}", f"single, {n} in flight", n, UNBATCHED, n) for n in (1, 64, 256)),
    Row("default", "256 single in flight; default producer", 256, DEFAULT, AT_ONCE),
    Row("batch", "batches of 64, 8 at once; tuned producer", 8, TUNED, AT_ONCE, batch=64),
]


class Both:
    """The two groups, and the loads that they can take."""

    def __init__(self, rows: Sequence[Row], stack: ExitStack, directory: Path) -> None:
        self._rows = rows
        jars = kafka_jars()
        self._kafka = stack.enter_context(kafka_group(directory / "kafka"))
        self._ours = stack.enter_context(our_fenced_group(directory / "ours", NODES))
        wait_in_sync(self._ours, TOPIC)
        program = java_program(
            directory / "client", jars, "KafkaBench", self._kafka.name_server, TOPIC
        )
        self._client = JavaClient(stack.enter_context(program))
        for server in (self._kafka, self._ours):
            wait_until_idle(server)

    @property
    def loads(self) -> dict[str, Callable[[Row, float], Load]]:
        """What loads each of them."""
        return {"ours": self._load_ours, "Kafka": self._load_kafka}

    def warm_up(self) -> None:
        """Let Kafka and its producer compile what they run, and run each row once."""
        self._client.run(TUNED, AT_ONCE, 2 * WARM_UP_SECONDS)
        for row in self._rows:
            again(row.name, partial(self._load_kafka, row, WARM_UP_SECONDS))
            again(row.name, partial(self._load_ours, row, 0.5))

    def _load_kafka(self, row: Row, seconds: float) -> Load:
        load = partial(self._client.run, row.kafka, row.kafka_depth, seconds)
        return measured(self._kafka, load, self._client.pid)

    def _load_ours(self, row: Row, seconds: float) -> Load:
        frames = send_frames(TOPIC, row.depth, wait=True, batch=row.batch)
        load = partial(
            answer_load,
            self._ours.address,
            frames,
            row.depth,
            seconds,
            messages_per_frame=row.batch,
        )
        return measured(self._ours, load)


def run(rows: Sequence[Row], rounds: int, seconds: float) -> Loads:
    """Run all rows on both, in turns."""
    loads: Loads = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as at, ExitStack() as stack:
        say("starting and warming both")
        both = Both(rows, stack, Path(at))
        both.warm_up()
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            for row in rows:
                for name, load in list(both.loads.items())[:: 1 if number % 2 else -1]:
                    what = f"{row.name} on {name}"
                    loads[row.name, name].append(again(what, partial(load, row, seconds)))
    return loads


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one load")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="3 rounds of 0.6 s")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="ROWS", help="'single-*'")
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    parser.add_argument("--markdown", action="store_true", help="the table for a page")
    options = parser.parse_args()
    rows = [row for row in ROWS if any(fnmatch(row.name, each) for each in options.only)]
    if not rows:
        parser.error(f"no row is named {' or '.join(options.only)}; --list names them")
    if options.list:
        for row in rows:
            print(f"{row.name:<12} {row.what}")
        return
    rounds, seconds = (3, 0.6) if options.quick else (options.rounds, options.seconds)
    try:
        loads = run(rows, rounds, seconds)
    except NotToBeHadError as error:
        print(f"skipped: Kafka 4.1 cannot be had here: {error}")
        return
    lines = [line_of(row.what, loads[row.name, "ours"], loads[row.name, "Kafka"]) for row in rows]
    print_table(head_of("Kafka"), lines, markdown=options.markdown)


if __name__ == "__main__":
    main()

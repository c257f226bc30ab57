"""What `sustained.py` measures, of three nodes of Kafka 4.1 with acks=all.

    python benchmarks/sustained_kafka.py --rate 5000 | --disk-share 50 80 95 | --own-share …
        [--seconds 600] [--interval 60] [--body-bytes 1024]
        [--fault stopped slow --fault-seconds 60 --bound 60]

The load is Kafka's own producer, as it is by default but for acks=all: it gathers what is sent
while a request is under way. A send leaves at its intended time, and its latency counts from that.
What the nodes take, of which --own-share are percentages, is what they answer with 4,096 sends in
flight, after a minute of that. --fault is a node that is stopped or slow for a while. The
group is in sync again when each partition has all its replicas in sync.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.java_client import java_program, line_of
from benchmarks.kafka import NODES, kafka_group, kafka_jars
from benchmarks.open_loop import Interval
from benchmarks.rivals import Server
from benchmarks.side_by_side import say
from benchmarks.sustained import (
    HEAD,
    JAVA_WARM_SECONDS,
    OWN_SECONDS,
    Fault,
    is_left_out,
    leave_nothing_behind,
    print_line,
    rates_of,
)
from benchmarks.sustained_options import FAULTS, SMALL_FILE_BYTES, Options, why_not
from tests.compat.programs import NotToBeHadError

TOPIC: Final = "Bench"
RETAINED_BYTES: Final = 1 << 30
"""Of a partition: a node that is stopped for a minute finds what it has missed."""

OWN_IN_FLIGHT: Final = 4_096
"""Meanwhile."""

RATE_MAX: Final = 2_000_000.0
"""More than any nodes take."""

LOOK_SECONDS: Final = 1.0
"""How often the Java program says what came."""


class Line(msgspec.Struct):
    """What the Java program says of a piece of its load."""

    at: float
    sent: int
    failed: int
    steps: dict[str, int]
    max_seconds: float
    unanswered: int
    in_sync: int
    is_last: bool

    def add_to(self, interval: Interval) -> None:
        """Add it to what came before."""
        counts = {int(step): count for step, count in self.steps.items()}
        interval.latencies.add_steps(counts, self.max_seconds)
        interval.sent += self.sent
        if self.failed:
            interval.failed[-1] += self.failed


class Run:
    """One load, with what happens to a node meanwhile."""

    def __init__(self, stack: ExitStack, server: Server, options: Options) -> None:
        self._stack = stack
        self._server = server
        self._options = options
        self._all = Interval()

    def go(self, program: subprocess.Popen[str], rate: float, seconds: float) -> bool:
        """Run it and print its lines; return whether all was in sync within the bound."""
        begin_load(program, rate, seconds, self._options.body_bytes)
        print(HEAD, flush=True)
        interval, next_line = Interval(), self._options.interval
        kinds = self._options.fault or []
        ahead = [
            (share * seconds, kind)
            for share, kind in zip(self._options.faults_at, kinds, strict=True)
        ]
        is_well = True
        fault: Fault | None = None
        over_at: float | None = None
        while True:
            line = next_line_of(program)
            line.add_to(interval)
            if ahead and line.at >= ahead[0][0] and fault is None:
                fault, over_at = self._begin_fault(ahead.pop(0)[1]), None
            elif fault is not None and fault.is_over:
                over_at = over_at or line.at
                if line.in_sync == NODES:
                    is_well = self._verdict(line.at - over_at) and is_well
                    fault = None
            if line.is_last or line.at >= next_line:
                self._line(line, interval)
                interval = Interval()
                next_line += self._options.interval
            if line.is_last:
                break
        print_line(f"{'all':>8}", self._all, "")
        if fault is not None:
            is_well = self._verdict(None)
        return not is_left_out(ahead) and is_well

    def _verdict(self, in_sync_after: float | None) -> bool:
        bound = self._options.bound
        if in_sync_after is None or in_sync_after > bound:
            print(f"NOT in sync within {bound:g} s after the fault, or in the run", flush=True)
            return False
        print(f"in sync {in_sync_after:.0f} s after the fault (bound: {bound:g} s)", flush=True)
        return True

    def _begin_fault(self, kind: str) -> Fault:
        # The first node is what the program asks; the others lead as many partitions.
        name, pid = list(self._server.pids.items())[-1]
        say(f"{name} is {kind} for {self._options.fault_seconds:g} s")
        return Fault(self._stack, pid, kind, self._options.fault_seconds)

    def _line(self, line: Line, interval: Interval) -> None:
        self._all.merge(interval)
        in_sync = f"{line.in_sync} in sync" if line.in_sync >= 0 else "unknown"
        print_line(f"{line.at:8.1f}", interval, f"{line.unanswered:>9} {in_sync:>12}")


def begin_load(
    program: subprocess.Popen[str],
    rate: float,
    seconds: float,
    body_bytes: int,
    in_flight_max: int = 0,
) -> None:
    """Have the Java program begin a load; 0: as many in flight as there are."""
    assert program.stdin is not None
    program.stdin.write(f"{rate} {seconds} {LOOK_SECONDS} {body_bytes} {in_flight_max}\n")
    program.stdin.flush()


def next_line_of(program: subprocess.Popen[str]) -> Line:
    """Wait for what the Java program says next."""
    return msgspec.json.decode(line_of(program.stdout), type=Line)


def own_rate(program: subprocess.Popen[str], body_bytes: int) -> float:
    """Return how many records a second the nodes take."""
    begin_load(program, RATE_MAX, JAVA_WARM_SECONDS + OWN_SECONDS, body_bytes, OWN_IN_FLIGHT)
    interval, begin, end = Interval(), 0.0, 0.0
    while not (line := next_line_of(program)).is_last:
        if line.at < JAVA_WARM_SECONDS:
            begin = line.at
        else:
            line.add_to(interval)
            end = line.at
    found = interval.latencies.count / (end - begin)
    say(f"the nodes take {found:,.0f} records a second of {body_bytes:,} bytes")
    return found


def options_of(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line; wrong arguments end the program with a sentence and status 2."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=float, help="records a second")
    parser.add_argument(
        "--disk-share", type=float, nargs="+", help="percentages of what the disk takes"
    )
    parser.add_argument(
        "--own-share", type=float, nargs="+", help="percentages of what the nodes take"
    )
    parser.add_argument("--body-bytes", type=int, default=1_024, help="of a record")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--interval", type=float, default=10.0, help="seconds of a line")
    parser.add_argument("--fault", choices=FAULTS, nargs="+")
    parser.add_argument("--fault-seconds", type=float, default=60.0)
    parser.add_argument("--bound", type=float, default=60.0, help="seconds to be in sync again")
    options = Options(
        kind="fenced",
        connections=1,
        rocketmq=False,
        cold_reader=False,
        cleaning=False,
        file_bytes=SMALL_FILE_BYTES,
        disks=None,
        **vars(parser.parse_args(arguments)),
    )
    if (reason := why_not(options)) is not None:
        parser.error(reason)
    return options


def main() -> bool:
    """Run what was asked for; return whether all was in sync again in time."""
    options = options_of()
    is_well = True
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as at, ExitStack() as stack:
        rates = [options.rate] if options.rate is not None else []
        if options.disk_share is not None:
            rates = rates_of(options.disk_share, options.body_bytes, NODES, Path(at))
        group = kafka_group(Path(at) / "kafka", retained_bytes=RETAINED_BYTES)
        server = stack.enter_context(group)
        arguments = (server.name_server, TOPIC, str(NODES))
        program = stack.enter_context(
            java_program(Path(at) / "client", kafka_jars(), "KafkaOpenLoop", *arguments)
        )
        if options.own_share is not None:
            own = own_rate(program, options.body_bytes)
            rates = [share / 100 * own for share in options.own_share]
        for rate in rates:
            say(f"{rate:,.0f} records a second of {options.body_bytes:,} bytes")
            run = Run(stack, server, options)
            is_well = run.go(program, rate, options.seconds / len(rates)) and is_well
    return is_well


if __name__ == "__main__":
    leave_nothing_behind()
    try:
        sys.exit(0 if main() else 1)
    except NotToBeHadError as failure:
        print(f"skipped: Kafka 4.1 cannot be had here: {failure}")

"""Where the longest latencies come from: an open loop, and what held the nodes meanwhile.

    python benchmarks/tail.py [--kind sync] [--rate 5000 20000] [--seconds 30] [--plain]

Starts a group of ours (`sustained.py` says what the kinds are), sends at a fixed rate over some
connections, and prints the latencies; then, for each node, the stretches of a millisecond or more
in which it served nobody, by what took most of each (`held_loop.py`): how many there were, their
time in all, the longest, for how long of it the thread ran and waited, and its page faults. Time in
which it was ready to run and others had the processor is left out, and said by itself: on a busy
machine that is most. Of late sends it says for how much of their time each node was held. --times N
adds the N longest times in which sends were late, with each stretch of each node in them: what
takes ten times as long as usual, whatever it is, was not held by a node, but by the machine.

--plain starts the nodes without the instrument: the latencies are then those of `sustained.py`.
--rocketmq does that with RocketMQ 5.3.3, with the same settings, frames and sends; a JVM wants a
longer --warm-seconds.
"""

from __future__ import annotations

import argparse
import bisect
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.held_loop import STRETCH_NS_MIN, Stretch
from benchmarks.open_loop import Histogram, Interval, OpenLoop
from benchmarks.pipelined import LoadError
from benchmarks.rivals import (
    Server,
    our_fenced_group,
    our_group,
    our_settings,
    rocketmq_group,
    server_of,
    wait_in_sync,
    wait_until_idle,
)
from tandem.cluster.spec import read_spec
from tandem.testing import RunningCluster
from tandem.testing.addresses import claimed_network
from tandem.testing.cluster_files import write_cluster_file

TOPIC: Final = "Bench"
NODES: Final = {"async": 1, "sync": 2, "fenced": 3}
REST_SECONDS: Final = 30.0
NS_A_MS: Final = 1e6


@contextmanager
def group(directory: Path, options: argparse.Namespace, seen: Path | None) -> Iterator[Server]:
    """Have a group up; with `seen`, its nodes leave there what held them."""
    kind = options.kind
    nodes_count = NODES[kind]
    store = {"mapped_file_size_commit_log_bytes": options.log_file_mib << 20}
    if seen is None:
        has_group = (
            rocketmq_group(directory, nodes_count - 1)
            if options.rocketmq
            else our_fenced_group(directory, nodes_count, store=store)
            if kind == "fenced"
            else our_group(directory, nodes_count - 1, store=store)
        )
        with has_group as server:
            yield server
        return
    with ExitStack() as stack:
        directory.mkdir()
        settings = our_settings(store)
        if kind != "fenced":
            role = "SYNC_MASTER" if nodes_count > 1 else "ASYNC_MASTER"
            settings["groups"] = {"broker-a": {"broker_role": role}}
        file = write_cluster_file(
            directory,
            nodes_count - 1,
            settings,
            kind="fenced" if kind == "fenced" else "classic",
            network=stack.enter_context(claimed_network()),
        )
        program = str(Path(__file__).with_name("held_loop.py"))
        command = [sys.executable, "-P", program, str(seen), str(file)]
        process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        assert process.stdin is not None
        assert process.stdout is not None
        stack.callback(process.wait)
        stack.callback(process.stdin.close)
        if process.stdout.readline() != b"READY\n":
            raise LoadError("the cluster does not start")
        cluster = RunningCluster(read_spec(file))
        cluster.wait_in_sync()
        yield server_of(cluster)


class LateSends(Histogram):
    """Latencies, and when those were that were late."""

    def __init__(self, late_seconds: float) -> None:
        super().__init__()
        self._late_seconds = late_seconds
        self.late: list[tuple[int, int]] = []
        """From when a send was due to when it was answered, as `time.monotonic_ns` has it."""

    def add(self, seconds: float) -> None:
        """Count one."""
        super().add(seconds)
        if seconds >= self._late_seconds:
            now = time.monotonic_ns()
            self.late.append((now - int(seconds * 1e9), now))


def measure(options: argparse.Namespace, rate: float) -> None:
    """Run one load on a group of its own, and print what came of it."""
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as at:
        is_watched = not (options.plain or options.rocketmq)
        seen = Path(at) / "seen"
        seen.mkdir()
        found = LateSends(options.late_ms / 1000)
        interval = Interval()
        interval.latencies = found
        with ExitStack() as stack:
            server = stack.enter_context(
                group(Path(at) / "group", options, seen if is_watched else None)
            )
            wait_in_sync(server, TOPIC)
            wait_until_idle(server)
            load = OpenLoop(
                stack,
                server.address,
                TOPIC,
                rate=rate,
                connections=options.connections,
                wait=True,
            )
            load.run_until(time.perf_counter() + options.warm_seconds, Interval())
            began = time.monotonic_ns()
            load.run_until(time.perf_counter() + options.seconds, interval)
            ended = time.monotonic_ns()
            load.run_until(time.perf_counter() + REST_SECONDS, interval, sends=False)
        ms = [found.percentile(share) * 1000 for share in (0.5, 0.99, 0.999)]
        print(
            f"\n{server.name}, {options.kind}, {rate:,.0f}/s for {options.seconds:g} s over"
            f" {options.connections} connections: {found.count} answered, p50 {ms[0]:.2f},"
            f" p99 {ms[1]:.2f}, p99.9 {ms[2]:.2f}, max {found.max_seconds * 1000:.2f} ms",
            flush=True,
        )
        nodes: dict[str, list[Stretch]] = {}
        for file in sorted(seen.iterdir()):
            lines = file.read_bytes().splitlines()
            stretches = [msgspec.json.decode(line, type=Stretch) for line in lines]
            some = [each for each in stretches if began <= each.began_ns < ended]
            nodes[file.name] = some
            print_node(file.name, some)
            if found.late:
                print_late(found.late, some)
        for late in late_times(found.late)[: options.times]:
            print_time(late, nodes)


def own_ns(stretch: Stretch) -> int:
    """Return how long it was, without what the machine did for others meanwhile."""
    return stretch.all.wall_ns - stretch.all.unscheduled_ns


def print_node(name: str, stretches: list[Stretch]) -> None:
    """Print what held a node, by what took most."""
    own = [each for each in stretches if own_ns(each) >= STRETCH_NS_MIN]
    others_ms = sum(each.all.unscheduled_ns for each in stretches) / NS_A_MS
    print(
        f"{name}: {len(own)} stretches of 1 ms or more of its own,"
        f" {sum(map(own_ns, own)) / NS_A_MS:,.0f} ms in all; beside them {others_ms:,.0f} ms in"
        f" which it was ready and not let, in {len(stretches)} stretches"
    )
    by_name: dict[str, list[Stretch]] = defaultdict(list)
    for each in own:
        shares = {name: share.wall_ns - share.unscheduled_ns for name, share in each.shares.items()}
        by_name[max(shares, key=shares.__getitem__)].append(each)
    if by_name:
        print(HEAD)
    for what, some in sorted(by_name.items(), key=lambda item: -sum(map(own_ns, item[1]))):
        all_ns = sum(map(own_ns, some))
        cpu_ns = sum(each.all.cpu_ns for each in some)
        columns = [all_ns, max(map(own_ns, some)), cpu_ns, max(0, all_ns - cpu_ns)]
        print(
            f"  {what.removeprefix('task '):<70.70} {len(some):>6}"
            + "".join(f" {ns / NS_A_MS:>9.1f}" for ns in columns)
            + f" {sum(each.all.faults for each in some):>8}"
            + f" {sum(each.all.major_faults for each in some):>6}"
        )


HEAD: Final = (
    f"  {'most of it':<70} {'count':>6} {'all ms':>9} {'longest':>9} {'ran':>9} {'waited':>9}"
    f" {'faults':>8} {'major':>6}"
)


def print_late(late: list[tuple[int, int]], stretches: list[Stretch]) -> None:
    """Print how much of the time of late sends a node was held meanwhile."""
    begins = [each.began_ns for each in stretches]
    all_ns = held_ns = 0
    own_share_ns = 0.0
    for due, answered in late:
        all_ns += answered - due
        place = max(0, bisect.bisect_right(begins, due) - 1)
        for each in stretches[place:]:
            if each.began_ns >= answered:
                break
            overlap = min(answered, each.began_ns + each.all.wall_ns) - max(due, each.began_ns)
            if overlap > 0:
                held_ns += overlap
                own_share_ns += overlap * own_ns(each) / each.all.wall_ns
    print(
        f"  of the time of {len(late)} late sends it was held for {held_ns / all_ns:.0%},"
        f" {own_share_ns / all_ns:.0%} by itself"
    )


class LateTime(msgspec.Struct):
    """From when the first send that was late was due to the last answer, without a gap."""

    begin_ns: int
    end_ns: int
    sends: int = 1

    @property
    def ns(self) -> int:
        """How long."""
        return self.end_ns - self.begin_ns


def late_times(late: Iterable[tuple[int, int]]) -> list[LateTime]:
    """Return the times in which sends were late, the longest first."""
    found: list[LateTime] = []
    for due, answered in sorted(late):
        if found and due <= found[-1].end_ns:
            found[-1].end_ns = max(found[-1].end_ns, answered)
            found[-1].sends += 1
        else:
            found.append(LateTime(due, answered))
    return sorted(found, key=lambda each: -each.ns)


def print_time(late: LateTime, nodes: Mapping[str, Sequence[Stretch]]) -> None:
    """Print what each node did while sends were late."""
    print(
        f"\n{late.sends} sends were late, for {late.ns / NS_A_MS:,.0f} ms in all,"
        f" from {late.begin_ns / 1e9:.3f} on"
    )
    for name, stretches in nodes.items():
        print(f"  {name:<58} {'at ms':>9} {'for':>9} {'ran':>9} {'not let':>9} {'faults':>9}")
        for each in stretches:
            if not late.begin_ns - each.all.wall_ns < each.began_ns < late.end_ns:
                continue
            most = sorted(each.shares.items(), key=lambda item: -item[1].wall_ns)[:2]
            what = ", ".join(
                f"{share.wall_ns / NS_A_MS:.1f} {name.removeprefix('task ').rpartition('.')[2]}"
                for name, share in most
            )
            spent = (each.all.wall_ns, each.all.cpu_ns, each.all.unscheduled_ns)
            print(
                f"    {what:<56.56} {(each.began_ns - late.begin_ns) / NS_A_MS:>9.1f}"
                + "".join(f" {ns / NS_A_MS:>9.1f}" for ns in spent)
                + f" {each.all.faults + each.all.major_faults:>9}"
            )


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", choices=NODES, default="sync")
    parser.add_argument("--rate", type=float, nargs="+", default=[5_000.0, 20_000.0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--late-ms", type=float, default=10.0, help="what counts as late")
    parser.add_argument("--times", type=int, default=0, help="that sends were late, to be shown")
    parser.add_argument("--log-file-mib", type=int, default=256)
    parser.add_argument("--warm-seconds", type=float, default=3.0, help="before what counts")
    parser.add_argument("--rocketmq", action="store_true", help="RocketMQ 5.3.3 and not ours")
    parser.add_argument("--plain", action="store_true", help="without the instrument")
    options = parser.parse_args()
    if options.rocketmq and options.kind == "fenced":
        parser.error("--rocketmq is async or sync: it has no fenced groups")
    for rate in options.rate:
        measure(options, rate)


if __name__ == "__main__":
    main()

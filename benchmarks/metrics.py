"""What do metrics cost? Ten thousand series scraped and exported, a count, a node that is scraped.

    python benchmarks/metrics.py [--seconds 1] [--rounds 9] [--alone]

The first three are CPU of this process, the fastest of many runs. For the last two nodes run beside
each other, one without the port, one that is scraped every second by another process, and a load
of ready-made frames takes turns between them. `--alone` leaves the nodes out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from benchmarks.paired_nodes import Side, compare, running
from node.figures.exposition import Exposition, Format
from node.figures.families import Base
from node.figures.figure import Figure, Labels
from node.metrics.otlp_request import OTLPRequests, Times
from node.tables.put_times import PutTimes

SERIES = 10_000
RUNS = 50
EXPORTS = 7
COUNTS = 200_000
PLAIN, SCRAPED = "127.31.0.5", "127.31.0.6"
PORT = 5557

SCRAPER = """
import sys, time, urllib.request
while True:
    urllib.request.urlopen(sys.argv[1]).read()
    time.sleep(1)
"""


def bases() -> dict[Base, Labels]:
    """The labels of a node."""
    return {
        base: Labels(cluster="DefaultCluster", node_type="broker", node_id="a") for base in Base
    }


def lags() -> list[Figure]:
    """The lag of as many groups."""
    return [
        Figure(
            "rocketmq_consumer_lag_messages",
            Labels(
                topic=f"topic-{number}",
                consumer_group=f"group-{number}",
                is_retry="false",
                is_system="false",
            ),
            number,
        )
        for number in range(SERIES)
    ]


def exposition_ms() -> tuple[float, int]:
    """CPU of one scrape, in ms, and its bytes."""
    exposition = Exposition(bases(), series_max=SERIES)
    figures = lags()
    took, size = [], 0
    for _ in range(RUNS):
        began = time.process_time()
        size = len(b"".join(exposition.write(iter(figures), Format.TEXT)))
        took.append(time.process_time() - began)
    return min(took) * 1000, size


def export_ms() -> tuple[float, float, int]:
    """CPU of one export, compressed, and of its longest step, in ms, and its bytes."""
    requests = OTLPRequests(bases(), {"service.name": "x"}, version="1", series_max=SERIES)
    figures, times = lags(), Times(3, 1, 2)
    took, steps, size = [], [], 0
    for _ in range(EXPORTS):
        gzip, began, longest, size = zlib.compressobj(1, wbits=31), time.process_time(), 0.0, 0
        step = began
        for part in requests.write(figures, lambda: times):
            size += len(gzip.compress(part))
            now = time.process_time()
            longest, step = max(longest, now - step), now
        size += len(gzip.flush())
        took.append(time.process_time() - began)
        steps.append(longest)
    return min(took) * 1000, min(steps) * 1000, size


def counts_us() -> dict[str, float]:
    """CPU of what is counted once for a round of puts that waits."""
    times = PutTimes()
    found: dict[str, float] = {}
    counts: dict[str, Callable[[], None]] = {
        "histogram of a wait": lambda: times.replication.count(0.0012, 64),
        "times of runtime info": lambda: times.waited(64, 0.0012),
    }
    for name, count in counts.items():
        best = float("inf")
        for _ in range(7):
            began = time.process_time()
            for _ in range(COUNTS):
                count()
            best = min(best, time.process_time() - began)
        found[name] = best / COUNTS * 1e6
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--alone", action="store_true", help="without the nodes")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, CPython {sys.version.split()[0]}")
    took_ms, size = exposition_ms()
    print(f"{SERIES} series: {took_ms:.2f} ms, {size / 1e6:.2f} MB")
    export, step, size = export_ms()
    print(f"{SERIES} series exported: {export:.0f} ms, {step:.1f} ms a step, {size / 1e6:.2f} MB")
    for name, took_us in counts_us().items():
        print(f"{name}: {took_us:.2f} us a round")
    if options.alone:
        return
    url = f"http://{SCRAPED}:{PORT}/metrics"
    with (
        running("", PLAIN) as (plain_pid, _),
        running(f"metrics: {{port: {PORT}}}", SCRAPED) as (scraped_pid, _),
        subprocess.Popen([sys.executable, "-c", SCRAPER, url]) as scraper,
    ):
        try:
            compare(
                Side("plain", PLAIN, plain_pid),
                Side("scraped", SCRAPED, scraped_pid),
                seconds=options.seconds,
                rounds=options.rounds,
            )
        finally:
            scraper.kill()


if __name__ == "__main__":
    main()

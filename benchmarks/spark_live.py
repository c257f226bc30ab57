"""How fast does Spark read a live cluster, as a batch and as a stream, and who pays for it?

    python benchmarks/spark_live.py [--messages 100000] [--body-bytes 1024] [--queues 8]
                                    [--rounds 5]

One node, one topic, everything on this machine. The first rounds of each query warm the JVM up and
are not counted. Each query computes all columns and throws them away:

    task    the ranges read as Arrow batches in this process, without Spark
    batch   spark.read.format("tandem")
    stream  spark.readStream.format("tandem"), availableNow, one batch, with its checkpoint

A row of the table is the median of the rounds, interleaved. CPU seconds are those of the JVM with
its Python workers (`spark`), of this process (`driver`) and of the node.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tandem
from tandem.spark.live.cluster import Cluster
from tandem.spark.live.options import LiveOptions, parse_options
from tandem.spark.live.reader import plan_batch, read_ranges
from tandem.spark.session import local_session
from tandem.testing import running_cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tandem.spark.live.ranges import QueueRange

BATCH: Final = 50
WARM_ROUNDS: Final = 10
TICKS: Final = os.sysconf("SC_CLK_TCK")

Cpu = dict[str, float]


def fill(servers: list[str], topic: str, messages: int, body_bytes: int) -> None:
    """Send messages with a key and a tag, in batches; the queues take turns."""
    body = bytes(body_bytes)
    with tandem.BlockingProducer(servers, group="benchmark") as producer:
        for first in range(0, messages, BATCH):
            producer.send_batch(
                [
                    tandem.Message(topic, body, keys=f"order-{number:09d}", tags=f"Tag{number % 4}")
                    for number in range(first, min(first + BATCH, messages))
                ]
            )


def cpu_seconds(pid: int) -> float:
    """What a process has used, and what those of its children that have ended had."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS


def descendants(pid: int) -> list[int]:
    """Processes below a process."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                stat = (path / "stat").read_text(encoding="utf-8")
            except OSError:
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.name))
    found = [pid]
    for each in found:
        found += children.get(each, ())
    return found[1:]


class Meter:
    """CPU seconds by who used them."""

    def __init__(self, node: int, jvm: int) -> None:
        self._node = node
        self._jvm = jvm

    def now(self) -> Cpu:
        """Seconds since each of them began."""
        spark = [self._jvm, *descendants(self._jvm)]
        return {
            "driver": time.process_time(),
            "spark": sum(map(cpu_seconds, spark)),
            "node": cpu_seconds(self._node),
        }


def in_a_task(options: LiveOptions, ranges: list[QueueRange]) -> int:
    """What tasks do, all in this process."""
    batches = read_ranges(ranges, options, options.columns)
    return sum(batch.num_rows for batch in batches)


def as_a_batch(spark: SparkSession, options: dict[str, str]) -> None:
    """Compute all of a table and throw it away."""
    table = spark.read.format("tandem").options(**options).load()
    table.write.format("noop").mode("overwrite").save()


def as_a_stream(spark: SparkSession, options: dict[str, str]) -> None:
    """The same as a stream that ends."""
    with tempfile.TemporaryDirectory() as checkpoint:
        table = spark.readStream.format("tandem").options(**options, startingOffsets="earliest")
        query = (
            table.load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def measure(
    works: dict[str, Callable[[], object]], meter: Meter, rounds: int, messages: int
) -> None:
    """Run all in turn; print the medians."""
    seen: dict[str, list[tuple[float, Cpu]]] = {name: [] for name in works}
    for number in range(WARM_ROUNDS + rounds):
        for name, work in works.items():
            before, start = meter.now(), time.perf_counter()
            work()
            seconds, after = time.perf_counter() - start, meter.now()
            if number >= WARM_ROUNDS:
                seen[name].append((seconds, {who: after[who] - before[who] for who in after}))
    print(f"{'':8}{'s':>7}{'rows/s':>10}{'spark':>8}{'driver':>8}{'node':>8}{'us/row':>8}")
    for name, results in seen.items():
        seconds = statistics.median(each for each, _ in results)
        used = {
            who: statistics.median(cpu[who] for _, cpu in results)
            for who in ("spark", "driver", "node")
        }
        each = sum(used.values()) / messages * 1e6
        columns = "".join(f"{value:8.2f}" for value in used.values())
        print(f"{name:8}{seconds:7.2f}{messages / seconds:10,.0f}{columns}{each:8.1f}")


def main() -> None:
    """Fill a node, read it, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    messages = arguments.messages
    settings = {"store": {"mapped_file_size_commit_log_bytes": 1 << 30}}
    with (
        tempfile.TemporaryDirectory() as place,
        running_cluster(Path(place), slaves_count=0, settings=settings) as cluster,
    ):
        topic = cluster.topic(queues=arguments.queues)
        fill(cluster.name_servers, topic, messages, arguments.body_bytes)
        given = {"nameServers": ";".join(cluster.name_servers), "subscribe": topic}
        options = parse_options(given)
        with Cluster(options) as asked:
            ranges = plan_batch(options, asked)
        spark = local_session()
        node = cluster.status()[0].pid
        gateway = spark.sparkContext._gateway  # noqa: SLF001 - there is no other way to the process
        assert node is not None
        assert gateway is not None
        print(
            f"{os.cpu_count()} cores, {messages:,} messages of {arguments.body_bytes} bytes in"
            f" {arguments.queues} queues of one node; CPU seconds of each"
        )
        measure(
            {
                "task": lambda: in_a_task(options, ranges),
                "batch": lambda: as_a_batch(spark, given),
                "stream": lambda: as_a_stream(spark, given),
            },
            Meter(node, gateway.proc.pid),
            arguments.rounds,
            messages,
        )
        spark.stop()


if __name__ == "__main__":
    main()

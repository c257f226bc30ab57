"""What a task of Spark's sink takes for a row, beside the library's producer, interleaved.

    python benchmarks/spark_sink.py [ROWS [ROUNDS]]

A master and its slave in processes of their own. Each line is the best of the rounds, three if not
said, in which all ways have their turns: rows a second, and processor time of the sending process,
and that beside what `BlockingProducer.send_batch` took. There is no JVM here: it is the code that
runs in a Python worker, from Arrow batches on. Rows are bodies, or bodies with keys, a tag and a
property of the user's own; messages of the producers have the same, and exist before the clock
runs. One sink has sharding keys, which the columns of a batch cannot be put together with.

The last table is of small tasks, 500 rows of 1,000 bytes each, as a micro-batch of 1,000 rows in
two partitions has them: with a client for each task, and with the one that a worker keeps. The
producer beside them is open all the time.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pyarrow as pa

import tandem
from tandem.client.cluster_access import ClusterAccess
from tandem.spark.sink.columns import SinkColumns
from tandem.spark.sink.kept import KeptClients
from tandem.spark.sink.options import SinkOptions
from tandem.spark.sink.unique_key import RowKeys
from tandem.spark.sink.writer import send_partition
from tandem.testing import RunningCluster, running_cluster

ROUNDS = 3
BATCH_ROWS = 10_000
TASKS = 30
ROWS_OF_TASK = 500
PRODUCER = "BlockingProducer.send_batch"
BODY_BYTES = (100, 1000)
MAPS = pa.map_(pa.string(), pa.string())
SETTINGS = {
    "store": {
        "max_message_size_bytes": 4 * 1024 * 1024,
        "mapped_file_size_commit_log_bytes": 256 * 1024 * 1024,
    }
}


def main(rows: int, rounds: int) -> None:
    """Print a table."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_cluster(Path(folder), settings=SETTINGS) as cluster,
    ):
        for body_bytes in BODY_BYTES:
            bodies = [os.urandom(body_bytes) for _ in range(rows)]
            for ack in (tandem.Ack.ASYNC, tandem.Ack.REPLICATED):
                for with_properties in (False, True):
                    measure(cluster, bodies, ack, rounds, with_properties=with_properties)
        small_tasks(cluster, max(TASKS, TASKS * rounds // 3))


def measure(
    cluster: RunningCluster,
    bodies: list[bytes],
    ack: tandem.Ack,
    rounds: int,
    *,
    with_properties: bool,
) -> None:
    """Print what each way of sending takes."""
    topic = cluster.topic(queues=8)
    columns: dict[str, object] = {"body": bodies}
    if with_properties:
        columns["keys"] = [[f"order-{number}"] for number in range(len(bodies))]
        columns["tags"] = ["new"] * len(bodies)
        columns["properties"] = pa.array([[("color", "red")]] * len(bodies), MAPS)
    sharding_keys = [f"customer-{number % 1000}" for number in range(len(bodies))]
    messages = [
        tandem.Message(topic, body, [f"order-{number}"], "new", properties={"color": "red"})
        if with_properties
        else tandem.Message(topic, body)
        for number, body in enumerate(bodies)
    ]

    def sink(table: pa.RecordBatch) -> None:
        options = SinkOptions(ClusterAccess(cluster.name_servers), topic, ack)
        batches = [table.slice(at, BATCH_ROWS) for at in range(0, len(bodies), BATCH_ROWS)]
        names = SinkColumns(tuple(table.schema.names))
        send_partition(options, names, RowKeys("w", 0, 0), "partition 0", iter(batches))

    async def many() -> None:
        async with tandem.Producer(cluster.name_servers, "bench", ack=ack) as producer:
            await producer.send_many(messages)

    def blocking_batches() -> None:
        part = 128 * 1024 // (len(bodies[0]) + 80)
        with tandem.BlockingProducer(cluster.name_servers, "bench", ack=ack) as producer:
            for at in range(0, len(messages), part):
                producer.send_batch(messages[at : at + part])

    plain = pa.RecordBatch.from_pydict(columns)
    sharded = pa.RecordBatch.from_pydict(columns | {"shardingKey": sharding_keys})
    ways: dict[str, Callable[[], None]] = {
        "sink": lambda: sink(plain),
        "sink, with sharding keys": lambda: sink(sharded),
        "Producer.send_many": lambda: anyio.run(many),
        PRODUCER: blocking_batches,
    }
    what = f"{len(bodies[0]):>5} bytes  {'properties' if with_properties else 'bare':<10}"
    in_turns(ways, len(bodies), rounds, f"{what}  ack={ack.value:<10}")


def small_tasks(cluster: RunningCluster, rounds: int) -> None:
    """Print what tasks of few rows take, one after the other."""
    topic = cluster.topic(queues=8)
    options = SinkOptions(ClusterAccess(tuple(cluster.name_servers)), topic, tandem.Ack.ASYNC)
    bodies = [os.urandom(1000) for _ in range(ROWS_OF_TASK)]
    table = pa.RecordBatch.from_pydict({"body": bodies})
    messages = [tandem.Message(topic, body) for body in bodies]
    names, kept = SinkColumns(("body",)), KeptClients()
    part = 128 * 1024 // 1080

    def task(kept: KeptClients | None) -> None:
        send_partition(options, names, RowKeys("w", 0, 0), "partition 0", iter([table]), kept)

    with tandem.BlockingProducer(cluster.name_servers, "bench", ack=tandem.Ack.ASYNC) as producer:

        def batches() -> None:
            for at in range(0, len(messages), part):
                producer.send_batch(messages[at : at + part])

        ways: dict[str, Callable[[], None]] = {
            "sink, a client each": lambda: task(None),
            "sink, in a worker": lambda: task(kept),
            PRODUCER: batches,
        }
        in_turns(ways, ROWS_OF_TASK, rounds, f"tasks of {ROWS_OF_TASK} rows  ack=async")
    kept.close()


def in_turns(ways: dict[str, Callable[[], None]], rows: int, rounds: int, what: str) -> None:
    """Let all ways have their turns, and print the least of each."""
    best = dict.fromkeys(ways, (float("inf"), float("inf")))
    for _ in range(rounds):
        for name, way in ways.items():
            wall, cpu = time.perf_counter(), time.process_time()
            way()
            taken = (time.perf_counter() - wall, time.process_time() - cpu)
            best[name] = min(best[name][0], taken[0]), min(best[name][1], taken[1])
    for name, (wall, cpu) in best.items():
        print(
            f"{what}  {name:<28} {rows / wall:>9,.0f} rows/s  {cpu / rows * 1e6:>5.1f} us a row"
            f"  {cpu / best[PRODUCER][1]:>5.2f}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("rows", type=int, nargs="?", default=50_000)
    parser.add_argument("rounds", type=int, nargs="?", default=ROUNDS)
    arguments = parser.parse_args()
    main(arguments.rows, arguments.rounds)

"""What a task of Spark's sink takes for a row, beside the library's producer, interleaved.

    python benchmarks/spark_sink.py [ROWS]

A master and its slave in processes of their own. Each line is the best of three rounds: rows a
second, and processor time of the sending process. There is no JVM here: it is the code that runs in
a Python worker, from Arrow batches on. Rows are bodies, or bodies with keys, a tag and a property
of the user's own; messages of the producers have the same, and exist before the clock runs. The
last sink has sharding keys, which the columns of a batch cannot be put together with.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pyarrow as pa

import tandem
from tandem.client.cluster_access import ClusterAccess
from tandem.spark.sink.columns import SinkColumns
from tandem.spark.sink.options import SinkOptions
from tandem.spark.sink.unique_key import RowKeys
from tandem.spark.sink.writer import send_partition
from tandem.testing import RunningCluster, running_cluster

ROUNDS = 3
BATCH_ROWS = 10_000
BODY_BYTES = (100, 1000)
MAPS = pa.map_(pa.string(), pa.string())
SETTINGS = {
    "store": {
        "max_message_size_bytes": 4 * 1024 * 1024,
        "mapped_file_size_commit_log_bytes": 256 * 1024 * 1024,
    }
}


def main(rows: int) -> None:
    """Print a table."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_cluster(Path(folder), settings=SETTINGS) as cluster,
    ):
        for body_bytes in BODY_BYTES:
            bodies = [os.urandom(body_bytes) for _ in range(rows)]
            for ack in (tandem.Ack.ASYNC, tandem.Ack.REPLICATED):
                for with_properties in (False, True):
                    measure(cluster, bodies, ack, with_properties=with_properties)


def measure(
    cluster: RunningCluster, bodies: list[bytes], ack: tandem.Ack, *, with_properties: bool
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
        "BlockingProducer.send_batch": blocking_batches,
    }
    best = dict.fromkeys(ways, (float("inf"), float("inf")))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            wall, cpu = time.perf_counter(), time.process_time()
            way()
            taken = (time.perf_counter() - wall, time.process_time() - cpu)
            best[name] = min(best[name][0], taken[0]), min(best[name][1], taken[1])
    for name, (wall, cpu) in best.items():
        print(
            f"{len(bodies[0]):>5} bytes  {'properties' if with_properties else 'bare':<10}"
            f"  ack={ack.value:<10}  {name:<28}"
            f" {len(bodies) / wall:>9,.0f} rows/s  {cpu / len(bodies) * 1e6:>5.1f} us a row"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)

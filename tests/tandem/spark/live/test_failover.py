"""A master is killed while it is read: no error, no gap, no repeat."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tandem
from tandem.spark.live.chunks import chunks, records_of
from tandem.spark.live.cluster import Cluster, client_core
from tandem.spark.live.options import LiveOptions, parse_options
from tandem.spark.live.puller import RangePuller
from tandem.spark.live.reader import plan_batch
from tandem.testing import RunningCluster, running_fenced_cluster
from tests.support.patience import ATTEMPT_MS, COUNTED, PATIENCE_MS, PATIENT_LEASE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("spark")]

QUEUES = 4


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    directory = tmp_path_factory.mktemp("failover")
    with running_fenced_cluster(directory, settings=PATIENT_LEASE | COUNTED) as running:
        yield running


def options_of(cluster: RunningCluster, topic: str, **given: str) -> LiveOptions:
    return parse_options(
        {"nameservers": ";".join(cluster.name_servers), "subscribe": topic, **given}
    )


def send(cluster: RunningCluster, topic: str, first: int, count: int) -> None:
    """Send until each message is known to be replicated; some may be stored twice."""
    with tandem.BlockingProducer(
        cluster.name_servers, group="senders", send_msg_timeout_ms=30_000
    ) as producer:
        for number in range(first, first + count):
            producer.send(tandem.Message(topic, b"%d" % number))


def test_a_batch_goes_on_at_the_next_master(group: RunningCluster) -> None:
    topic = group.topic(queues=QUEUES)
    with tandem.BlockingProducer(
        group.name_servers,
        group="senders",
        send_msg_timeout_ms=PATIENCE_MS,
        attempt_timeout_ms=ATTEMPT_MS,
    ) as producer:
        for first in range(0, 4000, 100):
            messages = [tandem.Message(topic, b"%d" % (first + number)) for number in range(100)]
            producer.send_batch(messages)
    options = options_of(group, topic)
    with Cluster(options) as cluster:
        ranges = plan_batch(options, cluster)
    puller = RangePuller(client_core(options), "readers", ranges)
    found: Counter[tuple[int, int]] = Counter()
    killed = ""
    for chunk in chunks(puller.pieces(), chunk_bytes=20_000):
        records = records_of(chunk, ranges[chunk.place]).records
        found.update(zip(records.queue_id.tolist(), records.queue_offset.tolist(), strict=True))
        if not killed and sum(found.values()) > 500:
            killed = group.kill_master()
    assert killed
    assert sum(found.values()) == len(found) == 4000
    group.recover()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_stream_to_parquet_has_every_message_once(
    spark: "SparkSession", group: RunningCluster, tmp_path: Path
) -> None:
    topic = group.topic(queues=QUEUES)
    send(group, topic, 0, 500)
    stream = (
        spark.readStream.format("tandem")
        .options(nameServers=";".join(group.name_servers), subscribe=topic)
        .options(startingOffsets="earliest", columns="queueId,queueOffset,body")
        .load()
    )
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(str(tmp_path / "rows"))
    )
    sent = 500
    for _ in range(3):
        while not query.lastProgress and query.exception() is None:
            time.sleep(0.1)
        group.kill(group.master())
        send(group, topic, sent, 500)
        sent += 500
        group.recover()
    query.processAllAvailable()
    assert query.exception() is None
    query.stop()
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    with Cluster(options_of(group, topic)) as cluster:
        ends = cluster.max_offsets(cluster.queues())
    places = [(row.queueId, row.queueOffset) for row in rows]
    assert sorted(places) == sorted(
        (queue.queue_id, offset) for queue, end in ends.items() for offset in range(end)
    )
    assert {int(row.body) for row in rows} == set(range(sent))

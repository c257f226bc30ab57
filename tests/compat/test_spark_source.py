"""The source `tandem` of Spark reads RocketMQ's own broker, and ours the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import tandem
from tandem.client import BlockingAdmin
from tests.compat.programs import NotToBeHadError
from tests.compat.targets import BROKER, TARGET_NAMES, running_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.compat.targets import Target

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("rocketmq"),
]

QUEUES = 4
COUNT = 2_000
TOPIC = "Shipments"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from tandem.spark.session import local_session  # noqa: PLC0415 - only where it is used

    session = local_session(app_name="compat", master="local[2]")
    yield session
    session.stop()


@pytest.fixture(scope="module", params=TARGET_NAMES)
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    directory: Path = tmp_path_factory.mktemp("target")
    try:
        with running_target(request.param, directory) as running:
            yield running
    except NotToBeHadError as error:
        pytest.skip(str(error))


def body_of(number: int) -> bytes:
    """Some long enough to be compressed, some larger than what a pull takes 32 of."""
    return b"%d " % number * (1, 10, 2_000, 5_000)[number % 4]


def test_what_was_sent_is_what_is_read(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    with BlockingAdmin(target.name_servers) as admin:
        admin.create_topic(TOPIC, queue_nums=QUEUES)
    sent = {}
    with tandem.BlockingProducer(
        target.name_servers, group="senders", compress_over_bytes=4096
    ) as producer:
        for number in range(COUNT):
            message = tandem.Message(TOPIC, body_of(number), keys=f"k{number}", tags="tag")
            result = producer.send(message)
            sent[result.queue.queue_id, result.queue_offset] = (body_of(number), f"k{number}")
    given = {"nameServers": target.name_servers, "subscribe": TOPIC}
    table = spark.read.format("tandem").options(**given).load()
    rows = table.select("queueId", "queueOffset", "body", "keys", "brokerName", "crcOk").collect()
    found = {(row.queueId, row.queueOffset): (bytes(row.body), row["keys"]) for row in rows}
    assert found == sent
    assert {(row.brokerName, row.crcOk) for row in rows} == {(BROKER, True)}
    middle = {str(queue_id): 100 for queue_id in range(QUEUES)}
    part = spark.read.format("tandem").options(
        **given, startingOffsets=json.dumps({TOPIC: {BROKER: middle}})
    )
    assert part.load().count() == COUNT - 100 * QUEUES
    first = min(row.storeTimestamp for row in table.select("storeTimestamp").collect())
    early = spark.read.format("tandem").options(**given, endingTimestamp=f"{first:%Y-%m-%dT%H:%M}Z")
    assert early.load().count() == 0
    stream = (
        spark.readStream.format("tandem")
        .options(**given, startingOffsets="earliest", maxOffsetsPerTrigger=900, groupId="readers")
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    stream.awaitTermination(120)
    assert stream.exception() is None
    again = spark.read.parquet(str(tmp_path / "rows"))
    assert {(row.queueId, row.queueOffset) for row in again.collect()} == set(sent)
    assert again.count() == COUNT

"""The sink `tandem` of Spark writes to RocketMQ's own broker; its own client finds the messages."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

import tandem
from tandem.client import BlockingAdmin
from tests.compat.programs import NotToBeHadError
from tests.compat.targets import running_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.compat.conftest import RunJava
    from tests.compat.targets import Target

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.timeout(500),
    pytest.mark.xdist_group("rocketmq"),
]

COUNT = 2_000
TOPIC = "WrittenBySpark"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from tandem.spark.session import local_session  # noqa: PLC0415 - only where it is used

    session = local_session(app_name="compat", master="local[2]")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    directory: Path = tmp_path_factory.mktemp("target")
    try:
        with running_target("real", directory) as running:
            yield running
    except NotToBeHadError as error:
        pytest.skip(str(error))


def test_what_is_written_is_found_by_rocketmq(
    spark: SparkSession, target: Target, run_java: RunJava
) -> None:
    with BlockingAdmin(target.name_servers) as admin:
        admin.create_topic(TOPIC, queue_nums=4)
    rows = spark.range(COUNT, numPartitions=2).selectExpr(
        # Some are large enough to be compressed, and go alone.
        "repeat(concat('row ', id, ' '), if(id % 100 = 0, 1000, 1)) as body",
        "array(concat('key', id)) as keys",
        "if(id % 2 = 0, 'even', 'odd') as tags",
        "if(id % 3 = 0, cast(id % 9 as string), null) as shardingKey",
        "map('number', cast(id as string)) as properties",
    )
    for _ in range(2):
        rows.write.format("tandem").options(
            nameServers=target.name_servers, topic=TOPIC, writeId="w", compressOverBytes=4096
        ).mode("append").save()
    with tandem.BlockingPullConsumer(target.name_servers, group="judge") as consumer:
        found = list(consumer.messages(TOPIC, until_end=True))
    assert len(found) == 2 * COUNT
    keys = Counter(each.properties["UNIQ_KEY"] for each in found)
    assert set(keys.values()) == {2}
    for each in found:
        number = int(each.properties["number"])
        assert each.body == f"row {number} ".encode() * (1000 if number % 100 == 0 else 1)
        assert (each.keys, each.tags) == (f"key{number}", "odd" if number % 2 else "even")
    for number in (7, 100):
        (key,) = {each.msg_id for each in found if each.keys == f"key{number}"}
        said = run_java("SinkProbe", target.name_servers, TOPIC, key).split()
        tag = "odd" if number % 2 else "even"
        length = len(f"row {number} ") * (1000 if number == 100 else 1)
        assert said[-4:] == [key, tag, f"key{number}", str(length)]

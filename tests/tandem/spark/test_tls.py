"""Spark writes to and reads from a cluster that takes no connection without TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tandem.testing import running_cluster

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow]


@pytest.mark.thorough
def test_what_spark_has_written_it_reads(spark: SparkSession, tmp_path: Path) -> None:
    settings = {"tls": {"mode": "enforcing", "client_auth": "require"}}
    with running_cluster(tmp_path, slaves_count=0, settings=settings) as cluster:
        files = cluster.access.tls
        assert files is not None
        options = {
            "nameServers": ";".join(cluster.name_servers),
            "tlsCaFile": files.ca_file,
            "tlsCertificateFile": files.certificate_file,
            "tlsKeyFile": files.key_file,
        }
        rows = spark.createDataFrame(
            [(f"order {number}".encode(),) for number in range(20)], ["body"]
        )
        rows.write.format("tandem").mode("append").options(
            topic="Orders", ack="async", **options
        ).save()
        read = spark.read.format("tandem").options(subscribe="Orders", **options).load()
        bodies = sorted(bytes(row.body) for row in read.select("body").collect())
        assert bodies == sorted(f"order {number}".encode() for number in range(20))
        # Over the connections that fetch batch after batch, too.
        stream = (
            spark.readStream.format("tandem")
            .options(subscribe="Orders", startingOffsets="earliest", **options)
            .load()
            .writeStream.format("memory")
            .queryName("orders_with_tls")
            .trigger(availableNow=True)
            .start()
        )
        stream.awaitTermination()
        assert spark.table("orders_with_tls").count() == 20

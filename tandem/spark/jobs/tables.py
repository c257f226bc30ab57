"""What the jobs that ask Spark read: an archive, or the logs of stores, as one table.

The columns are those of an archive. Which files of an archive there are says its manifest.
"""

from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from tandem.spark.archive.columns import ALL_COLUMNS, BROKER, FILE_SCHEMA
from tandem.spark.archive.holes import warn_of_holes
from tandem.spark.archive.manifest import DATA, read_manifest
from tandem.spark.archive.read import plan_archive

TABLE_SCHEMA: Final[StructType] = StructType(
    [
        *from_arrow_schema(FILE_SCHEMA).fields,
        StructField("topic", StringType()),
        StructField("date", StringType()),
    ]
)


def archive_table(
    spark: SparkSession,
    archive: str,
    topics: frozenset[str] | None = None,
    start_ms: int | None = None,
    end_ms: int | None = None,
) -> DataFrame:
    """Return the rows of an archive, of the files that the manifest names and that may matter.

    Holes of the archive are logged.
    """
    manifest = read_manifest(Path(archive))
    warn_of_holes(manifest, topics)
    pieces = plan_archive(manifest, topics=topics, start_ms=start_ms, end_ms=end_ms)
    if not pieces:
        return spark.createDataFrame([], TABLE_SCHEMA)
    base = str(Path(archive) / DATA)
    # With a schema, Spark does not take a topic of digits for a number.
    reader = spark.read.schema(TABLE_SCHEMA).option("basePath", base)
    return _in_time(reader.parquet(*(piece.path for piece in pieces)), start_ms, end_ms)


def stores_table(
    spark: SparkSession,
    stores: dict[str, str],
    topics: frozenset[str] | None = None,
    start_ms: int | None = None,
    end_ms: int | None = None,
) -> DataFrame:
    """Return the rows of the logs of stores, by group."""
    tables = []
    for group, store in stores.items():
        reader = spark.read.format("commitlog").option("checkCrc", "false")
        if topics is not None:
            # A topic may be in some groups only.
            reader = reader.option("topic", ",".join(sorted(topics)))
            reader = reader.option("ignoreMissingTopics", "true")
        table = reader.load(store).withColumn(BROKER, f.lit(group))
        tables.append(table.select(*ALL_COLUMNS))
    return _in_time(reduce(DataFrame.unionByName, tables), start_ms, end_ms)


def table_of(
    spark: SparkSession,
    archive: str,
    stores: dict[str, str],
    topics: frozenset[str] | None = None,
    start_ms: int | None = None,
    end_ms: int | None = None,
) -> DataFrame:
    """Return the rows of an archive or of stores, whichever is given."""
    if archive:
        return archive_table(spark, archive, topics, start_ms, end_ms)
    return stores_table(spark, stores, topics, start_ms, end_ms)


def _in_time(table: DataFrame, start_ms: int | None, end_ms: int | None) -> DataFrame:
    if start_ms is not None:
        table = table.where(f.col("storeTimestamp") >= f.timestamp_millis(f.lit(start_ms)))
    if end_ms is not None:
        table = table.where(f.col("storeTimestamp") < f.timestamp_millis(f.lit(end_ms)))
    return table

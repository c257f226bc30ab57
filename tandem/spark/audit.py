"""The audit as a Spark job: what became of every send, judged by the logs on the disks.

    ledger (Parquet)  --join on send id, body CRC-->  records of the master's log
    slaves' logs      --byte by byte-->               the master's log

The rules and the table are in `audit_rules`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from tandem.spark import audit_rules as rules
from tandem.spark.audit_rules import AuditSummary, Finding
from tandem.spark.log_compare import Log, first_difference, logs_differ_at, open_extent, pieces

_RECORD_COLUMNS = "topic,queueId,queueOffset,physicalOffset,keys,bodyCrc,error"
_SEND_FIELDS = ("send_id", "scenario", "phase", "producer", "sequence", "mode", "status")
_SCHEMA = StructType(
    [
        StructField("finding", StringType()),
        StructField("node", StringType()),
        StructField("send_id", StringType()),
        StructField("scenario", StringType()),
        StructField("phase", StringType()),
        StructField("producer", StringType()),
        StructField("sequence", LongType()),
        StructField("mode", StringType()),
        StructField("status", StringType()),
        StructField("copies", LongType()),
        StructField("queue_id", IntegerType()),
        StructField("queue_offset", LongType()),
        StructField("physical_offset", LongType()),
        StructField("detail", StringType()),
    ]
)

assert tuple(_SCHEMA.names) == Finding.__struct_fields__


def run_audit(
    spark: SparkSession,
    ledger: str | Path,
    stores: Mapping[str, str | Path],
    *,
    master: str,
    topic: str,
    out_dir: str | Path,
) -> AuditSummary:
    """Judge every send of `ledger` by the logs in `stores`, and write the table `audit`.

    `stores` maps node names to store directories; no node may be writing to them. The table
    `out_dir/audit` is replaced.

    Raises:
        NotAStoreError: the master's directory is not a store.
    """
    sends = spark.read.parquet(str(ledger))
    log = _read_log(spark, str(stores[master]))
    records = log.where(f.col("topic") == topic)
    matched = _match(records, sends).cache()
    logs = {node: open_extent(str(path)) for node, path in stores.items()}
    differences = _compare(spark, logs, master)
    findings = [
        _outcomes(sends, matched),
        _phantoms(matched),
        _misplaced(sends, matched),
        _gaps(records),
        _disorder(matched),
        _damage(log),
    ]
    table = _as_table(findings[0], master)
    for finding in findings[1:]:
        table = table.unionByName(_as_table(finding, master))
    table = table.unionByName(_slaves(spark, logs, master, differences))
    place = str(Path(out_dir) / rules.TABLE_NAME)
    table.coalesce(1).write.mode("overwrite").parquet(place)
    summary = _summarise(spark.read.parquet(place), matched, logs[master].end, differences)
    matched.unpersist()
    return summary


def _read_log(spark: SparkSession, store: str) -> DataFrame:
    options = {"columns": _RECORD_COLUMNS, "onError": "row"}
    log = spark.read.format("commitlog").options(**options).load(store)
    return log.select(
        "topic",
        f.col("queueId").alias("queue_id"),
        f.col("queueOffset").alias("queue_offset"),
        f.col("physicalOffset").alias("physical_offset"),
        "keys",
        f.col("bodyCrc").alias("body_crc"),
        "error",
    )


def _match(records: DataFrame, sends: DataFrame) -> DataFrame:
    """Records with the send they belong to (`send_id` null: none) and where its answer said."""
    places = [
        f.col(name).alias(f"answered_{name}")
        for name in ("queue_id", "queue_offset", "physical_offset")
    ]
    known = sends.select(*_SEND_FIELDS, "body_crc32", *places)
    joined = records.join(known, records["keys"] == known["send_id"], "left")
    fits = f.col("body_crc") == f.col("body_crc32")
    why = (
        f.when(f.col("send_id").isNull(), "no send has these keys")
        .when(~fits, "the body is not what was sent")
        .when(
            f.col("status").isin(*rules.REFUSED_STATUSES),
            f.concat(f.lit("the send ended as "), "status"),
        )
    )
    return joined.withColumn("phantom", why).withColumn("fits", f.coalesce(fits, f.expr("false")))


def _copies(matched: DataFrame) -> DataFrame:
    """The sends that are in the log: how often, and the place of their first copy."""
    first = f.min(f.struct("physical_offset", "queue_id", "queue_offset"))
    copies = (
        matched.where("fits")
        .groupBy("send_id")
        .agg(f.count("*").alias("copies"), first.alias("first"))
    )
    place = [f.col(f"first.{name}") for name in ("queue_id", "queue_offset", "physical_offset")]
    return copies.select("send_id", "copies", *place)


def _outcomes(sends: DataFrame, matched: DataFrame) -> DataFrame:
    """Exactly one row a send, and one more for each that is there more than once."""
    seen = sends.select(*_SEND_FIELDS, "reason").join(_copies(matched), "send_id", "left")
    found = f.col("copies").isNotNull()
    status = f.col("status")
    lost = f.when(f.col("mode") == "sync", rules.SYNC_LOST).otherwise(rules.ASYNC_LOST)
    finding = (
        f.when((status == rules.SEND_OK) & found, rules.STORED)
        .when(status == rules.SEND_OK, lost)
        .when(status.isin(*rules.REFUSED_STATUSES) & found, rules.REFUSED_BUT_STORED)
        .when(status.isin(*rules.REFUSED_STATUSES), rules.NOT_STORED)
        .when(found, rules.UNKNOWN_FOUND)
        .when(status.isin(*rules.STORED_STATUSES), rules.STORED_BUT_MISSING)
        .otherwise(rules.UNKNOWN_MISSING)
    )
    every = seen.withColumn("finding", finding).withColumnRenamed("reason", "detail")
    twice = f.concat(f.lit("in the log "), "copies", f.lit(" times"))
    return every.unionByName(
        every.where("copies > 1")
        .withColumn("finding", f.lit(rules.DUPLICATED))
        .withColumn("detail", twice)
    )


def _phantoms(matched: DataFrame) -> DataFrame:
    phantoms = matched.where("phantom is not null").withColumn("finding", f.lit(rules.PHANTOM))
    keys = f.coalesce("keys", f.lit(""))
    detail = f.concat("phantom", f.lit(": keys '"), keys, f.lit("'"))
    return phantoms.withColumn("detail", detail)


def _misplaced(sends: DataFrame, matched: DataFrame) -> DataFrame:
    """Sends that are in the log, but not where their answer said."""
    elsewhere = matched.where("fits and answered_queue_offset >= 0").withColumn(
        "at_place",
        (f.col("queue_id") == f.col("answered_queue_id"))
        & (f.col("queue_offset") == f.col("answered_queue_offset"))
        & (
            (f.col("answered_physical_offset") < 0)
            | (f.col("physical_offset") == f.col("answered_physical_offset"))
        ),
    )
    wrong = elsewhere.groupBy("send_id").agg(f.max("at_place").alias("right")).where("not right")
    answered = f.format_string(
        "the answer said queue %d, offset %d, physical offset %d",
        "queue_id",
        "queue_offset",
        "physical_offset",
    )
    said = sends.withColumn("detail", answered).select(*_SEND_FIELDS, "detail")
    rows = said.join(wrong.select("send_id"), "send_id").join(_copies(matched), "send_id")
    return rows.withColumn("finding", f.lit(rules.MISPLACED))


def _gaps(records: DataFrame) -> DataFrame:
    """Records whose queue offset is not the one behind their predecessor's in the log."""
    in_queue = Window.partitionBy("queue_id").orderBy("physical_offset")
    expected = f.coalesce(f.lag("queue_offset").over(in_queue) + 1, f.lit(0))
    wrong = records.withColumn("expected", expected).where("queue_offset != expected")
    detail = f.concat(f.lit("expected queue offset "), "expected")
    return wrong.withColumn("detail", detail).withColumn("finding", f.lit(rules.OUT_OF_ORDER))


def _disorder(matched: DataFrame) -> DataFrame:
    """Records that a producer sent before the one in front of them in the same queue."""
    of_send = Window.partitionBy("send_id").orderBy("physical_offset")
    firsts = (
        matched.where("fits").withColumn("copy", f.row_number().over(of_send)).where("copy = 1")
    )
    in_queue = Window.partitionBy("producer", "queue_id").orderBy("queue_offset", "physical_offset")
    before = f.lag("sequence").over(in_queue)
    wrong = firsts.withColumn("before", before).where("sequence <= before")
    detail = f.concat(f.lit("behind sequence "), "before", f.lit(" of the same producer"))
    return wrong.withColumn("detail", detail).withColumn("finding", f.lit(rules.OUT_OF_ORDER))


def _damage(log: DataFrame) -> DataFrame:
    damaged = log.where("error is not null").withColumn("finding", f.lit(rules.CORRUPT))
    return damaged.withColumnRenamed("error", "detail")


def _as_table(findings: DataFrame, node: str) -> DataFrame:
    """Bring findings into the shape of the table; what they do not have is null."""
    fields = _SCHEMA.fields
    have = set(findings.columns) | {"node"}
    named = findings.withColumn("node", f.lit(node))
    columns: list[Column] = [
        (f.col(field.name) if field.name in have else f.lit(None))
        .cast(field.dataType)
        .alias(field.name)
        for field in fields
    ]
    return named.select(*columns)


def _compare(spark: SparkSession, logs: Mapping[str, Log], master: str) -> dict[str, int | None]:
    """Return each slave's first difference from the master; the pieces are spread over tasks."""
    slaves = [node for node in logs if node != master]
    work = [(node, piece) for node in slaves for piece in pieces(logs[master], logs[node])]
    found: Sequence[tuple[str, int | None]] = ()
    if work:
        spread = spark.sparkContext.parallelize(work, len(work))
        found = spread.map(lambda item: (item[0], first_difference(item[1]))).collect()
    return {
        node: logs_differ_at(
            logs[master], logs[node], [at for name, at in found if name == node and at is not None]
        )
        for node in slaves
    }


def _slaves(
    spark: SparkSession, logs: Mapping[str, Log], master: str, differences: Mapping[str, int | None]
) -> DataFrame:
    ends = {node: log.end for node, log in logs.items()}
    rows = rules.slave_findings(differences, ends, master)
    return spark.createDataFrame([msgspec.structs.astuple(row) for row in rows], _SCHEMA)


def _summarise(
    table: DataFrame, matched: DataFrame, log_bytes: int, differences: Mapping[str, int | None]
) -> AuditSummary:
    counted = table.groupBy("finding", "mode").count().collect()
    counts: dict[str, int] = {}
    acknowledged: dict[str, int] = {}
    for finding, mode, count in counted:
        counts[finding] = counts.get(finding, 0) + count
        if finding in (rules.STORED, rules.SYNC_LOST, rules.ASYNC_LOST):
            acknowledged[mode] = acknowledged.get(mode, 0) + count
    return rules.summarise(
        counts,
        acknowledged,
        records=matched.count(),
        log_bytes=log_bytes,
        differences=dict(differences),
    )

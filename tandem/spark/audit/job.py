"""The audit as a Spark job: what became of every send, judged by the logs on the disks.

    ledger (Parquet)  --join on send id, body CRC-->  records of the master's log
    other nodes' logs --byte by byte-->               the master's log

The rules and the table are in `audit_rules`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from tandem.spark.audit import rules
from tandem.spark.audit.cut_tails import AcknowledgedPlace, CutRecord, cut_findings, cut_records
from tandem.spark.audit.log_compare import (
    Log,
    bounded,
    first_difference,
    logs_differ_at,
    open_extent,
    pieces,
)
from tandem.spark.audit.rules import AuditSummary, Finding
from tandem.spark.audit.stages import OnStage, comparing, no_stage, reading
from tandem.spark.commitlog.log_files import commit_log_folder, local_path

_RECORD_COLUMNS = "topic,queueId,queueOffset,physicalOffset,keys,bodyCrc,error"
_PLACE = ("queue_id", "queue_offset", "physical_offset")
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
    confirm: int | None = None,
    on_stage: OnStage = no_stage,
) -> AuditSummary:
    """Judge every send of `ledger` by the logs in `stores`, and write the table `audit`.

    `stores` maps node names to store directories; no node may be writing to them. The table
    `out_dir/audit` is replaced. `confirm` is given for a fenced group: all nodes had the whole log
    below it. `on_stage` is called with words for what begins now.

    Raises:
        NotAStoreError: the master's directory is not a store.
    """
    commit_log_folder(local_path(str(stores[master])))
    sends = spark.read.parquet(str(ledger))
    judged = _judge_records(_read_log(spark, str(stores[master])), sends, topic).cache()
    is_fenced = confirm is not None
    logs = {node: open_extent(str(path)) for node, path in stores.items()}
    if confirm is not None:
        logs = {node: bounded(log, confirm) for node, log in logs.items()}
    on_stage(comparing(logs, master))
    differences = _compare(spark, logs, master)
    on_stage(reading(logs, master) + ", and joining it with the ledger")
    cut = [
        record
        for node, path in stores.items()
        for record in cut_records(node, str(path))
        if record.topic == topic
    ]
    table = (
        _as_table(_judge_sends(sends, judged, is_fenced=is_fenced), master)
        .unionByName(_as_table(_of_records(judged), master))
        .unionByName(_cut_off(spark, sends, judged, cut, logs[master]))
        .unionByName(_slaves(spark, logs, master, differences))
    )
    place = str(Path(out_dir) / rules.TABLE_NAME)
    table.write.mode("overwrite").parquet(place)
    on_stage("counting what was found")
    records = judged.where("ours").count()
    summary = _summarise(spark.read.parquet(place), records, logs[master].end, differences)
    summary = msgspec.structs.replace(summary, cut_records=len(cut))
    judged.unpersist()
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


def _judge_records(log: DataFrame, sends: DataFrame, topic: str) -> DataFrame:
    """Every row of the log with the send it belongs to and what is wrong with it.

    `ours`: it is a record of the topic; `fits`: it is what its send sent. `phantom`, `gap` and
    `disorder` are null or say in words what is wrong; so does `error`.
    """
    ours = f.coalesce(f.col("topic") == topic, f.expr("false"))
    named = log.withColumn("ours", ours).withColumn("key", f.when(f.col("ours"), f.col("keys")))
    said = [f.col(name).alias(f"said_{name}") for name in _PLACE]
    known = sends.select(*_SEND_FIELDS, "body_crc32", *said)
    matched = named.join(known, named["key"] == known["send_id"], "left")
    fits = f.coalesce(f.col("body_crc") == f.col("body_crc32"), f.expr("false"))
    matched = matched.withColumn("fits", fits)
    return _disorder(_gaps(matched.withColumn("phantom", _why_phantom())))


def _why_phantom() -> Column:
    why = (
        f.when(f.col("send_id").isNull(), "no send has these keys")
        .when(~f.col("fits"), "the body is not what was sent")
        .when(
            f.col("status").isin(*rules.REFUSED_STATUSES),
            f.concat(f.lit("the send ended as "), "status"),
        )
    )
    keys = f.concat(f.lit(": keys '"), f.coalesce("keys", f.lit("")), f.lit("'"))
    return f.when(f.col("ours"), f.concat(why, keys))


def _gaps(matched: DataFrame) -> DataFrame:
    """Say where a queue offset is not the one after its predecessor's in the log."""
    in_queue = Window.partitionBy("ours", "queue_id").orderBy("physical_offset")
    expected = f.coalesce(f.lag("queue_offset").over(in_queue) + 1, f.lit(0))
    is_gap = f.col("ours") & (f.col("queue_offset") != f.col("expected"))
    detail = f.concat(f.lit("expected queue offset "), "expected")
    return matched.withColumn("expected", expected).withColumn("gap", f.when(is_gap, detail))


def _disorder(matched: DataFrame) -> DataFrame:
    """Say where a producer sent a message before the one that precedes it in the same queue."""
    of_send = Window.partitionBy("send_id", "fits").orderBy("physical_offset")
    is_first = f.col("fits") & (f.row_number().over(of_send) == 1)
    in_queue = Window.partitionBy("is_first", "producer", "queue_id").orderBy(
        "queue_offset", "physical_offset"
    )
    before = f.lag("sequence").over(in_queue)
    wrong = f.col("is_first") & (f.col("sequence") <= f.col("before"))
    detail = f.concat(f.lit("after sequence "), "before", f.lit(" of the same producer"))
    ordered = matched.withColumn("is_first", is_first).withColumn("before", before)
    return ordered.withColumn("disorder", f.when(wrong, detail))


def _of_records(judged: DataFrame) -> DataFrame:
    """One row for everything that is wrong with a record."""
    wrong = _some(
        (rules.PHANTOM, f.col("phantom")),
        (rules.OUT_OF_ORDER, f.col("gap")),
        (rules.OUT_OF_ORDER, f.col("disorder")),
        (rules.CORRUPT, f.col("error")),
    )
    rows = judged.withColumn("wrong", f.explode(wrong)).select("*", "wrong.*")
    # A gap and a hole are about the log, whoever's message it was.
    of_nobody = f.col("detail").eqNullSafe(f.col("gap")) | (f.col("finding") == rules.CORRUPT)
    send = [f.when(~of_nobody, f.col(name)).alias(name) for name in _SEND_FIELDS]
    return rows.select("finding", "detail", *send, *_PLACE)


def _judge_sends(sends: DataFrame, judged: DataFrame, *, is_fenced: bool) -> DataFrame:
    """Exactly one row a send, and one more for each that is there twice or misplaced."""
    in_queue = [f.col(name) == f.col(f"said_{name}") for name in ("queue_id", "queue_offset")]
    said_no_more = f.col("said_physical_offset") < 0
    in_log = said_no_more | (f.col("physical_offset") == f.col("said_physical_offset"))
    copies = (
        judged.where("fits")
        .groupBy("send_id")
        .agg(
            f.count("*").alias("copies"),
            f.min(f.struct("physical_offset", "queue_id", "queue_offset")).alias("first"),
            f.max(in_queue[0] & in_queue[1] & in_log).alias("at_place"),
        )
    )
    said = sends.select(
        *_SEND_FIELDS, "reason", "attempts", _said(), f.col("queue_offset").alias("said_at")
    )
    seen = said.join(copies, "send_id", "left")
    misplaced = (f.col("said_at") >= 0) & ~f.col("at_place")
    if is_fenced:
        misplaced &= (f.col("mode") == "sync") & (f.col("status") == rules.SEND_OK)
    times = f.format_string("in the log %d times, sent %d times", "copies", "attempts")
    too_often = f.col("copies") > f.col("attempts")
    again = f.when(too_often, rules.DUPLICATED).otherwise(rules.STORED_AGAIN)
    verdicts = _some(
        (_outcome(is_fenced=is_fenced), f.col("reason")),
        (again, f.when(f.col("copies") > 1, times)),
        (rules.MISPLACED, f.when(misplaced, f.col("said"))),
    )
    rows = seen.withColumn("verdict", f.explode(verdicts)).select("*", "verdict.*")
    place = [f.col(f"first.{name}") for name in _PLACE]
    return rows.select("finding", "detail", "copies", *_SEND_FIELDS, *place)


def _said() -> Column:
    text = "the answer said queue %d, offset %d, physical offset %d"
    return f.format_string(text, *_PLACE).alias("said")


def _some(*findings: tuple[str | Column, Column]) -> Column:
    """An array of (finding, detail), of those whose detail is not null."""
    pairs = [
        f.when(
            detail.isNotNull(),
            f.struct(
                (f.lit(name) if isinstance(name, str) else name).alias("finding"),
                detail.alias("detail"),
            ),
        )
        for name, detail in findings
    ]
    return f.filter(f.array(*pairs), lambda pair: pair.isNotNull())


def _outcome(*, is_fenced: bool) -> Column:
    """What became of a send; `copies` is null if it is not in the log."""
    found = f.col("copies").isNotNull()
    status = f.col("status")
    said_stored = status.isin(*(() if is_fenced else rules.STORED_STATUSES))
    lost = f.when(f.col("mode") == "sync", rules.SYNC_LOST).otherwise(rules.ASYNC_LOST)
    return (
        f.when((status == rules.SEND_OK) & found, rules.STORED)
        .when(status == rules.SEND_OK, lost)
        .when(status.isin(*rules.REFUSED_STATUSES) & found, rules.REFUSED_BUT_STORED)
        .when(status.isin(*rules.REFUSED_STATUSES), rules.NOT_STORED)
        .when(found, rules.UNKNOWN_FOUND)
        .when(said_stored, rules.STORED_BUT_MISSING)
        .otherwise(rules.UNKNOWN_MISSING)
    )


def _as_table(findings: DataFrame, node: str) -> DataFrame:
    """Bring findings into the shape of the table; what they do not have is null."""
    named = findings.withColumn("node", f.lit(node))
    columns = [
        (f.col(field.name) if field.name in named.columns else f.lit(None))
        .cast(field.dataType)
        .alias(field.name)
        for field in _SCHEMA.fields
    ]
    return named.select(*columns)


def _compare(spark: SparkSession, logs: Mapping[str, Log], master: str) -> dict[str, int | None]:
    """Return each node's first difference from the master; the pieces are spread over tasks."""
    others = [node for node in logs if node != master]
    work = [(node, piece) for node in others for piece in pieces(logs[master], logs[node])]
    found: Sequence[tuple[str, int | None]] = ()
    if work:
        spread = spark.sparkContext.parallelize(work, len(work))
        found = spread.map(lambda item: (item[0], first_difference(item[1]))).collect()
    return {
        node: logs_differ_at(
            logs[master], logs[node], [at for name, at in found if name == node and at is not None]
        )
        for node in others
    }


def _cut_off(
    spark: SparkSession,
    sends: DataFrame,
    judged: DataFrame,
    cut: Sequence[CutRecord],
    master: Log,
) -> DataFrame:
    """What nodes cut off is little: it is looked at here, and not in tasks."""
    keys = sorted({record.keys for record in cut})
    known = f.col("send_id").isin(keys)
    wanted = known & (f.col("mode") == "sync") & (f.col("status") == rules.SEND_OK)
    rows = sends.where(wanted).select("send_id", "body_crc32", "physical_offset").collect()
    acknowledged = {row[0]: AcknowledgedPlace(*row) for row in rows}
    copies = judged.where(known & f.col("fits")).groupBy("send_id").count().collect()
    found = {str(send_id): int(count) for send_id, count in copies}
    findings = [
        msgspec.structs.astuple(finding)
        for finding in cut_findings(iter(cut), acknowledged, found, master)
    ]
    return spark.createDataFrame(findings, _SCHEMA)


def _slaves(
    spark: SparkSession, logs: Mapping[str, Log], master: str, differences: Mapping[str, int | None]
) -> DataFrame:
    ends = {node: log.end for node, log in logs.items()}
    rows = rules.slave_findings(differences, ends, master)
    return spark.createDataFrame([msgspec.structs.astuple(row) for row in rows], _SCHEMA)


def _summarise(
    table: DataFrame, records: int, log_bytes: int, differences: Mapping[str, int | None]
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
        records=records,
        log_bytes=log_bytes,
        differences=dict(differences),
    )

"""`tandem pipeline compact`: of each key of a topic the latest message, as Kafka compacts.

Keys are compared within a queue, as in Kafka: a producer that shards by key has each key in one
queue. The latest is the last one of the log: a queue that is made anew counts from 0. A message
with an empty body, or with the property `TOMBSTONE`, says that its key is gone. Messages without a
key are left out, and counted.

    OUTPUT/data/topic=T/part-*.parquet    the rows, with the columns of an archive
    OUTPUT/_tandem/compacted/T.json       up to which queue offsets, and how many
"""

import hashlib
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tandem.spark.archive.columns import BROKER
from tandem.spark.archive.disk import Disk, LocalDisk, locked
from tandem.spark.archive.errors import ArchiveDamagedError, ArchiveFault
from tandem.spark.archive.manifest import META, partition_folder, read_manifest
from tandem.spark.jobs.reports import OnProgress, log_metrics, silent
from tandem.spark.jobs.settings import CompactSettings, Tombstones
from tandem.spark.jobs.tables import archive_table
from tandem.wire.untrusted import UnreadableError, decode_json

TOMBSTONE = "TOMBSTONE"


class CompactedTopic(msgspec.Struct, frozen=True):
    """What became of a topic. `offsets` has by broker and queue the first offset not looked at."""

    topic: str
    offsets: dict[str, dict[str, int]]
    messages: int
    keys: int
    tombstones: int
    without_key: int
    kept_tombstones: bool
    is_new: bool = True


def run_compact(
    settings: CompactSettings,
    spark: SparkSession,
    *,
    disk: Disk | None = None,
    on_progress: OnProgress = silent,
) -> list[CompactedTopic]:
    """Compact each topic that has grown since the last time.

    Raises:
        SparkSourceError: the archive is not as it should be, or has no such topic.
    """
    disk = disk or LocalDisk()
    output = Path(settings.output)
    manifest = read_manifest(Path(settings.archive))
    boundaries = manifest.boundaries()
    manifest.check_topics(settings.topics)
    done = []
    with locked(output / META):
        for topic in settings.topics:
            offsets = {
                broker: {str(queue): end for queue, end in sorted(queues.items())}
                for broker, queues in boundaries[topic].items()
            }
            known = _known(output, topic)
            keeps = settings.tombstones is Tombstones.KEEP
            # What fills a hole of the archive moves no boundary.
            now = (offsets, manifest.rows_of(topic), keeps)
            if known and (known.offsets, known.messages, known.kept_tombstones) == now:
                done.append(msgspec.structs.replace(known, is_new=False))
                continue
            on_progress(topic)
            done.append(_compact(settings, spark, topic, offsets, disk))
    return done


def _compact(
    settings: CompactSettings,
    spark: SparkSession,
    topic: str,
    offsets: dict[str, dict[str, int]],
    disk: Disk,
) -> CompactedTopic:
    output = Path(settings.output)
    rows = archive_table(spark, settings.archive, frozenset({topic})).drop("topic")
    is_tombstone = (f.length("body") == 0) | f.map_contains_key("properties", TOMBSTONE)
    counts = rows.agg(f.count("*"), f.count_if(f.col("keys").isNull())).first()
    assert counts is not None
    latest = (
        rows.where(f.col("keys").isNotNull())
        .groupBy(BROKER, "queueId", "keys")
        .agg(f.max_by(f.struct("*"), "physicalOffset").alias("row"))
        .select("row.*")
        .withColumn("tombstone", is_tombstone)
    )
    staging = output / META / "staging" / hashlib.sha256(topic.encode()).hexdigest()[:16]
    disk.remove_tree(staging)
    latest.write.parquet(str(staging))
    written = spark.read.parquet(str(staging))
    tombstones = written.where("tombstone").count()
    keeps = settings.tombstones is Tombstones.KEEP
    kept = written if keeps else written.where("not tombstone")
    final = staging.with_name(f"{staging.name}-final")
    disk.remove_tree(final)
    kept.drop("tombstone").write.parquet(str(final))
    keys = spark.read.parquet(str(final)).count()
    result = CompactedTopic(
        topic, offsets, counts[0], keys, tombstones, counts[1], kept_tombstones=keeps
    )
    place = output / Path(partition_folder(topic, "")).parent
    # A run that ends between these steps is done again: without its note a topic is not done.
    _note(output, topic).unlink(missing_ok=True)
    disk.remove_tree(place)
    disk.move(final, place)
    disk.write(_note(output, topic), msgspec.json.encode(result))
    disk.remove_tree(staging)
    log_metrics("compact", "compacted", topic=topic, messages=result.messages, keys=result.keys)
    return result


def _note(output: Path, topic: str) -> Path:
    return output / META / "compacted" / f"{Path(partition_folder(topic, '')).parent.name}.json"


def _known(output: Path, topic: str) -> CompactedTopic | None:
    place = _note(output, topic)
    if not place.exists():
        return None
    try:
        return decode_json(place.read_bytes(), CompactedTopic)
    except UnreadableError as error:
        text = f"{place} is damaged ({error}); remove it, and run again"
        raise ArchiveDamagedError(text, ArchiveFault.UNREADABLE) from error

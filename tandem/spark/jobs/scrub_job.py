"""`tandem pipeline scrub`: an archive into another one, without what is not to be kept.

Unit by unit, published as `archive` does: a unit is in the new archive as a whole or not at all,
and a second run does what is left. A unit counts as verified when its files were read again and no
value that was scrubbed is left in the same message.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from tandem.client.identity import wall_clock_ms
from tandem.cluster_file.errors import ClusterConfigError
from tandem.cluster_file.secret_file import read_secret
from tandem.spark.archive.columns import ALL_COLUMNS, FILE_SCHEMA
from tandem.spark.archive.disk import Disk, LocalDisk, locked
from tandem.spark.archive.errors import ArchiveError
from tandem.spark.archive.manifest import (
    META,
    VERSION,
    ArchiveFacts,
    DataFilePart,
    Unit,
    UnitState,
    create_archive,
    read_manifest,
    staging_folder,
    write_unit,
)
from tandem.spark.archive.publish import clear_staging, mark_verified, publish
from tandem.spark.archive.read import ArchivePiece, read_piece
from tandem.spark.archive.verify import unit_faults
from tandem.spark.archive.write import write_partition
from tandem.spark.errors import SparkSourceError
from tandem.spark.jobs.reports import JobError, OnProgress, log_metrics, silent
from tandem.spark.jobs.runner import Runner
from tandem.spark.jobs.scrub_rules import ScrubError, ScrubRules, leftovers, scrub
from tandem.spark.jobs.settings import ScrubSettings
from tandem.wire.compression import CompressionError
from tandem.wire.crc import crc32

UNITS_PER_CORE: Final = 2
_SHOWN_MAX: Final = 10


class ScrubReport(msgspec.Struct, frozen=True):
    """What was scrubbed. `dropped` counts messages that are not in the new archive."""

    output: str
    units: int
    rows: int
    dropped: int
    faults: list[str]


class _ScrubTask(msgspec.Struct, frozen=True):
    archive: str
    output: str
    unit: Unit
    topics: frozenset[str]
    rules: ScrubRules


class _Scrubbed(msgspec.Struct, frozen=True):
    folder: str
    files: tuple[DataFilePart, ...]
    dropped: int
    faults: list[str]
    dropped_topics: frozenset[str]


def run_scrub(
    settings: ScrubSettings,
    runner: Runner,
    *,
    disk: Disk | None = None,
    on_progress: OnProgress = silent,
    now_ms: Callable[[], int] = wall_clock_ms,
) -> ScrubReport:
    """Scrub the units that the new archive does not have yet.

    Raises:
        ClusterConfigError: the settings name nothing to scrub, or no salt to hash with.
        SparkSourceError: the archive is not as it should be.
    """
    disk = disk or LocalDisk()
    rules = rules_of(settings)
    source, output = Path(settings.archive), Path(settings.output)
    if source.resolve() == output.resolve():
        raise ClusterConfigError("output: is the archive itself; name another directory")
    manifest = read_manifest(source)
    manifest.check_topics(settings.topics)
    made_from = f"{source} by rules {rules.digest[:16]}"
    with locked(output / META):
        create_archive(output, disk, ArchiveFacts(VERSION, "scrubbed", made_from))
        done = {(unit.group, unit.first): unit for unit in read_manifest(output).units}
        for group in {unit.group for unit in manifest.units}:
            clear_staging(output, group, disk)
        left = [
            unit
            for unit in manifest.units
            if (known := done.get((unit.group, unit.first))) is None
            or known.state is not UnitState.VERIFIED
            # It was removed, and archived again with more.
            or known.end != unit.end
        ]
        _check_pieces(left, list(done.values()), output)
        on_progress(f"0 of {len(left)} log files")
        rows = dropped = 0
        faults: list[str] = []
        for wave in _waves(left, runner.parallelism * UNITS_PER_CORE):
            tasks = [
                _ScrubTask(str(source), str(output), unit, frozenset(settings.topics), rules)
                for unit in wave
            ]
            copies: list[tuple[Unit, list[str]]] = []
            for unit, scrubbed in zip(wave, runner.run(scrub_unit, tasks), strict=True):
                if isinstance(scrubbed, JobError):
                    raise SparkSourceError(f"{unit.name}: {scrubbed.text}")
                copy = _published(output, unit, scrubbed, now_ms(), disk)
                copies.append((copy, scrubbed.faults))
                rows += copy.rows
                dropped += scrubbed.dropped
                log_metrics("scrub", "scrubbed", unit=unit.name, rows=copy.rows)
            faults += _verify(output, copies, runner, now_ms, disk)
            on_progress(f"{rows:,} rows of {sum(unit.rows for unit in left):,}")
    return ScrubReport(str(output), len(left), rows, dropped, faults)


def _check_pieces(left: Sequence[Unit], done: Sequence[Unit], output: Path) -> None:
    """See that no piece of the log would be in the new archive twice."""
    for unit in left:
        for known in done:
            is_other = (known.group, known.first) != (unit.group, unit.first)
            if is_other and _overlap(known, unit):
                raise ArchiveError(
                    f"{output} has {known.name}, and the archive has its piece of the log in"
                    f" {unit.name} now; name another output"
                )


def _overlap(one: Unit, other: Unit) -> bool:
    return one.group == other.group and one.first < other.end and other.first < one.end


def rules_of(settings: ScrubSettings) -> ScrubRules:
    """Return what is dropped and hashed.

    Raises:
        ClusterConfigError: nothing is, or there is no salt to hash with.
    """
    hashes = bool(settings.hash_properties or settings.hash_fields)
    if not hashes and not settings.drop_properties and not settings.drop_fields:
        raise ClusterConfigError(
            "drop_properties, hash_properties, drop_fields, hash_fields: none is given; name what"
            " is to be scrubbed"
        )
    if hashes and not settings.salt_file:
        raise ClusterConfigError(
            "salt_file: is needed for hashing; `openssl rand -hex 32 > salt` and `chmod 600 salt`"
            " make one"
        )
    return ScrubRules(
        drop_properties=frozenset(settings.drop_properties),
        hash_properties=frozenset(settings.hash_properties),
        drop_fields=tuple(settings.drop_fields),
        hash_fields=tuple(settings.hash_fields),
        not_json=settings.not_json,
        salt=read_secret(Path(settings.salt_file)).encode() if hashes else b"",
    )


def scrub_unit(task: _ScrubTask) -> _Scrubbed | JobError:
    """Write the scrubbed rows of a unit into a folder of its own. Runs in a task."""
    unit = task.unit
    folder = staging_folder(Path(task.output)) / unit.group
    folder /= f"{unit.first:020d}-{os.getpid()}-{os.urandom(4).hex()}"
    work = _UnitScrub(task.rules)
    files = []
    dropped_topics = set()
    try:
        for file in unit.files:
            if task.topics and file.topic not in task.topics:
                dropped_topics.add(file.topic)
                work.dropped += file.rows
                continue
            piece = ArchivePiece(
                str(Path(task.archive) / file.path), file.topic, file.rows, file.size_bytes
            )
            batches = (work.batch(batch, file) for batch in read_piece(piece, ALL_COLUMNS))
            part = write_partition(batches, file, folder)
            if part is not None:
                files.append(part)
    except (SparkSourceError, OSError, ScrubError, CompressionError) as error:
        return JobError(str(error))
    return _Scrubbed(
        str(folder), tuple(files), work.dropped, work.faults, frozenset(dropped_topics)
    )


class _UnitScrub:
    """The rows of one unit on their way."""

    def __init__(self, rules: ScrubRules) -> None:
        self._rules = rules
        self.dropped = 0
        self.faults: list[str] = []

    def batch(self, batch: pa.RecordBatch, file: DataFilePart) -> pa.RecordBatch:
        """Return what is left of a batch."""
        rows = []
        for row in batch.to_pylist():
            where = f"{file.topic}, queue {row['queueId']}, offset {row['queueOffset']}"
            properties = dict(row["properties"])
            try:
                message = scrub(row["body"], row["sysFlag"], properties, self._rules)
            except ScrubError as error:
                raise ScrubError(f"message {where}: {error}") from error
            if message is None:
                self.dropped += 1
                continue
            if len(self.faults) < _SHOWN_MAX:
                self.faults += [
                    f"message {where}: a scrubbed value is still in {place}"
                    for place in leftovers(message)
                ]
            row["body"] = message.body
            row["bodyCrc"] = crc32(message.body)
            row["sysFlag"] = message.sys_flag
            row["properties"] = list(message.properties.items())
            row["keys"] = message.properties.get("KEYS")
            row["tags"] = message.properties.get("TAGS")
            rows.append(row)
        return pa.RecordBatch.from_pylist(rows, FILE_SCHEMA)


def _published(output: Path, unit: Unit, scrubbed: _Scrubbed, now_ms: int, disk: Disk) -> Unit:
    copy = msgspec.structs.replace(
        unit,
        rows=sum(file.rows for file in scrubbed.files),
        left_out=unit.left_out + scrubbed.dropped,
        crc_sum=sum(file.crc_sum for file in scrubbed.files),
        state=UnitState.ARCHIVED,
        archived_at_ms=now_ms,
        verified_at_ms=0,
        files=scrubbed.files,
        # Other `topics` in another run make holes, as `exclude_topics` does.
        excluded_topics=tuple(sorted({*unit.excluded_topics, *scrubbed.dropped_topics})),
        scrubbed=True,
    )
    if not copy.files:
        write_unit(output, copy, disk)
        return copy
    publish(output, Path(scrubbed.folder), copy, disk)
    return copy


class _VerifyTask(msgspec.Struct, frozen=True):
    output: str
    unit: Unit


def verify_copy(task: _VerifyTask) -> list[str]:
    """Return what is wrong with a unit that was published. Runs in a task."""
    return unit_faults(Path(task.output), task.unit)


def _verify(
    output: Path,
    copies: Sequence[tuple[Unit, list[str]]],
    runner: Runner,
    now_ms: Callable[[], int],
    disk: Disk,
) -> list[str]:
    tasks = [_VerifyTask(str(output), unit) for unit, _ in copies]
    found = []
    for (unit, known), faults in zip(copies, runner.run(verify_copy, tasks), strict=True):
        if not known and not faults:
            mark_verified(output, unit, now_ms(), disk)
        found += known + faults
    return found


def _waves(units: Sequence[Unit], size: int) -> Iterator[Sequence[Unit]]:
    return (units[at : at + size] for at in range(0, len(units), size))

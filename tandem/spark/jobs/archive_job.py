"""`tandem pipeline archive`: closed log files into an archive, verified. See `archive.publish`.

Work goes in waves of a few log files. The published files of a wave stay, whatever happens next.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from tandem.client.identity import wall_clock_ms
from tandem.spark.archive.disk import Disk, LocalDisk, locked
from tandem.spark.archive.errors import ArchiveDamagedError, ArchiveError, ArchiveFault
from tandem.spark.archive.log_piece import (
    LogPiece,
    log_crc,
    log_files,
    piece_of,
    pieces_to_archive,
    rows_of,
)
from tandem.spark.archive.manifest import (
    META,
    VERSION,
    ArchiveFacts,
    Manifest,
    Unit,
    UnitState,
    create_archive,
    read_manifest,
    staging_folder,
    write_unit,
)
from tandem.spark.archive.publish import clear_staging, mark_verified, publish, unit_of
from tandem.spark.archive.verify import log_faults, unit_faults
from tandem.spark.archive.write import write_rows
from tandem.spark.errors import SparkSourceError
from tandem.spark.jobs.reports import JobError, OnProgress, log_metrics, silent
from tandem.spark.jobs.runner import Runner
from tandem.spark.jobs.settings import ArchiveSettings, OnDataLoss, OpenFile
from tandem.spark.jobs.table_sink import opened_table

if TYPE_CHECKING:
    from tandem.data_file import DataFile
    from tandem.spark.archive.iceberg.table import ArchiveTable

WAVES_PER_CORE: Final = 2
"""Log files a core before what was done is written down."""

ItemT = TypeVar("ItemT")


class ArchiveReport(msgspec.Struct, frozen=True):
    """What an archive job has done, and what may be deleted now.

    `deletable` has the log files by group, `gaps` what was lost before it could be archived.
    `table` is the Iceberg table that the archive is, "" if it is none.
    """

    archive: str
    log_files: int
    rows: int
    verified: int
    faults: list[str]
    deletable: dict[str, list[str]]
    gaps: list[str]
    table: str = ""
    table_rows: int = 0


class _StageTask(msgspec.Struct, frozen=True):
    archive: str
    piece: LogPiece
    leave_out: frozenset[str]


class _Staged(msgspec.Struct, frozen=True):
    folder: str
    unit: Unit


class _VerifyTask(msgspec.Struct, frozen=True):
    archive: str
    unit: Unit
    piece: LogPiece | None


def run_archive(
    settings: ArchiveSettings,
    runner: Runner,
    *,
    disk: Disk | None = None,
    on_progress: OnProgress = silent,
    now_ms: Callable[[], int] = wall_clock_ms,
) -> ArchiveReport:
    """Archive what the stores have and the archive has not, and verify it.

    Raises:
        SparkSourceError: a log or the archive is not as it should be. What was published before
            stays.
    """
    archive = Path(settings.archive)
    job = _ArchiveJob(settings, archive, runner, disk or LocalDisk(), on_progress, now_ms)
    with locked(archive / META):
        return job.run()


def verify_archive(
    settings: ArchiveSettings, runner: Runner, *, on_progress: OnProgress = silent
) -> ArchiveReport:
    """Read every unit again: against the log where a store still has it, else by itself."""
    archive = Path(settings.archive)
    job = _ArchiveJob(settings, archive, runner, LocalDisk(), on_progress, wall_clock_ms)
    with locked(archive / META):
        return job.verify_all()


class _ArchiveJob:
    """One run."""

    def __init__(
        self,
        settings: ArchiveSettings,
        archive: Path,
        runner: Runner,
        disk: Disk,
        on_progress: OnProgress,
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._archive = archive
        self._runner = runner
        self._disk = disk
        self._on_progress = on_progress
        self._now_ms = now_ms
        self._leave_out = frozenset(settings.exclude_topics)
        self._rows = 0
        self._done = 0
        self._verified = 0
        self._faults: list[str] = []
        self._log_files: dict[str, list[DataFile]] = {}
        self._table: ArchiveTable | None = None
        self._failed: dict[str, SparkSourceError] = {}
        """Groups that are done for this time: what one of them has must not hold up the others."""

    def run(self) -> ArchiveReport:
        create_archive(self._archive, self._disk, ArchiveFacts(VERSION))
        settings = self._settings
        with opened_table(
            self._archive, settings.table, settings.catalogue, self._disk
        ) as self._table:
            return self._run(_sound_manifest(self._archive))

    def _run(self, manifest: Manifest) -> ArchiveReport:
        if self._table is not None:
            # A run that ended between writing a unit down and the table.
            self._table.catch_up(manifest.units)
        for group in self._settings.stores:
            clear_staging(self._archive, group, self._disk)
        pieces = self._pieces(manifest)
        self._on_progress(f"0 of {len(pieces)} log files")
        # A run that ended between publishing and verifying.
        self._verify([unit for unit in manifest.units if unit.state is not UnitState.VERIFIED])
        for wave in self._waves(pieces):
            left = [piece for piece in wave if piece.group not in self._failed]
            if left:
                self._archive_wave(left, len(pieces))
        failures = list(self._failed.values())
        if len(failures) > 1:
            raise ArchiveError("; ".join(map(str, failures)))
        if failures:
            raise failures[0]
        return self._report()

    def verify_all(self) -> ArchiveReport:
        manifest = read_manifest(self._archive)
        self._faults += manifest.faults()
        done = 0
        for wave in self._waves(manifest.units):
            self._verify(wave)
            done += len(wave)
            self._on_progress(f"{done} of {len(manifest.units)} log files verified")
        return self._report()

    def _pieces(self, manifest: Manifest) -> list[LogPiece]:
        settings = self._settings
        found: list[LogPiece] = []
        for group, store in settings.stores.items():
            try:
                found += pieces_to_archive(
                    group,
                    store,
                    manifest.of(group),
                    take_open_file=settings.open_file is OpenFile.TAKE,
                    lost=settings.on_data_loss is OnDataLoss.CONTINUE,
                )
            except SparkSourceError as error:
                self._failed[group] = error
        return found

    def _waves(self, items: Sequence[ItemT]) -> Iterator[Sequence[ItemT]]:
        size = WAVES_PER_CORE * self._runner.parallelism
        return (items[at : at + size] for at in range(0, len(items), size))

    def _archive_wave(self, pieces: Sequence[LogPiece], total: int) -> None:
        tasks = [_StageTask(str(self._archive), piece, self._leave_out) for piece in pieces]
        units = []
        for piece, staged in zip(pieces, self._runner.run(stage_piece, tasks), strict=True):
            if piece.group in self._failed:
                continue  # a log goes into the archive in its order
            if isinstance(staged, JobError):
                text = f"{piece.file.path}: {staged.text} (what came before it is archived)"
                self._failed[piece.group] = ArchiveError(text)
                continue
            unit = staged.unit
            unit = msgspec.structs.replace(unit, archived_at_ms=self._now_ms())
            publish(self._archive, Path(staged.folder), unit, self._disk)
            if self._table is not None:
                self._table.append([unit])
            units.append(unit)
            self._done += 1
            self._rows += unit.rows
            log_metrics(
                "archive",
                "archived",
                group=unit.group,
                log_file=unit.log_file,
                rows=unit.rows,
                log_bytes=unit.end - unit.first,
                parquet_bytes=sum(file.size_bytes for file in unit.files),
                files=len(unit.files),
            )
        self._verify(units)
        self._on_progress(f"{self._done} of {total} log files, {self._rows:,} rows")

    def _verify(self, units: Sequence[Unit]) -> None:
        tasks = [_VerifyTask(str(self._archive), unit, self._piece_of(unit)) for unit in units]
        for task, faults in zip(tasks, self._runner.run(verify_unit, tasks), strict=True):
            unit = task.unit
            self._faults += faults
            if faults:
                self._disown(unit)
                continue
            is_compared = task.piece is not None or unit.state is UnitState.VERIFIED
            if is_compared:
                mark_verified(self._archive, unit, self._now_ms(), self._disk)
                self._verified += 1
            log_metrics(
                "archive", "verified", group=unit.group, log_file=unit.log_file, rows=unit.rows
            )

    def _disown(self, unit: Unit) -> None:
        """Say no more that the log file of a unit may go."""
        if unit.state is UnitState.VERIFIED:
            changed = msgspec.structs.replace(unit, state=UnitState.ARCHIVED, verified_at_ms=0)
            write_unit(self._archive, changed, self._disk)

    def _piece_of(self, unit: Unit) -> LogPiece | None:
        """Return the piece of log that a unit was made of, if a store still has its file."""
        store = self._settings.stores.get(unit.group)
        if store is None or unit.scrubbed:
            return None
        if unit.group not in self._log_files:
            self._log_files[unit.group] = log_files(store)
        return piece_of(unit, store, self._log_files[unit.group])

    def _report(self) -> ArchiveReport:
        manifest = read_manifest(self._archive)
        deletable: dict[str, list[str]] = {}
        for unit in manifest.deletable():
            piece = self._piece_of(unit)
            if piece is not None:
                deletable.setdefault(unit.group, []).append(piece.file.path)
        state = None if self._table is None else self._table.state()
        return ArchiveReport(
            archive=str(self._archive),
            log_files=self._done,
            rows=self._rows,
            verified=self._verified,
            faults=self._faults,
            deletable=deletable,
            gaps=[f"{gap.group}: [{gap.first}, {gap.end})" for gap in manifest.gaps()],
            table="" if state is None else state.name,
            table_rows=0 if state is None else state.rows,
        )


def stage_piece(task: _StageTask) -> _Staged | JobError:
    """Write the rows of a piece of log into files of a folder of its own. Runs in a task."""
    piece = task.piece
    folder = staging_folder(Path(task.archive)) / piece.group
    # Two attempts at the same piece do not meet.
    folder /= f"{piece.first:020d}-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        crc = log_crc(piece.file, piece.first, piece.end)
        name = f"{piece.group}-{piece.first:020d}"
        staged = write_rows(rows_of(piece), name, piece.group, folder, leave_out=task.leave_out)
    except (SparkSourceError, OSError) as error:
        return JobError(str(error))
    return _Staged(staged.folder, unit_of(piece, staged, crc, tuple(sorted(task.leave_out))))


def verify_unit(task: _VerifyTask) -> list[str]:
    """Return what is wrong with a unit. Runs in a task."""
    archive = Path(task.archive)
    faults = unit_faults(archive, task.unit)
    if faults or task.piece is None:
        return faults
    try:
        return log_faults(archive, task.unit, task.piece)
    except (SparkSourceError, OSError) as error:
        return [f"{task.unit.name}: {error}"]


def _sound_manifest(archive: Path) -> Manifest:
    manifest = read_manifest(archive)
    faults = manifest.faults()
    if faults:
        text = f"{archive}: the manifest contradicts itself: {'; '.join(faults)}"
        raise ArchiveDamagedError(text, ArchiveFault.CONTRADICTION)
    return manifest

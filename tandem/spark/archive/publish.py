"""Makes staged files a part of the archive: all at once, whatever happens in between.

    1  data files get their names under data/        nobody counts them yet
    2  the unit is written down, as `archived`       now its rows exist
    3  staging is removed
    4  the unit is read again and compared           `verified`

A job that dies before 2 has published nothing: the next one writes the same files under the same
names. After 2 the next one finds the unit, and does not do it again.
"""

from pathlib import Path

import msgspec

from tandem.spark.archive.disk import Disk
from tandem.spark.archive.log_piece import LogPiece
from tandem.spark.archive.manifest import Unit, UnitState, staging_folder, write_unit
from tandem.spark.archive.write import StagedPiece


def unit_of(
    piece: LogPiece, staged: StagedPiece, log_crc: int, excluded_topics: tuple[str, ...]
) -> Unit:
    """Return the unit that a staged piece of log becomes, without the time when it does."""
    return Unit(
        group=piece.group,
        first=piece.first,
        end=piece.end,
        log_file=Path(piece.file.path).name,
        closes_file=piece.closes_file,
        log_crc=log_crc,
        rows=staged.rows,
        left_out=staged.left_out,
        crc_sum=staged.crc_sum,
        state=UnitState.ARCHIVED,
        archived_at_ms=0,
        verified_at_ms=0,
        files=staged.files,
        excluded_topics=excluded_topics,
    )


def publish(archive: Path, folder: Path, unit: Unit, disk: Disk) -> None:
    """Move the files of a unit from `folder` to their places, and write the unit down."""
    for file in unit.files:
        disk.move(folder / file.path, archive / file.path)
    write_unit(archive, unit, disk)
    disk.remove_tree(folder)


def mark_verified(archive: Path, unit: Unit, now_ms: int, disk: Disk) -> Unit:
    """Write down that a unit is what the log had."""
    verified = msgspec.structs.replace(unit, state=UnitState.VERIFIED, verified_at_ms=now_ms)
    write_unit(archive, verified, disk)
    return verified


def clear_staging(archive: Path, group: str, disk: Disk) -> None:
    """Remove what a job for this group has left behind. Call it with the group locked."""
    disk.remove_tree(staging_folder(archive) / group)

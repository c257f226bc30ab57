"""`tandem archive`: the Iceberg table that an archive is. No Spark takes part."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from tandem.cli.formats import Column, Format, FormatOption, Section, Value, write, write_one
from tandem.cli.grammar import TandemGroup
from tandem.cli.output import WRONG_USAGE, CommandError, human_bytes
from tandem.cli.progress import run_blocking
from tandem.cli.times import DURATION_FORMS, TIME_FORMS, duration_ms, now_ms, parsed_time_ms

if TYPE_CHECKING:
    from tandem.spark.archive.iceberg.as_of import AsOf
    from tandem.spark.archive.iceberg.merge import Merged
    from tandem.spark.archive.iceberg.table import TableState

app = typer.Typer(
    cls=TandemGroup,
    help="Look at the Iceberg table of an archive, and keep it in order. Needs tandem-mq[iceberg].",
    no_args_is_help=True,
)

ReturnT = TypeVar("ReturnT")

ArchiveArgument = Annotated[
    Path, typer.Argument(metavar="ARCHIVE", help="The directory of the archive.")
]
KeepOption = Annotated[
    str,
    typer.Option(
        "--keep",
        metavar="DURATION",
        help=f"As long as a reader may take with what it began with: {DURATION_FORMS}.",
    ),
]

MEGABYTE: Final = 1 << 20


@app.command()
def status(archive: ArchiveArgument, output_format: FormatOption = Format.TABLE) -> None:
    """Say what the table has: rows, files, snapshots, and up to where it has each log."""
    _need_iceberg()
    from tandem.spark.archive.iceberg.upkeep import table_state

    _write_state(output_format, _done("asking the catalogue", lambda: table_state(archive)))


@app.command()
def merge(
    archive: ArchiveArgument,
    small: Annotated[
        int, typer.Option(metavar="MIB", min=1, max=1 << 20, help="A file below that is small.")
    ] = 64,
    wanted: Annotated[
        int, typer.Option(metavar="MIB", min=1, max=1 << 20, help="How large one is to become.")
    ] = 256,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Make few large data files of many small ones, a topic and a day at a time.

    The files of the manifest stay where they are.
    """
    _need_iceberg()
    from tandem.spark.archive.iceberg.upkeep import merge_files

    rows = _done(
        "merging",
        lambda: merge_files(archive, small_bytes=small * MEGABYTE, wanted_bytes=wanted * MEGABYTE),
    )
    columns: list[Column[Merged]] = [
        Column("topic", lambda each: each.topic),
        Column("date", lambda each: each.date),
        Column("files before", lambda each: each.files_before),
        Column("after", lambda each: each.files_after),
        Column("rows", lambda each: each.rows),
    ]
    write(output_format, Section(rows, columns, none="there is nothing to merge"))


@app.command()
def expire(
    archive: ArchiveArgument,
    keep: KeepOption = "5d",
    last: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="This many of the newest snapshots stay.")
    ] = 1,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Forget snapshots that have not been the current one for a while. No file is removed."""
    _need_iceberg()
    from tandem.spark.archive.iceberg import upkeep

    keep_ms = _duration(keep)
    report = _done("expiring", lambda: upkeep.expire(archive, now_ms(), keep_ms=keep_ms, keep=last))
    facts: dict[str, Value] = {
        "snapshots forgotten": len(report.snapshot_ids),
        "snapshots left": report.left,
    }
    write_one(output_format, report, facts)


@app.command()
def clean(
    archive: ArchiveArgument, keep: KeepOption = "5d", output_format: FormatOption = Format.TABLE
) -> None:
    """Remove files of the table that no snapshot names. Files of the manifest are never removed."""
    _need_iceberg()
    from tandem.spark.archive.iceberg.upkeep import remove_orphans

    keep_ms = _duration(keep)
    report = _done("cleaning", lambda: remove_orphans(archive, now_ms(), keep_ms=keep_ms))
    facts: dict[str, Value] = {
        "files removed": len(report.files),
        "size": human_bytes(report.size_bytes),
    }
    write_one(output_format, report, facts)


@app.command()
def rebuild(archive: ArchiveArgument, output_format: FormatOption = Format.TABLE) -> None:
    """Make the table anew from the manifest, after the archive was moved for example.

    Its snapshots and merged files are then of no use; `tandem archive clean` removes them.
    """
    _need_iceberg()
    from tandem.spark.archive.iceberg import upkeep

    _write_state(output_format, _done("making the table", lambda: upkeep.rebuild(archive)))


@app.command(name="as-of")
def as_of(
    archive: ArchiveArgument,
    topic: Annotated[str, typer.Argument(help="Which topic.")],
    offset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP=OFFSET",
            help="What the log of a group had before this physical offset. Repeat it.",
            show_default=False,
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help=f"What was stored before: {TIME_FORMS}.", show_default=False
        ),
    ] = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Count a topic as it was at a place of the log or at a time, and say how to read that."""
    _need_iceberg()
    from tandem.spark.archive.iceberg import upkeep

    if bool(offset) == (time is not None):
        raise typer.BadParameter("give --offset or --time")
    offsets = dict(map(_offset, offset or []))
    time_ms = None if time is None else parsed_time_ms(time, "--time")

    def count() -> "tuple[AsOf, int]":
        return upkeep.count_as_of(archive, topic, offsets=offsets, time_ms=time_ms)

    found, rows = _done("counting", count)
    report = {"snapshot_id": found.snapshot_id, "where": found.where, "rows": rows}
    facts: dict[str, Value] = {
        "snapshot": str(found.snapshot_id),
        "where": found.where,
        "messages": rows,
    }
    write_one(output_format, report, facts)


def _write_state(output_format: Format, state: "TableState") -> None:
    facts: dict[str, Value] = {
        "table": state.name,
        "metadata": state.metadata,
        "messages": state.rows,
        "files": state.files,
        "snapshots": state.snapshots,
        "last publish": state.published or None,
    }
    ends = sorted(state.ends.items())
    columns = [
        Column[tuple[str, int]]("group", lambda each: each[0]),
        Column[tuple[str, int]]("has its log up to", lambda each: each[1]),
    ]
    write_one(output_format, state, facts, [Section(ends, columns)])


def _done(words: str, function: Callable[[], ReturnT]) -> ReturnT:
    """Do the work in a thread. What is wrong with the archive ends the command in its words."""
    from tandem.spark.errors import SparkSourceError

    def work() -> ReturnT:
        try:
            return function()
        except SparkSourceError as error:
            raise CommandError(str(error)) from error

    return run_blocking(words, work)


def _need_iceberg() -> None:
    from tandem.spark.archive.errors import ArchiveTableError
    from tandem.spark.archive.table_note import need_iceberg

    try:
        need_iceberg()
    except ArchiveTableError as error:
        raise CommandError(str(error), WRONG_USAGE) from error


def _duration(text: str) -> int:
    found = duration_ms(text)
    if found is None:
        raise typer.BadParameter(
            f"{text!r} is no duration; give one such as {DURATION_FORMS}", param_hint="--keep"
        )
    return found


def _offset(text: str) -> tuple[str, int]:
    group, _, number = text.rpartition("=")
    if not group or not (number.isascii() and number.isdecimal() and len(number) < 20):
        raise typer.BadParameter(f"{text!r} is no GROUP=OFFSET", param_hint="--offset")
    return group, int(number)

"""`tandem log`: look into store directories, ours or RocketMQ's, without a running node."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tandem.cli.formats import Column, Format, FormatOption, Section, write, write_words
from tandem.cli.grammar import TandemGroup
from tandem.cli.log_options import (
    BodyFormat,
    BodyOption,
    CommitLogOption,
    FromOption,
    JobsOption,
    KeyOption,
    LevelsOption,
    LimitOption,
    PhysicalOption,
    QueueOffsetOption,
    QueueOption,
    ScanOption,
    SinceOption,
    SlotsOption,
    StoreArgument,
    TagsOption,
    TopicOption,
    UnitsOption,
    UntilOption,
    WithOlderOption,
    delay_levels,
    index_settings,
    jobs_or_cores,
    record_filter,
)
from tandem.cli.output import human_bytes, print_json, say, say_error, stderr
from tandem.cli.progress import progress
from tandem.plain_text import plain

if TYPE_CHECKING:
    from tandem.log import LogDamage, StoreDirectory
    from tandem.log.index_file import IndexSettings
    from tandem.log.repair import RepairPlan
    from tandem.log.verify import VerifyReport


RecordT = TypeVar("RecordT")


class _LogGroup(TandemGroup):
    """Ends a command with one line for what its user can act on."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - what a context is depends on typer
        """Run the command.

        Raises:
            typer.Exit: 2 if what the user wrote is wrong, 1 for the rest of the expected errors.
        """
        from tandem.log.errors import BadRequestError, LogToolError, NotAStoreError, RepairError

        try:
            return super().invoke(ctx)
        except LogToolError as error:
            say_error(str(error))
            status = error.exit_status if isinstance(error, RepairError) else 1
            usage = isinstance(error, (BadRequestError, NotAStoreError))
            raise typer.Exit(2 if usage else status) from error


app = typer.Typer(
    cls=_LogGroup,
    help="Look into store directories, ours or RocketMQ's, without a running node.",
    no_args_is_help=True,
)


@app.command()
def ls(
    directory: StoreArgument,
    commit_log: CommitLogOption = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Show the files of a store: ranges, fill, first and last time."""
    from tandem.cli.log_tables import print_listing
    from tandem.log import list_store

    listing = list_store(_opened(directory, commit_log))
    files = Section(
        listing.commit_log,
        [
            Column("file", lambda row: row.path),
            Column("from", lambda row: row.offset),
            Column("to", lambda row: row.offset + row.used_bytes),
            Column("size", lambda row: row.size),
        ],
    )
    _show(output_format, files, listing, lambda: print_listing(listing))


@app.command()
def dump(
    directory: StoreArgument,
    topic: TopicOption = None,
    queue: QueueOption = None,
    offset: QueueOffsetOption = None,
    physical: PhysicalOption = None,
    key: KeyOption = None,
    tags: TagsOption = "*",
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = None,
    output_format: FormatOption = Format.TABLE,
    body: BodyOption = BodyFormat.TEXT,
    scan: ScanOption = False,
    max_hash_slot_num: SlotsOption = None,
    max_index_num: UnitsOption = None,
    commit_log: CommitLogOption = None,
) -> None:
    """Print records in log order, decompressed, batches taken apart.

    With --topic and --key the index files are asked where there are any. Exit status 1 if records
    could not be read because the log is corrupt before others; a torn end is only mentioned.
    """
    from tandem.cli.log_records import printed_records
    from tandem.log import LogDamage, dump_records

    wanted = record_filter(
        topic=topic,
        queue=queue,
        offset=offset,
        physical=physical,
        key=key,
        tags=tags,
        since=since,
        until=until,
    )
    store = _opened(directory, commit_log)
    settings = index_settings(max_hash_slot_num, max_index_num)
    damages = []
    count = 0
    with printed_records(output_format, body) as print_record:
        for item in dump_records(store, wanted, use_index=not scan, index_settings=settings):
            if isinstance(item, LogDamage):
                _say_damage(item, store)
                damages.append(item)
                continue
            print_record(item)
            count += 1
            if count == limit:
                break
    _exit_if_corrupt(damages)


@app.command()
def stat(
    directory: StoreArgument,
    topic: TopicOption = None,
    queue: QueueOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    output_format: FormatOption = Format.TABLE,
    commit_log: CommitLogOption = None,
) -> None:
    """Count messages and bytes by topic and queue, with rates and sizes."""
    from tandem.cli.log_tables import print_stat
    from tandem.log import store_stat

    wanted = record_filter(topic=topic, queue=queue, since=since, until=until)
    store = _opened(directory, commit_log)
    found = store_stat(store, wanted)
    queues = Section(
        found.queues,
        [
            Column("topic", lambda row: row.topic),
            Column("queue", lambda row: row.queue_id),
            Column("messages", lambda row: row.message_count),
            Column("bytes", lambda row: row.total_bytes),
        ],
    )
    _show(output_format, queues, found, lambda: print_stat(found))
    for damage in found.damages:
        _say_damage(damage, store)
    _exit_if_corrupt(found.damages)


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A store root, or only its commitlog.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The one to compare with.")],
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Say where two logs first differ. Exit status 0 if they do not, 1 if they do."""
    from tandem.log import diff_logs

    found = diff_logs(_opened(a, None), _opened(b, None))
    if output_format in (Format.JSON, Format.JSONL):
        print_json(found)
    else:
        say(found.text)
        for field in found.fields:
            say(f"  {field}")
    raise typer.Exit(0 if found.is_equal else 1)


@app.command()
def verify(
    directory: StoreArgument,
    jobs: JobsOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit status 1 for warnings, too.")
    ] = False,
    output_format: FormatOption = Format.TABLE,
    message_delay_level: LevelsOption = None,
    max_hash_slot_num: SlotsOption = None,
    max_index_num: UnitsOption = None,
    commit_log: CommitLogOption = None,
) -> None:
    """Check every record, queue unit and index entry, and each against the others.

    Exit status 0 if the store is sound, 1 if it is damaged. What a crash leaves behind and the next
    start puts right is a warning. DIR may also be the directory of an embedded coordinator.
    """
    from tandem.cli.log_records import report_json
    from tandem.cli.log_tables import print_report
    from tandem.log.cluster_files import is_coordinator

    if is_coordinator(directory):
        _verify_coordinator(directory, output_format, strict=strict)
        return
    store = _opened(directory, commit_log)
    settings = index_settings(max_hash_slot_num, max_index_num)
    report, seconds = _verified(store, jobs, settings, message_delay_level)
    document = report_json(report)
    findings = _findings_section(document)
    _show(output_format, findings, document, lambda: print_report(report, seconds))
    if report.damage_count or (strict and report.warning_count):
        raise typer.Exit(1)


def _verify_coordinator(directory: Path, output_format: Format, *, strict: bool) -> None:
    from tandem.cli.log_records import report_json
    from tandem.cli.log_tables import print_coordinator_report
    from tandem.log.cluster_files import verify_coordinator

    report = verify_coordinator(directory)
    document = report_json(report)
    findings = _findings_section(document)
    _show(output_format, findings, document, lambda: print_coordinator_report(report))
    if report.damage_count or (strict and report.warning_count):
        raise typer.Exit(1)


def _findings_section(document: dict[str, Any]) -> Section[dict[str, Any]]:
    return Section[dict[str, Any]](
        document["findings"],
        [
            Column("severity", lambda row: row["severity"]),
            Column("kind", lambda row: row["kind"]),
            Column("file", lambda row: row["file"]),
            Column("position", lambda row: row["position"]),
            Column("what", lambda row: row["what"]),
        ],
    )


def _verified(
    store: "StoreDirectory",
    jobs: int | None,
    settings: "IndexSettings | None",
    message_delay_level: str | None,
) -> "tuple[VerifyReport, float]":
    """Return what was found, and how many seconds that took."""
    from tandem.log.verify import verify_store

    started = time.monotonic()
    levels = delay_levels(message_delay_level)
    with progress("verify") as on_progress:
        report = verify_store(
            store,
            jobs=jobs_or_cores(jobs),
            index_settings=settings,
            message_delay_level=levels,
            on_progress=on_progress,
        )
    return report, time.monotonic() - started


@app.command()
def export(
    directory: StoreArgument,
    output: Annotated[Path, typer.Argument(metavar="OUT.parquet", help="The file to write.")],
    topic: TopicOption = None,
    queue: QueueOption = None,
    offset: QueueOffsetOption = None,
    physical: PhysicalOption = None,
    key: KeyOption = None,
    tags: TagsOption = "*",
    since: SinceOption = None,
    until: UntilOption = None,
    columns: Annotated[
        str | None, typer.Option(help="Only these columns, separated by commas.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    output_format: FormatOption = Format.TABLE,
    commit_log: CommitLogOption = None,
) -> None:
    """Write records to a Parquet file, with the columns of the Spark source (docs/spark.md).

    Places that could not be read become rows with `error` set. Exit status 1 if there are any
    before others.
    """
    from tandem.log.export import export_parquet

    wanted = record_filter(
        topic=topic,
        queue=queue,
        offset=offset,
        physical=physical,
        key=key,
        tags=tags,
        since=since,
        until=until,
    )
    store = _opened(directory, commit_log)
    names = [name.strip() for name in columns.split(",")] if columns else []
    with progress("export") as on_progress:
        done = export_parquet(
            store, output, wanted, columns=names, replace=force, on_progress=on_progress
        )
    words = f"{done.path}: {done.record_count} records, {human_bytes(done.size)}"
    write_words(output_format, done, words)
    for damage in done.damages:
        _say_damage(damage, store)
    _exit_if_corrupt(done.damages)


@app.command()
def repair(
    directory: StoreArgument,
    write: Annotated[
        bool, typer.Option("--write", help="Do it; without this nothing is changed.")
    ] = False,
    source: FromOption = None,
    with_older: WithOlderOption = False,
    cut_at: Annotated[
        int | None,
        typer.Option(metavar="OFFSET", min=0, help="End the log here; with --accept-loss."),
    ] = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Lose the messages after --cut-at.")
    ] = False,
    jobs: JobsOption = None,
    message_delay_level: LevelsOption = None,
    max_hash_slot_num: SlotsOption = None,
    max_index_num: UnitsOption = None,
    commit_log: CommitLogOption = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Cut a torn tail, build damaged queues and index anew. A dry run unless --write is given.

    What is removed is kept, in torn/ and in repair-TIME/. Corruption in the middle of the log is
    refused unless --cut-at and --accept-loss say otherwise; the number of messages lost is named.
    With --from bad bytes and missing files of the log are copied from another copy of it first.
    """
    from tandem.cli.log_healing import HowToHeal, heal_log
    from tandem.log.repair import plan_repair

    if with_older and source is None:
        raise typer.BadParameter("--with-older says what to copy, and --from is not given")
    settings, workers = index_settings(max_hash_slot_num, max_index_num), jobs_or_cores(jobs)
    how = HowToHeal(workers, settings, write, with_older, output_format)
    if source is not None and not heal_log(directory, source, commit_log or [], how):
        return
    with progress("verify") as on_progress:
        plan = plan_repair(
            _opened(directory, commit_log),
            cut_at=cut_at,
            accept_loss=accept_loss,
            jobs=workers,
            index_settings=settings,
            message_delay_level=delay_levels(message_delay_level),
            commit_log_directories=commit_log or (),
            on_progress=on_progress,
        )
    if output_format in (Format.JSON, Format.JSONL):
        _repair_for_programs(plan, write)
    elif plan.is_needless:
        say("nothing to repair" if source is None else "nothing else to repair")
    else:
        _repair(plan, write)
        if write:
            verify(
                directory,
                jobs=jobs,
                message_delay_level=message_delay_level,
                commit_log=commit_log,
            )


def _repair_for_programs(plan: "RepairPlan", write: bool) -> None:
    """Do the same and print one record; whether all is well afterwards `verify` says."""
    from tandem.log.repair import write_repair

    is_done = write and not plan.refusal and not plan.is_needless
    print_json(
        {
            "steps": plan.steps,
            "refusal": plan.refusal,
            "lostCount": plan.lost_count,
            "done": write_repair(plan) if is_done else None,
        }
    )
    if plan.refusal:
        say_error(plan.refusal)
        raise typer.Exit(1)


def _repair(plan: "RepairPlan", write: bool) -> None:
    from tandem.log.repair import write_repair

    for step in plan.steps:
        say(f"{'' if write else 'would '}{step}")
    if plan.refusal:
        say_error(plan.refusal)
        raise typer.Exit(1)
    if not write:
        say("dry run: nothing was changed; add --write to do it")
        return
    done = write_repair(plan)
    say(f"done: the log holds offsets {done.log_start} to {done.log_end}")
    for path in done.kept:
        say(f"kept: {path}")
    for name in done.restored:
        say(f"left as it was, because the log holds no message of it: {name}")


def _opened(directory: Path, commit_log: list[Path] | None) -> "StoreDirectory":
    from tandem.log import open_store_directory

    store = open_store_directory(directory, commit_log_directories=commit_log or ())
    if store.is_live:
        stderr().print(
            f"{plain(str(directory))} is open in a running node:"
            " what is shown was there when it was read",
            style="yellow",
            markup=False,
            soft_wrap=True,
        )
    return store


def _show(
    output_format: Format,
    section: Section[RecordT],
    document: object,
    as_table: Callable[[], None],
) -> None:
    if output_format is Format.TABLE:
        as_table()
    else:
        write(output_format, section, document=document)


def _say_damage(damage: "LogDamage", store: "StoreDirectory") -> None:
    being_written = damage.kind == "torn" and store.is_live
    words = f"{damage} (it is being written)" if being_written else str(damage)
    stderr().print(plain(words), style="yellow", markup=False, soft_wrap=True)


def _exit_if_corrupt(damages: "Iterable[LogDamage]") -> None:
    """End the command with status 1 if records after one of the damages show corruption."""
    if any(damage.kind == "corrupt" for damage in damages):
        raise typer.Exit(1)

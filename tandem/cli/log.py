"""`tandem log`: look into store directories, ours or RocketMQ's, without a running node."""

import enum
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from typer.core import TyperGroup

from tandem.cli.output import say_error, stderr, stdout

if TYPE_CHECKING:
    from tandem.log import DumpedRecord, LogDamage, RecordFilter, StoreDirectory
    from tandem.log.index_file import IndexSettings
    from tandem.log.verify import VerifyReport
    from tandem.wire.message import MessageExt


class _LogGroup(TyperGroup):
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


class Format(enum.StrEnum):
    """How a result is printed: for people, or for programs."""

    TABLE = "table"
    JSON = "json"


class RecordFormat(enum.StrEnum):
    """How records are printed: for people, or a JSON object a line."""

    TABLE = "table"
    NDJSON = "ndjson"


class BodyFormat(enum.StrEnum):
    """How bodies are printed."""

    TEXT = "text"
    HEX = "hex"
    NONE = "none"


StoreArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="A store root, or only its commitlog.")
]
CommitLogOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--commit-log",
        metavar="DIR",
        help="Where the log lies, if not in DIR/commitlog. Repeatable: a log in several places.",
        show_default=False,
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="For people or for programs.")]
TopicOption = Annotated[
    list[str] | None, typer.Option("--topic", "-t", help="Only this topic. Repeatable.")
]
QueueOption = Annotated[
    list[int] | None, typer.Option("--queue", "-q", help="Only this queue id. Repeatable.")
]
QueueOffsetOption = Annotated[
    str | None,
    typer.Option(
        "--offset",
        "--queue-offset",
        metavar="N|START:END",
        help="Queue offsets; END is not included.",
    ),
]
PhysicalOption = Annotated[
    str | None,
    typer.Option(metavar="N|START:END", help="Physical offsets of records; END is not included."),
]
KeyOption = Annotated[str | None, typer.Option(help="Only with this key (KEYS or UNIQ_KEY).")]
TagsOption = Annotated[str, typer.Option(help="Only with these tags: 'a || b'.")]
SinceOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Stored at or after: ISO 8601 (UTC) or ms.")
]
UntilOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Stored before: ISO 8601 (UTC) or ms.")
]
SlotsOption = Annotated[
    int | None,
    typer.Option(
        "--max-hash-slot-num", min=1, help="Slots of an index file, if they cannot be found out."
    ),
]
UnitsOption = Annotated[
    int | None,
    typer.Option("--max-index-num", min=1, help="Units of an index file; with the one before."),
]


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
    if output_format is Format.JSON:
        typer.echo(msgspec.json.encode(listing))
    else:
        print_listing(stdout(), listing)


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
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many records.")] = None,
    output_format: Annotated[
        RecordFormat, typer.Option("--format", help="A table, or a JSON object a line.")
    ] = RecordFormat.TABLE,
    body: Annotated[BodyFormat, typer.Option(help="How bodies are shown.")] = BodyFormat.TEXT,
    scan: Annotated[
        bool, typer.Option("--scan", help="Look for --key in the log, not in index files.")
    ] = False,
    max_hash_slot_num: SlotsOption = None,
    max_index_num: UnitsOption = None,
    commit_log: CommitLogOption = None,
) -> None:
    """Print records in log order, decompressed, batches taken apart.

    With --topic and --key the index files are asked where there are any. Exit status 1 if records
    could not be read because the log is corrupt in front of others; a torn end is only mentioned.
    """
    from tandem.log import LogDamage, dump_records

    wanted = _record_filter(topic, queue, offset, physical, key, tags, since, until)
    store = _opened(directory, commit_log)
    settings = _index_settings(max_hash_slot_num, max_index_num)
    found = dump_records(store, wanted, use_index=not scan, index_settings=settings)
    write = _printer(output_format, body)
    is_corrupt = False
    count = 0
    for item in found:
        if isinstance(item, LogDamage):
            is_corrupt |= _say_damage(item, store)
            continue
        write(item)
        count += 1
        if count == limit:
            break
    if is_corrupt:
        raise typer.Exit(1)


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

    wanted = _record_filter(topic, queue, None, None, None, "*", since, until)
    store = _opened(directory, commit_log)
    found = store_stat(store, wanted)
    if output_format is Format.JSON:
        typer.echo(msgspec.json.encode(found))
    else:
        print_stat(stdout(), found)
    corrupt = [damage for damage in found.damages if _say_damage(damage, store)]
    if corrupt:
        raise typer.Exit(1)


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A store root, or only its commitlog.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The one to compare with.")],
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Say where two logs first differ. Exit status 0 if they do not, 1 if they do."""
    from tandem.log import diff_logs

    found = diff_logs(_opened(a, None), _opened(b, None))
    if output_format is Format.JSON:
        typer.echo(msgspec.json.encode(found))
    else:
        typer.echo(found.text)
        for field in found.fields:
            typer.echo(f"  {field}")
    raise typer.Exit(0 if found.is_equal else 1)


@app.command()
def verify(
    directory: StoreArgument,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="Processes; by default one a core."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit status 1 for warnings, too.")
    ] = False,
    output_format: FormatOption = Format.TABLE,
    message_delay_level: Annotated[
        str | None,
        typer.Option(metavar="LEVELS", help="messageDelayLevel of the store, if not the default."),
    ] = None,
    max_hash_slot_num: SlotsOption = None,
    max_index_num: UnitsOption = None,
    commit_log: CommitLogOption = None,
) -> None:
    """Check every record, queue unit and index entry, and each against the others.

    Exit status 0 if the store is sound, 1 if it is damaged. What a crash leaves behind and the next
    start puts right is a warning.
    """
    from tandem.cli.log_tables import print_report
    from tandem.log.verify import verify_store
    from tandem.log.workers import usable_cores
    from tandem.wire.delay_level import MESSAGE_DELAY_LEVEL

    store = _opened(directory, commit_log)
    started = time.monotonic()
    with progress("verify") as on_progress:
        try:
            report = verify_store(
                store,
                jobs=jobs or usable_cores(),
                index_settings=_index_settings(max_hash_slot_num, max_index_num),
                message_delay_level=message_delay_level or MESSAGE_DELAY_LEVEL,
                on_progress=on_progress,
            )
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--message-delay-level") from error
    if output_format is Format.JSON:
        typer.echo(msgspec.json.encode(report_json(report)))
    else:
        print_report(stdout(), report, time.monotonic() - started)
    if report.damage_count or (strict and report.warning_count):
        raise typer.Exit(1)


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
    commit_log: CommitLogOption = None,
) -> None:
    """Write records to a Parquet file, with the columns of the Spark source (docs/spark.md).

    Places that could not be read become rows with `error` set. Exit status 1 if there are any in
    front of others.
    """
    from tandem.cli.output import human_bytes
    from tandem.log.export import export_parquet

    wanted = _record_filter(topic, queue, offset, physical, key, tags, since, until)
    store = _opened(directory, commit_log)
    names = [name.strip() for name in columns.split(",")] if columns else []
    with progress("export") as on_progress:
        done = export_parquet(
            store, output, wanted, columns=names, replace=force, on_progress=on_progress
        )
    typer.echo(f"{done.path}: {done.record_count} records, {human_bytes(done.size)}")
    corrupt = [damage for damage in done.damages if _say_damage(damage, store)]
    if corrupt:
        raise typer.Exit(1)


@app.command()
def repair(
    directory: StoreArgument,
    write: Annotated[
        bool, typer.Option("--write", help="Do it; without this nothing is changed.")
    ] = False,
    cut_at: Annotated[
        int | None,
        typer.Option(metavar="OFFSET", min=0, help="End the log here; with --accept-loss."),
    ] = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Lose the messages behind --cut-at.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Processes that verify.")
    ] = None,
    message_delay_level: Annotated[
        str | None,
        typer.Option(metavar="LEVELS", help="messageDelayLevel of the store, if not the default."),
    ] = None,
    max_hash_slot_num: SlotsOption = None,
    max_index_num: UnitsOption = None,
    commit_log: CommitLogOption = None,
) -> None:
    """Cut a torn tail, build damaged queues and index anew. A dry run unless --write is given.

    What is removed is kept, in torn/ and in repair-TIME/. Corruption in the middle of the log is
    refused unless --cut-at and --accept-loss say otherwise; the number of messages lost is named.
    """
    from tandem.log.repair import plan_repair, write_repair
    from tandem.log.workers import usable_cores
    from tandem.wire.delay_level import MESSAGE_DELAY_LEVEL

    with progress("verify") as on_progress:
        plan = plan_repair(
            _opened(directory, commit_log),
            cut_at=cut_at,
            accept_loss=accept_loss,
            jobs=jobs or usable_cores(),
            index_settings=_index_settings(max_hash_slot_num, max_index_num),
            message_delay_level=message_delay_level or MESSAGE_DELAY_LEVEL,
            commit_log_directories=commit_log or (),
            on_progress=on_progress,
        )
    if plan.is_needless:
        typer.echo("nothing to repair")
        return
    for step in plan.steps:
        typer.echo(f"{'' if write else 'would '}{step}")
    if plan.refusal:
        say_error(plan.refusal)
        raise typer.Exit(1)
    if not write:
        typer.echo("dry run: nothing was changed; add --write to do it")
        return
    done = write_repair(plan)
    typer.echo(f"done: the log holds offsets {done.log_start} to {done.log_end}")
    for path in done.kept:
        typer.echo(f"kept: {path}")
    for name in done.restored:
        typer.echo(f"left as it was, because the log holds no message of it: {name}")
    verify(directory, jobs=jobs, message_delay_level=message_delay_level, commit_log=commit_log)


@contextmanager
def progress(what: str) -> "Iterator[Callable[[int, int], None]]":
    """A bar on standard error while it is a terminal; gives what to call with done and total."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = stderr()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def report_json(report: "VerifyReport") -> dict[str, Any]:
    """The report with what each finding means."""
    return {
        **msgspec.structs.asdict(report),
        "damage_count": report.damage_count,
        "warning_count": report.warning_count,
        "findings": [
            {
                "severity": finding.severity,
                **msgspec.structs.asdict(finding),
                "meaning": finding.meaning,
                "remedy": finding.remedy,
            }
            for finding in report.findings
        ],
    }


def _opened(directory: Path, commit_log: list[Path] | None) -> "StoreDirectory":
    from tandem.log import open_store_directory

    store = open_store_directory(directory, commit_log_directories=commit_log or ())
    if store.is_live:
        stderr().print(
            f"{directory} is open in a running node: what is shown was there when it was read",
            style="yellow",
            soft_wrap=True,
        )
    return store


def _record_filter(
    topic: list[str] | None,
    queue: list[int] | None,
    offset: str | None,
    physical: str | None,
    key: str | None,
    tags: str,
    since: str | None,
    until: str | None,
) -> "RecordFilter":
    from tandem.log import RecordFilter
    from tandem.log.record_filter import parse_range, parse_time_ms

    return RecordFilter(
        topics=frozenset(topic) if topic else None,
        queue_ids=frozenset(queue) if queue else None,
        queue_offsets=parse_range(offset, "--offset"),
        physical_offsets=parse_range(physical, "--physical"),
        key=key,
        tags=None if tags.strip() in ("", "*") else frozenset(_split_tags(tags)),
        since_ms=parse_time_ms(since, "--since"),
        until_ms=parse_time_ms(until, "--until"),
    )


def _split_tags(tags: str) -> Iterator[str]:
    yield from (piece.strip() for piece in tags.split("||") if piece.strip())


def _index_settings(slots: int | None, units: int | None) -> "IndexSettings | None":
    from tandem.log.index_file import IndexSettings

    if slots is None and units is None:
        return None
    if slots is None or units is None:
        raise typer.BadParameter("give both, or none", param_hint="--max-hash-slot-num")
    return IndexSettings(slots, units)


def _say_damage(damage: "LogDamage", store: "StoreDirectory") -> bool:
    """Write one line; return whether records behind it show that the log is corrupt."""
    being_written = damage.kind == "torn" and store.is_live
    words = f"{damage} (it is being written)" if being_written else str(damage)
    stderr().print(words, style="yellow", markup=False, soft_wrap=True)
    return damage.kind == "corrupt"


def _printer(output_format: RecordFormat, body: BodyFormat) -> "Callable[[DumpedRecord], None]":
    if output_format is RecordFormat.NDJSON:
        return lambda record: _print_json(record, body)
    from tandem.cli.log_tables import RecordTable

    table = RecordTable(typer.echo, shows_body=body is not BodyFormat.NONE)
    return lambda record: table.add(record, lambda data: _body_text(data, body))


def _body_text(data: bytes, body: BodyFormat) -> str:
    if body is BodyFormat.HEX:
        return data.hex()
    return data.decode("utf-8", "backslashreplace")


def _print_json(record: "DumpedRecord", body: BodyFormat) -> None:
    message = record.message
    line = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "store_size": message.store_size,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_timestamp_ms": message.born_timestamp_ms,
        "born_host": str(message.born_host),
        "store_timestamp_ms": message.store_timestamp_ms,
        "store_host": str(message.store_host),
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "msg_id": message.msg_id,
        "body_crc": message.body_crc,
        "crc_ok": record.crc_ok,
        "properties": message.properties,
        **({"problem": record.body.problem} if record.body.problem else {}),
    }
    if record.body.inner:
        line["messages"] = [_inner_json(inner, body) for inner in record.body.inner]
    else:
        line |= _body_json(record.body.body, body)
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")


def _inner_json(message: "MessageExt", body: BodyFormat) -> dict[str, Any]:
    return {
        "queue_offset": message.queue_offset,
        "flag": message.flag,
        "properties": message.properties,
        **_body_json(message.body, body),
    }


def _body_json(data: bytes, body: BodyFormat) -> dict[str, Any]:
    """`body`, or `body_base64` if it is not UTF-8, or `body_hex` if that was asked for."""
    if body is BodyFormat.NONE:
        return {}
    if body is BodyFormat.HEX:
        return {"body_hex": data.hex()}
    try:
        return {"body": data.decode()}
    except UnicodeDecodeError:
        return {"body_base64": data}

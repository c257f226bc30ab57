"""`tandem pipeline`: the jobs of the data pipeline, each with a file of settings."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tandem.cli.formats import Column, Format, FormatOption, Section, Value, write, write_one
from tandem.cli.grammar import TandemGroup
from tandem.cli.output import FAILED, WRONG_USAGE, CommandError, human_bytes, run, say
from tandem.cli.pipeline_init import write_job
from tandem.cli.progress import run_blocking, working

if TYPE_CHECKING:
    from tandem.spark.jobs.archive_job import ArchiveReport
    from tandem.spark.jobs.compact_job import CompactedTopic
    from tandem.spark.jobs.replay_job import ReplayReport
    from tandem.spark.jobs.scrub_job import ScrubReport
    from tandem.spark.jobs.stats_job import QueueHour

app = typer.Typer(
    cls=TandemGroup,
    help="Archive, replay, audit, measure, compact and scrub logs, as jobs of Spark.",
    no_args_is_help=True,
)

JobConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The file of the job; `tandem pipeline init` writes one.",
        show_default=False,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A key of the file and its value; wins over the file. Repeat it.",
        show_default=False,
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where Spark runs, such as local[*].", show_default=False),
]

SHOWN_FAULTS_MAX: Final = 20


def _answer(help_text: str) -> Any:  # noqa: ANN401 - what typer takes for an option
    return typer.Option(help=help_text, show_default=False, rich_help_panel="Answers")


@app.command()
def init(
    job: Annotated[
        str | None,
        typer.Argument(
            help="archive, replay, audit, stats, compact, scrub; without it, questions are asked.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(
            help="What to write. Without it an example goes to standard output, and a job that was"
            " asked for to archive.yaml.",
            show_default=False,
        ),
    ] = None,
    stores: Annotated[
        str | None, _answer("A store of each group: broker-a=data/broker-a-0.")
    ] = None,
    archive: Annotated[str | None, _answer("The directory of the archive.")] = None,
    table: Annotated[str | None, _answer("Its Iceberg table, NAMESPACE.NAME; - for none.")] = None,
    exclude_topics: Annotated[
        str | None, _answer("Topics that are left out, with commas between; - for none.")
    ] = None,
    master: Annotated[str | None, _answer("Where Spark runs, such as local[*].")] = None,
) -> None:
    """Ask five questions and write a job; or write an example of a job.

    Options answer the questions. Without a terminal nothing is asked.
    """
    from tandem.spark.jobs.examples import EXAMPLES

    answers = {
        "stores": stores,
        "archive": archive,
        "table": table,
        "exclude_topics": exclude_topics,
        "master": master,
    }
    has_answers = any(answer is not None for answer in answers.values())
    if job is None or (has_answers and job == "archive"):
        write_job(file or Path("archive.yaml"), answers)
        return
    if job not in EXAMPLES:
        raise typer.BadParameter(f"there is no job {job!r}; there are {', '.join(EXAMPLES)}")
    if has_answers:
        raise typer.BadParameter(f"the answers are those of the job archive, and not of {job}")
    if file is None:
        typer.echo(EXAMPLES[job], nl=False)
        return
    try:
        with file.open("x", encoding="utf-8") as target:
            target.write(EXAMPLES[job])
    except FileExistsError as error:
        raise CommandError(f"{file} is there already; name another file", WRONG_USAGE) from error
    say(f"wrote {file}; run it with `tandem pipeline {job} -c {file}`")


@app.command()
def archive(
    config: JobConfigOption = None,
    settings: SetOption = None,
    master: MasterOption = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Archive nothing; read all that is archived again.")
    ] = False,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Archive closed log files as Parquet, verify them, and say which may be deleted.

    Nothing is ever deleted. Exit status 1: something is wrong with the archive.
    """
    report: ArchiveReport = _run("archive", config, settings, master, verify=verify)
    files = [(group, path) for group, paths in report.deletable.items() for path in paths]
    columns = [
        Column[tuple[str, str]]("group", lambda each: each[0]),
        Column[tuple[str, str]]("may be deleted", lambda each: each[1]),
    ]
    facts: dict[str, Value] = {
        "archive": report.archive,
        "log files archived": report.log_files,
        "messages": report.rows,
        "log files verified": report.verified,
    }
    if report.table:
        facts["messages in the table"] = report.table_rows
    if report.gaps:
        facts["lost before they were archived"] = report.gaps
    none = "no log file may be deleted yet"
    write_one(output_format, report, facts, [Section(files, columns, none=none)])
    _end_with(report.faults)


@app.command()
def replay(
    config: JobConfigOption = None,
    settings: SetOption = None,
    master: MasterOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Send nothing; say how much there is.")
    ] = False,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Send a window of a topic out of an archive or a log into a topic again.

    At least once: what is repeated has the same UNIQ_KEY.
    """
    report: ReplayReport = _run("replay", config, settings, master, dry_run=dry_run)
    facts: dict[str, Value] = {
        "topic": report.topic,
        "messages to send" if report.dry_run else "messages sent": report.messages,
        "bytes": human_bytes(report.size_bytes),
    }
    if not report.dry_run:
        facts["sent in all runs"] = report.total
    if report.seconds is not None:
        facts["seconds at least"] = report.seconds
    write_one(output_format, report, facts)


@app.command()
def audit(
    config: JobConfigOption = None,
    settings: SetOption = None,
    master: MasterOption = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Judge every send of a ledger by the logs of all nodes of a group.

    Exit status 1: a promise was broken.
    """
    report = _run("audit", config, settings, master)
    names = [name for name in report.__struct_fields__ if not name.endswith("_by_slave")]
    facts: dict[str, Value] = {name.replace("_", " "): getattr(report, name) for name in names}
    for node, is_identical in report.identical_by_slave.items():
        facts[f"{node} is identical"] = is_identical
    facts["promises broken"] = report.promises_broken
    write_one(output_format, report, facts)
    raise typer.Exit(FAILED if report.promises_broken else 0)


@app.command()
def stats(
    config: JobConfigOption = None,
    settings: SetOption = None,
    master: MasterOption = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Count messages, bytes, keys and delays of topics, by queue and hour."""
    rows: list[QueueHour] = _run("stats", config, settings, master)
    write(output_format, Section(rows, _stats_columns(), none="there is no such message"))


@app.command()
def compact(
    config: JobConfigOption = None,
    settings: SetOption = None,
    master: MasterOption = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Keep of each key the latest message, as Kafka's log compaction does."""
    rows: list[CompactedTopic] = _run("compact", config, settings, master)
    columns: list[Column[CompactedTopic]] = [
        Column("topic", lambda each: each.topic),
        Column("messages", lambda each: each.messages),
        Column("kept", lambda each: each.keys),
        Column("tombstones", lambda each: each.tombstones),
        Column("without key", lambda each: each.without_key),
        Column("new", lambda each: each.is_new),
    ]
    write(output_format, Section(rows, columns))


@app.command()
def scrub(
    config: JobConfigOption = None,
    settings: SetOption = None,
    master: MasterOption = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Copy an archive without properties and fields of bodies, or with their hashes.

    Exit status 1: a value that was scrubbed is still in its message.
    """
    report: ScrubReport = _run("scrub", config, settings, master)
    facts: dict[str, Value] = {
        "archive": report.output,
        "log files": report.units,
        "messages": report.rows,
        "dropped": report.dropped,
    }
    write_one(output_format, report, facts)
    _end_with(report.faults)


@app.command()
def package(
    file: Annotated[
        Path, typer.Argument(help="What to write: *.zip or *.tar.gz.", show_default=False)
    ],
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Pack what workers of a cluster need, for --py-files (*.zip) or --archives (*.tar.gz)."""
    from tandem.spark.errors import PackageError
    from tandem.spark.package import (
        ARCHIVE_SUFFIX,
        EXPECTED_OF_WORKERS,
        runtime_tag,
        write_package,
    )

    def pack() -> int:
        try:
            return write_package(file)
        except PackageError as error:
            raise CommandError(str(error), WRONG_USAGE) from error

    size_bytes = run_blocking("packing", pack)
    is_archive = file.name.endswith(ARCHIVE_SUFFIX)
    needs = runtime_tag() if is_archive else f"a Python with {EXPECTED_OF_WORKERS}"
    report = {"file": str(file), "size_bytes": size_bytes, "needs": needs}
    facts: dict[str, Value] = {"file": str(file), "size": human_bytes(size_bytes), "needs": needs}
    write_one(output_format, report, facts)


def _stats_columns() -> "list[Column[QueueHour]]":
    return [
        Column("topic", lambda each: each.topic),
        Column("broker", lambda each: each.broker),
        Column("queue", lambda each: each.queue_id),
        Column("hour", lambda each: each.hour),
        Column("messages", lambda each: each.messages),
        Column("bytes", lambda each: each.size_bytes),
        Column("p50", lambda each: each.size_p50),
        Column("p99", lambda each: each.size_p99),
        Column("keys", lambda each: each.keys),
        Column("tags", lambda each: each.tags),
        Column("delay ms p99", lambda each: each.delay_p99_ms),
        Column("producers", lambda each: each.producers),
    ]


def _end_with(faults: list[str]) -> None:
    """Say what is wrong; end with a status that says so, too."""
    if not faults:
        return
    words = [f"fault: {fault}" for fault in faults[:SHOWN_FAULTS_MAX]]
    if len(faults) > SHOWN_FAULTS_MAX:
        words.append(f"and {len(faults) - SHOWN_FAULTS_MAX} more")
    raise CommandError("\n".join(words), FAILED)


def _run(
    job: str,
    config: Path | None,
    settings: list[str] | None,
    master: str | None,
    **flags: bool,
) -> Any:  # noqa: ANN401 - the report of any job
    """Run a job in a thread, with words about it on standard error."""
    from tandem.spark.jobs.settings import JOBS, load_settings

    options = _options(settings or [])
    if master is not None:
        options["master"] = master
    if config is None and not options:
        raise CommandError(
            "give the file of the job with --config;"
            f" `tandem pipeline init {job}` writes an example",
            WRONG_USAGE,
        )
    given = load_settings(JOBS[job], config, options)
    _need_spark()
    return _run_given(job, given, flags)


def _run_given(job: str, given: object, flags: Mapping[str, bool]) -> Any:  # noqa: ANN401
    import trio

    from tandem.spark.errors import SparkSourceError
    from tandem.spark.jobs.start import JobRequest, run_job

    def call(on_progress: Callable[[str], None]) -> Any:  # noqa: ANN401
        try:
            return run_job(JobRequest(job, given, **flags), on_progress=on_progress)
        except SparkSourceError as error:
            raise CommandError(str(error)) from error

    async def shown() -> Any:  # noqa: ANN401
        async with working(job) as say_news:
            return await trio.to_thread.run_sync(call, say_news, abandon_on_cancel=True)

    return run(shown)


def _options(texts: list[str]) -> dict[str, str]:
    options = {}
    for text in texts:
        key, is_given, value = text.partition("=")
        if not is_given or not key:
            raise typer.BadParameter(f"{text!r} is no KEY=VALUE", param_hint="--set")
        options[key.strip()] = value
    return options


def _need_spark() -> None:
    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"the Python package {missing[0]} is missing: pip install 'tandem-mq[spark]'",
            WRONG_USAGE,
        )

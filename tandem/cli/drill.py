"""`tandem drill`: start a cluster, break it under load, audit what is on its disks."""

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from tandem.cli.formats import Column, Format, FormatOption, Section, write
from tandem.cli.output import FAILED, WRONG_USAGE, CommandError, ConfigOption
from tandem.drill.options import HISTORY_DEFAULT, DrillOptions

if TYPE_CHECKING:
    from tandem.drill.command import ListedScenario
    from tandem.drill.comparison import Difference
    from tandem.drill.run_record import RunRecord


class TargetChoice(enum.StrEnum):
    """What a drill breaks."""

    TANDEM = "tandem"
    ROCKETMQ = "rocketmq"
    PROCESSES = "processes"


class WitnessChoice(enum.StrEnum):
    """Which client consumes beside ours."""

    JAVA = "java"


class ModeChoice(enum.StrEnum):
    """How a group of RocketMQ replicates."""

    CONTROLLER = "controller"
    SYNC_MASTER = "sync-master"
    ASYNC_MASTER = "async-master"


ScenariosArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SCENARIO]...",
        help=(
            "Names of the catalogue, your own files, or 'all'. 'list' shows the catalogue,"
            " 'random' plays what a seed decides, 'history' shows earlier runs, 'diff A B' compares"
            " two."
        ),
        show_default=False,
    ),
]
InputOption = Annotated[
    Path | None,
    typer.Option(
        "--input",
        "-i",
        metavar="FILE",
        help="Send the lines of this file instead of made-up orders.",
        show_default=False,
    ),
]
RateOption = Annotated[
    float | None,
    typer.Option(
        metavar="PER_SECOND", help="Sends a second, all producers together.", show_default=False
    ),
]
DurationOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Time under load, all scenarios together; 20 for each.",
        show_default=False,
    ),
]
RepeatOption = Annotated[int, typer.Option(metavar="N", help="Run everything N times.")]
ShortOption = Annotated[
    bool, typer.Option("--short", help="Less load, and the short list of scenarios.")
]
OutOption = Annotated[
    Path, typer.Option("--out", "-o", metavar="DIRECTORY", help="Where the report goes.")
]
SparkOption = Annotated[
    bool,
    typer.Option(
        "--spark", help="Audit with Spark: the same rules, for logs larger than memory; needs Java."
    ),
]
SparkStreamOption = Annotated[
    bool,
    typer.Option(
        "--spark-stream",
        help="A Spark stream reads along into Parquet; what it wrote is audited too. Needs Java.",
    ),
]
SeedOption = Annotated[
    int, typer.Option(help="Decides the made-up orders, and what 'random' does.")
]
MinutesOption = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        help="Of 'random': how long new episodes begin; 10.",
        show_default=False,
    ),
]
PatienceOption = Annotated[
    float,
    typer.Option(
        metavar="N",
        help="Deadlines of scenarios are this many times as long: for a slow machine.",
    ),
]
GroupsOption = Annotated[
    int,
    typer.Option(
        metavar="N", help="How many groups are made of the one group of the cluster file."
    ),
]
GroupOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Of several groups: which one is hurt; else the seed chooses.",
        show_default=False,
    ),
]
HistoryOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIRECTORY",
        help="Add the run to history.jsonl there, and write trends.html; 'history' and 'diff' read"
        " it, by default in drill.",
        show_default=False,
    ),
]
LabelOption = Annotated[
    str,
    typer.Option(
        metavar="TEXT", help="What the history calls the run, such as a commit.", show_default=False
    ),
]

TargetOption = Annotated[
    TargetChoice,
    typer.Option(
        "--target", help="What is broken: our own cluster, RocketMQ's, or one that is deployed."
    ),
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="Of --target processes: how the deployed cluster's nodes are reached and hurt.",
        show_default=False,
    ),
]
WitnessOption = Annotated[
    WitnessChoice | None,
    typer.Option(
        "--witness",
        help="Another client that consumes as well, of what --rocketmq names; 'java'.",
        show_default=False,
    ),
]
RocketMQOption = Annotated[
    str,
    typer.Option(
        "--rocketmq",
        metavar="DIRECTORY",
        help="RocketMQ's directory, one with its jars, or maven:5.3.3.",
        show_default=False,
    ),
]
ModeOption = Annotated[
    ModeChoice | None,
    typer.Option(
        "--mode",
        help="How brokers of RocketMQ replicate; with a controller if this is left out.",
        show_default=False,
    ),
]
PreviousOption = Annotated[
    Path | None,
    typer.Option(
        "--previous",
        metavar="PYTHON",
        help="Begin with the version that this Python has; `upgrade` changes nodes to this one.",
        show_default=False,
    ),
]
NameServersOption = Annotated[
    int,
    typer.Option(
        "--name-servers",
        help="How many name servers of RocketMQ, each with a controller in it; at most 5.",
    ),
]
BrokerSettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A property of RocketMQ's brokers; several times for several.",
        show_default=False,
    ),
]

_VERDICT_STYLES: Final = {"PASSED": "green", "FAILED": "bold red"}

_COLUMNS: Final["list[Column[ListedScenario]]"] = [
    Column("scenario", lambda each: each.name),
    Column("group", lambda each: each.group, rank=1),
    Column("promise", lambda each: each.promise, folds_at=" "),
    Column("needs", lambda each: each.needs),
    Column("about s", lambda each: each.seconds),
]


_HISTORY_COLUMNS: Final["list[Column[_Numbered]]"] = [
    Column("run", lambda each: each.number),
    Column("started", lambda each: each.run.started_at),
    Column("label", lambda each: each.run.label, rank=2),
    Column("verdict", lambda each: each.run.verdict, styles=_VERDICT_STYLES),
    Column("scenarios", lambda each: [scenario.name for scenario in each.run.scenarios], rank=1),
    Column("broken", lambda each: [f"{count:,} {name}" for name, count in each.run.broken.items()]),
    Column("s", lambda each: each.run.seconds, rank=3),
    Column("why", lambda each: each.run.why, folds_at=" ", rank=4),
]
_DIFF_COLUMNS: Final["list[Column[Difference]]"] = [
    Column("", lambda each: each.what, folds_at=" "),
    Column("first", lambda each: each.first, folds_at=" "),
    Column("second", lambda each: each.second, folds_at=" "),
    Column("change", lambda each: each.change, styles={"worse": "bold red", "better": "green"}),
]


class _Numbered(msgspec.Struct, frozen=True):
    """A run with its number in the history."""

    number: int
    run: "RunRecord"


# Long because each option is a line of its signature, and one of what it makes.
def drill(
    scenarios: ScenariosArgument = None,
    config: ConfigOption = None,
    input_file: InputOption = None,
    rate: RateOption = None,
    duration: DurationOption = None,
    repeat: RepeatOption = 1,
    short: ShortOption = False,
    out: OutOption = Path("report"),
    spark: SparkOption = False,
    spark_stream: SparkStreamOption = False,
    seed: SeedOption = 1,
    minutes: MinutesOption = None,
    patience: PatienceOption = 1.0,
    groups: GroupsOption = 1,
    group: GroupOption = "",
    previous: PreviousOption = None,
    history: HistoryOption = None,
    label: LabelOption = "",
    target: TargetOption = TargetChoice.TANDEM,
    file: FileOption = None,
    witness: WitnessOption = None,
    rocketmq: RocketMQOption = "",
    mode: ModeOption = None,
    broker_settings: BrokerSettingOption = None,
    name_servers: NameServersOption = 1,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Start the cluster, break it under load, and audit every log against every send.

    Exit status: 0 every promise held; 1 one did not, or something expected was not seen; 2 it could
    not be run; 3 inconclusive, the machine was too slow or a fault did nothing; 4 not possible on
    this machine; 5 the drill itself failed; 130 it was interrupted. Of 'diff': 1 if the second run
    is worse.
    """
    from tandem.cluster.spec import default_config
    from tandem.drill.command import listed, run_drill
    from tandem.drill.errors import DrillError

    match scenarios or []:
        case ["list"]:
            try:
                found = listed(target.value, file)
            except DrillError as error:
                raise typer.BadParameter(str(error)) from error
            write(output_format, Section(found, _COLUMNS))
            return
        case ["history"]:
            _show_history(history or HISTORY_DEFAULT, output_format)
            return
        case ["diff", *runs]:
            _show_difference(runs, history or HISTORY_DEFAULT, output_format)
            return
        case words if "random" in words and len(words) > 1:
            raise typer.BadParameter("random is played alone", param_hint="SCENARIO")
    if minutes is not None and scenarios != ["random"]:
        raise typer.BadParameter("is for `tandem drill random` alone", param_hint="--minutes")
    if output_format not in (Format.TABLE, Format.JSON):
        raise typer.BadParameter(
            "a drill gives its verdict as table or json; the other formats are for `list`",
            param_hint="--format",
        )

    options = DrillOptions(
        config=config or default_config(),
        input_file=input_file,
        scenarios=tuple(scenarios or ()),
        repeat=repeat,
        short=short,
        rate_per_second=rate,
        duration_seconds=duration,
        out=out,
        spark=spark,
        spark_stream=spark_stream,
        seed=seed,
        history=history,
        label=label,
        minutes=minutes,
        patience=patience,
        groups=groups,
        group=group,
        previous=previous,
        json=output_format is Format.JSON,
        target=target.value,
        file=file,
        witness="java" if witness is WitnessChoice.JAVA else None,
        rocketmq=rocketmq,
        mode=mode or "",
        broker_settings=tuple(broker_settings or ()),
        name_servers=name_servers,
    )
    raise typer.Exit(run_drill(options))


def _show_history(directory: Path, output_format: Format) -> None:
    from tandem.drill.command import history_of

    found = history_of(directory)
    if found.unreadable:
        typer.echo(
            f"{found.unreadable} lines of the history cannot be read and are left out", err=True
        )
    runs = [_Numbered(number, run) for number, run in enumerate(found.runs, start=1)]
    write(
        output_format,
        Section(runs, _HISTORY_COLUMNS, none=f"no drill was added to {directory} yet"),
    )


def _show_difference(runs: list[str], directory: Path, output_format: Format) -> None:
    """Compare; without names the last run of the history with the one before.

    Raises:
        typer.Exit: with 1 if the second one is worse.
    """
    from tandem.drill.command import compared
    from tandem.drill.comparison import is_worse
    from tandem.drill.history import HistoryError

    if len(runs) not in (0, 2):
        raise typer.BadParameter(
            "give two runs, the older one first, or none for the last two of the history",
            param_hint="diff",
        )
    first, second = runs or ("previous", "last")
    try:
        differences = compared(first, second, directory)
    except HistoryError as error:  # 1 would say that the second run is worse
        raise CommandError(str(error), WRONG_USAGE) from error
    write(output_format, Section(differences, _DIFF_COLUMNS))
    if is_worse(differences):
        raise typer.Exit(FAILED)

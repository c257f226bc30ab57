"""`tandem drill`: start a cluster, break it under load, audit what is on its disks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tandem.cli.formats import Column, Format, FormatOption, Section, write
from tandem.cli.output import ConfigOption
from tandem.drill.options import DrillOptions

if TYPE_CHECKING:
    from tandem.drill.command import ListedScenario

ScenariosArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SCENARIO]...",
        help="Names of the catalogue, your own files, or 'all'; 'list' shows the catalogue.",
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
SeedOption = Annotated[int, typer.Option(help="Decides the made-up orders.")]

_COLUMNS: Final["list[Column[ListedScenario]]"] = [
    Column("scenario", lambda each: each.name),
    Column("group", lambda each: each.group, rank=1),
    Column("promise", lambda each: each.promise, folds_at=" "),
    Column("needs", lambda each: each.needs),
    Column("about s", lambda each: each.seconds),
]


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
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Start the cluster, break it under load, and audit every log against every send.

    Exit status: 0 every promise held; 1 one did not, or something expected was not seen; 2 it could
    not be run; 3 inconclusive, the machine was too slow; 130 it was interrupted.
    """
    from tandem.cluster.spec import default_config
    from tandem.drill.command import listed, run_drill

    if scenarios == ["list"]:
        write(output_format, Section(listed(), _COLUMNS))
        return
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
        json=output_format is Format.JSON,
    )
    raise typer.Exit(run_drill(options))

"""`tandem cluster logs`: what the nodes of a local cluster log, and their supervisor, in one."""

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from tandem.cli.formats import Format, FormatOption
from tandem.cli.output import CommandError, ConfigOption, is_for_people, print_json
from tandem.cli.times import TIME_FORMS, duration_ms, now_ms, time_ms

if TYPE_CHECKING:
    from tandem.cluster.log_following import LogFollower, ProcessFile
    from tandem.cluster.log_records import LogRecord
    from tandem.cluster.spec import ClusterSpec

POLL_SECONDS: Final = 0.2
"""How often it is looked for more with --follow."""

_COLOURS: Final = ("cyan", "magenta", "blue", "green", "bright_cyan", "bright_magenta")
_LEVEL_COLOURS: Final = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "bright_red"}


class Level(StrEnum):
    """The least that is shown."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are wanted."""

    level: str
    pattern: re.Pattern[str] | None

    def wants(self, record: "LogRecord") -> bool:
        """Whether it is shown."""
        if not record.is_at_least(self.level):
            return False
        return self.pattern is None or record.has(self.pattern)


NodeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--node",
        metavar="NODE",
        help="Only this node's, or `supervisor`. Repeat it for several.",
        show_default="all",
    ),
]
LevelOption = Annotated[Level, typer.Option(case_sensitive=False, help="At least of this level.")]
SinceOption = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION|TIME",
        help=f"Only what was logged since: 10m, 2h, or {TIME_FORMS}.",
        show_default=False,
    ),
]
GrepOption = Annotated[
    str | None,
    typer.Option(
        metavar="PATTERN",
        help="Only records that match this regular expression; their tracebacks count.",
        show_default=False,
    ),
]
TailOption = Annotated[
    int | None, typer.Option(min=0, help="Only the last of them.", show_default="all")
]


def logs(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is logged, until Ctrl-C.")
    ] = False,
    node: NodeOption = None,
    level: LevelOption = Level.DEBUG,
    since: SinceOption = None,
    grep: GrepOption = None,
    tail: TailOption = None,
    output_format: FormatOption = Format.TEXT,
    config: ConfigOption = None,
) -> None:
    """Print the logs of all nodes, merged by time.

    With them comes that of a supervisor in the background. The cluster need not be up. Rotated
    parts are read as well, and rotation is followed.
    """
    from tandem.cluster.log_following import LogFollower
    from tandem.cluster.spec import default_config, read_spec

    if follow and output_format is Format.JSON:
        raise typer.BadParameter("json is whole at the end only; take jsonl", param_hint="--format")
    choices = Choices(level=level.value.upper(), pattern=_pattern(grep))
    since_seconds = _since_seconds(since)
    spec = read_spec(config or default_config())
    sources = _sources(spec, node or [])
    if not follow and not any(source.file.exists() for source in sources):
        raise CommandError(_nothing_logged(spec), 1)
    printer = _printer(output_format, [source.process for source in sources])
    with LogFollower(sources, since_seconds=since_seconds) as follower:
        wanted: Iterable[LogRecord] = filter(choices.wants, follower.records())
        if tail is not None:
            wanted = deque(wanted, maxlen=tail)
        if output_format is Format.JSON:
            print_json([_as_json(record) for record in wanted])
            return
        _print(printer, wanted)
        if follow:
            _follow(follower, choices, printer)


def _nothing_logged(spec: "ClusterSpec") -> str:
    from tandem.cluster.owners import not_up

    return (
        f"nothing is logged in {spec.log_directory}: only a supervisor's nodes log there, and those"
        " that run by themselves to where each was started: `journalctl -u tandem@NODE` there, or"
        f" their --log-file. {not_up(spec)}"
    )


def _follow(follower: "LogFollower", choices: Choices, printer: "Printer") -> None:
    import trio

    async def poll() -> None:
        while True:
            await trio.sleep(POLL_SECONDS)
            _print(printer, filter(choices.wants, follower.records()))

    trio.run(poll)


def _print(printer: "Printer", records: "Iterable[LogRecord]") -> None:
    for record in records:
        printer(record)
    sys.stdout.flush()


def _pattern(grep: str | None) -> re.Pattern[str] | None:
    if grep is None:
        return None
    try:
        return re.compile(grep)
    except re.error as error:
        raise typer.BadParameter(
            f"{grep!r} is no regular expression: {error}", param_hint="--grep"
        ) from error


def _since_seconds(since: str | None) -> float:
    if since is None:
        return 0.0
    now = now_ms()
    before = duration_ms(since)
    moment = time_ms(since, now) if before is None else now - before
    if moment is None:
        raise typer.BadParameter(
            f"{since!r} is no time; give 10m, 2h, or {TIME_FORMS}", param_hint="--since"
        )
    return moment / 1000


def _sources(spec: "ClusterSpec", wanted: list[str]) -> "list[ProcessFile]":
    from tandem.cluster.log_following import ProcessFile
    from tandem.cluster.spec import SUPERVISOR
    from tandem.cluster_file.errors import UnknownNodeError

    names = [*(node.name for node in spec.nodes), SUPERVISOR]
    for name in wanted:
        if name not in names:
            raise UnknownNodeError(name, names)
    return [
        ProcessFile(name, spec.log_file(name)) for name in names if not wanted or name in wanted
    ]


Printer = Callable[["LogRecord"], None]


def _printer(output_format: Format, processes: list[str]) -> Printer:
    if output_format is Format.JSONL:
        return lambda record: print_json(_as_json(record))
    has_colours = is_for_people() and not os.environ.get("NO_COLOR")
    colours = {
        name: _COLOURS[index % len(_COLOURS)] if has_colours else ""
        for index, name in enumerate(processes)
    }
    width = max(map(len, processes))
    write = sys.stdout.write

    def text(record: "LogRecord") -> None:
        for line in _lines(record, width, colours.get(record.process), has_colours):
            write(f"{line}\n")

    return text


def _lines(record: "LogRecord", width: int, colour: str | None, has_colours: bool) -> Iterator[str]:
    at = f"{record.local_time:%Y-%m-%d %H:%M:%S},{round(record.at_seconds * 1000) % 1000:03}"
    process, level, message = record.process.ljust(width), record.level.ljust(7), record.message
    more = record.more
    if has_colours:
        process = typer.style(process, fg=colour or None)
        at = typer.style(at, dim=True)
        if level_colour := _LEVEL_COLOURS.get(record.level):
            level = typer.style(level, fg=level_colour)
            message = typer.style(message, fg=level_colour)
        more = [typer.style(line, dim=True) for line in more]
    yield f"{at} {process} {level} {message}".rstrip()
    for line in more:
        yield f"{at} {process} {line}"


def _as_json(record: "LogRecord") -> dict[str, object]:
    return {
        "time": record.local_time.isoformat(timespec="milliseconds"),
        "level": record.level,
        "process": record.process,
        "message": record.message,
        **({"more": record.more} if record.more else {}),
    }

"""`tandem testing serve`: a cluster for tests in any language."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tandem.cli.grammar import TandemGroup
from tandem.cli.interrupts import INTERRUPTED, stopped_by_signals
from tandem.cli.output import print_json, run

if TYPE_CHECKING:
    from tandem.testing.serving import WantedTopic

app = typer.Typer(
    cls=TandemGroup, help="Clusters for tests, in any language.", no_args_is_help=True
)

QUEUES_DEFAULT: Final = 4
QUEUES_MAX: Final = 1_024
DISK_MIB_MIN: Final = 4

NodesOption = Annotated[
    int | None,
    typer.Option(min=1, max=9, help="How many nodes.", show_default="3; 2 with --classic"),
]
ClassicOption = Annotated[
    bool,
    typer.Option(
        "--classic", help="RocketMQ's master and slaves, instead of nodes that elect a master."
    ),
]
TopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="NAME[:QUEUES]",
        help="A topic that is there from the start. Repeatable.",
        show_default=False,
    ),
]
SettingsOption = Annotated[
    str,
    typer.Option(
        "--settings",
        metavar="JSON",
        help='Sections of a cluster file, such as {"broker": {"auto_create_topic_enable": false}}.',
        show_default=False,
    ),
]
DiskOption = Annotated[
    int,
    typer.Option(
        "--disk-mib",
        metavar="MIB",
        min=0,
        help="Each store on a disk of its own of this size, for fill_disk. 0: none.",
    ),
]
DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        metavar="DIRECTORY",
        help="Where its files go and stay; else they go with the cluster.",
        show_default=False,
    ),
]
SchemaOption = Annotated[
    bool,
    typer.Option("--json-schema", help="Print the JSON Schema of the lines, and start nothing."),
]


@app.callback()
def testing() -> None:
    """Clusters for tests, in any language."""


@app.command()
def serve(
    context: typer.Context,
    nodes: NodesOption = None,
    classic: ClassicOption = False,
    topic: TopicOption = None,
    settings: SettingsOption = "{}",
    disk_mib: DiskOption = 0,
    directory: DirectoryOption = None,
    json_schema: SchemaOption = False,
) -> None:
    """Have a cluster up until standard input or the parent process ends.

    Prints a line of JSON with its addresses when it is ready. Takes orders, such as
    {"kill_master": {}}, as lines of JSON on standard input, and answers each with a line.
    """
    if json_schema:
        from tandem.testing.serve_protocol import schema

        print_json(schema())
        return
    wanted_settings = _settings(settings)
    if 0 < disk_mib < DISK_MIB_MIN:
        text = f"give {DISK_MIB_MIN} or more, or 0 for none"
        raise typer.BadParameter(text, param_hint="--disk-mib")
    from tandem.testing.parent_process import ParentProcess
    from tandem.testing.serving import ServeOptions, Session, serve

    parent = context.obj or ParentProcess()
    options = ServeOptions(
        kind="classic" if classic else "fenced",
        nodes=nodes or (2 if classic else 3),
        topics=tuple(_topic(text) for text in topic or ()),
        settings=wanted_settings,
        disk_mib=disk_mib,
        directory=directory,
    )
    session = Session(options, 0, 1)

    async def serve_until_stopped() -> list[int]:
        async with stopped_by_signals() as stopped:
            await serve(session, parent)
        return stopped

    if signal.SIGINT in run(serve_until_stopped):
        raise typer.Exit(INTERRUPTED)


def _settings(text: str) -> dict[str, dict[str, Any]]:
    from tandem.wire.untrusted import UnreadableError, decode_json

    try:
        return decode_json(text, dict[str, dict[str, Any]])
    except UnreadableError as error:
        raise typer.BadParameter(
            f"{error}; give sections of a cluster file as JSON", param_hint="--settings"
        ) from error


def _topic(text: str) -> "WantedTopic":
    from tandem.testing.serving import WantedTopic

    name, colon, number = text.partition(":")
    is_number = number.isascii() and number.isdecimal() and len(number) <= 4
    queues = int(number) if is_number else QUEUES_DEFAULT
    if not name or (colon and not is_number) or not 1 <= queues <= QUEUES_MAX:
        raise typer.BadParameter(
            f"give NAME, or NAME:QUEUES with 1 to {QUEUES_MAX} queues, such as Orders:8",
            param_hint="--topic",
        )
    return WantedTopic(name, queues)

"""`tandem cluster`: write a cluster file; start, look at, hurt and stop the nodes of one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tandem.cli.cluster_certificates import certificates
from tandem.cli.cluster_elsewhere import print_status, run_by_themselves
from tandem.cli.cluster_init import init
from tandem.cli.cluster_logs import logs
from tandem.cli.cluster_roll import roll
from tandem.cli.cluster_table import node_facts, nodes_section
from tandem.cli.formats import Format, FormatOption, write, write_one
from tandem.cli.grammar import TandemGroup
from tandem.cli.output import CommandError, ConfigOption, print_json, run, say
from tandem.cli.progress import run_blocking
from tandem.plain_text import plain

if TYPE_CHECKING:
    from tandem.cluster.control import Command, Reply
    from tandem.cluster.errors import NotRunningError
    from tandem.cluster.local_cluster import LocalCluster
    from tandem.cluster.node_lifecycle import NodeStatus
    from tandem.cluster.spec import ClusterSpec

app = typer.Typer(
    cls=TandemGroup,
    help="Start, look at, hurt and stop a cluster on this machine.",
    no_args_is_help=True,
)

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="A node's name, as in the file.")]

_DOING: Final[dict["Command", str]] = {
    "status": "asking the supervisor",
    "down": "stopping all nodes",
    "start": "starting",
    "stop": "stopping",
    "kill": "killing",
    "restart": "restarting",
    "pause": "freezing",
    "resume": "resuming",
}
"""What is said if it takes long."""

app.command()(init)
app.command()(certificates)


@app.command()
def up(
    config: ConfigOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when all nodes serve; keep them up.")
    ] = False,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Start all nodes and keep them up until Ctrl-C.

    `tandem cluster down`, elsewhere, stops them, too.
    """
    from tandem.cluster.detached import up_detached
    from tandem.cluster.spec import config_to_start, read_spec
    from tandem.cluster.supervisor import reply_of, supervise

    spec = read_spec(config or config_to_start())
    is_for_programs = output_format in (Format.JSON, Format.JSONL)
    if not is_for_programs:
        say(f"cluster {spec.name} of {spec.file}")
        say(f"data in {spec.data_directory}, logs in {spec.log_directory}")
    if detach:
        reply = run_blocking("starting the nodes", up_detached, spec)
        _print_reply(reply, spec, output_format)
        if not is_for_programs:
            say(f"up (supervisor {reply.pid}); `tandem cluster down` stops it")
        return

    def ready(cluster: "LocalCluster") -> None:
        _print_reply(reply_of(cluster), spec, output_format)
        if not is_for_programs:
            say("up; Ctrl-C or `tandem cluster down` stops it")

    def changed(node: "NodeStatus") -> None:
        if output_format is Format.JSONL:
            print_json(node)
        elif not is_for_programs:
            _print_change(node)

    async def keep_up() -> None:
        await supervise(spec, ready=ready, observer=changed)

    run(keep_up)


@app.command()
def down(config: ConfigOption = None, output_format: FormatOption = Format.TABLE) -> None:
    """Stop all nodes of the cluster, and its supervisor."""
    _order("down", None, config, output_format)


@app.command()
def status(config: ConfigOption = None, output_format: FormatOption = Format.TABLE) -> None:
    """Show every node: role, state, process, address, disk.

    Nodes that run by themselves, here or on other machines, are asked; what is not known of them
    is left out. Epochs, lag and the in-sync set are in `tandem ha status`.
    """
    from tandem.cluster.errors import NotRunningError
    from tandem.cluster.spec import default_config

    file = config or default_config()
    try:
        reply = _send("status", None, file)
    except NotRunningError:
        spec = _spec_of(file)
        if spec is None or not run_by_themselves(spec):
            raise
        print_status(spec, output_format)
        return
    _print_reply(reply, _spec_of(file), output_format)
    if output_format is Format.TABLE:
        say(f"supervisor {reply.pid}")


@app.command()
def credentials(config: ConfigOption = None, output_format: FormatOption = Format.TEXT) -> None:
    """Print tools.yml, for RocketMQ's tools.

    They need it to change routes and topics of the system.
    """
    from tandem.cluster.spec import default_config, read_spec
    from tandem.wire.secret_keys import OPERATOR_ACCESS_KEY, operator_secret_key

    secret = read_spec(config or default_config()).read_secret()
    keys = {"accessKey": OPERATOR_ACCESS_KEY, "secretKey": operator_secret_key(secret)}
    if output_format is Format.TEXT:
        for name, value in keys.items():  # as in the file
            typer.echo(f"{name}: {value}")
    else:
        write_one(output_format, keys, keys)


@app.command()
def kill(
    node: NodeArgument, config: ConfigOption = None, output_format: FormatOption = Format.TABLE
) -> None:
    """End a node with SIGKILL, as a crash would."""
    _order("kill", node, config, output_format)


@app.command()
def restart(
    node: NodeArgument, config: ConfigOption = None, output_format: FormatOption = Format.TABLE
) -> None:
    """Stop a node if it runs, start it, and wait until it serves."""
    _order("restart", node, config, output_format)


@app.command()
def stop(
    node: NodeArgument, config: ConfigOption = None, output_format: FormatOption = Format.TABLE
) -> None:
    """Stop a node in an orderly way."""
    _order("stop", node, config, output_format)


@app.command()
def start(
    node: Annotated[
        str | None, typer.Argument(metavar="[NODE]", help="All that do not run, if left out.")
    ] = None,
    config: ConfigOption = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Start a node, or all that do not run; wait until they serve.

    The cluster has to be up.
    """
    _order("start", node, config, output_format)


@app.command()
def pause(
    node: NodeArgument, config: ConfigOption = None, output_format: FormatOption = Format.TABLE
) -> None:
    """Freeze a node: its connections stay open and silent."""
    _order("pause", node, config, output_format)


@app.command()
def resume(
    node: NodeArgument, config: ConfigOption = None, output_format: FormatOption = Format.TABLE
) -> None:
    """Let a frozen node go on."""
    _order("resume", node, config, output_format)


app.command()(logs)
app.command()(roll)


def _order(
    command: "Command", node: str | None, config: Path | None, output_format: Format
) -> None:
    """Have something done, and print how the nodes are after it."""
    from tandem.cluster.spec import default_config

    file = config or default_config()
    _print_reply(_send(command, node, file), _spec_of(file), output_format)


def _send(command: "Command", node: str | None, file: Path) -> "Reply":
    from tandem.cluster.control import Request, send_request
    from tandem.cluster.errors import NotRunningError

    if not file.exists():
        raise CommandError(
            f"{file} is not there; write it with `tandem cluster init {file}`, or name another"
            " with --config",
            2,
        )
    doing = f"{_DOING[command]} {node}" if node else _DOING[command]
    try:
        return run_blocking(doing, send_request, file, Request(command, node))
    except NotRunningError as error:
        raise _not_up(file, error) from None


def _not_up(file: Path, error: "NotRunningError") -> "NotRunningError":
    """Say also what runs there without a supervisor, unless the file cannot be read."""
    from tandem.cluster.owners import not_up
    from tandem.cluster.spec import read_spec
    from tandem.cluster_file.errors import ClusterError

    try:
        return not_up(read_spec(file))
    except ClusterError:
        return error


def _spec_of(file: Path) -> "ClusterSpec | None":
    """The cluster file, unless it was spoilt while its cluster is up: that is no reason to fail."""
    from tandem.cluster.spec import read_spec
    from tandem.cluster_file.errors import ClusterError

    try:
        return read_spec(file)
    except ClusterError as error:
        typer.secho(
            f"the file has changed since the cluster was started, and cannot be read: {error}",
            err=True,
            fg=typer.colors.YELLOW,
        )
        return None


def _print_change(node: "NodeStatus") -> None:
    pid = f" pid {node.pid}" if node.pid else ""
    say(f"{node.name} {node.state.value}{pid} {node.last_exit}".rstrip())


def _print_reply(reply: "Reply", spec: "ClusterSpec | None", output_format: Format) -> None:
    facts = node_facts(reply.nodes, spec)
    document: dict[str, Any] = {
        "supervisor_pid": reply.pid,
        "coordinator_trouble": reply.coordinator_trouble,
        "coordinator_last_end": reply.coordinator_last_end,
        "nodes": facts,
    }
    write(output_format, nodes_section(facts), document=document)
    if reply.coordinator_trouble and output_format is not Format.JSON:
        typer.secho(
            "the coordinator does not say who is master:"
            f" {plain(reply.coordinator_trouble)}; see `tandem ha status`",
            err=True,
            fg=typer.colors.RED,
        )
    elif reply.coordinator_last_end and output_format is not Format.JSON:
        typer.secho(
            "the coordinator has ended and was started again:"
            f" {plain(reply.coordinator_last_end)}; look after that disk",
            err=True,
            fg=typer.colors.YELLOW,
        )

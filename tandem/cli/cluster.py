"""`tandem cluster`: start, look at, hurt and stop the nodes of a cluster file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandem.cli.grammar import TandemGroup
from tandem.cli.output import ConfigOption, run, say, shown, stdout
from tandem.cli.output import table as new_table

if TYPE_CHECKING:
    from tandem.cluster.control import Command, Reply
    from tandem.cluster.local_cluster import LocalCluster
    from tandem.cluster.node_lifecycle import NodeStatus

app = typer.Typer(
    cls=TandemGroup, help="Start, look at, hurt and stop a local cluster.", no_args_is_help=True
)

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="A node's name, as in the file.")]

_STYLES = {"RUNNING": "green", "FAILED": "bold red", "PAUSED": "magenta"}


@app.command()
def up(
    config: ConfigOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when all nodes serve; keep them up.")
    ] = False,
) -> None:
    """Start all nodes of the cluster and keep them up until Ctrl-C or `tandem cluster down`."""
    from tandem.cluster.detached import up_detached
    from tandem.cluster.spec import config_to_start, read_spec
    from tandem.cluster.supervisor import reply_of, supervise

    spec = read_spec(config or config_to_start())
    console = stdout()
    say(f"cluster {spec.name} of {spec.file}")
    say(f"data in {spec.data_directory}, logs in {spec.log_directory}")
    if detach:
        reply = up_detached(spec)
        _print_reply(reply)
        console.print(f"up (supervisor {reply.pid}); `tandem cluster down` stops it")
        return

    def ready(cluster: "LocalCluster") -> None:
        _print_reply(reply_of(cluster))
        console.print("up; Ctrl-C or `tandem cluster down` stops it")

    async def keep_up() -> None:
        await supervise(spec, ready=ready, observer=_print_change)

    run(keep_up)


@app.command()
def down(config: ConfigOption = None) -> None:
    """Stop all nodes of the cluster, and its supervisor."""
    reply = _send("down", None, config)
    _print_table(reply.nodes)


@app.command()
def status(config: ConfigOption = None) -> None:
    """Show the state of every node."""
    reply = _send("status", None, config)
    _print_reply(reply)
    stdout().print(f"supervisor {reply.pid}")


@app.command()
def credentials(config: ConfigOption = None) -> None:
    """Print what RocketMQ's tools need to change routes and topics of the system: tools.yml."""
    from tandem.cluster.spec import config_to_start
    from tandem.cluster_file.load import load_config
    from tandem.wire.secret_keys import OPERATOR_ACCESS_KEY, operator_secret_key

    secret = load_config(config or config_to_start()).secret
    console = stdout()
    console.print(f"accessKey: {OPERATOR_ACCESS_KEY}", highlight=False)
    console.print(f"secretKey: {operator_secret_key(secret)}", highlight=False, soft_wrap=True)


@app.command()
def kill(node: NodeArgument, config: ConfigOption = None) -> None:
    """End a node with SIGKILL, as a crash would."""
    _print_table(_send("kill", node, config).nodes)


@app.command()
def restart(node: NodeArgument, config: ConfigOption = None) -> None:
    """Stop a node if it runs, start it, and wait until it serves."""
    _print_table(_send("restart", node, config).nodes)


@app.command()
def stop(node: NodeArgument, config: ConfigOption = None) -> None:
    """Stop a node in an orderly way."""
    _print_table(_send("stop", node, config).nodes)


@app.command()
def start(
    node: Annotated[
        str | None, typer.Argument(metavar="[NODE]", help="All that do not run, if left out.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Start a node of a cluster that is up, and wait until it serves."""
    _print_table(_send("start", node, config).nodes)


@app.command()
def pause(node: NodeArgument, config: ConfigOption = None) -> None:
    """Freeze a node: its connections stay open and silent."""
    _print_table(_send("pause", node, config).nodes)


@app.command()
def resume(node: NodeArgument, config: ConfigOption = None) -> None:
    """Let a frozen node go on."""
    _print_table(_send("resume", node, config).nodes)


def _send(command: "Command", node: str | None, config: Path | None) -> "Reply":
    from tandem.cluster.control import Request, send_request
    from tandem.cluster.spec import default_config

    return send_request(config or default_config(), Request(command, node))


def _print_change(node: "NodeStatus") -> None:
    style = _STYLES.get(node.state.value, "yellow")
    pid = f" pid {node.pid}" if node.pid else ""
    end = shown(node.last_exit)
    stdout().print(f"{node.name} [{style}]{node.state.value}[/]{pid} {end}".rstrip())


def _print_reply(reply: "Reply") -> None:

    _print_table(reply.nodes)
    if reply.coordinator_trouble:
        stdout().print(
            "[bold red]the coordinator does not say who is master[/]:"
            f" {shown(reply.coordinator_trouble)}"
        )


def _print_table(nodes: "list[NodeStatus]") -> None:
    table = new_table("node", "role", "address", "state", "pid", "starts", "last exit")
    for node in nodes:
        style = _STYLES.get(node.state.value, "yellow")
        table.add_row(
            node.name,
            node.role,
            node.address,
            f"[{style}]{node.state.value}[/]",
            str(node.pid or ""),
            str(node.starts_count),
            shown(node.last_exit),
        )
    stdout().print(table)

"""The commands of `tandem`. How one of them ends: `tandem.cli.command_end`."""

from typing import Annotated

import typer

import tandem
from tandem.cli import (
    acl,
    archive,
    cluster,
    config,
    console,
    consume,
    drill,
    group,
    ha,
    log,
    message,
    node,
    pipeline,
    produce,
    shadow,
    testing,
    topic,
    user,
    user_quota,
    why,
)
from tandem.cli.command_end import run_app
from tandem.cli.grammar import TandemGroup
from tandem.cli.output import say

app = typer.Typer(
    name="tandem",
    cls=TandemGroup,
    help="TandemMQ: a replicated message log. Start a cluster, use it, break it, audit it.",
    epilog="Exit status: 0 done; 1 refused, failed, or a check has found something;"
    " 2 the command line or the cluster file is wrong; 130 Ctrl-C.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        say(f"tandem {tandem.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    """TandemMQ: a replicated message log. Start a cluster, use it, break it, audit it."""


app.add_typer(cluster.app, name="cluster")
app.add_typer(node.app, name="node")
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
user.app.command()(user_quota.quota)
app.add_typer(user.app, name="user")
app.add_typer(acl.app, name="acl")
app.add_typer(message.app, name="message")
app.add_typer(config.app, name="config")
app.add_typer(ha.app, name="ha")
app.add_typer(log.app, name="log")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(testing.app, name="testing")
app.add_typer(archive.app, name="archive")
app.command()(produce.produce)
app.command()(consume.consume)
app.command()(why.why)
app.command()(drill.drill)
app.command()(console.console)
app.command()(shadow.shadow)


def run_command_line() -> int:
    """Run what the arguments of this process say; return the exit status."""
    return run_app(app)

"""The `tandem` command.

Exit status: 0 done, 1 something failed, 2 the command line or the cluster file is wrong, 130
Ctrl-C. An error that a person can act on is one line on standard error; a traceback is a bug of
ours.
"""

import sys

import typer

from tandem.cli import cluster, consume, drill, ha, log, produce, topic
from tandem.cli.output import exit_status, expected_errors, say_error

app = typer.Typer(
    name="tandem",
    help="TandemMQ: a replicated message log. Start a cluster, break it, audit it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(cluster.app, name="cluster")
app.add_typer(topic.app, name="topic")
app.add_typer(ha.app, name="ha")
app.add_typer(log.app, name="log")
app.command()(produce.produce)
app.command()(consume.consume)
app.command()(drill.drill)


def main() -> None:
    """Run the command line; does not return."""
    try:
        app(prog_name="tandem")
    except expected_errors() as error:
        say_error(str(error))
        sys.exit(exit_status(error))

"""The commands of `tandem`, and how one of them ends: by which status, with which words."""

import io
import logging
import os
import sys
from typing import Annotated, Final

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
from tandem.cli.grammar import TandemGroup
from tandem.cli.interrupts import INTERRUPTED, interrupts_raised
from tandem.cli.output import (
    exit_status,
    expected_errors,
    say,
    say_error,
    words_of,
    words_of_system,
)
from tandem.plain_text import one_line, plain

_OF_THE_DRILL: Final = ("jinja2", "matplotlib", "pyarrow")
"""Packages that only an extra installs."""

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
    _prepare_streams()
    return _status()


def _status() -> int:
    try:
        status = _run_app()
        # Here, where a full disk or a reader that went away can still be answered.
        sys.stdout.flush()
    except BrokenPipeError:
        return _end_quietly()
    except OSError as error:
        say_error(words_of_system(error))
        # The rest of the buffer cannot be written either.
        return _end_quietly()
    return status


def _run_app() -> int:
    try:
        with interrupts_raised():
            app(prog_name="tandem")
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except expected_errors() as error:  # loads what it names, so not before it has to
        say_error(words_of(error))
        return exit_status(error)
    except ModuleNotFoundError as error:
        if error.name not in _OF_THE_DRILL:
            raise  # a bug of ours
        say_error(f"the Python package {error.name} is missing: pip install 'tandem-mq[drill]'")
        return 2  # as a drill says that it could not be run
    except UnicodeEncodeError as error:
        say_error(f"{error.object[:100]!r} cannot be sent or looked for: it is not UTF-8")
        return 2
    except MemoryError:
        say_error("out of memory; ask for less at a time, or end other programs")
        return 1
    raise AssertionError("typer ends with an exception")


def _prepare_streams() -> None:
    """Let no text of others fail to be printed, and no file take the place of a closed stream."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    logging.lastResort = _LastResort(logging.WARNING)


class _LastResort(logging.Handler):
    """Says what is logged in a command: one line; of a bug of ours the traceback, too."""

    def emit(self, record: logging.LogRecord) -> None:
        lines = [plain(record.getMessage())]
        if record.exc_info:
            lines += logging.Formatter().formatException(record.exc_info).split("\n")
        typer.echo("\n".join(map(one_line, lines)), err=True)


def _end_quietly() -> int:
    """Have nothing left to write, so that the interpreter does not fail at it either."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    return 1

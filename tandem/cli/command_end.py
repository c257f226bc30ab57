"""How a command of `tandem` ends: by which status, with which words."""

import io
import logging
import os
import sys
from collections.abc import Callable
from typing import Final

import typer

from tandem.cli.interrupts import INTERRUPTED, interrupts_raised
from tandem.cli.output import (
    exit_status,
    expected_errors,
    say_error,
    words_of,
    words_of_system,
)
from tandem.plain_text import one_line, plain

_OF_THE_DRILL: Final = ("jinja2", "matplotlib", "pyarrow")
"""Packages that only an extra installs."""


def run_app(app: Callable[..., object]) -> int:
    """Run what the arguments of this process say; return the exit status."""
    _prepare_streams()
    return status_of(app)


def status_of(app: Callable[..., object]) -> int:
    """Run an app, and say what has failed; return the exit status."""
    try:
        status = _run(app)
        # Here, where a full disk or a reader that went away can still be answered.
        sys.stdout.flush()
    except BrokenPipeError:
        return _end_quietly()
    except OSError as error:
        say_error(words_of_system(error))
        # The rest of the buffer cannot be written either.
        return _end_quietly()
    return status


def _run(app: Callable[..., object]) -> int:
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

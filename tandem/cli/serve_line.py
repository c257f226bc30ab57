"""`tandem testing serve` alone: a test waits for it, and other commands import a lot."""

from functools import partial
from typing import TYPE_CHECKING

import typer

from tandem.cli import testing
from tandem.cli.command_end import run_app
from tandem.cli.grammar import TandemGroup

if TYPE_CHECKING:
    from tandem.testing.parent_process import ParentProcess

app = typer.Typer(
    name="tandem",
    cls=TandemGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.add_typer(testing.app, name="testing")


def run_serve_line(parent: "ParentProcess") -> int:
    """Run what the arguments of this process say, for this parent; return the exit status."""
    return run_app(partial(app, obj=parent))

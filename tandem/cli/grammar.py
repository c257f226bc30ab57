"""The grammar of the command line: `tandem NOUN VERB`, and what is said of a line that breaks it.

A usage error is the lines of an `error: ` like every other, with the nearest command that there is.
Help has frames and colours on a terminal, and is plain text elsewhere.
"""

import sys
from collections.abc import Sequence
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from tandem.cli.output import FAILED, is_for_people, say_error

NOUNS: Final = (
    "cluster",
    "node",
    "topic",
    "group",
    "user",
    "acl",
    "produce",
    "consume",
    "message",
    "why",
    "console",
    "config",
    "ha",
    "log",
    "pipeline",
    "archive",
    "drill",
    "testing",
    "shadow",
)
"""What `tandem --help` lists, in this order."""


class TandemGroup(TyperGroup):
    """A noun, or all of them: says what is wrong with a line in our words."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - as in Typer
        """Return the verbs in the order in which they were written, nouns in that of `NOUNS`."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: NOUNS.index(name) if name in NOUNS else -1)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,  # noqa: ANN401 - as in Typer
    ) -> Any:  # noqa: ANN401 - as in Typer
        """Run a command line and end the process; return its status if not `standalone_mode`.

        Raises:
            SystemExit: With the status.
        """
        if not is_for_people():
            _use_plain_help(self)
        try:
            status = super().main(
                args,
                prog_name,
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
        except typer.TyperException as error:
            if not standalone_mode:
                raise
            _say_usage(error)
            sys.exit(error.exit_code)
        except typer.Abort:
            if not standalone_mode:
                raise
            say_error("no answer to the question; nothing was done")
            sys.exit(FAILED)
        status = status if isinstance(status, int) else 0
        if standalone_mode:
            sys.exit(status)
        return status


def _use_plain_help(command: object) -> None:
    if isinstance(command, TyperGroup | TyperCommand):
        command.rich_markup_mode = None
    if isinstance(command, TyperGroup):
        for each in command.commands.values():
            _use_plain_help(each)


def _say_usage(error: typer.TyperException) -> None:
    if type(error).__name__ == "NoArgsIsHelpError":
        # A noun without a verb: what there is, and no error in words. On a terminal it is said.
        if error.message:
            typer.echo(error.message, err=True)
        return
    context = getattr(error, "ctx", None)
    hint = f"\ntry `{context.command_path} --help`" if context is not None else ""
    say_error(error.format_message().replace("Value error, ", "", 1) + hint)

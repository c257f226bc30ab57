"""What the nouns share that ask brokers: whom, with which secret, and what people are asked."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tandem.cli.output import WRONG_USAGE, CommandError, access_of
from tandem.cli.progress import run_with_progress

if TYPE_CHECKING:
    from tandem.client import Admin

T = TypeVar("T")

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether to do it.")]


def ask(
    what: str,
    question: "Callable[[Admin], Awaitable[T]]",
    name_server: list[str] | None,
    config: Path | None,
) -> T:
    """Ask the brokers of a cluster; say so if it takes time. With its secret, if it is known.

    Raises:
        ClientError: As the question.
        ClusterConfigError: The cluster file is wrong or missing.
    """
    access = access_of(name_server, config, with_secret=True)

    async def asked() -> T:
        from tandem.client import Admin

        async with Admin(access) as admin:
            return await question(admin)

    return run_with_progress(what, asked)


def confirm(words: str, *, yes: bool) -> None:
    """Ask a person whether to do it. Where nobody can answer, --yes is needed.

    Raises:
        CommandError: Nobody can be asked.
        typer.Abort: The answer is no.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError(f"{words} Nobody can be asked here: add --yes to do it", WRONG_USAGE)
    typer.confirm(words, abort=True)

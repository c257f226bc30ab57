"""What all commands share: where words go, how numbers look, how errors end a command."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar, TypeVarTuple

import typer

if TYPE_CHECKING:
    from rich.console import Console

ReturnT = TypeVar("ReturnT")
ArgumentTs = TypeVarTuple("ArgumentTs")

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The cluster file; ./cluster.yaml if there is one, else the example.",
        show_default=False,
    ),
]

NameServersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--name-server",
        "-n",
        metavar="HOST:PORT",
        help="Ask these instead of the nodes of the cluster file. Repeat it, for all of them.",
        show_default=False,
    ),
]

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


def expected_errors() -> tuple[type[Exception], ...]:
    """The errors whose text is for the user. Imported here, where one has already happened."""
    from tandem.client.errors import ClientError
    from tandem.cluster_file.errors import ClusterError
    from tandem.drill.errors import DrillError

    return (ClusterError, ClientError, DrillError)


def exit_status(error: Exception) -> int:
    """2 if what the user wrote is wrong, 1 for the rest."""
    from tandem.cluster_file.errors import ClusterConfigError, UnknownNodeError
    from tandem.drill.errors import BadOptionsError

    return 2 if isinstance(error, (ClusterConfigError, UnknownNodeError, BadOptionsError)) else 1


def say_error(text: str) -> None:
    """Write an error to standard error; the lines of a long one stay together."""
    typer.secho(f"error: {text}", err=True, fg=typer.colors.RED)


def stdout() -> "Console":
    """Standard output for people: tables, colours on a terminal. Never wraps in a pipe."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)


def stderr() -> "Console":
    """Standard error for people: progress, and words that are not the result."""
    from rich.console import Console

    return Console(highlight=False, stderr=True)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error while it is a terminal; gives what to call with done and total."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = stderr()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def human_bytes(count: int) -> str:
    """A size for people: "0 B", "312.0 MiB"."""
    if abs(count) < 1024:
        return f"{count} B"
    size = float(count)
    for unit in _UNITS:
        size /= 1024
        if abs(size) < 1024 or unit == _UNITS[-1]:
            break
    return f"{size:.1f} {unit}"


def name_servers_of(name_servers: list[str] | None, config: Path | None) -> list[str]:
    """Whom to ask: what the user named, else every node of the cluster file.

    Raises:
        ClusterConfigError: The file is wrong or missing.
    """
    if name_servers:
        return name_servers
    from tandem.cluster.spec import default_config, read_spec

    return read_spec(config or default_config()).name_servers


def secret_of(config: Path | None) -> str:
    """The secret of the cluster, if this user may read it; "" is enough for all but orders.

    Raises:
        ClusterConfigError: The cluster file is wrong or missing.
    """
    from tandem.cluster.spec import default_config, read_spec
    from tandem.cluster_file.secret_file import SecretFileError

    spec = read_spec(config or default_config())
    try:
        return spec.read_secret()
    except SecretFileError:
        return ""


def run(function: Callable[[*ArgumentTs], Awaitable[ReturnT]], *arguments: *ArgumentTs) -> ReturnT:
    """`trio.run`, with the one error that matters in place of the groups around it.

    Raises:
        KeyboardInterrupt: Ctrl-C, even if other errors came with it.
    """
    import trio

    try:
        return trio.run(function, *arguments)
    except BaseExceptionGroup as group:
        errors = _leaves(group)
        interrupts = (error for error in errors if isinstance(error, KeyboardInterrupt))
        expected = (error for error in errors if isinstance(error, expected_errors()))
        chosen = next(interrupts, None) or next(expected, None)
        if chosen is None:
            raise
        raise chosen from group


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for member in error.exceptions for leaf in _leaves(member)]
    return [error]

"""What a command says on standard error while it takes its time: nothing before two seconds.

On a terminal that is a line that moves, elsewhere a line every few seconds. Standard output has
results only.
"""

import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeVar, TypeVarTuple

import typer

from tandem.cli.output import human_bytes, is_for_people, run, shown, stderr
from tandem.plain_text import one_line

ReturnT = TypeVar("ReturnT")
ArgumentTs = TypeVarTuple("ArgumentTs")

QUIET_SECONDS: Final = 2.0
"""What is over by then needs no words."""

LINE_SECONDS: Final = 5.0
"""From one line to the next where there is no terminal."""

FRAME_SECONDS: Final = 0.25

OnProgress = Callable[[int, int], None]
"""Called with how much is done, and how much there is."""


def run_with_progress(
    what: str,
    function: Callable[[*ArgumentTs], Awaitable[ReturnT]],
    *arguments: *ArgumentTs,
) -> ReturnT:
    """`run`, which says what it is waiting for: "asking the brokers"."""

    async def shown_function() -> ReturnT:
        async with working(what):
            return await function(*arguments)

    return run(shown_function)


def run_blocking(
    what: str, function: Callable[[*ArgumentTs], ReturnT], *arguments: *ArgumentTs
) -> ReturnT:
    """Call plain code that takes its time, in a thread; Ctrl-C leaves it there."""
    import trio

    async def in_thread() -> ReturnT:
        return await trio.to_thread.run_sync(function, *arguments, abandon_on_cancel=True)

    return run_with_progress(what, in_thread)


@asynccontextmanager
async def working(what: str) -> AsyncIterator[Callable[[str], None]]:
    """Say on standard error that this is being done. Gives what to call with news of it.

    The news take the place of one another: "3 of 12 queues".
    """
    import trio

    news = [""]

    def text() -> str:
        return f"{what}: {news[0]}" if news[0] else what

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_say_in_time, text)
        yield lambda words: news.__setitem__(0, words)
        nursery.cancel_scope.cancel()


async def _say_in_time(text: Callable[[], str]) -> None:
    import trio

    began = trio.current_time()
    await trio.sleep(QUIET_SECONDS)
    if is_for_people(sys.stderr):
        with stderr().status(shown(text())) as status:
            while True:
                seconds = trio.current_time() - began
                status.update(f"{shown(text())} [dim]{seconds:.0f} s[/]")
                await trio.sleep(FRAME_SECONDS)
    while True:
        seconds = trio.current_time() - began
        typer.echo(f"{one_line(text())}, {seconds:.0f} s", err=True)
        await trio.sleep(LINE_SECONDS)


@contextmanager
def progress(what: str) -> Iterator[OnProgress]:
    """Show how many bytes of how many are done; gives what to call with both."""
    if not is_for_people(sys.stderr):
        yield _lines(what)
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(*columns, TimeRemainingColumn(), console=stderr(), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(what: str, clock: Callable[[], float] = time.monotonic) -> OnProgress:
    """Return what writes a line now and then."""
    next_at = clock() + QUIET_SECONDS

    def say_in_time(done: int, total: int) -> None:
        nonlocal next_at
        if clock() < next_at:
            return
        next_at = clock() + LINE_SECONDS
        typer.echo(f"{what}: {human_bytes(done)} of {human_bytes(total)}", err=True)

    return say_in_time

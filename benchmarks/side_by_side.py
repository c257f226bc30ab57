"""Loads on two servers, and a line of a table for what came of them."""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.pipelined import Answered, Load, LoadError, cpu_of, cpu_seconds
from benchmarks.rivals import Server, pause

FAILURES_MAX: Final = 2
SETTLE_SECONDS: Final = 0.2
SETTLE_SECONDS_MAX: Final = 3.0
IDLE_SHARE: Final = 0.3
"""Of a core, by all processes of a server together: what Java takes for nothing is less."""

Loads = defaultdict[tuple[str, str], list[Load]]
"""By the name of the row and of the server."""


def again(what: str, load: Callable[[], Load]) -> Load:
    """Run a load; say so and do it again if it fails, twice at the most."""
    for _ in range(FAILURES_MAX):
        try:
            return load()
        except (LoadError, OSError) as error:
            say(f"{what} failed, once more: {error}")
            pause(1)
    return load()


def measured(server: Server, load: Callable[[], Answered], client_pid: int | None = None) -> Load:
    """Run a load and let the server finish what it has put off: that belongs to the messages, too.

    `client_pid` is the process that makes the load, if that is not this one.
    """
    own = () if client_pid else ("load",)
    clients = {"load": client_pid} if client_pid else {}
    before = cpu_of(server.pids | clients, own)
    answered = load()
    of_load = cpu_of(clients, own)
    settle(server)
    after = cpu_of(server.pids, ()) | of_load
    cpu = {name: (after[name] - before[name]) / answered.messages_in_all for name in after}
    rate = answered.messages / answered.seconds
    return Load(rate, {name: used * 1e6 for name, used in cpu.items()})


def settle(server: Server) -> None:
    """Wait until a server has little to do: queues, index, the next file."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    now = _used(server)
    while time.monotonic() < deadline:
        pause(SETTLE_SECONDS)
        before, now = now, _used(server)
        if now - before < SETTLE_SECONDS * IDLE_SHARE:
            return


def _used(server: Server) -> float:
    return sum(map(cpu_seconds, server.pids.values()))


def say(words: str) -> None:
    """Tell how far it is, beside the table."""
    print(words, file=sys.stderr, flush=True)


def head_of(rival: str) -> tuple[str, ...]:
    """Return the head of the table."""
    cpu = "CPU us a message"
    rates = ("ours, messages/s", f"{rival}, messages/s", f"ours : {rival}")
    return ("", *rates, f"ours, {cpu}", f"{rival}, {cpu}")


def line_of(what: str, ours: Sequence[Load], theirs: Sequence[Load]) -> tuple[str, ...]:
    """Return a line of the table."""
    ratio = median_rate(ours) / median_rate(theirs)
    rates = (shown_rate(ours), shown_rate(theirs), f"{ratio:.2f}")
    return (what, *rates, shown_cpu(ours), shown_cpu(theirs))


def median_rate(loads: Sequence[Load]) -> float:
    """Return the middle one."""
    return statistics.median(load.rate for load in loads)


def shown_rate(loads: Sequence[Load]) -> str:
    """Return the median and its range."""
    rates = sorted(load.rate for load in loads)
    return f"{statistics.median(rates):,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f})"


def shown_cpu(loads: Sequence[Load]) -> str:
    """Return what a message took in each process."""
    medians = {
        name: statistics.median(load.cpu_us[name] for load in loads) for name in loads[0].cpu_us
    }
    return ", ".join(f"{name} {used:.1f}" for name, used in medians.items())


def print_table(head: Sequence[str], lines: Sequence[Sequence[str]], *, markdown: bool) -> None:
    """Print it for people, or for a page."""
    if markdown:
        print("| " + " | ".join(head) + " |")
        print("|" + " --- |" * len(head))
        for line in lines:
            print("| " + " | ".join(line) + " |")
        return
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    for line in (head, *lines):
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )

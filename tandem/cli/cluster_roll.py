"""`tandem cluster roll`: restart all nodes, one after the other, while the groups take messages.

A node counts as restarted when another process of it is registered and, with all others, in sync:
only then comes the next one. A master is relieved first. Who restarts a node is its supervisor, or
a command that the operator names: nothing here knows how other machines are reached.
"""

import enum
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tandem.cli.formats import Column, Format, FormatOption, Section, write
from tandem.cli.output import (
    WRONG_USAGE,
    CommandError,
    ConfigOption,
    access_of_spec,
    finite,
    say,
)
from tandem.cli.progress import run_with_progress
from tandem.plain_text import plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tandem.client import Admin
    from tandem.cluster.spec import ClusterSpec
    from tandem.views.cluster_look import ClusterLook
    from tandem.views.fenced_group import FencedGroup
    from tandem.views.restart_order import Restart

UNIT: Final = "tandem@{node}"
"""The systemd unit of a node, as `tandem node unit` has it."""

LOOK_SECONDS: Final = 0.5
"""Between two looks at a node that comes back."""

WAIT_SECONDS_DEFAULT: Final = 600.0
"""A node that was away for long has much to copy."""


class Halt(enum.Enum):
    """Why a roll ends before its end. Nodes that come after are left as they are."""

    NOT_WELL = enum.auto()
    """A node is away or behind, or a group takes no messages, before anything is done."""
    NO_SUCCESSOR = enum.auto()
    NOT_RESTARTED = enum.auto()
    """The operator's command has failed."""
    NOT_WHOLE = enum.auto()
    """The node is not in sync again in time, or no other process of it has come."""


class RollError(CommandError):
    """A roll has ended before its end; `halt` says why."""

    def __init__(self, halt: Halt, text: str) -> None:
        super().__init__(text)
        self.halt = halt


ByOption = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="COMMAND",
        help="What restarts a node that runs by itself; {node} and {address} are put into it, as in"
        " 'ssh {address} systemctl restart tandem@{node}'.",
        show_default=False,
    ),
]
WaitOption = Annotated[
    float,
    typer.Option(
        "--wait",
        min=1.0,
        max=86_400,
        callback=finite,
        help="Seconds to wait for a node to be in sync again.",
    ),
]


def roll(
    nodes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NODE]...", help="Only these; all, if left out."),
    ] = None,
    by: ByOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say in which order, and how.")
    ] = False,
    wait: WaitOption = WAIT_SECONDS_DEFAULT,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Restart the nodes one after the other, the master of each group last.

    It is refused unless all is well, and ends at the first node that is not in sync again in time.
    Nodes that run by themselves need --by; without it the order is said, and nothing is done.
    """
    from tandem.cluster.spec import default_config, read_spec

    spec = read_spec(config or default_config())
    has_supervisor = by is None and _has_supervisor(spec)
    steps = run_with_progress("asking all nodes", _plan, spec, nodes or [])
    if dry_run or not (has_supervisor or by):
        _print_plan(steps, by, output_format, has_supervisor=has_supervisor)
        if not dry_run:
            say("nothing was done: no supervisor has these nodes, and no --by says how")
        return
    restart = _by_supervisor(spec.file) if has_supervisor else by_command(by or "")
    done: list[Restart] = []
    for step in steps:
        run_with_progress(f"restarting {step.node}", _restart, spec, step, restart, wait)
        done.append(step)
        if output_format is Format.TABLE:
            say(f"{step.node} was restarted, and {step.group} is whole")
    if output_format is not Format.TABLE:
        write(output_format, Section(done, _columns(by, has_supervisor=has_supervisor)))


def restart_line(by: str, step: "Restart") -> str:
    """Put a node into an operator's command. Names and addresses are quoted for the shell."""
    host = step.address.rpartition(":")[0]
    return by.replace("{node}", quote(step.node)).replace("{address}", quote(host))


def _print_plan(
    steps: "list[Restart]", by: str | None, output_format: Format, *, has_supervisor: bool
) -> None:
    write(output_format, Section(steps, _columns(by, has_supervisor=has_supervisor)))


def _columns(by: str | None, *, has_supervisor: bool) -> "list[Column[Restart]]":
    how = "tandem cluster restart {node}" if has_supervisor else f"systemctl restart {UNIT}"
    return [
        Column("node", lambda each: each.node),
        Column("group", lambda each: each.group),
        Column("role", lambda each: each.role),
        Column("first", _first, folds_at=" "),
        Column("then", lambda each: restart_line(by or how, each), folds_at=" "),
    ]


def _first(step: "Restart") -> str | None:
    if step.successor:
        return f"tandem ha promote {step.successor}"
    return "its group takes no messages meanwhile" if step.stops_group else None


def _has_supervisor(spec: "ClusterSpec") -> bool:
    from tandem.cluster.supervisor_lock import supervisor_of

    return supervisor_of(spec.data_directory) is not None


Restarter = Callable[["Restart"], Awaitable[None]]


def _by_supervisor(file: Path) -> Restarter:
    async def restart(step: "Restart") -> None:
        import trio

        from tandem.cluster.control import Request, send_request

        await trio.to_thread.run_sync(send_request, file, Request("restart", step.node))

    return restart


def by_command(by: str) -> Restarter:
    """Return what restarts a node by an operator's command, which has to succeed."""

    async def restart(step: "Restart") -> None:
        import trio

        line = restart_line(by, step)
        done = await trio.run_process(
            ["/bin/sh", "-c", line],
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        if done.returncode:
            words = (done.stderr or done.stdout).decode(errors="backslashreplace").strip()
            raise RollError(
                Halt.NOT_RESTARTED,
                f"`{line}` ended with status {done.returncode}: {plain(words)}; {step.node} and"
                " those after it were left as they are",
            )

    return restart


@asynccontextmanager
async def _asking(
    spec: "ClusterSpec",
) -> "AsyncIterator[tuple[Callable[[], Awaitable[ClusterLook]], dict[str, FencedGroup], Admin]]":
    from tandem.client import Admin
    from tandem.views.classic_nodes import classic_nodes
    from tandem.views.cluster_look import coordinator_of, fenced_groups, look, members_of
    from tandem.views.fenced_group import FencedGroup

    async with Admin(access_of_spec(spec)) as admin, coordinator_of(spec) as coordinator:
        groups = {
            name: FencedGroup(spec.name, name, members_of(spec, name), admin, coordinator)
            for name in fenced_groups(spec)
        }

        async def again() -> "ClusterLook":
            return await look(classic_nodes(spec), admin, list(groups.values()))

        yield again, groups, admin


async def _plan(spec: "ClusterSpec", wanted: list[str]) -> "list[Restart]":
    from tandem.views.cluster_check import check
    from tandem.views.restart_order import restart_order, unknown_nodes

    async with _asking(spec) as (look, _, _):
        seen = await look()
    if unknown := unknown_nodes(seen, wanted):
        raise CommandError(
            f"the cluster file has no node {', '.join(unknown)}; it has"
            f" {', '.join(node.name for node in spec.nodes)}",
            WRONG_USAGE,
        )
    found = check(seen.classic_nodes, seen.groups)
    if found.exit_status:
        raise RollError(
            Halt.NOT_WELL,
            "no node is restarted while one is away or behind, or a group takes no messages:\n"
            + "\n".join(map(plain, found.problems)),
        )
    return restart_order(seen, wanted)


async def _restart(
    spec: "ClusterSpec", step: "Restart", restart: Restarter, wait_seconds: float
) -> None:
    from tandem.client.errors import ClientError

    async with _asking(spec) as (look, groups, admin):

        async def began() -> str:
            try:
                return await admin.began_at(step.address)
            except ClientError:
                return ""

        await restart_one(look, groups.get(step.group), step, restart, wait_seconds, began)


async def _unknown() -> str:
    return ""


async def restart_one(
    look: "Callable[[], Awaitable[ClusterLook]]",
    group: "FencedGroup | None",
    step: "Restart",
    restart: Restarter,
    wait_seconds: float,
    began: Callable[[], Awaitable[str]] = _unknown,
) -> None:
    """Restart one node, and wait until its group is whole with another process of it.

    `group`: None of a classic one, of whose node `began` tells one process from the next.

    Raises:
        CommandError: Nobody takes its place, it was not restarted, or it is not in sync in time.
    """
    if group is not None and step.successor:
        await _relieve(group, step)

    async def process() -> str:
        return await (began() if group is None else _session(group, step.node))

    before = await _named(process, wait_seconds)
    if not before:
        raise RollError(
            Halt.NOT_WELL,
            f"{step.node} is not restarted: nobody says which process of it there is, so the next"
            " one could not be told from it",
        )
    await restart(step)
    await _wait_whole(look, process, step, before, wait_seconds)


async def _relieve(group: "FencedGroup", step: "Restart") -> None:
    from tandem.cli.group_orders import promote

    outcome = await promote(group, step.successor, accept_loss=False, wait_seconds=30.0)
    if outcome.exit_status:
        raise RollError(
            Halt.NO_SUCCESSOR,
            f"{step.node} is not restarted, for nobody takes its place: {plain(outcome.text)}",
        )


async def _named(process: Callable[[], Awaitable[str]], wait_seconds: float) -> str:
    """Return which process of a node there is, "" if nobody says so in time.

    A master that has handed over begins anew as a follower, and is nobody for a moment.
    """
    import trio

    deadline = trio.current_time() + wait_seconds
    while True:
        found = await process()
        if found or trio.current_time() > deadline:
            return found
        await trio.sleep(LOOK_SECONDS)


async def _session(group: "FencedGroup", node: str) -> str:
    """Return what tells the process of a node from the next one; "" if that is not known."""
    records = await group.records()
    record = None if isinstance(records, str) else records.nodes.get(node)
    return record.session if record else ""


async def _wait_whole(
    look: "Callable[[], Awaitable[ClusterLook]]",
    process: Callable[[], Awaitable[str]],
    step: "Restart",
    before: str,
    wait_seconds: float,
) -> None:
    import trio

    from tandem.views.cluster_check import check

    deadline = trio.current_time() + wait_seconds
    while True:
        seen = await look()
        mine = [each for each in seen.groups if each.group == step.group]
        rows = [row for row in seen.classic_nodes if row.group == step.group]
        found = check(rows, mine)
        is_new = await process() not in ("", before)
        if is_new and not found.exit_status:
            return
        if trio.current_time() > deadline:
            why = found.problems or [f"{step.node} has not been started again"]
            raise RollError(
                Halt.NOT_WHOLE,
                f"{step.group} is not whole {wait_seconds:g} s after {step.node} was restarted;"
                " those after it were left as they are:\n" + "\n".join(map(plain, why)),
            )
        await trio.sleep(LOOK_SECONDS)

"""`tandem ha`: what the nodes say about replication, and an operator's orders to them."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tandem.cli.classic_view import classic_section
from tandem.cli.formats import (
    Column,
    Format,
    FormatOption,
    Section,
    section_lines,
    write,
    write_words,
)
from tandem.cli.grammar import TandemGroup
from tandem.cli.output import (
    FAILED,
    ConfigOption,
    access_of_spec,
    finite,
    is_for_people,
    print_lines,
    run,
    say,
    say_error,
    stdout,
    terminal_width,
)
from tandem.cli.progress import run_with_progress
from tandem.plain_text import plain, plain_lines
from tandem.text_table import Line, rich_text
from tandem.views.classic_nodes import NodeReplication, classic_nodes
from tandem.views.cluster_check import check
from tandem.views.group_view import NodeView

if TYPE_CHECKING:
    from tandem.cli.group_orders import Outcome
    from tandem.client import Admin
    from tandem.cluster.spec import ClusterSpec
    from tandem.views.cluster_look import ClusterLook
    from tandem.views.fenced_group import FencedGroup, RecordStore

app = typer.Typer(
    cls=TandemGroup,
    help="What the nodes say about replication, and orders to fenced groups.",
    no_args_is_help=True,
)

WATCH_SECONDS: Final = 1.0

WAIT_SECONDS_DEFAULT: Final = 20.0
"""For the next master: a switch takes up to 8 s with the default lease of 5 s."""

AcceptLossOption = Annotated[
    bool,
    typer.Option("--accept-loss", help="Do it even if acknowledged messages are lost by it."),
]

WaitOption = Annotated[
    float,
    typer.Option(
        "--wait",
        min=0.0,
        max=86_400,
        callback=finite,
        help="Seconds to wait for the next master.",
    ),
]


@app.command()
def status(
    config: ConfigOption = None,
    output_format: FormatOption = Format.TABLE,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Look again every second until Ctrl-C.")
    ] = False,
    is_check: Annotated[
        bool, typer.Option("--check", help="Say for monitoring how all of it is, by exit status.")
    ] = False,
) -> None:
    """Show who has what, who is in sync or why not, and whether messages are taken.

    Asks every node, and the coordinator of fenced groups, so that something is known also while a
    master is down. Exit status 1 if no node answers. With --check also 3 if a group takes no
    messages, and 4 if they are taken but a node is down, behind or damaged.
    """
    from tandem.cluster.spec import default_config, read_spec

    if watch and is_check:
        raise typer.BadParameter("does not go with --watch", param_hint="--check")
    if watch and output_format not in (Format.TABLE, Format.JSONL):
        raise typer.BadParameter("goes with --format table and jsonl", param_hint="--watch")
    spec = read_spec(config or default_config())
    if watch:
        run(_watch, spec, output_format)
    seen = run_with_progress("asking all nodes", _look_once, spec)
    if is_check:
        found = check(seen.classic_nodes, seen.groups)
        write_words(output_format, found, plain_lines(found.words))
        raise typer.Exit(found.exit_status)
    _print(seen, output_format)
    if seen.is_silent:
        raise typer.Exit(1)


@app.command()
def promote(
    node: Annotated[str, typer.Argument(help="The node to be master of its group.")],
    accept_loss: AcceptLossOption = False,
    wait: WaitOption = WAIT_SECONDS_DEFAULT,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Make a node the master of its fenced group, by way of the present one.

    Exit status 0: it is master; 1: refused, another one became it, or nobody could be asked.
    """
    from tandem.cli.group_orders import promote as order

    spec = _spec_of(config)
    group = _fenced_group(spec, spec.node(node).group)
    _carry_out(
        spec,
        group,
        lambda each: order(each, node, accept_loss=accept_loss, wait_seconds=wait),
        output_format,
    )


@app.command()
def resign(
    group: Annotated[
        str, typer.Argument(help="May be left out if there is one fenced group.")
    ] = "",
    accept_loss: AcceptLossOption = False,
    wait: WaitOption = WAIT_SECONDS_DEFAULT,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Let the master of a fenced group step back for another node.

    Exit status 0: there is a new master; 1: refused, or nobody could be asked.
    """
    from tandem.cli.group_orders import resign as order

    spec = _spec_of(config)
    _carry_out(
        spec,
        _fenced_group(spec, group),
        lambda each: order(each, accept_loss=accept_loss, wait_seconds=wait),
        output_format,
    )


@app.command()
def rejoin(
    node: Annotated[str, typer.Argument(help="A node in QUARANTINE, or one with a doubtful copy.")],
    accept_loss: AcceptLossOption = False,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Let a node set its store aside and copy the log of its group anew.

    What it had stays in a directory beside the new store. Exit status 0: it does; 1: refused, or
    it could not be asked.
    """
    from tandem.cli.group_orders import rejoin as order

    spec = _spec_of(config)
    group = _fenced_group(spec, spec.node(node).group)
    _carry_out(spec, group, lambda each: order(each, node, accept_loss=accept_loss), output_format)


@app.command()
def scrub(
    node: Annotated[str, typer.Argument(help="A node of a fenced group.")],
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Have a node look whether its log is as it was written; what is not, it gets from others.

    It goes on serving meanwhile. `tandem ha status` says how far it is, and what was found. Exit
    status 0: it has begun; 1: it could not be asked.
    """
    from tandem.cli.group_orders import scrub as order

    spec = _spec_of(config)
    group = _fenced_group(spec, spec.node(node).group)
    _carry_out(spec, group, lambda each: order(each, node), output_format)


@app.command()
def features(
    group: Annotated[str, typer.Argument(help="All fenced groups if left out.")] = "",
    config: ConfigOption = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Show each member's version and feature levels, and what keeps the group at its level.

    Exit status 1 if no node answers.
    """
    from tandem.cli.features_view import features_of, features_section, headline

    spec = _spec_of(config)
    names = {_fenced_group(spec, group)} if group else None
    seen = run_with_progress("asking all nodes", _look_once, spec)
    found = [features_of(each) for each in seen.groups if names is None or each.group in names]
    if output_format is Format.TABLE:
        if not found:
            say("no group of this cluster is fenced: there are no levels")
        for each in found:
            for line in headline(each):
                write_words(output_format, each, line)
            write(output_format, features_section(each.nodes))
    else:
        rows = [node for each in found for node in each.nodes]
        write(output_format, features_section(rows), document=found)
    if seen.is_silent:
        raise typer.Exit(1)


@app.command("raise-features")
def raise_features(
    group: Annotated[
        str, typer.Argument(help="May be left out if there is one fenced group.")
    ] = "",
    level: Annotated[
        int,
        typer.Option("--to", min=0, max=2**31 - 1, help="0: the highest that a member knows."),
    ] = 0,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Have a fenced group go to a feature level that all members know. There is no way back.

    Versions that do not know the level take no part from then on. All members have to be there.
    Exit status 0: it does, or did already; 1: refused, or nobody could be asked.
    """
    from tandem.cli.group_orders import raise_features as order

    spec = _spec_of(config)
    name = _fenced_group(spec, group)
    _carry_out(spec, name, lambda each: order(each, level), output_format)


@app.command("recover-group")
def recover_group(
    group: Annotated[str, typer.Argument(help="A fenced group that cannot elect a master.")],
    accept_loss: AcceptLossOption = False,
    wait: WaitOption = WAIT_SECONDS_DEFAULT,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Let a group go on whose coordinator lost its records, or whose in-sync nodes are gone.

    It goes on with the longest log of the nodes that are up: start all nodes first. Exit status 0:
    there is a master; 1: refused, none came up, or the coordinator could not be asked.
    """
    from tandem.cli.group_orders import recover_group as order

    spec = _spec_of(config)
    name = _fenced_group(spec, group)
    min_isr = spec.groups[name].min_isr
    _carry_out(
        spec,
        name,
        lambda each: order(each, min_isr=min_isr, accept_loss=accept_loss, wait_seconds=wait),
        output_format,
    )


def _spec_of(config: Path | None) -> "ClusterSpec":
    from tandem.cluster.spec import default_config, read_spec

    return read_spec(config or default_config())


def _fenced_group(spec: "ClusterSpec", name: str) -> str:
    """Check the name of a fenced group; "" is the only one there is."""
    from tandem.views.cluster_look import fenced_groups

    names = fenced_groups(spec)
    if not name and len(names) == 1:
        return names[0]
    if name in names:
        return name
    if name in spec.groups:
        raise typer.BadParameter(
            f"group {name} is classic: its master is the node with broker_id 0 of {spec.file}"
        )
    said = f"there is no group {name!r}" if name else "name a group"
    raise typer.BadParameter(f"{said}; fenced groups are: {', '.join(names) or 'none'}")


def _carry_out(
    spec: "ClusterSpec",
    group: str,
    order: "Callable[[FencedGroup], Awaitable[Outcome]]",
    output_format: Format,
) -> None:
    outcome = run_with_progress("waiting for the group", _give_order, spec, group, order)
    if outcome.exit_status == 0:
        write_words(output_format, {"group": group, "done": outcome.text}, outcome.text)
        return
    say_error(plain(outcome.text))
    raise typer.Exit(FAILED)


async def _give_order(
    spec: "ClusterSpec", group: str, order: "Callable[[FencedGroup], Awaitable[Outcome]]"
) -> "Outcome":
    from tandem.client import Admin
    from tandem.views.cluster_look import coordinator_of

    spec.read_secret()  # an order without it is refused: say why here
    access = access_of_spec(spec)
    async with Admin(access) as admin, coordinator_of(spec) as coordinator:
        return await order(_group_of(spec, group, admin, coordinator))


def _group_of(
    spec: "ClusterSpec", group: str, admin: "Admin", coordinator: "RecordStore | str"
) -> "FencedGroup":
    from tandem.views.cluster_look import members_of
    from tandem.views.fenced_group import FencedGroup

    return FencedGroup(spec.name, group, members_of(spec, group), admin, coordinator)


def _print(seen: "ClusterLook", output_format: Format) -> None:
    if output_format is Format.TABLE:
        print_lines(_as_lines(seen))
        return
    nodes = [*seen.classic_nodes, *(node for group in seen.groups for node in group.nodes)]
    columns: list[Column[NodeReplication | NodeView]] = [
        Column("node", lambda each: each.node),
        Column("role", lambda each: each.role),
        Column("in sync", _is_in_sync),
        Column("lag", lambda each: each.lag_bytes if each.lag_bytes >= 0 else None),
    ]
    document = seen if seen.groups else seen.classic_nodes
    write(output_format, Section(nodes, columns), document=document)


def _is_in_sync(node: NodeReplication | NodeView) -> bool:
    if isinstance(node, NodeReplication):
        return node.state in ("master", "in sync")
    return node.in_sync


async def _watch(spec: "ClusterSpec", output_format: Format) -> None:
    import trio
    from rich.live import Live

    async with _looker(spec) as look:
        console = stdout()
        if not is_for_people() or output_format is not Format.TABLE:
            while True:  # one after the other: there is nothing to draw over
                _print(await look(), output_format)
                sys.stdout.flush()
                await trio.sleep(WATCH_SECONDS)
        with Live(console=console, auto_refresh=False) as live:
            while True:
                live.update(rich_text(_as_lines(await look())), refresh=True)
                await trio.sleep(WATCH_SECONDS)


async def _look_once(spec: "ClusterSpec") -> "ClusterLook":
    async with _looker(spec) as look:
        return await look()


@asynccontextmanager
async def _looker(spec: "ClusterSpec") -> AsyncIterator[Callable[[], Awaitable["ClusterLook"]]]:
    from tandem.client import Admin
    from tandem.views.cluster_look import coordinator_of, fenced_groups, look

    access = access_of_spec(spec, with_secret=False)
    async with Admin(access) as admin, coordinator_of(spec) as coordinator:
        groups = [_group_of(spec, name, admin, coordinator) for name in fenced_groups(spec)]
        nodes = classic_nodes(spec)

        async def again() -> "ClusterLook":
            return await look(nodes, admin, groups)

        yield again


def _as_lines(seen: "ClusterLook") -> list[Line]:
    import time

    from tandem.cli.group_table import group_lines

    now_ms = time.time_ns() // 1_000_000
    width = terminal_width()
    lines: list[Line] = []
    for group in seen.groups:
        lines += group_lines(group, now_ms, width)
    if seen.classic_nodes:
        lines += section_lines(classic_section(seen.classic_nodes), width)
    return lines

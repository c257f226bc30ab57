"""How a fenced group looks to a person: two lines that say how it is, and a table of its nodes."""

import datetime as dt
from typing import TYPE_CHECKING, Final

from tandem.cli.group_view import DOWN, MASTER, GroupView, NodeView
from tandem.cli.output import human_bytes, shown
from tandem.cli.output import table as new_table
from tandem.plain_text import plain

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

INCARNATION_CHARACTERS: Final = 8


def headline(view: GroupView) -> str:
    """Who is master, and whether messages are taken."""
    epoch = f"epoch {view.epoch}" if view.epoch >= 0 else "epoch unknown"
    if not view.master:
        return f"NO MASTER, {epoch}: takes no messages"
    if not view.takes_messages:
        return f"{view.master} is master, {epoch}, but takes no messages"
    return f"{view.master} is master, {epoch}, and takes messages"


def facts(view: GroupView, now_ms: int) -> list[str]:
    """What else there is to know, a line each."""
    lines = [
        f"in sync: {', '.join(view.in_sync) or 'nobody'} ({len(view.in_sync)} of"
        f" {len(view.nodes)} nodes; messages are taken from {_known(view.min_isr)} on); an"
        f" acknowledged message is {_level(view.ack_level)}"
    ]
    if view.last_switch.reason or view.last_switch.at_ms:
        lines.append(f"last switch: {_switch(view, now_ms)}")
    if view.preferred:
        lines.append(f"an operator wants {view.preferred} to be master")
    lines += [f"log of {node.node}: {words}" for node in view.nodes for words in node.health]
    if view.coordinator_trouble:
        lines.append(
            f"the coordinator does not say: {view.coordinator_trouble}. The rest is what the"
            " nodes believe"
        )
    return lines


def _level(ack_level: str) -> str:
    words = {"written": "in the page cache of each", "flushed": "on the disk of each"}
    return words.get(ack_level, "on each")


def _switch(view: GroupView, now_ms: int) -> str:
    switch = view.last_switch
    parts = [switch.reason or "reason unknown"]
    if switch.at_ms:
        at = dt.datetime.fromtimestamp(switch.at_ms / 1000, dt.UTC).astimezone()
        ago = human_duration(max(0, now_ms - switch.at_ms) // 1000)
        parts.insert(0, f"{at:%Y-%m-%d %H:%M:%S}, {ago} ago:")
    if switch.previous_master:
        parts.append(f"(before: {switch.previous_master})")
    return " ".join(parts)


def human_duration(seconds: int) -> str:
    """A time for people: "3 s", "5 min", "2 h", "9 days"."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _known(number: int) -> str:
    return f"{number:,}" if number >= 0 else "?"


def node_cells(node: NodeView) -> list[str]:
    """The cells of a node's row, as plain text."""
    is_master = node.role == MASTER
    lag = "" if is_master else human_bytes(node.lag_bytes) if node.lag_bytes >= 0 else "?"
    lease = f"{node.lease_left_ms / 1000:.1f} s" if node.lease_left_ms >= 0 else ""
    return [
        node.node,
        node.role,
        "yes" if node.in_sync else "no",
        _known(node.epoch),
        node.incarnation[:INCARNATION_CHARACTERS] or "?",
        _known(node.written),
        _known(node.flushed),
        _known(node.confirm),
        lag,
        lease,
        node.trouble,
    ]


def group_table(view: GroupView) -> "Table":
    """The table of a group's nodes."""
    table = new_table("node", "role", "in sync", "log epoch", "incarnation")
    for title in ("written", "flushed", "confirmed", "lag", "lease left"):
        table.add_column(title, justify="right")
    table.add_column("trouble", overflow="fold")
    for node in view.nodes:
        style = {MASTER: "green", DOWN: "bold red"}.get(node.role)
        table.add_row(*map(shown, node_cells(node)), style=style)
    return table


def group_text(view: GroupView, now_ms: int) -> "Group":
    """Everything about a group, to be printed."""
    from rich.console import Group
    from rich.text import Text

    style = "bold" if view.takes_messages else "bold red"
    lines = [f"  {line}" for line in (*facts(view, now_ms), *view.reasons)]
    return Group(
        Text(plain(f"{view.group}: {headline(view)}"), style=style),
        *(Text(plain(line)) for line in lines),
        group_table(view),
    )

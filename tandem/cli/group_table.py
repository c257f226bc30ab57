"""How a fenced group looks to a person: two lines that say how it is, and a table of its nodes."""

import datetime as dt
from collections.abc import Sequence
from typing import Final

from tandem.cli.formats import Column, Section, section_lines
from tandem.cli.output import human_bytes
from tandem.text_table import Line, words_lines
from tandem.views.group_view import DOWN, MASTER, GroupView, NodeView

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
    lines += [f"{node.node} is too slow: {node.too_slow}" for node in view.nodes if node.too_slow]
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


def node_columns(nodes: Sequence[NodeView]) -> list[Column[NodeView]]:
    """Return the columns of the nodes of a group; of troubles only if there is one."""
    columns: list[Column[NodeView]] = [
        Column("node", lambda each: each.node, styles={each.node: _style(each) for each in nodes}),
        Column("role", lambda each: each.role, {MASTER: "green", DOWN: "bold red"}),
        Column("in sync", lambda each: each.in_sync),
        Column("log epoch", lambda each: _known(each.epoch), rank=2),
        Column(
            "incarnation", lambda each: each.incarnation[:INCARNATION_CHARACTERS] or "?", rank=3
        ),
        Column("written", lambda each: _known(each.written), is_number=True),
        Column("flushed", lambda each: _known(each.flushed), rank=1, is_number=True),
        Column("confirmed", lambda each: _known(each.confirm), is_number=True),
        Column("lag", _lag, is_number=True),
        Column("lease left", _lease, rank=1, is_number=True),
    ]
    if any(each.trouble for each in nodes):
        columns.append(Column("trouble", lambda each: each.trouble, folds_at=" "))
    return columns


def _style(node: NodeView) -> str:
    return {MASTER: "green", DOWN: "bold red"}.get(node.role, "")


def _lag(node: NodeView) -> str:
    if node.role == MASTER:
        return ""
    return human_bytes(node.lag_bytes) if node.lag_bytes >= 0 else "?"


def _lease(node: NodeView) -> str:
    return f"{node.lease_left_ms / 1000:.1f} s" if node.lease_left_ms >= 0 else ""


def group_lines(view: GroupView, now_ms: int, width: int | None) -> list[Line]:
    """Return everything about a group, to be printed."""
    style = "bold" if view.takes_messages else "bold red"
    lines = words_lines(f"{view.group}: {headline(view)}", width, style=style)
    for words in (*facts(view, now_ms), *view.reasons):
        lines += words_lines(words, width, indent=2)
    return lines + section_lines(Section(view.nodes, node_columns(view.nodes)), width)

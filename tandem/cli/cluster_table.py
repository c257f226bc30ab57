"""The nodes of a local cluster as its supervisor and this machine know them."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tandem.cli.formats import Column, Section
from tandem.cli.output import human_bytes

if TYPE_CHECKING:
    from tandem.cluster.node_lifecycle import NodeStatus
    from tandem.cluster.spec import ClusterSpec

_STYLES: Final = {"RUNNING": "green", "FAILED": "bold red", "PAUSED": "magenta"}

_START_FIELD: Final = 19
"""Of /proc/PID/stat, after the name of the program: clock ticks from the start of the machine.
Source: proc(5), starttime."""


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One node. None: not known, or there is nothing to know."""

    node: str
    role: str
    state: str
    pid: int | None
    uptime_seconds: int | None
    address: str
    name_server_port: int | None
    replication_port: int | None
    disk_bytes: int | None
    """What the store takes on the disk."""
    starts_count: int
    last_exit: str


def node_facts(nodes: "Sequence[NodeStatus]", spec: "ClusterSpec | None") -> list[NodeFacts]:
    """Return what is to be known now. Without the cluster file some of it is not known."""
    specs = {node.name: node for node in spec.nodes} if spec else {}
    facts = []
    for node in nodes:
        known = specs.get(node.name)
        facts.append(
            NodeFacts(
                node=node.name,
                role=node.role,
                state=node.state.value,
                pid=node.pid,
                uptime_seconds=uptime_seconds(node.pid) if node.pid else None,
                address=node.address,
                name_server_port=known.name_server_port if known else None,
                replication_port=known.replication_port if known else None,
                disk_bytes=disk_bytes(known.directory, *known.commit_log_directories)
                if known
                else None,
                starts_count=node.starts_count,
                last_exit=node.last_exit,
            )
        )
    return facts


def nodes_section(facts: Sequence[NodeFacts]) -> Section[NodeFacts]:
    """Return the table of the nodes."""
    columns: list[Column[NodeFacts]] = [
        Column("node", lambda each: each.node),
        Column("role", lambda each: each.role, {"MASTER": "bold"}),
        Column("state", lambda each: each.state, _STYLES),
        Column("pid", lambda each: str(each.pid) if each.pid else None, rank=1),
        Column("up for", lambda each: _duration(each.uptime_seconds)),
        Column("address", lambda each: each.address),
        Column("disk", lambda each: _size(each.disk_bytes)),
        Column("starts", lambda each: each.starts_count, rank=2),
    ]
    if any(each.last_exit for each in facts):
        columns.append(Column("last exit", lambda each: each.last_exit or None, folds_at=" "))
    return Section(facts, columns, none="the cluster has no node")


def uptime_seconds(pid: int) -> int | None:
    """Return how long a process of this machine has run; None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        machine = Path("/proc/uptime").read_text(encoding="ascii")
    except OSError:
        return None
    ticks = stat.rpartition(")")[2].split()[_START_FIELD]
    began = int(ticks) / os.sysconf("SC_CLK_TCK")
    return max(0, round(float(machine.split()[0]) - began))


def disk_bytes(*directories: Path) -> int:
    """Return what files below some directories take on the disk. Vanished ones are left out."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for directory in directories:
        for parent, _, names in os.walk(directory):
            for name in names:
                try:
                    status = Path(parent, name).lstat()
                except OSError:
                    continue
                if (status.st_dev, status.st_ino) not in seen:
                    seen.add((status.st_dev, status.st_ino))
                    total += status.st_blocks * 512
    return total


def _size(count: int | None) -> str | None:
    return None if count is None else human_bytes(count)


def _duration(seconds: int | None) -> str | None:
    """A duration for people, in its two largest units: "3 s", "2 min 5 s", "4 d 1 h"."""
    if seconds is None:
        return None
    units = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)]
    parts: list[str] = []
    for name, length in units:
        count, seconds = divmod(seconds, length)
        if count or parts:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2]) or "0 s"

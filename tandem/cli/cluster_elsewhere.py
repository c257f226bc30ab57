"""`tandem cluster status` of nodes that no supervisor has here: what they say of themselves."""

from typing import TYPE_CHECKING

import typer

from tandem.cli.cluster_table import NodeFacts, disk_bytes, uptime_seconds
from tandem.cli.formats import Column, Format, Section, write
from tandem.cli.output import FAILED, access_of_spec, human_bytes
from tandem.cli.progress import run_with_progress

if TYPE_CHECKING:
    from tandem.cluster.spec import ClusterSpec, NodeSpec
    from tandem.views.cluster_look import ClusterLook

RUNNING = "RUNNING"
SILENT = "SILENT"
"""It does not answer: it is down, or cut off from here."""


def run_by_themselves(spec: "ClusterSpec") -> bool:
    """Whether nodes of a file are not for a supervisor of this user on this machine."""
    from tandem.cluster.owners import holders, of_other_machines, of_other_users

    return bool(of_other_users(spec.nodes) or holders(spec.nodes) or of_other_machines(spec.nodes))


def print_status(spec: "ClusterSpec", output_format: Format) -> None:
    """Ask every node, and look at what of them is on this machine; say what is not known here.

    Raises:
        typer.Exit: With status 1: not one node answers.
    """
    seen = run_with_progress("asking all nodes", _look, spec)
    facts = elsewhere_facts(spec, seen)
    document = {"supervisor_pid": None, "nodes": facts}
    write(output_format, Section(facts, _COLUMNS), document=document)
    if output_format is Format.TABLE:
        for line in _notes(spec):
            typer.echo(line, err=True)
    if all(each.state == SILENT for each in facts):
        raise typer.Exit(FAILED)


def elsewhere_facts(spec: "ClusterSpec", seen: "ClusterLook") -> list[NodeFacts]:
    """Join what nodes say with what this machine knows of its own."""
    from tandem.cluster.owners import holders, of_other_machines
    from tandem.views.group_view import DOWN

    roles = {node.node: node.role for group in seen.groups for node in group.nodes}
    roles |= {row.node: DOWN if row.state == "down" else row.role for row in seen.classic_nodes}
    pids = holders(spec.nodes)
    away = {node.name for node in of_other_machines(spec.nodes)}

    def facts(node: "NodeSpec") -> NodeFacts:
        pid = pids.get(node.name) or None
        is_silent = roles.get(node.name, DOWN) == DOWN
        return NodeFacts(
            node=node.name,
            role=node.role if is_silent else roles[node.name],
            state=SILENT if is_silent else RUNNING,
            pid=pid,
            uptime_seconds=uptime_seconds(pid) if pid else None,
            address=node.client_address,
            name_server_port=node.name_server_port,
            replication_port=node.replication_port,
            disk_bytes=None
            if node.name in away
            else disk_bytes(node.directory, *node.commit_log_directories),
            starts_count=0,
            last_exit="",
        )

    return [facts(node) for node in spec.nodes]


_COLUMNS: list[Column[NodeFacts]] = [
    Column("node", lambda each: each.node),
    Column("role", lambda each: each.role, {"MASTER": "bold"}),
    Column("state", lambda each: each.state, {RUNNING: "green", SILENT: "bold red"}),
    Column("pid", lambda each: str(each.pid) if each.pid else None, rank=1),
    Column("address", lambda each: each.address),
    Column("disk", lambda each: None if each.disk_bytes is None else human_bytes(each.disk_bytes)),
]


def _notes(spec: "ClusterSpec") -> list[str]:
    from tandem.cluster.owners import of_other_machines

    away = [node.name for node in of_other_machines(spec.nodes)]
    lines = ["no supervisor has these nodes: each is started and stopped where it runs"]
    if away:
        names = ", ".join(away)
        lines.append(f"process and disk are not known here of {names}: of another machine")
    lines.append(
        "logs: `journalctl -u tandem@NODE` there; restarts: `tandem cluster roll --dry-run`;"
        " replication: `tandem ha status`"
    )
    return lines


async def _look(spec: "ClusterSpec") -> "ClusterLook":
    from tandem.client import Admin
    from tandem.views.classic_nodes import classic_nodes
    from tandem.views.cluster_look import coordinator_of, fenced_groups, look, members_of
    from tandem.views.fenced_group import FencedGroup

    access = access_of_spec(spec, with_secret=False)
    async with Admin(access) as admin, coordinator_of(spec) as coordinator:
        groups = [
            FencedGroup(spec.name, name, members_of(spec, name), admin, coordinator)
            for name in fenced_groups(spec)
        ]
        return await look(classic_nodes(spec), admin, groups)

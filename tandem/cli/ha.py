"""`tandem ha`: what the nodes say about replication."""

from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
import typer

from tandem.cli.output import ConfigOption, human_bytes, run, stdout

if TYPE_CHECKING:
    from tandem.cluster.spec import ClusterSpec, NodeSpec
    from tandem.wire.request_headers import HARuntimeInfo

app = typer.Typer(help="What the nodes say about replication.", no_args_is_help=True)

ANSWER_SECONDS_MAX: Final = 3.0
"""A frozen node accepts connections and says nothing; waiting longer would not change that."""


class NodeReplication(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the answer. Offsets are bytes of log, -1 if nobody could tell."""

    node: str
    group: str
    role: str
    address: str
    log_end: int = -1
    """Of a slave: what it has acknowledged or, while its master is silent, what it holds."""
    lag_bytes: int = -1
    """How much of the master's log a slave lacks."""
    state: Literal["master", "in sync", "behind", "down", "alone"]
    """`alone`: a slave that answers while its master does not."""
    reason: str = ""


@app.command()
def status(
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Show how far each slave is behind, and whether it is in sync or why not.

    Asks every node, so that something is known also while a master is down. Exit status 1 if no
    node answers.
    """
    from tandem.cluster.spec import default_config, read_spec

    spec = read_spec(config or default_config())
    answers = run(_ask_all, spec)
    rows = replication(spec, answers)
    if as_json:
        typer.echo(msgspec.json.encode(rows))
    else:
        _print_table(rows)
    if all(isinstance(answer, str) for answer in answers.values()):
        raise typer.Exit(1)


def replication(
    spec: "ClusterSpec", answers: "dict[str, HARuntimeInfo | str]"
) -> list[NodeReplication]:
    """Join what the nodes say, by node name; an answer that is text says why there is none."""
    masters = {node.group: node for node in spec.nodes if node.role == "MASTER"}
    return [
        _master_row(node, answers[node.name])
        if node.role == "MASTER"
        else _slave_row(node, answers[masters[node.group].name], answers[node.name])
        for node in spec.nodes
    ]


def _master_row(node: "NodeSpec", answer: "HARuntimeInfo | str") -> NodeReplication:
    if isinstance(answer, str):
        return _row(node, "down", reason=answer)
    return _row(node, "master", log_end=answer.master_commit_log_max_offset)


def _slave_row(
    node: "NodeSpec", master: "HARuntimeInfo | str", own: "HARuntimeInfo | str"
) -> NodeReplication:
    if isinstance(master, str):
        if isinstance(own, str):
            return _row(node, "down", reason=own)
        held = own.ha_client_runtime_info.max_offset
        return _row(node, "alone", log_end=held, reason="its master does not answer")
    for slave in master.ha_connection_info:
        if slave.name == node.name or slave.addr.rpartition(":")[0] == node.address:
            down = isinstance(own, str)
            return _row(
                node,
                "in sync" if slave.in_sync else "down" if down else "behind",
                log_end=slave.slave_ack_offset,
                lag_bytes=slave.diff,
                reason=slave.reason,
            )
    if isinstance(own, str):
        return _row(node, "down", reason=own)
    held = own.ha_client_runtime_info.max_offset
    lag = max(0, master.master_commit_log_max_offset - held)
    reason = "not connected to its master"
    return _row(node, "behind", log_end=held, lag_bytes=lag, reason=reason)


def _row(
    node: "NodeSpec",
    state: Literal["master", "in sync", "behind", "down", "alone"],
    *,
    log_end: int = -1,
    lag_bytes: int = -1,
    reason: str = "",
) -> NodeReplication:
    return NodeReplication(
        node=node.name,
        group=node.group,
        role=node.role,
        address=node.client_address,
        log_end=log_end,
        lag_bytes=lag_bytes,
        state=state,
        reason=reason,
    )


def _print_table(rows: list[NodeReplication]) -> None:
    from rich.markup import escape
    from rich.table import Table

    styles = {"in sync": "green", "master": "green", "down": "bold red"}
    table = Table("node", "role", "address", "state")
    table.add_column("log end / acked", justify="right")
    table.add_column("lag", justify="right")
    table.add_column("reason", overflow="fold")
    for row in rows:
        table.add_row(
            row.node,
            row.role,
            row.address,
            f"[{styles.get(row.state, 'yellow')}]{row.state}[/]",
            f"{row.log_end:,}" if row.log_end >= 0 else "?",
            _lag(row),
            escape(row.reason),
        )
    stdout().print(table)


def _lag(row: NodeReplication) -> str:
    if row.role == "MASTER":
        return ""
    if row.lag_bytes < 0:
        return "?"
    exact = f" ({row.lag_bytes:,})" if row.lag_bytes >= 1024 else ""
    return human_bytes(row.lag_bytes) + exact


async def _ask_all(spec: "ClusterSpec") -> "dict[str, HARuntimeInfo | str]":
    import trio

    from tandem.client import Admin
    from tandem.client.errors import ClientError

    answers: dict[str, HARuntimeInfo | str] = {}

    async def ask(admin: Admin, node: "NodeSpec") -> None:
        answers[node.name] = f"no answer in {ANSWER_SECONDS_MAX:.0f} s"
        with trio.move_on_after(ANSWER_SECONDS_MAX):
            try:
                answers[node.name] = await admin.ha_runtime_info(node.client_address)
            except ClientError as error:
                answers[node.name] = str(error)

    async with Admin(spec.name_servers) as admin, trio.open_nursery() as nursery:
        for node in spec.nodes:
            nursery.start_soon(ask, admin, node)
    return answers

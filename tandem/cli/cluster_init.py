"""`tandem cluster init`: write a cluster file, with a comment for every setting."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandem.cli.formats import Format, FormatOption, write_words
from tandem.cli.output import CommandError
from tandem.plain_text import plain

if TYPE_CHECKING:
    from tandem.cluster.new_file import NewCluster
    from tandem.cluster.spec import ClusterSpec

FileArgument = Annotated[
    Path, typer.Argument(help="What to write; a relative data directory counts from there.")
]
NodesOption = Annotated[
    int | None,
    typer.Option(min=1, max=99, help="How many nodes.", show_default="3, or one an --address"),
]
ClassicOption = Annotated[
    bool,
    typer.Option(
        "--classic", help="RocketMQ's master and slaves, instead of nodes that elect their master."
    ),
]
AddressOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="IPV4",
        help="Of each node, in their order; one alone is for all of them, with ports 10 apart.",
        show_default="127.0.0.1, 127.0.0.2, ...",
    ),
]
PortOption = Annotated[
    int,
    typer.Option(
        min=1,
        max=64_000,
        help="For clients, at the first node; the next two are for the other nodes.",
    ),
]
NameServerPortOption = Annotated[
    int, typer.Option(min=1, max=64_000, help="For clients that look for a name server.")
]
EtcdOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL",
        help="Who is master is recorded in this etcd; needed for nodes on several machines."
        " Repeat it, for all of its members.",
        show_default=False,
    ),
]


GroupsOption = Annotated[
    int,
    typer.Option(
        min=1,
        max=26,
        help="How many groups, each with a node at each address; topics are spread over them.",
    ),
]


def init(
    file: FileArgument = Path("cluster.yaml"),
    nodes: NodesOption = None,
    groups: GroupsOption = 1,
    classic: ClassicOption = False,
    cluster_name: Annotated[
        str, typer.Option(help="Clients see it as the cluster of every broker.")
    ] = "DefaultCluster",
    broker_name: Annotated[
        str,
        typer.Option(help="The group; its nodes are NAME-0, NAME-1, ... The first of several."),
    ] = "broker-a",
    address: AddressOption = None,
    port: PortOption = 10911,
    name_server_port: NameServerPortOption = 9876,
    etcd: EtcdOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a file that is there.")
    ] = False,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Write a cluster file that explains every setting.

    `tandem cluster up` starts it. Nothing but this file is written.
    """
    from tandem.cluster.new_file import NewCluster, new_file_text
    from tandem.cluster.spec import example_text
    from tandem.cluster_file.choices import GroupKind

    wanted = NewCluster(
        addresses=_addresses(nodes, address or []),
        kind=GroupKind.CLASSIC if classic else GroupKind.FENCED,
        name=cluster_name,
        broker_name=broker_name,
        port=port,
        name_server_port=name_server_port,
        etcd_endpoints=tuple(etcd or ()),
        groups_count=groups,
    )
    spec = _write(file, new_file_text(example_text(), wanted, file.name), force=force)
    count = "one node" if len(spec.nodes) == 1 else f"{len(spec.nodes)} nodes"
    write_words(
        output_format,
        {"file": str(spec.file), "kind": wanted.kind, "nodes": [node.name for node in spec.nodes]},
        f"wrote {file}: {count} of {', '.join(wanted.group_names)}, {wanted.kind.value}\n"
        f"{_start(file, wanted)}",
    )
    for note in _notes(wanted):
        typer.secho(f"note: {note}", err=True, fg=typer.colors.YELLOW)


def _addresses(count: int | None, addresses: list[str]) -> tuple[str, ...]:
    from tandem.cluster.new_file import loopback_addresses

    if not addresses:
        return loopback_addresses(count or 3)
    if len(addresses) == 1:
        return tuple(addresses * (count or 1))
    if count not in (None, len(addresses)):
        raise typer.BadParameter(
            f"{len(addresses)} addresses are no addresses of {count} nodes; give one for each, or"
            " one for all of them",
            param_hint="--address",
        )
    return tuple(addresses)


def _write(file: Path, text: str, *, force: bool) -> "ClusterSpec":
    """Write a file that is whole and has been read, or leave what is there as it is."""
    from tandem.cluster.spec import read_spec
    from tandem.cluster_file.errors import ClusterConfigError
    from tandem.durable_file import move_durably, sync_file

    if file.exists() and not force:
        raise CommandError(f"{file} is there already; write over it with --force", 2)
    if not file.parent.is_dir():
        raise CommandError(f"{file.parent} is no directory; make it first", 2)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".tandem-init-") as directory:
        draft = Path(directory, file.name)
        draft.write_text(text, encoding="utf-8")
        try:
            read_spec(draft)
        except ClusterConfigError as error:
            words = str(error).replace(f"{directory}/", "").replace(str(draft), str(file))
            raise CommandError(f"nothing was written: {words}", 2) from error
        sync_file(draft)
        move_durably(draft, file)
    return read_spec(file)


def _start(file: Path, wanted: "NewCluster") -> str:
    """How the nodes are started: a supervisor is for those of one machine."""
    from tandem.cluster.spec import node_by_itself

    if len(set(_beyond(wanted))) > 1:
        command = node_by_itself(file, "NODE")
        return f"start each node on its own machine, with this file: `{command}`"
    option = "" if file == Path("cluster.yaml") else f" -c {file}"
    return f"start it with `tandem cluster up{option}`"


def _beyond(wanted: "NewCluster") -> list[str]:
    from tandem.cluster.new_file import is_beyond_this_machine

    return [address for address in wanted.addresses if is_beyond_this_machine(address)]


def _notes(wanted: "NewCluster") -> list[str]:
    from tandem.cluster_file.choices import GroupKind

    notes = []
    beyond = _beyond(wanted)
    if beyond:
        notes.append(
            f"{plain(beyond[0])} can be reached from other machines, by everybody there: its node"
            " starts only with tls.mode: enforcing and security.clients: authorized, or with what"
            " else docs/security.md allows"
        )
    if len(set(beyond)) > 1 and wanted.kind is GroupKind.FENCED and not wanted.etcd_endpoints:
        notes.append(
            "nodes on several machines need an etcd to elect their master: give --etcd, or set"
            " coordinator.kind: etcd and its endpoints"
        )
    if wanted.kind is GroupKind.FENCED and len(wanted.addresses) == 2:
        notes.append(
            "two nodes take messages only while both are up; three survive the loss of one"
        )
    return notes

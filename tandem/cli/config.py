"""`tandem config`: what settings there are, what they mean, and what a cluster has."""

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from tandem.cli.formats import Column, Format, FormatOption, Section, write, write_one, write_words
from tandem.cli.grammar import TandemGroup
from tandem.cli.output import WRONG_USAGE, CommandError, ConfigOption, access_of, run, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tandem.cluster_file.catalogue import Setting
    from tandem.cluster_file.cluster_config import ClusterConfig
    from tandem.views.file_settings import Value

LIVE: Final = {"store.file_reserved_time_hours": "fileReservedTime"}
"""What a broker changes while it runs, and RocketMQ's name for it."""

_OF_ONE: Final = ("groups.", "nodes.")

app = typer.Typer(
    cls=TandemGroup,
    help="Settings: what they are, what they mean, what a node has.",
    no_args_is_help=True,
)

KeysArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY]...",
        help="section.key, a section, a key alone, or RocketMQ's name of it. All, if left out.",
        show_default=False,
    ),
]


@app.command()
def explain(keys: KeysArgument = None, output_format: FormatOption = Format.TABLE) -> None:
    """Say what settings are for, what they may be, and what they are by default."""
    settings = _chosen(keys)
    if len(settings) == 1 and output_format is Format.TABLE:
        (setting,) = settings
        facts = {
            "setting": setting.name,
            "may be": setting.kind,
            "default": "it has to be given" if setting.is_needed else _words(setting.default),
            "of RocketMQ": setting.rocketmq_name,
            "while it runs": "yes: `tandem config set`" if setting.name in LIVE else "no",
        }
        write_one(output_format, setting, facts)
        say(f"\n{setting.description}")
        return
    columns = [
        Column["Setting"]("setting", lambda each: each.name),
        Column["Setting"]("default", lambda each: "-" if each.is_needed else _words(each.default)),
        Column["Setting"]("may be", lambda each: each.kind, folds_at=" "),
        Column["Setting"]("what for", lambda each: each.description, folds_at=" "),
    ]
    write(output_format, Section(settings, columns))


@app.command()
def get(
    keys: KeysArgument = None,
    node: Annotated[
        str | None,
        typer.Option(
            "--node", help="Ask this node, which is up, instead of the file.", show_default=False
        ),
    ] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only what is not the default.")
    ] = False,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Show the settings of a cluster file, or those that a node goes by.

    A node answers with RocketMQ's names, and with what a client or an operator can make use of.
    """
    if node is not None:
        _show_node(node, keys, output_format, config)
        return
    values = [each for each in _values(keys, config) if each.is_changed or not changed]
    columns = [
        Column["Value"]("setting", lambda each: each.name),
        Column["Value"]("value", lambda each: _words(each.value), folds_at=" "),
        Column["Value"]("default", lambda each: "-" if each.is_needed else _words(each.default)),
    ]
    text = (lambda each: _words(each.value)) if keys and len(values) == 1 else None
    write(output_format, Section(values, columns, none="everything is the default"), text=text)


@app.command(name="set")
def set_setting(
    key: Annotated[str, typer.Argument()],
    value: Annotated[str, typer.Argument()],
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Change a setting at all nodes of a running cluster, until they stop.

    One may be changed so: `store.file_reserved_time_hours`, for a disk that gets full. All others
    are the cluster file's, which is the same on all machines.
    """
    names = {each.name for each in _chosen([key])}
    (name,) = names if len(names) == 1 else {key}
    if name not in LIVE:
        raise CommandError(
            f"{name} cannot be changed while nodes run; nothing was changed. Change the cluster"
            " file, on all machines, and restart the nodes one after the other: `tandem cluster"
            f" restart NODE`. While they run: {', '.join(LIVE)}",
            WRONG_USAGE,
        )
    if not (value.isascii() and value.isdecimal() and len(value) < 10):
        raise CommandError(f"{value!r} is not a whole number of hours", WRONG_USAGE)
    addresses = _brokers(config)
    access = access_of(None, config, with_secret=True)

    async def change() -> list[str]:
        from tandem.client import Admin, ClientError

        troubles = []
        async with Admin(access) as admin:
            for node, address in addresses.items():
                try:
                    await admin.update_broker_config(address, {LIVE[name]: value})
                except ClientError as error:
                    troubles.append(f"{node}: {error}")
        return troubles

    troubles = run(change)
    if troubles:
        done = len(addresses) - len(troubles)
        raise CommandError("\n".join([f"changed at {done} of {len(addresses)} nodes", *troubles]))
    words = (
        f"{name} is {value} at {len(addresses)} nodes, until they stop; for longer write it into"
        " the cluster file"
    )
    write_words(output_format, {"setting": name, "value": int(value), "nodes": [*addresses]}, words)


def _show_node(
    node: str, keys: list[str] | None, output_format: Format, config: Path | None
) -> None:
    addresses = _brokers(config)
    if node not in addresses:
        raise CommandError(
            f"there is no node {node!r} in the cluster file; there are {', '.join(addresses)}",
            WRONG_USAGE,
        )

    async def ask() -> "Mapping[str, str]":
        from tandem.client import Admin

        async with Admin(access_of(None, config)) as admin:
            return await admin.broker_config(addresses[node])

    found = run(ask)
    wanted = {each.rocketmq_name for each in _chosen(keys)} | set(keys or ()) if keys else None
    rows = [(key, value) for key, value in found.items() if wanted is None or key in wanted]
    columns = [
        Column[tuple[str, str]]("RocketMQ's name", lambda each: each[0]),
        Column[tuple[str, str]]("value", lambda each: each[1], folds_at=" "),
    ]
    none = f"{node} says nothing of that"
    write(output_format, Section(rows, columns, none=none), document=dict(rows))


def _brokers(config: Path | None) -> dict[str, str]:
    """Return every node's address for clients, by its name."""
    return {node.name: node.broker_address for node in _loaded(config).nodes}


def _loaded(config: Path | None) -> "ClusterConfig":
    from tandem.cluster.spec import default_config
    from tandem.cluster_file.load import load_config

    return load_config(config or default_config())


def _chosen(keys: list[str] | None) -> "list[Setting]":
    """Return the settings that some words mean, in their order; all of them without a word.

    Raises:
        CommandError: A word means none.
    """
    from tandem.cluster.spec import example_text
    from tandem.cluster_file.catalogue import catalogue

    settings = catalogue(example_text())
    if not keys:
        return list(settings.values())
    chosen: dict[str, Setting] = {}
    for given in keys:
        key = re.sub(r"^groups\.[^.]+", "groups.NAME", re.sub(r"^nodes\.[^.]+", "nodes[]", given))
        found = {
            each.name: each
            for each in settings.values()
            if key in (each.name, each.key, each.section, each.rocketmq_name)
        }
        if not found:
            words = [*settings, *{each.key for each in settings.values()}]
            near = difflib.get_close_matches(key, words, 3, 0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "see `tandem config explain`"
            raise CommandError(f"there is no setting {given!r}; {hint}", WRONG_USAGE)
        chosen |= found
    return list(chosen.values())


def _values(keys: list[str] | None, config: Path | None) -> "list[Value]":
    from tandem.views.file_settings import values_of

    values = [value for _, value in values_of(_chosen(keys), _loaded(config))]
    # `groups.broker-a.min_isr` means that group's; `min_isr` that of all groups.
    named = {each.name for each in values}.intersection(keys or ())
    of_one = {name.rpartition(".")[2] for name in named if name.startswith(_OF_ONE)}
    return [
        each for each in values if each.name in named or each.name.rpartition(".")[2] not in of_one
    ]


def _words(value: object) -> str:
    """A value as the file would have it."""
    if isinstance(value, str):
        return value or '""'
    return msgspec.json.encode(value, enc_hook=str).decode()

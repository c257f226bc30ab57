"""`tandem acl`: what users may do with topics, groups and the cluster, and why."""

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from tandem.cli.asking import ask
from tandem.cli.formats import (
    Column,
    Format,
    FormatOption,
    Section,
    Value,
    write,
    write_one,
    write_words,
)
from tandem.cli.grammar import TandemGroup
from tandem.cli.output import FAILED, CommandError, ConfigOption, NameServersOption, say
from tandem.cli.plain_acl import Account, accounts_of
from tandem.cli.rights_table import EntryRow, entry_columns, entry_of, entry_rows
from tandem.cli.user import Done, UserArgument, ask_user
from tandem.wire.access_control import (
    AclError,
    Entry,
    Kind,
    PolicyEntryInfo,
    PolicyType,
    ResourcePattern,
    Right,
    Rules,
    parse_resource,
    parse_right,
    rules_of,
)
from tandem.wire.system_topics import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX

if TYPE_CHECKING:
    from tandem.client import Admin
    from tandem.client.user_admin import UserDescription

app = typer.Typer(
    cls=TandemGroup,
    help="Say what users may do with topics, groups and the cluster.",
    no_args_is_help=True,
)

RightsArgument = Annotated[
    str,
    typer.Argument(
        metavar="RIGHTS", help="Pub, Sub, Create, Update, Delete, Get, List: some of them, or All."
    ),
]
ResourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="RESOURCE", help="Topic:NAME, Topic:PREFIX*, Topic:*; Group:, Cluster:; or *."
    ),
]
FromOption = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="NETWORK",
        help="Only for requests from there: an address, or 10.0.0.0/8. Repeatable.",
        show_default=False,
    ),
]
DefaultOption = Annotated[
    bool,
    typer.Option("--default", help="Where no other entry is about it: RocketMQ's Default policy."),
]

ANYWHERE: Final = "127.0.0.1"


class UserEntryRow(msgspec.Struct, frozen=True):
    """One entry, and whose it is."""

    user: str
    entry: EntryRow


class Explanation(msgspec.Struct, frozen=True):
    """A decision, and what led to it."""

    user: str
    right: str
    resource: str
    source_ip: str
    is_allowed: bool
    why: str
    decided_by: str = ""
    also_about_it: list[str] = []


@app.command()
def grant(
    user: UserArgument,
    rights: RightsArgument,
    resource: ResourceArgument,
    networks: FromOption = None,
    is_default: DefaultOption = False,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Allow a user something. What was said about the same resource before is replaced."""
    entry = entry_of("Allow", rights, resource, networks)
    _set(user, entry, is_default, name_server, config)
    write_words(output_format, Done(user, "granted"), f"user {user} may {rights} {resource}")


@app.command()
def deny(
    user: UserArgument,
    rights: RightsArgument,
    resource: ResourceArgument,
    networks: FromOption = None,
    is_default: DefaultOption = False,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Deny a user something that a less exact entry allows."""
    entry = entry_of("Deny", rights, resource, networks)
    _set(user, entry, is_default, name_server, config)
    write_words(output_format, Done(user, "denied"), f"user {user} may not {rights} {resource}")


@app.command()
def revoke(
    user: UserArgument,
    resource: ResourceArgument,
    is_default: DefaultOption = False,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Take away what was said about a resource, be it allowed or denied."""
    _resource(resource)

    async def question(admin: "Admin") -> bool:
        return await admin.revoke(user, resource, policy_type=_policy_type(is_default))

    ask_user(user, name_server, config)
    if not ask(f"changing what user {user} may", question, name_server, config):
        raise CommandError(
            f"user {user} has no entry about {resource}; `tandem acl list {user}` prints those"
            " there are"
        )
    write_words(
        output_format, Done(user, "revoked"), f"user {user} has no entry about {resource} any more"
    )


@app.command(name="list")
def list_entries(
    user: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Of this user alone.", show_default=False)
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="With this in the resource.", show_default=False),
    ] = None,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Print what users may. Of each, what is looked at first comes first."""

    async def question(admin: "Admin") -> "list[UserDescription]":
        return [await admin.user(user)] if user is not None else await admin.users()

    found = ask("asking the brokers", question, name_server, config)
    rows = [
        UserEntryRow(each.name, row)
        for each in found
        for row in entry_rows(each.policies)
        if resource is None or resource in row.resource
    ]
    columns = [
        Column[UserEntryRow]("user", lambda each: each.user),
        *map(_of_user, entry_columns()),
    ]
    write(output_format, Section(rows, columns, none="there are no entries"))


@app.command()
def check(
    user: UserArgument,
    right: Annotated[str, typer.Argument(metavar="RIGHT", help="One right: Pub, Sub, Create...")],
    resource: Annotated[
        str, typer.Argument(metavar="RESOURCE", help="Topic:NAME, Group:NAME or Cluster:NAME.")
    ],
    address: Annotated[
        str, typer.Option("--from", metavar="ADDRESS", help="Where the request would come from.")
    ] = ANYWHERE,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Say whether a user may do something, and which entry decides. Status 1: it is denied."""
    asked = _resource(resource)
    if asked.kind is None or str(asked) != f"{asked.kind.value}:{asked.name}":
        raise typer.BadParameter(f"{resource} is a pattern; name one topic, group or cluster")
    try:
        wanted = parse_right(right)
        found = explain(ask_user(user, name_server, config), wanted, asked, address)
    except (AclError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    facts: dict[str, Value] = {
        "user": user,
        "asked": f"{found.right} {found.resource} from {found.source_ip}",
        "decision": "allowed" if found.is_allowed else "denied",
        "why": found.why,
        "also about it": found.also_about_it or None,
    }
    write_one(output_format, found, facts)
    if not found.is_allowed:
        raise typer.Exit(FAILED)


def explain(
    user: "UserDescription", right: Right, asked: ResourcePattern, address: str
) -> Explanation:
    """Decide as a node does, and say why.

    Raises:
        ValueError: the address is none.
        AclError: an entry cannot be read.
    """
    assert asked.kind is not None, "a caller has asked about one thing"
    ipaddress.ip_address(address)
    kind, name, note = asked.kind, asked.name, ""
    for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
        if kind is Kind.TOPIC and name.startswith(prefix):
            kind, name = Kind.GROUP, name.removeprefix(prefix)
            right = Right.SUB if right is Right.PUB else right
            note = f"{asked} belongs to {kind.value}:{name}. "
    said = (user.name, right.value, f"{kind.value}:{name}", address)
    if user.status != "enable":
        return Explanation(*said, is_allowed=False, why=f"{note}the user is disabled")
    if user.is_super:
        return Explanation(*said, is_allowed=True, why=f"{note}the user is a Super")
    rules = rules_of(user.policies)
    verdict = rules.decide(kind, name, right, address)
    others = [str(each) for each in _about(rules, kind, name) if each is not verdict.entry]
    if verdict.entry is None:
        why = f"no entry allows it; `tandem acl grant {user.name} {right.value} {said[2]}` would"
        return Explanation(*said, is_allowed=False, why=note + why, also_about_it=others)
    of_default = "" if verdict.entry in rules.custom else ", of the default policy"
    why = f"the most exact entry{of_default} decides: {verdict.entry}"
    return Explanation(
        *said,
        is_allowed=verdict.is_allowed,
        why=note + why,
        decided_by=str(verdict.entry),
        also_about_it=others,
    )


def _about(rules: Rules, kind: Kind, name: str) -> list[Entry]:
    entries = [*rules.custom, *rules.default]
    return [each for each in entries if each.resource.contains(kind, name)]


@app.command(name="import")
def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="RocketMQ's plain_acl.yml.")],
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it. Without it, say what would be done.")
    ] = False,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Make users and entries of the accounts in a file of RocketMQ's older access control."""
    accounts, notes = accounts_of(file)

    async def question(admin: "Admin") -> "dict[str, str]":
        known = {each.name for each in await admin.users()}
        done: dict[str, str] = {}
        for account in accounts:
            if account.name in known:
                done[account.name] = "is there already, and stays as it is"
            elif not execute:
                done[account.name] = "would be made"
            else:
                await admin.create_user(account.name, account.secret, is_super=account.is_super)
                for policy_type, entries in account.entries.items():
                    if entries:
                        await admin.grant(account.name, entries, policy_type=policy_type)
                done[account.name] = "made"
        return done

    done = ask(f"reading {file.name}", question, name_server, config)
    columns: list[Column[Account]] = [
        Column("user", lambda each: each.name),
        Column("type", lambda each: "Super" if each.is_super else "Normal"),
        Column("entries", lambda each: sum(map(len, each.entries.values()))),
        Column("result", lambda each: done[each.name], folds_at=" "),
    ]
    rows = [
        {"user": each.name, "is_super": each.is_super, "result": done[each.name]}
        for each in accounts
    ]
    write(output_format, Section(accounts, columns, none="the file has no account"), document=rows)
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    if not execute and output_format is Format.TABLE:
        say("nothing was changed; --execute does it")


def _of_user(column: Column[EntryRow]) -> Column[UserEntryRow]:
    return Column(
        column.title,
        lambda each: column.value(each.entry),
        column.styles,
        column.folds_at,
        column.rank,
        column.is_number,
    )


def _set(
    user: str,
    entry: PolicyEntryInfo,
    is_default: bool,
    name_server: list[str] | None,
    config: Path | None,
) -> None:
    async def question(admin: "Admin") -> None:
        await admin.grant(user, [entry], policy_type=_policy_type(is_default))

    ask_user(user, name_server, config)
    ask(f"changing what user {user} may", question, name_server, config)


def _policy_type(is_default: bool) -> PolicyType:
    return PolicyType.DEFAULT if is_default else PolicyType.CUSTOM


def _resource(text: str) -> ResourcePattern:
    try:
        return parse_resource(text)
    except AclError as error:
        raise typer.BadParameter(str(error)) from error

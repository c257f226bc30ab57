"""`tandem topic`: create topics, look at them, change and delete them."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from tandem.cli.asking import YesOption, ask, confirm
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
from tandem.cli.output import ConfigOption, NameServersOption
from tandem.cli.times import time_cell
from tandem.cli.topic_move import check_groups, group_names, move

if TYPE_CHECKING:
    from tandem.client import Admin
    from tandem.client.admin_results import TopicAtBroker, TopicDescription, TopicQueue

app = typer.Typer(
    cls=TandemGroup,
    help="Create topics, look at them, change and delete them.",
    no_args_is_help=True,
)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The name of the topic.")]

PERMS: Final = {"none": 0, "w": 2, "r": 4, "rw": 6}
"""What may be done with a topic: RocketMQ's bits by our words."""

PermOption = Annotated[
    str | None,
    typer.Option(
        metavar="rw|r|w|none", help="What clients may do: read, write.", show_default=False
    ),
]
AttributeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute",
        "-a",
        metavar="NAME=VALUE",
        help="Set an attribute; NAME- takes it away. Repeatable.",
        show_default=False,
    ),
]


class Done(msgspec.Struct, frozen=True):
    """What a verb has done, for programs."""

    topic: str
    action: str


class RouteRow(msgspec.Struct, frozen=True):
    """A broker name in the route of a topic."""

    broker_name: str
    write_queue_nums: int
    read_queue_nums: int
    perm: str
    brokers: dict[int, str]


@app.command()
def create(
    topic: TopicArgument,
    queues: Annotated[int, typer.Option(min=1, max=1024, help="Number of queues.")] = 8,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--groups",
            metavar="GROUP[,GROUP]...",
            help="Only in these groups.",
            show_default="all",
        ),
    ] = None,
    perm: PermOption = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            "--attribute",
            "-a",
            metavar="NAME=VALUE",
            help="Set an attribute, such as cleanup.policy=COMPACTION. Repeatable.",
            show_default=False,
        ),
    ] = None,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Create a topic in every group, or in some; or change its number of queues."""
    bits = PERMS["rw"] if perm is None else _perm_bits(perm)
    wanted = group_names(groups or [])
    attributes = {name: value or "" for name, value in map(_attribute, attribute or [])}
    if not all(attributes.values()):
        raise typer.BadParameter("only `topic alter` takes one away", param_hint="--attribute")

    async def question(admin: "Admin") -> None:
        create_topic = partial(
            admin.create_topic, topic, queue_nums=queues, perm=bits, attributes=attributes
        )
        if not wanted:
            await create_topic()
            return
        await check_groups(admin, wanted)
        for name in wanted:
            await create_topic(broker_name=name)

    ask(f"creating topic {topic}", question, name_server, config)
    has = "1 queue" if queues == 1 else f"{queues} queues"
    where = f" in each of {', '.join(wanted)}" if len(wanted) > 1 else ""
    where = f" in {wanted[0]}" if len(wanted) == 1 else where
    write_words(output_format, Done(topic, "created"), f"topic {topic} has {has}{where}")


@app.command(name="list")
def list_topics(
    all_topics: Annotated[
        bool, typer.Option("--all", "-a", help="Also topics of the system and of retries.")
    ] = False,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Print the names of topics."""

    async def question(admin: "Admin") -> list[str]:
        return await admin.topics(of_system=all_topics)

    topics = ask("asking the name servers", question, name_server, config)
    rows = [{"topic": topic} for topic in topics]
    column = Column[dict[str, str]]("topic", lambda row: row["topic"])
    output_format = Format.TEXT if output_format is Format.TABLE else output_format
    write(output_format, Section(rows, [column]), document=topics)


@app.command()
def describe(
    topic: TopicArgument,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Show how a topic is set up, where it is, how full its queues are, and who reads it."""

    async def question(admin: "Admin") -> "TopicDescription":
        return await admin.describe_topic(topic)

    found = ask(f"asking the brokers for topic {topic}", question, name_server, config)
    facts: dict[str, Value] = {
        "topic": found.topic,
        "messages": found.message_count,
        "consumer groups": found.groups or None,
    }
    queue_columns: list[Column[TopicQueue]] = [
        Column("broker", lambda each: each.broker_name),
        Column("queue", lambda each: each.queue_id),
        Column("min offset", lambda each: each.min_offset),
        Column("max offset", lambda each: each.max_offset),
        Column("messages", lambda each: each.message_count),
        Column("last stored", lambda each: time_cell(each.last_store_timestamp_ms)),
    ]
    broker_columns: list[Column[TopicAtBroker]] = [
        Column("broker", lambda each: each.broker_name),
        Column("read queues", lambda each: each.read_queue_nums),
        Column("write queues", lambda each: each.write_queue_nums),
        Column("perm", lambda each: perm_text(each.perm)),
        Column("attributes", lambda each: [f"{k}={v}" for k, v in each.attributes.items()]),
        Column("nodes (0 is the master)", lambda each: _nodes(each.addresses), folds_at=", "),
    ]
    queues = Section(found.queues, queue_columns)
    brokers = Section(found.brokers, broker_columns)
    if output_format in (Format.JSON, Format.JSONL):
        records = [
            {**msgspec.structs.asdict(each), "message_count": each.message_count}
            for each in found.queues
        ]
        document = {**msgspec.structs.asdict(found), "queues": records}
        write(output_format, Section(records, []), document=document)
    else:
        write_one(output_format, found, facts, [queues, brokers])


@app.command()
def alter(
    topic: TopicArgument,
    queues: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Number of queues.", show_default=False),
    ] = None,
    perm: PermOption = None,
    attribute: AttributeOption = None,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Change queues, permissions or attributes of a topic, at every master that has it."""
    attributes = dict(map(_attribute, attribute or []))
    if queues is None and perm is None and not attributes:
        raise typer.BadParameter("name what is to change: --queues, --perm or --attribute")
    bits = None if perm is None else _perm_bits(perm)

    async def question(admin: "Admin") -> None:
        await admin.alter_topic(topic, queue_nums=queues, perm=bits, attributes=attributes)

    ask(f"changing topic {topic}", question, name_server, config)
    write_words(output_format, Done(topic, "altered"), f"topic {topic} altered")


@app.command()
def delete(
    topic: TopicArgument,
    yes: YesOption = False,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Delete a topic at all masters, and the offsets that groups have in it.

    Nobody can read its messages any more, also not after it is created again.
    """

    async def look(admin: "Admin") -> "TopicDescription":
        return await admin.describe_topic(topic)

    async def question(admin: "Admin") -> None:
        await admin.delete_topic(topic)

    found = ask(f"asking the brokers for topic {topic}", look, name_server, config)
    confirm(f"Delete topic {topic} with {found.message_count:,} messages?", yes=yes)
    ask(f"deleting topic {topic}", question, name_server, config)
    write_words(output_format, Done(topic, "deleted"), f"topic {topic} deleted")


app.command()(move)


@app.command()
def route(
    topic: TopicArgument,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Show where a topic's queues are, and which brokers serve them."""

    async def question(admin: "Admin") -> list[RouteRow]:
        data = await admin.topic_route(topic)
        brokers = {broker.broker_name: broker.broker_addrs for broker in data.broker_datas}
        return [
            RouteRow(
                queue.broker_name,
                queue.write_queue_nums,
                queue.read_queue_nums,
                perm_text(queue.perm),
                dict(sorted(brokers.get(queue.broker_name, {}).items())),
            )
            for queue in data.queue_datas
        ]

    rows = ask(f"asking the name servers for topic {topic}", question, name_server, config)
    columns: list[Column[RouteRow]] = [
        Column("broker name", lambda row: row.broker_name),
        Column("write queues", lambda row: row.write_queue_nums),
        Column("read queues", lambda row: row.read_queue_nums),
        Column("perm", lambda row: row.perm),
        Column("brokers (0 is the master)", lambda row: _nodes(row.brokers), folds_at=", "),
    ]
    write(output_format, Section(rows, columns))


def perm_text(perm: int) -> str:
    """Return permissions in words: "rw"; unknown bits as a number."""
    words = {bits: word for word, bits in PERMS.items()}
    # The lowest bit is of topics that others are made like.
    return words.get(perm & ~1, str(perm))


def _perm_bits(word: str) -> int:
    if word not in PERMS:
        raise typer.BadParameter(f"{word!r} is none of {', '.join(PERMS)}", param_hint="--perm")
    return PERMS[word]


def _attribute(text: str) -> tuple[str, str | None]:
    name, separator, value = text.partition("=")
    if not separator and name.endswith("-") and len(name) > 1:
        return name[:-1], None
    if not separator or not name or not value or "," in text:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--attribute")
    return name, value


def _nodes(addresses: dict[int, str]) -> list[str]:
    return [f"{broker_id}: {address}" for broker_id, address in addresses.items()]

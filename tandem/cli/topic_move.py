"""`tandem topic move`: a topic goes to other groups, and no message is lost or passed over.

    begin    the new groups have the topic; then the old ones are for readers alone: producers go on
             in the new ones as soon as they look at the route, and consumers read both
    drain    consumers read what is left in the old ones
    finish   the old ones forget the topic, once everybody has read it there and nobody writes;
             first all clients get the time to look at the route

Each step can be done again. Until the last one nothing is lost by going back: `--to` the old group.
A topic that moves has no order across the move: a new message may be read before an old one.
"""

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from tandem.cli.asking import YesOption, ask, confirm
from tandem.cli.formats import Column, Format, FormatOption, Section, write
from tandem.cli.output import WRONG_USAGE, CommandError, ConfigOption, NameServersOption, say

if TYPE_CHECKING:
    from tandem.client import Admin
    from tandem.client.admin_results import TopicAtBroker, TopicDescription

READ: Final = 4
WRITE: Final = 2

QUIET_SECONDS: Final = 60
"""For so long nothing may have been stored in an old group. RocketMQ's clients look at their routes
every 30 s, and write to the old group until then."""

ROUTE_SECONDS: Final = 30
"""How long a client may go by a route that it has: so long ago the old groups have to be for
readers alone before one of them forgets the topic."""

_KEPT_BY_BROKER: Final = frozenset({"hidden.before"})
"""Attributes that a broker sets itself, of a topic that was deleted and created again."""

_SET_AT_CREATION: Final = ("cleanup.policy", "queue.type")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A topic in one group."""

    group: str
    part: str
    """`old`, `new`."""
    read_queues: int
    write_queues: int
    perm: int
    messages: int
    unread: dict[str, int]
    """By consumer group, how many messages it has not consumed here; none of 0."""
    last_stored_ms: int | None


ToOption = Annotated[
    list[str],
    typer.Option(
        "--to",
        metavar="GROUP[,GROUP]...",
        help="Where it is to be, and nowhere else. Repeatable.",
        show_default=False,
    ),
]


def move(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The name of the topic.")],
    to: ToOption,
    finish: Annotated[
        bool, typer.Option("--finish", help="Take it from the old groups, if all was read there.")
    ] = False,
    accept_unread: Annotated[
        bool,
        typer.Option(
            "--accept-unread", help="With --finish: also what consumer groups have not read there."
        ),
    ] = False,
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait",
            help=f"With --finish: do not wait {ROUTE_SECONDS} s for clients to look at the route;"
            " it was moved longer ago than that.",
        ),
    ] = False,
    yes: YesOption = False,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Move a topic to other groups: writers at once, readers when they have read the rest.

    Without --finish it is begun, or said how far readers are. With it the old groups forget the
    topic, and the messages that they have of it; 30 s later, so that every client knows the way.
    """
    wanted = group_names(to)

    async def begin(admin: "Admin") -> list[Place]:
        await check_groups(admin, wanted)
        await _redirect(admin, await admin.describe_topic(topic), wanted)
        return await _places(admin, topic, wanted)

    async def look(admin: "Admin") -> list[Place]:
        await check_groups(admin, wanted)
        return await _places(admin, topic, wanted)

    if not finish:
        places = ask(f"moving topic {topic}", begin, name_server, config)
        _print(places, output_format)
        if output_format is Format.TABLE:
            say(_what_next(topic, places, wanted))
        return
    places = ask(f"asking for topic {topic}", look, name_server, config)
    old = [place for place in places if place.part == "old"]
    if refusal := why_not_finished(places, now_ms(), accept_unread=accept_unread):
        raise CommandError(f"topic {topic} stays where it is: {refusal}")
    if old:
        messages = sum(place.messages for place in old)
        names = ", ".join(place.group for place in old)
        confirm(
            f"Take topic {topic} from {names}, with {messages:,} messages, and delayed ones that"
            " wait there?",
            yes=yes,
        )
        seconds = 0 if no_wait else ROUTE_SECONDS
        forget = partial(
            _forget, topic=topic, wanted=wanted, seconds=seconds, accept_unread=accept_unread
        )
        places = ask(_waiting_words(topic, names, seconds), forget, name_server, config)
    _print(places, output_format)


def _waiting_words(topic: str, names: str, seconds: int) -> str:
    words = f"taking topic {topic} from {names}"
    if seconds:
        words += f" in {seconds} s, when every client has looked at its route"
    return words


def now_ms() -> int:
    """The wall clock, as stores have it."""
    return time.time_ns() // 1_000_000


async def _forget(
    admin: "Admin",
    *,
    topic: str,
    wanted: Collection[str],
    seconds: float,
    accept_unread: bool,
    at_ms: Callable[[], int] = now_ms,
) -> list[Place]:
    """Let the old groups forget a topic in that many seconds, if nothing speaks against it then.

    Return where it is in the new ones.

    Raises:
        CommandError: Something does: a message has come, say. Nothing was changed.
    """
    import trio

    await trio.sleep(seconds)
    places = await _places(admin, topic, wanted)
    if refusal := why_not_finished(places, at_ms(), accept_unread=accept_unread):
        raise CommandError(f"topic {topic} stays where it is: {refusal}")
    old = [place.group for place in places if place.part == "old"]
    if old:
        await admin.delete_topic(topic, broker_names=old)
    return [place for place in places if place.part == "new"]


def group_names(given: Collection[str]) -> list[str]:
    """Take names apart that have commas between them; each once.

    Raises:
        typer.BadParameter: One is empty.
    """
    names = list(dict.fromkeys(name.strip() for text in given for name in text.split(",")))
    if not all(names):
        raise typer.BadParameter("a name of a group is empty")
    return names


async def check_groups(admin: "Admin", wanted: Collection[str]) -> None:
    """Refuse groups that the cluster has not.

    Raises:
        CommandError: With those that there are.
    """
    there = sorted((await admin.cluster_info()).broker_addr_table)
    if unknown := [name for name in wanted if name not in there]:
        raise CommandError(
            f"no group {', '.join(unknown)} is registered; there are {', '.join(there) or 'none'}",
            WRONG_USAGE,
        )


def why_not_finished(places: Collection[Place], at_ms: int, *, accept_unread: bool) -> str:
    """Return why the old groups have to keep a topic; "" if they need not."""
    if not any(place.part == "new" and place.perm & WRITE for place in places):
        return "it is not in the new groups yet: give the same command without --finish"
    for place in places:
        if place.part == "new":
            continue
        if place.perm & WRITE:
            return (
                f"{place.group} still takes messages of it: give the same command without --finish"
            )
        if place.unread and not accept_unread:
            behind = ", ".join(f"{name} {count:,}" for name, count in sorted(place.unread.items()))
            return (
                f"in {place.group} there are messages that consumer groups have not read: {behind};"
                " wait, or give up those with --accept-unread"
            )
        quiet = (at_ms - (place.last_stored_ms or 0)) / 1000
        if place.messages and quiet < QUIET_SECONDS:
            return (
                f"a message came to {place.group} {max(0.0, quiet):.0f} s ago, and a client that"
                " has not looked at the route yet may send another one; try again"
                f" {QUIET_SECONDS} s after the last"
            )
    return ""


async def _redirect(admin: "Admin", found: "TopicDescription", wanted: Collection[str]) -> None:
    """Let the new groups have the topic, then let the old ones take no more messages of it."""
    has = {each.broker_name: each for each in found.brokers}
    example = _example(found.brokers, wanted)
    for name in wanted:
        _check_same_kind(example, has.get(name, example))
    for name in wanted:
        if name not in has:
            queues = max(example.read_queue_nums, example.write_queue_nums)
            await admin.create_topic(
                found.topic,
                queue_nums=queues,
                broker_name=name,
                attributes=_settable(example.attributes),
            )
        elif has[name].perm & (READ | WRITE) != READ | WRITE:
            perm = has[name].perm | READ | WRITE
            await admin.alter_topic(found.topic, perm=perm, broker_names=[name])
    for name, each in has.items():
        if name not in wanted and each.perm & WRITE:
            await admin.alter_topic(found.topic, perm=each.perm & ~WRITE, broker_names=[name])


def _settable(attributes: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in attributes.items() if name not in _KEPT_BY_BROKER}


def _check_same_kind(old: "TopicAtBroker", new: "TopicAtBroker") -> None:
    """Refuse a group whose topic of this name is of another kind for ever.

    Raises:
        CommandError: With the attribute.
    """
    for name in _SET_AT_CREATION:
        if old.attributes.get(name) != new.attributes.get(name):
            raise CommandError(
                f"{new.broker_name} has such a topic with {name}={new.attributes.get(name)}, and"
                f" {old.broker_name} one with {old.attributes.get(name)}: that is set at creation"
                " only. Delete it there first"
            )


def _example(brokers: "list[TopicAtBroker]", wanted: Collection[str]) -> "TopicAtBroker":
    """Return the setup that new groups take over: of an old group, if there is one."""
    return next((each for each in brokers if each.broker_name not in wanted), brokers[0])


async def _places(admin: "Admin", topic: str, wanted: Collection[str]) -> list[Place]:
    found = await admin.describe_topic(topic)
    unread: dict[str, dict[str, int]] = {}
    for group in found.groups:
        for queue in (await admin.describe_group(group)).queues:
            if queue.topic == topic and queue.lag > 0:
                of_broker = unread.setdefault(queue.broker_name, {})
                of_broker[group] = of_broker.get(group, 0) + queue.lag
    return [
        Place(
            group=each.broker_name,
            part="new" if each.broker_name in wanted else "old",
            read_queues=each.read_queue_nums,
            write_queues=each.write_queue_nums,
            perm=each.perm,
            messages=sum(
                queue.message_count
                for queue in found.queues
                if queue.broker_name == each.broker_name
            ),
            unread=unread.get(each.broker_name, {}),
            last_stored_ms=max(
                (
                    queue.last_store_timestamp_ms or 0
                    for queue in found.queues
                    if queue.broker_name == each.broker_name
                ),
                default=None,
            ),
        )
        for each in found.brokers
    ]


def _print(places: list[Place], output_format: Format) -> None:
    columns: list[Column[Place]] = [
        Column("group", lambda each: each.group),
        Column("part", lambda each: each.part),
        Column("takes messages", lambda each: "yes" if each.perm & WRITE else "no"),
        Column("messages", lambda each: each.messages),
        Column(
            "not read by",
            lambda each: [f"{name} {count}" for name, count in sorted(each.unread.items())] or None,
            folds_at=", ",
        ),
    ]
    write(output_format, Section(places, columns))


def _what_next(topic: str, places: Collection[Place], wanted: Collection[str]) -> str:
    old = [place.group for place in places if place.part == "old"]
    if not old:
        return f"topic {topic} is in {', '.join(wanted)} alone"
    line = f"tandem topic move {topic} --to {','.join(wanted)} --finish"
    return f"when all is read in {', '.join(old)}: `{line}`"

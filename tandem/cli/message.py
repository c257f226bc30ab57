"""`tandem message`: find messages, follow one, send dead letters again."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from tandem.cli.asking import ask
from tandem.cli.formats import Column, Format, FormatOption, Section, Value, write, write_one
from tandem.cli.grammar import TandemGroup
from tandem.cli.message_records import (
    body_preview,
    message_record,
    print_messages,
)
from tandem.cli.output import FAILED, CommandError, ConfigOption, NameServersOption, access_of
from tandem.cli.progress import run_with_progress
from tandem.cli.times import TIME_FORMS, now_ms, parsed_time_ms, time_cell
from tandem.wire.message_properties import PROPERTY_UNIQUE_KEY
from tandem.wire.system_topics import RETRY_GROUP_TOPIC_PREFIX, TRACE_TOPIC

if TYPE_CHECKING:
    from tandem.client import Admin
    from tandem.client.admin_results import ClientTrace, FateAt, GroupFate, MessageTrace
    from tandem.client.cluster_access import ClusterAccess
    from tandem.wire.message import MessageExt

app = typer.Typer(
    cls=TandemGroup,
    help="Find messages, follow one through retries, send dead letters again.",
    no_args_is_help=True,
)

IdArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[ID]",
        help="Its offset id, or its unique key (then with --topic).",
        show_default=False,
    ),
]
TopicOption = Annotated[str, typer.Option("--topic", "-t", help="The topic it is in.")]
MaxOption = Annotated[int, typer.Option("--max", min=1, max=100_000, help="At most this many.")]

DEAD_LETTERS_MAX: Final = 100_000


class Resent(msgspec.Struct, frozen=True):
    """What became of one dead letter."""

    letter_id: str
    """Its offset id in the queue of dead letters."""
    origin_id: str
    topic: str
    result: str
    """`would be sent`, `sent`, `sent before`, or why not."""
    message_id: str = ""
    """Unique key of the new message."""


@app.command()
def show(
    message_id: IdArgument = None,
    topic: TopicOption = "",
    key: Annotated[str, typer.Option("--key", "-k", help="All messages with this key.")] = "",
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help=f"Stored since: {TIME_FORMS}."),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="Stored before; now if left out."),
    ] = None,
    count_max: MaxOption = 32,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Show messages: one by its id, all with a key, or those of a time.

    Exit status 1 if there is none.
    """
    begin_ms = 0 if start is None else parsed_time_ms(start, "--from")
    end_ms = now_ms() + 1 if end is None else parsed_time_ms(end, "--to")
    if message_id and (key or start or end):
        raise typer.BadParameter("an ID is one message: without --key, --from and --to")
    if not message_id and not topic:
        raise typer.BadParameter("give an ID, or --topic with --key or --from")
    if not message_id and not key and start is None:
        raise typer.BadParameter("give --key, or --from and perhaps --to, with --topic")

    async def question(admin: "Admin") -> "list[MessageExt]":
        if message_id:
            return [await admin.message(message_id, topic)]
        if key:
            return await admin.messages_by_key(
                topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms
            )
        return await admin.messages_by_time(
            topic, from_ms=begin_ms, to_ms=end_ms, count_max=count_max
        )

    found = ask("looking for messages", question, name_server, config)
    if not found:
        what = f"key {key!r}" if key else "that time"
        raise CommandError(f"topic {topic!r} has no message of {what}", FAILED)
    print_messages(found, output_format, whole=bool(message_id))


@app.command()
def trace(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Unique key, or offset id.")],
    topic: TopicOption,
    trace_topic: Annotated[
        str, typer.Option("--trace-topic", help="Where clients write their traces.")
    ] = TRACE_TOPIC,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Follow a message through the groups that read its topic: retries, dead letters, where it is.

    The offsets of a group say what it has consumed, so a message that was passed over by a filter
    or a reset counts as consumed. What clients have said themselves is shown if they write traces.
    """

    async def question(admin: "Admin") -> "tuple[MessageTrace, list[ClientTrace]]":
        found = await admin.trace_message(topic, message_id)
        key = found.message.properties.get(PROPERTY_UNIQUE_KEY)
        return found, [] if key is None else await admin.client_traces(key, trace_topic)

    found, said = ask(f"following message {message_id}", question, name_server, config)
    record = message_record(found.message)
    group_columns: list[Column[GroupFate]] = [
        Column("group", lambda each: each.group),
        Column("state", lambda each: each.state, {"dead letter": "bold red", "consumed": "green"}),
        Column("deliveries", lambda each: each.times),
        Column(
            "retries",
            lambda each: sum(p.topic.startswith(RETRY_GROUP_TOPIC_PREFIX) for p in each.places),
        ),
    ]
    places: list[FateAt] = [place for each in found.groups for place in each.places]
    place_columns: list[Column[FateAt]] = [
        Column("stored", lambda each: time_cell(each.store_timestamp_ms)),
        Column("topic", lambda each: each.topic),
        Column("queue", lambda each: each.queue_id),
        Column("offset", lambda each: each.queue_offset),
        Column("reconsume times", lambda each: each.reconsume_times),
        Column("offset id", lambda each: each.offset_msg_id),
    ]
    groups = Section(found.groups, group_columns, none="no consumer group has read this topic")
    if output_format is Format.JSONL:
        write(output_format, groups)
        return
    facts: dict[str, Value] = {
        "message": record.msg_id,
        "topic": f"{record.topic}, queue {record.queue_id}, offset {record.queue_offset}",
        "stored": record.store_time,
        "keys": record.keys or None,
        "tags": record.tags or None,
        "body": body_preview(found.message.body),
    }
    document = {"message": record, "groups": found.groups, "clients": said}
    clients = Section(said, _CLIENT_COLUMNS, title="said by clients")
    write_one(output_format, document, facts, [groups, Section(places, place_columns), clients])


_CLIENT_COLUMNS: Final["list[Column[ClientTrace]]"] = [
    Column("time", lambda each: time_cell(each.time_ms)),
    Column("event", lambda each: each.event.value, {"send failed": "bold red"}),
    Column("group", lambda each: each.group),
    Column("took ms", lambda each: each.cost_ms),
    Column("reconsume times", lambda each: each.retry_times),
    Column("broker", lambda each: each.store_host or None),
    Column("detail", lambda each: each.detail or None, folds_at=" "),
]


def _retries(fate: "GroupFate") -> int:
    return sum(place.topic.startswith(RETRY_GROUP_TOPIC_PREFIX) for place in fate.places)


@app.command()
def resend(
    group: Annotated[
        str, typer.Argument(metavar="GROUP", help="Whose dead letters: those of %DLQ%GROUP.")
    ],
    message_id: Annotated[
        list[str] | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="Only this one, by unique key or offset id. Repeatable.",
            show_default=False,
        ),
    ] = None,
    count_max: Annotated[
        int | None,
        typer.Option("--max", min=1, help="At most this many, oldest first.", show_default=False),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also those that were sent already, once more.")
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", "--yes", "-y", help="Do it; without this it is a dry run.")
    ] = False,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Send dead letters to their first topics again. A dry run, unless --execute is given.

    The dead letters stay where they are, and every group that reads the topic gets the message. One
    that is there twice is sent once, and one that was sent already is not sent again, unless
    --again is given. Exit status 1 if one could not be sent.
    """
    letters = _letters(group, message_id, name_server, config)[:count_max]
    access = access_of(name_server, config)
    doing = "sending dead letters" if execute else "looking for those that were sent already"
    results: list[Resent] = []
    try:
        options = Resending(execute=execute, again=again)
        run_with_progress(doing, _resend, letters, access, options, results)
    finally:  # also of what was sent before Ctrl-C
        _print_resent(group, results, output_format)
    if results and not execute:
        typer.echo("dry run: nothing was sent; add --execute to do it", err=True)
    if any(each.result not in _GOOD for each in results):
        raise typer.Exit(FAILED)


def _print_resent(group: str, results: list[Resent], output_format: Format) -> None:
    columns: list[Column[Resent]] = [
        Column("dead letter", lambda each: each.letter_id),
        Column("was", lambda each: each.origin_id, rank=1),
        Column("topic", lambda each: each.topic or None),
        Column("result", lambda each: each.result, folds_at=" "),
        Column("is now", lambda each: each.message_id or None, rank=1),
    ]
    write(output_format, Section(results, columns, none=f"group {group} has no dead letters"))


_WOULD_BE_SENT: Final = "would be sent"
_SENT: Final = "sent"
_TWO_SENDERS: Final = "sent; it is there twice: another has sent it at the same moment"
_TWICE: Final = "there twice: sent once"
_BEFORE: Final = "sent before"
_IN_FLIGHT: Final = "in flight, outcome unknown"
_GOOD: Final = frozenset({_WOULD_BE_SENT, _SENT, _TWO_SENDERS, _TWICE, _BEFORE})


class Resending(msgspec.Struct, frozen=True):
    """What is to be done."""

    execute: bool = True
    again: bool = False
    """Also with those that were sent already."""


def _letters(
    group: str, wanted: list[str] | None, name_server: list[str] | None, config: Path | None
) -> "list[MessageExt]":
    from tandem.client.dead_letter import origin_id
    from tandem.client.errors import RouteNotFoundError
    from tandem.wire.system_topics import dlq_topic

    async def question(admin: "Admin") -> "list[MessageExt]":
        try:
            return await admin.messages_of(dlq_topic(group), count_max=DEAD_LETTERS_MAX)
        except RouteNotFoundError as error:
            if error.may_pass:
                raise
            await admin.describe_group(group)  # which says so, if there is no such group
            return []

    letters = ask(f"reading the dead letters of group {group}", question, name_server, config)
    if not wanted:
        return letters
    found = [each for each in letters if {each.offset_msg_id, origin_id(each)} & set(wanted)]
    known = {name for each in found for name in (each.offset_msg_id, origin_id(each))}
    if missing := [each for each in wanted if each not in known]:
        raise CommandError(f"group {group} has no dead letter {', '.join(missing)}", FAILED)
    return found


def _planned(letter: "MessageExt") -> Resent:
    from tandem.client.dead_letter import origin_id, origin_topic

    topic = origin_topic(letter)
    result = _WOULD_BE_SENT if topic else "does not say what its topic was"
    return Resent(letter.offset_msg_id, origin_id(letter), topic, result)


async def _resend(
    letters: "list[MessageExt]",
    access: "ClusterAccess",
    options: Resending,
    results: list[Resent],
) -> None:
    """Add what became of each letter to `results`, as it becomes known."""
    from tandem.client import Admin, Producer
    from tandem.client.errors import ClientError
    from tandem.views.resending import RESEND_GROUP, find_resent, send_again

    sent: dict[str, str] = {}
    async with (
        Admin(access) as admin,
        Producer(access, group=RESEND_GROUP) as producer,
    ):
        for letter in letters:
            planned = _planned(letter)
            results.append(planned)
            if planned.result != _WOULD_BE_SENT:
                continue
            before = None if options.again else await find_resent(admin, letter)
            if planned.origin_id in sent:
                results[-1] = _with(planned, _TWICE, sent[planned.origin_id])
            elif before is not None:
                sent[planned.origin_id] = before.message_id
                results[-1] = _with(planned, _BEFORE, before.message_id)
            elif options.execute:
                results[-1] = _with(planned, _IN_FLIGHT)
                try:
                    answer = await send_again(
                        admin, producer, letter, by=access.access_key, again=options.again
                    )
                except ClientError as error:
                    results[-1] = _with(planned, str(error))
                else:
                    sent[planned.origin_id] = answer.message_id
                    result = _TWO_SENDERS if (answer.copies or 1) > 1 else _SENT
                    results[-1] = _with(planned, result, answer.message_id)


def _with(planned: Resent, result: str, message_id: str = "") -> Resent:
    return msgspec.structs.replace(planned, result=result, message_id=message_id)

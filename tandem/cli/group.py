"""`tandem group`: consumer groups, their members and lag, and where they go on."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

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
from tandem.cli.output import (
    FAILED,
    CommandError,
    ConfigOption,
    NameServersOption,
    access_of,
    finite,
    is_for_people,
    run,
    say_error,
    words_of,
)
from tandem.cli.times import MILLISECONDS_MIN, TIME_FORMS, parsed_time_ms, time_cell

if TYPE_CHECKING:
    from tandem.client import Admin
    from tandem.client.admin_results import (
        GroupDescription,
        GroupMember,
        GroupQueue,
        GroupSummary,
        OffsetChange,
        ResetPlan,
    )
    from tandem.client.cluster_access import ClusterAccess
    from tandem.client.group_admin import ResetTo

app = typer.Typer(
    cls=TandemGroup,
    help="Consumer groups: members, lag, and where they go on.",
    no_args_is_help=True,
)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")]

HOME_AND_CLEAR: Final = "\x1b[H\x1b[J"

DIGITS_MAX: Final = 18


class Done(msgspec.Struct, frozen=True):
    """What a verb has done, for programs."""

    group: str
    action: str


class Reset(msgspec.Struct, frozen=True):
    """What `reset` did or, in a dry run, would do."""

    group: str
    executed: bool
    members_count: int
    applied_by: str
    """`broker`, `commit`; empty in a dry run."""
    changes: "list[OffsetChange]"


@app.command(name="list")
def list_groups(
    all_groups: Annotated[
        bool, typer.Option("--all", "-a", help="Also groups of brokers and tools.")
    ] = False,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Print consumer groups with members, topics and lag."""

    async def question(admin: "Admin") -> "list[GroupSummary]":
        return await admin.consumer_groups(of_system=all_groups)

    groups = ask("asking the brokers", question, name_server, config)
    columns: list[Column[GroupSummary]] = [
        Column("group", lambda each: each.group),
        Column("members", lambda each: each.members_count),
        Column("lag", lambda each: _lag_cell(each.lag)),
        Column("topics", lambda each: each.topics or None),
    ]
    write(output_format, Section(groups, columns, none="no consumer groups"))


@app.command()
def describe(
    group: GroupArgument,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Only this topic.", show_default=False)
    ] = None,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            "-w",
            min=0.1,
            max=86_400,
            metavar="SECONDS",
            callback=finite,
            help="Look again at this interval, in seconds, until Ctrl-C.",
            show_default=False,
        ),
    ] = None,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Show the members of a group, who reads which queue, offsets and lag."""

    async def question(admin: "Admin") -> "GroupDescription":
        found = await admin.describe_group(group)
        queues = [each for each in found.queues if topic in (None, each.topic)]
        return msgspec.structs.replace(found, queues=queues)

    if watch is None:
        found = ask(f"asking the brokers for group {group}", question, name_server, config)
        _print(found, output_format)
        return
    if output_format is Format.JSON:
        raise typer.BadParameter("goes with table, jsonl and text", param_hint="--watch")
    run(_watch, access_of(name_server, config), question, watch, output_format)


async def _watch(
    access: "ClusterAccess",
    question: "Callable[[Admin], Awaitable[GroupDescription]]",
    seconds: float,
    output_format: Format,
) -> None:
    import trio

    from tandem.client import Admin
    from tandem.client.errors import ClientError, GroupNotFoundError

    draws_over = is_for_people() and output_format is Format.TABLE
    async with Admin(access) as admin:
        found = await question(admin)
        while True:
            if draws_over:
                sys.stdout.write(HOME_AND_CLEAR)
            _print(found, output_format)
            sys.stdout.flush()
            await trio.sleep(seconds)
            try:
                found = await question(admin)
            except GroupNotFoundError:
                raise
            except ClientError as error:  # there may be a master again in a moment
                say_error(words_of(error))


def _print(found: "GroupDescription", output_format: Format) -> None:
    queue_columns: list[Column[GroupQueue]] = [
        Column("topic", lambda each: each.topic),
        Column("broker", lambda each: each.broker_name),
        Column("queue", lambda each: each.queue_id),
        Column("offset", lambda each: each.consumer_offset),
        Column("end", lambda each: each.broker_offset),
        Column("lag", lambda each: _lag_cell(each.lag)),
        Column("in flight", lambda each: each.inflight),
        Column("last consumed", lambda each: time_cell(each.last_consumed_timestamp_ms), rank=2),
        Column("member", lambda each: each.client_id or None, rank=1),
    ]
    member_columns: list[Column[GroupMember]] = [
        Column("member", lambda each: each.client_id),
        Column("address", lambda each: each.address),
        Column("language", lambda each: each.language),
        Column("version", lambda each: each.version),
        Column("queues", lambda each: each.queues_count),
    ]
    queues = Section(found.queues, queue_columns, none="no offsets")
    if output_format in (Format.JSON, Format.JSONL):
        records = [_queue_record(each) for each in found.queues]
        document = {**msgspec.structs.asdict(found), "queues": records, "lag": found.lag}
        write(output_format, Section(records, []), document=document)
        return
    wanted = [f"{topic} {words}" for topic, words in found.subscriptions.items()]
    facts: dict[str, Value] = {
        "group": found.group,
        "members": len(found.members),
        "model": found.message_model.lower() or None,
        "subscriptions": wanted or None,
        "lag": _lag_cell(found.lag),
    }
    members = Section(found.members, member_columns, none="no member is online")
    write_one(output_format, found, facts, [queues, members])


def _lag_cell(lag: int) -> Value:
    return lag if lag >= 0 else f"past the end by {-lag:,}"


def _queue_record(queue: "GroupQueue") -> dict[str, Any]:
    return {**msgspec.structs.asdict(queue), "lag": queue.lag, "inflight": queue.inflight}


@app.command()
def reset(
    group: GroupArgument,
    topic: Annotated[str, typer.Option("--topic", "-t", help="In this topic.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="earliest|latest|TIME|OFFSET",
            help=f"Where to go on; a TIME is one such as {TIME_FORMS}.",
        ),
    ],
    queue: Annotated[
        list[int] | None,
        typer.Option(
            "--queue", min=0, help="Only this queue id. Repeat it for several.", show_default="all"
        ),
    ] = None,
    broker: Annotated[
        str | None, typer.Option("--broker", help="Only at this broker.", show_default=False)
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", "--yes", "-y", help="Do it; without this it is a dry run.")
    ] = False,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Let a group go on elsewhere in a topic. A dry run, unless --execute is given.

    The broker changes the offsets, and tells members that are online with their next pull. Offsets
    that a queue does not have become the nearest that it has.
    """
    where, number = _reset_to(to)

    async def question(admin: "Admin") -> Reset:
        await admin.describe_group(group)
        plan = await admin.plan_reset(group, topic, where, number)
        plan = _of_queues(plan, queue or [], broker)
        way = (await admin.apply_reset(plan)).value if execute else ""
        return Reset(group, execute, plan.members_count, way, plan.changes)

    found = ask(f"asking the brokers for group {group}", question, name_server, config)
    columns: list[Column[OffsetChange]] = [
        Column("broker", lambda each: each.broker_name),
        Column("queue", lambda each: each.queue_id),
        Column("old offset", lambda each: each.old_offset),
        Column("new offset", lambda each: each.new_offset),
        Column("messages", _effect),
    ]
    section = Section(found.changes, columns)
    write(output_format, section, document=found)
    _say(_reset_words(found))


def _of_queues(plan: "ResetPlan", queue_ids: list[int], broker: str | None) -> "ResetPlan":
    """Return the part of a plan that was asked for.

    Raises:
        CommandError: there is no such queue.
    """
    changes = [
        change
        for change in plan.changes
        if (not queue_ids or change.queue_id in queue_ids) and broker in (None, change.broker_name)
    ]
    missing = set(queue_ids) - {change.queue_id for change in changes}
    if missing or not changes:
        what = f"queue {min(missing)}" if missing else "queue"
        raise CommandError(f"there is no {what}" + f" at {broker}" * (broker is not None), 2)
    return msgspec.structs.replace(plan, changes=changes)


def _effect(change: "OffsetChange") -> str | None:
    """How many messages are consumed again, or passed over."""
    old = change.min_offset if change.old_offset is None else change.old_offset
    if change.new_offset == old:
        return None
    verb = "skips" if change.new_offset > old else "repeats"
    return f"{verb} {abs(change.new_offset - old):,}"


def _reset_words(found: Reset) -> str:
    online = (
        f"{found.members_count} members are online"
        if found.members_count != 1
        else "1 member is online"
    )
    if not found.executed:
        how = ", and will go on there with their next pull" if found.members_count else ""
        return f"dry run: nothing was changed; add --execute to do it. {online}{how}"
    if found.applied_by == "broker":
        return f"done: set by the brokers, which tell members that are online. {online}"
    return f"done: committed, because these brokers set none. {online}" + (
        "; members that are online may commit over it: stop them, and do it again"
    ) * bool(found.members_count)


def _say(words: str) -> None:
    """A remark: not the result, so not on standard output."""
    typer.echo(words, err=True)


def _reset_to(text: str) -> "tuple[ResetTo, int]":
    from tandem.client.group_admin import ResetTo

    if text in ("earliest", "latest"):
        return ResetTo(text), 0
    is_number = text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX
    if is_number and int(text) < MILLISECONDS_MIN:
        return ResetTo.OFFSET, int(text)
    try:
        return ResetTo.TIME, parsed_time_ms(text, "--to")
    except typer.BadParameter as error:
        raise typer.BadParameter(
            f"{text[:100]!r} is neither earliest, latest, an offset nor a time: {TIME_FORMS}",
            param_hint="--to",
        ) from error


@app.command()
def delete(
    group: GroupArgument,
    yes: YesOption = False,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="Delete its dead letters, too.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also while members are online, which bring it back.")
    ] = False,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Forget a group: its settings, its offsets, and what waits to be delivered again."""
    found = _described(group, name_server, config)
    if found.members and not force:
        raise CommandError(
            f"group {group} has {len(found.members)} members online, which would bring it back:"
            " stop them first, or add --force",
            FAILED,
        )
    confirm(f"Delete consumer group {group}, with a lag of {found.lag:,}?", yes=yes)

    async def question(admin: "Admin") -> None:
        await admin.delete_group(group, with_dead_letters=dead_letters)

    ask(f"deleting group {group}", question, name_server, config)
    write_words(output_format, Done(group, "deleted"), f"group {group} deleted")


def _described(
    group: str, name_server: list[str] | None, config: Path | None
) -> "GroupDescription":
    async def look(admin: "Admin") -> "GroupDescription":
        return await admin.describe_group(group)

    return ask(f"asking the brokers for group {group}", look, name_server, config)

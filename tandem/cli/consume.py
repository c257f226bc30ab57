"""`tandem consume`: print the messages of a topic."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from tandem.cli.interrupts import stopped_by_signals
from tandem.cli.message_format import BodyForm, TemplateError
from tandem.cli.message_printers import JSON, TABLE, MessagePrinter, message_printer
from tandem.cli.output import (
    FAILED,
    CommandError,
    ConfigOption,
    NameServersOption,
    access_of,
    run,
)
from tandem.cli.progress import working
from tandem.cli.queue_places import PLACE_FORMS, Place, place_of
from tandem.cli.times import now_ms
from tandem.plain_text import plain

if TYPE_CHECKING:
    from tandem.client import ClientError, MessageQueue, PullConsumer
    from tandem.client.cluster_access import ClusterAccess
    from tandem.wire.message import MessageExt

GROUP_WITHOUT_OFFSETS: Final = "tandem-consume"
MESSAGES_PER_PULL_MAX: Final = 256
FOLLOW_SUSPEND_MS: Final = 2_000
"""How long a broker holds a pull that finds nothing; a frozen one is found out 5 s later."""

RETRY_SECONDS: Final = 1.0

PATIENCE_SECONDS: Final = 15.0
"""How long a reader up to the end waits for a broker: longer than a change of master takes."""

LAST_COMMIT_SECONDS: Final = 5.0
"""How long Ctrl-C waits for a master that takes the group's offsets."""


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for. `group` is empty for none, `key` for all."""

    topic: str
    group: str = ""
    start: Place = Place(word="earliest")
    end: Place = Place(word="latest")
    queue_ids: frozenset[int] = frozenset()
    key: str = ""
    tags: str = "*"
    sql: str | None = None
    count_max: int | None = None
    follow: bool = False


GroupOption = Annotated[
    str, typer.Option(help="Consumer group: go on where it stopped, and remember it.")
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="PLACE",
        help=f"Where to begin: {PLACE_FORMS}.",
        show_default="committed with a group, else earliest",
    ),
]
ToOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="PLACE",
        help="Where to stop, before this place; as for --from.",
        show_default="latest",
    ),
]
QueueOption = Annotated[
    list[int] | None,
    typer.Option(
        "--queue", min=0, help="Only this queue id. Repeat it for several.", show_default="all"
    ),
]
KeyOption = Annotated[str, typer.Option(help="Only messages that have this key.")]
TagsOption = Annotated[str, typer.Option(help="Only messages with these tags: 'a || b'.")]
SqlOption = Annotated[
    str | None,
    typer.Option(
        metavar="EXPRESSION",
        help="Only messages whose properties fit, in SQL92: \"a > 5 AND b = 'x'\"."
        " Needs broker.enable_property_filter.",
        show_default=False,
    ),
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="text|table|json|jsonl|TEMPLATE",
        help="The bodies, or more; a template is as '%T %k %v', see docs/command-line.md.",
    ),
]
BodyOption = Annotated[
    BodyForm,
    typer.Option("--body", help="How a body that is not UTF-8 is printed."),
]


def consume(
    topic: Annotated[str, typer.Argument(help="What to read.")],
    group: GroupOption = "",
    start: FromOption = None,
    end: ToOption = None,
    queue: QueueOption = None,
    key: KeyOption = "",
    tags: TagsOption = "*",
    sql: SqlOption = None,
    count_max: Annotated[
        int | None,
        typer.Option("--max", min=1, help="Stop after this many messages.", show_default=False),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new messages until Ctrl-C.")
    ] = False,
    output_format: FormatOption = "text",
    body: BodyOption = BodyForm.TEXT,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Print the messages of a topic.

    They come queue by queue, up to the present end. A group's offset is stored after the messages
    before it were printed, so after an interruption some may be printed twice, none is left out.
    What a filter leaves out counts as read.
    """
    now = now_ms()
    if sql is not None and tags != "*":
        raise typer.BadParameter("say TAGS = 'a' in the expression", param_hint="--tags")
    if follow and end is not None:
        raise typer.BadParameter("says where to stop, --follow never does", param_hint="--to")
    if follow and output_format in (JSON, TABLE):
        raise typer.BadParameter(
            f"{output_format} is whole at the end only; with --follow take jsonl, text or a"
            " template",
            param_hint="--format",
        )
    start = start or ("committed" if group else "earliest")
    choices = Choices(
        topic=topic,
        group=group,
        start=place_of(start, "--from", now_ms=now, has_group=bool(group)),
        end=place_of(end or "latest", "--to", now_ms=now, has_group=bool(group)),
        queue_ids=frozenset(queue or ()),
        key=key,
        tags=tags,
        sql=sql,
        count_max=count_max,
        follow=follow,
    )
    try:
        printer = message_printer(output_format, body)
    except TemplateError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from error
    access = access_of(name_server, config)
    status = run(_consume, choices, printer, access)
    if status:
        raise typer.Exit(status)


class Reader:
    """Reads the queues of one topic and prints; counts over all queues."""

    def __init__(self, consumer: "PullConsumer", choices: Choices, printer: MessagePrinter) -> None:
        self._consumer = consumer
        self._choices = choices
        self._printer = printer
        self._left = choices.count_max
        self._printed_up_to: dict[MessageQueue, int] = {}
        """Offsets of the group that are not stored yet."""
        self._seen: set[MessageQueue] = set()
        """Queues of which something was read."""
        self._troubles: dict[MessageQueue, str] = {}
        self.count = 0
        self.say_news: Callable[[str], None] = lambda _: None
        """Called with how far it is."""

    @property
    def is_done(self) -> bool:
        """Whether as many were printed as were asked for."""
        return self._left == 0

    async def read_all(self, queues: "list[MessageQueue]") -> None:
        """Print what is in some queues, one after the other."""
        for queue in queues:
            await self.read_to_end(queue)

    async def read_to_end(self, queue: "MessageQueue") -> None:
        """Print what is in a queue now, up to the place that was asked for.

        Waits for a broker, but not for ever.
        """
        import trio

        offset = await self._choices.start.in_queue(self._consumer, queue)
        end = await self._consumer.max_offset(queue)
        if self._choices.end != Place(word="latest"):
            end = min(end, await self._choices.end.in_queue(self._consumer, queue))
        if self._choices.start.word == "committed":
            await self._wait_for_end(queue, offset)
        give_up = trio.current_time() + PATIENCE_SECONDS
        while offset < end and not self.is_done:
            try:
                offset = await self._step(queue, offset, end, 0)
            except _client_error() as error:
                if trio.current_time() > give_up:
                    raise
                await self._wait_out(queue, error)
            else:
                give_up = trio.current_time() + PATIENCE_SECONDS

    async def follow(self, queue: "MessageQueue", stop: Callable[[], None]) -> None:
        """Print a queue for ever; wait and go on while no broker answers or all refuse."""
        offset: int | None = None
        while not self.is_done:
            try:
                if offset is None:
                    offset = await self._choices.start.in_queue(self._consumer, queue)
                offset = await self._step(queue, offset, None, FOLLOW_SUSPEND_MS)
            except _client_error() as error:
                await self._wait_out(queue, error)
        stop()

    async def _wait_for_end(self, queue: "MessageQueue", offset: int) -> None:
        """Wait where the master says that a queue ends before `offset`, but not for ever.

        Raises:
            CommandError: it keeps saying so.
        """
        import trio

        from tandem.client.pull_flow import BEYOND_END_SECONDS

        give_up = trio.current_time() + BEYOND_END_SECONDS
        is_said = False
        while (end := await self._consumer.max_offset(queue)) < offset:
            if trio.current_time() >= give_up:
                raise CommandError(_beyond_end(queue, offset, end, self._choices.group), FAILED)
            if not is_said:
                _warn(f"queue {queue.queue_id} ends at {end}, before {offset}; waiting")
            is_said = True
            await trio.sleep(RETRY_SECONDS)

    async def store_offsets(self) -> None:
        """Store the group's offsets that are not stored yet, if a master takes them in time."""
        for queue, offset in list(self._printed_up_to.items()):
            await self._consumer.update_consume_offset(
                queue, offset, timeout_ms=round(LAST_COMMIT_SECONDS * 1000)
            )
            del self._printed_up_to[queue]

    async def _wait_out(self, queue: "MessageQueue", error: "ClientError") -> None:
        """Pause if that may help. A reason that several queues share is said once.

        Raises:
            ClientError: `error`, which does not pass by itself.
            CommandError: The broker does not take the expression.
        """
        import trio

        from tandem.client.queue_flow import may_pass

        if self._choices.sql is not None:
            _check_expression(error)
        if not may_pass(error):
            raise error
        text = str(error)
        if text not in self._troubles.values():
            _warn(f"{text}; trying again")
        self._troubles[queue] = text
        await trio.sleep(RETRY_SECONDS)

    def _goes_on(self, queue: "MessageQueue") -> None:
        if self._troubles.pop(queue, None) is not None and not self._troubles:
            _warn("reading again")

    async def _step(
        self, queue: "MessageQueue", offset: int, end: int | None, suspend_ms: int
    ) -> int:
        """Pull once and print, store the group's offset, return the next offset.

        It never goes back: a queue that ends before `offset` is waited for.
        """
        import trio

        from tandem.client import PullStatus

        result = await self._consumer.pull(
            queue,
            offset,
            max_msg_nums=MESSAGES_PER_PULL_MAX,
            tags=self._choices.tags,
            suspend_timeout_ms=suspend_ms,
            sql=self._choices.sql,
        )
        self._goes_on(queue)
        next_offset = result.next_begin_offset
        if next_offset < offset:
            # A place that was asked for may be one that is still to come.
            if queue in self._seen or self._choices.start.word == "committed":
                await self._wait_for_end(queue, offset)
            else:
                _warn(f"queue {queue.queue_id} ends at {next_offset}, before {offset}; waiting")
            await trio.sleep(RETRY_SECONDS)
            return offset
        has_waited = end is None and result.status is not PullStatus.OFFSET_ILLEGAL
        if next_offset == offset and not has_waited:
            # A node that lags behind the master, or has deleted what the master may still have.
            await trio.sleep(RETRY_SECONDS)
            return offset
        self._seen.add(queue)
        next_offset = self._print(queue, result.messages, end, next_offset)
        if self._choices.group and next_offset != offset:
            self._printed_up_to[queue] = next_offset
            await self._consumer.update_consume_offset(queue, next_offset)
            self._printed_up_to.pop(queue, None)
        return next_offset

    def _print(
        self, queue: "MessageQueue", messages: "list[MessageExt]", end: int | None, next_offset: int
    ) -> int:
        """Print what is wanted; return where to go on, which is earlier if it is enough now."""
        key = self._choices.key
        for message in messages:
            if self.is_done or (end is not None and message.queue_offset >= end):
                next_offset = message.queue_offset
                break
            if key and key not in message.keys.split():
                continue
            self._printer.show(message, queue.broker_name)
            self.count += 1
            if self._left is not None:
                self._left -= 1
        sys.stdout.flush()
        self.say_news(f"{self.count:,} messages")
        return next_offset


def _beyond_end(queue: "MessageQueue", offset: int, end: int, group: str) -> str:
    remedy = (
        f"`tandem group reset {group} --topic {queue.topic} --to latest --execute` goes on at the"
        " end, `--to earliest` reads all again"
        if group
        else "begin again with --from"
    )
    return (
        f"queue {queue.queue_id} of topic {queue.topic} at {queue.broker_name} ends at {end},"
        f" before {offset}: what was read is not there any more; {remedy}"
    )


def _client_error() -> "type[ClientError]":
    from tandem.client import ClientError

    return ClientError


def _check_expression(error: "ClientError") -> None:
    """Say what to do if a broker does not filter by SQL92, or cannot read the expression."""
    from tandem.client import BrokerError
    from tandem.wire.response_code import ResponseCode

    if not isinstance(error, BrokerError):
        return
    if error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
        words = plain(error.remark) or "no reason given"
        raise CommandError(f"--sql: the broker cannot read the expression: {words}", 2) from error
    # Source: RocketMQ 5.3.3, PullMessageProcessor: SYSTEM_ERROR, with these words.
    if "does not support consumer to filter" in error.remark:
        raise CommandError(
            "the broker does not filter by SQL92: set broker.enable_property_filter: true in its"
            " cluster file and restart its nodes, or filter by --tags",
            1,
        ) from error


def _warn(text: str) -> None:
    typer.secho(plain(text), err=True, fg=typer.colors.YELLOW)


async def _consume(choices: Choices, printer: MessagePrinter, access: "ClusterAccess") -> int:
    import trio

    from tandem.client import PullConsumer

    group = choices.group or GROUP_WITHOUT_OFFSETS
    async with PullConsumer(access, group=group) as consumer:
        reader = Reader(consumer, choices, printer)
        async with working(f"looking for the queues of {choices.topic}"):
            found = await consumer.fetch_message_queues(choices.topic)
        queues = _chosen(sorted(found), choices)
        with printer:
            async with stopped_by_signals() as stopped:
                if choices.follow:
                    async with trio.open_nursery() as nursery:
                        for queue in queues:
                            nursery.start_soon(reader.follow, queue, nursery.cancel_scope.cancel)
                elif sys.stdout.isatty():  # where the messages themselves are seen
                    await reader.read_all(queues)
                else:
                    async with working("reading") as reader.say_news:
                        await reader.read_all(queues)
        if not stopped:
            return 0
        await reader.store_offsets()
        where = f"; group {group} goes on there" if choices.group else ""
        messages = "message" if reader.count == 1 else "messages"
        _warn(f"stopped after {reader.count:,} {messages}{where}")
        return 128 + stopped[0]


def _chosen(queues: "list[MessageQueue]", choices: Choices) -> "list[MessageQueue]":
    there = {queue.queue_id for queue in queues}
    if missing := sorted(choices.queue_ids - there):
        raise CommandError(
            f"topic {choices.topic} has no queue {missing[0]}; it has {min(there)} to {max(there)}"
            if there
            else f"topic {choices.topic} has no queue that can be read",
            2,
        )
    return [
        queue for queue in queues if not choices.queue_ids or queue.queue_id in choices.queue_ids
    ]

"""`tandem consume`: print the messages of a topic."""

import enum
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from tandem.cli.output import (
    ConfigOption,
    NameServersOption,
    name_servers_of,
    print_json,
    run,
    shown,
    stderr,
)
from tandem.plain_text import plain

if TYPE_CHECKING:
    from tandem.client import MessageQueue, PullConsumer
    from tandem.wire.message import MessageExt

GROUP_WITHOUT_OFFSETS: Final = "tandem-consume"
MESSAGES_PER_PULL_MAX: Final = 256
FOLLOW_SUSPEND_MS: Final = 2_000
"""How long a broker holds a pull that finds nothing; a frozen one is found out 5 s later."""

RETRY_SECONDS: Final = 1.0


class Format(enum.StrEnum):
    """How a message is printed: its body and nothing else, or all of it as JSON."""

    TEXT = "text"
    JSON = "json"


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for. `start` is a word or a number, `group` empty for none."""

    topic: str
    group: str
    start: str
    tags: str
    count_max: int | None
    follow: bool
    format: Format


def consume(
    topic: Annotated[str, typer.Argument()],
    group: Annotated[
        str, typer.Option(help="Consumer group: go on where it stopped, and remember it.")
    ] = "",
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="earliest|latest|committed|OFFSET",
            help="Where to begin; `committed` with a group, else `earliest`.",
            show_default=False,
        ),
    ] = None,
    tags: Annotated[str, typer.Option(help="Only messages with these tags: 'a || b'.")] = "*",
    count_max: Annotated[
        int | None,
        typer.Option("--max", min=1, help="Stop after this many messages.", show_default=False),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new messages until Ctrl-C.")
    ] = False,
    output_format: Annotated[
        Format, typer.Option("--format", help="The bodies, or everything as a line of JSON.")
    ] = Format.TEXT,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Print the messages of a topic, queue by queue, up to the present end.

    A group's offset is stored after the messages before it were printed, so after an interruption
    some may be printed twice, none is left out.
    """
    choices = Choices(
        topic=topic,
        group=group,
        start=_checked_start(start, group),
        tags=tags,
        count_max=count_max,
        follow=follow,
        format=output_format,
    )
    run(_consume, choices, name_servers_of(name_server, config))


def _checked_start(start: str | None, group: str) -> str:
    if start is None:
        return "committed" if group else "earliest"
    if start == "committed" and not group:
        raise typer.BadParameter(
            "committed offsets are a group's: add --group", param_hint="--from"
        )
    if start not in ("earliest", "latest", "committed") and not start.isdecimal():
        raise typer.BadParameter(
            f"{start!r} is neither earliest, latest, committed nor a queue offset",
            param_hint="--from",
        )
    return start


class _Reader:
    """Reads the queues of one topic and prints; counts over all queues."""

    def __init__(self, consumer: "PullConsumer", choices: Choices) -> None:
        self._consumer = consumer
        self._choices = choices
        self._print: Callable[[MessageExt], None] = _PRINTERS[choices.format]
        self._left = choices.count_max

    @property
    def is_done(self) -> bool:
        """Whether as many were printed as were asked for."""
        return self._left == 0

    async def read_to_end(self, queue: "MessageQueue") -> None:
        """Print what is in a queue now."""
        offset = await self._start_offset(queue)
        end = await self._consumer.max_offset(queue)
        while offset < end and not self.is_done:
            offset = await self._step(queue, offset, end, 0)

    async def follow(self, queue: "MessageQueue", stop: Callable[[], None]) -> None:
        """Print a queue for ever; wait and go on while no broker answers or all refuse."""
        import trio

        from tandem.client.errors import ClientError
        from tandem.client.queue_flow import may_pass

        offset: int | None = None
        while not self.is_done:
            try:
                if offset is None:
                    offset = await self._start_offset(queue)
                offset = await self._step(queue, offset, None, FOLLOW_SUSPEND_MS)
            except ClientError as error:
                if not may_pass(error):
                    raise
                _warn(f"queue {queue.queue_id}: {error}; trying again")
                await trio.sleep(RETRY_SECONDS)
        stop()

    async def _start_offset(self, queue: "MessageQueue") -> int:
        start = self._choices.start
        if start.isdecimal():
            return int(start)
        if start == "latest":
            return await self._consumer.max_offset(queue)
        if start == "committed":
            committed = await self._consumer.fetch_consume_offset(queue)
            if committed is not None:
                return committed
        # A queue that begins later says so to the first pull.
        return 0

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
        )
        next_offset = result.next_begin_offset
        if next_offset < offset:
            _warn(f"queue {queue.queue_id} ends at {next_offset}, before {offset}; waiting")
            await trio.sleep(RETRY_SECONDS)
            return offset
        has_waited = end is None and result.status is not PullStatus.OFFSET_ILLEGAL
        if next_offset == offset and not has_waited:
            # A node that lags behind the master, or has deleted what the master may still have.
            await trio.sleep(RETRY_SECONDS)
            return offset
        for message in result.messages:
            if self.is_done or (end is not None and message.queue_offset >= end):
                next_offset = message.queue_offset
                break
            self._print(message)
            if self._left is not None:
                self._left -= 1
        sys.stdout.flush()
        if self._choices.group and next_offset != offset:
            await self._consumer.update_consume_offset(queue, next_offset)
        return next_offset


def _warn(text: str) -> None:
    stderr().print(shown(text), style="yellow")


async def _consume(choices: Choices, name_servers: list[str]) -> None:
    import trio

    from tandem.client import PullConsumer

    async with PullConsumer(name_servers, group=choices.group or GROUP_WITHOUT_OFFSETS) as consumer:
        reader = _Reader(consumer, choices)
        queues = sorted(await consumer.fetch_message_queues(choices.topic))
        if not choices.follow:
            for queue in queues:
                await reader.read_to_end(queue)
            return
        async with trio.open_nursery() as nursery:
            for queue in queues:
                nursery.start_soon(reader.follow, queue, nursery.cancel_scope.cancel)


def _print_text(message: "MessageExt") -> None:
    """The body as it was sent; on a terminal, with what would move it spelled out."""
    body = message.body
    if sys.stdout.isatty():
        body = plain(body.decode(errors="backslashreplace")).encode()
    sys.stdout.buffer.write(body + b"\n")


def _print_json(message: "MessageExt") -> None:
    print_json(_as_record(message))


def _as_record(message: "MessageExt") -> dict[str, Any]:
    """A message as JSON can hold it: `body` is text, or `body_base64` if it is not UTF-8."""
    try:
        body: dict[str, Any] = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": message.body}
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "born_timestamp_ms": message.born_timestamp_ms,
        "store_timestamp_ms": message.store_timestamp_ms,
        "properties": message.properties,
        **body,
    }


_PRINTERS: Final = {Format.TEXT: _print_text, Format.JSON: _print_json}

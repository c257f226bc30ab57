"""`tandem produce`: send lines of text as messages."""

import enum
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from tandem.cli.output import (
    CommandError,
    ConfigOption,
    NameServersOption,
    finite,
    name_servers_of,
    run,
    shown,
    stderr,
    stdout,
)
from tandem.plain_text import one_line

if TYPE_CHECKING:
    from tandem.client import Producer, SendResult
    from tandem.client.errors import ClientError
    from tandem.wire.message import Message

READ_BYTES_MAX: Final = 262_144
IN_FLIGHT_DEFAULT: Final = 256
"""Sends that wait for their answers at a time; more did not make one producer faster."""

PACE_SECONDS: Final = 0.05
"""With --rate, sends go out in portions of this length."""

TIMEOUT_SECONDS_DEFAULT: Final = 12.0
"""A switch takes up to 8 s with the default lease of 5 s."""

LINE_BYTES_MAX: Final = 4_194_304
"""The largest body that a producer and a broker take unless they are told otherwise."""

LINE_TOO_LONG: Final = f"the line is longer than {LINE_BYTES_MAX:,} bytes: cut it into several"

_NOT_STORED: Final = "NOT_STORED"

REASONS_SHOWN_MAX: Final = 5

GROUP: Final = "tandem-produce"


class AckChoice(enum.StrEnum):
    """`tandem.client.Ack`, which is not loaded before a command runs."""

    ASYNC = "async"
    REPLICATED = "replicated"
    REPLICATED_FLUSHED = "replicated-flushed"


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    topic: str
    key: str
    tags: str
    queue_id: int | None
    ack: AckChoice
    batch: int
    in_flight: int
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
    resend: bool = False
    rate_per_second: float | None


class Tally:
    """Counts what became of the messages: by status, and why if it is not SEND_OK."""

    def __init__(self) -> None:
        self.by_status: Counter[str] = Counter()
        self.reasons: Counter[tuple[str, str]] = Counter()
        self.failed_count = 0

    def take(self, outcome: "SendResult | ClientError", count: int) -> None:
        """Count `count` messages that share one outcome."""
        if isinstance(outcome, Exception):
            self.failed_count += count
            status = "UNKNOWN" if outcome.outcome_unknown else _NOT_STORED
            reason = str(outcome)
        else:
            status, reason = outcome.status.value, outcome.reason
        self.by_status[status] += count
        if reason:
            self.reasons[status, reason] += count

    def refuse(self, count: int, reason: str) -> None:
        """Have `count` messages that were not sent for this reason, all in all."""
        key = (_NOT_STORED, reason)
        more = count - self.reasons[key]
        if more:
            self.failed_count += more
            self.by_status[_NOT_STORED] += more
            self.reasons[key] = count

    @property
    def total_count(self) -> int:
        """All messages that have an outcome."""
        return sum(self.by_status.values())

    def __str__(self) -> str:
        return ", ".join(f"{status} {count:,}" for status, count in sorted(self.by_status.items()))


TopicArgument = Annotated[str, typer.Argument(help="Created by the first message if need be.")]
FileArgument = Annotated[
    Path | None, typer.Argument(help="A message for each line; standard input if left out.")
]
SyncOption = Annotated[
    bool | None,
    typer.Option("--sync/--async", help="Short for --ack replicated and --ack async."),
]
AckOption = Annotated[
    AckChoice | None,
    typer.Option(
        help="What an answer waits for: the master alone, every in-sync replica, or the disks"
        " of all of them (fenced groups).",
        show_default="replicated",
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.1,
        max=86_400,
        callback=finite,
        help="Seconds a message may take, over a change of master too.",
    ),
]
ResendOption = Annotated[
    bool,
    typer.Option(
        "--resend", help="Send again what is stored but not known to be safe. It may double."
    ),
]
KeyOption = Annotated[str, typer.Option(help="Key of every message.")]
TagsOption = Annotated[str, typer.Option(help="Tag of every message.")]
QueueOption = Annotated[
    int | None,
    typer.Option(min=0, help="Queue id; all in turn if left out.", show_default=False),
]
BatchOption = Annotated[int, typer.Option(min=1, max=4096, help="Messages in one request.")]
InFlightOption = Annotated[
    int, typer.Option(min=1, max=65_536, help="Messages that wait for an answer at a time.")
]
RateOption = Annotated[
    float | None,
    typer.Option(
        min=0.001, callback=finite, help="Messages a second, at most.", show_default=False
    ),
]


def produce(
    topic: TopicArgument,
    file: FileArgument = None,
    sync: SyncOption = None,
    ack: AckOption = None,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS_DEFAULT,
    resend: ResendOption = False,
    key: KeyOption = "",
    tags: TagsOption = "",
    queue: QueueOption = None,
    batch: BatchOption = 1,
    in_flight: InFlightOption = IN_FLIGHT_DEFAULT,
    rate: RateOption = None,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Send the lines of a file or of standard input as messages; empty lines are left out.

    Exit status 1 if any message was refused or its fate is unknown. FLUSH_DISK_TIMEOUT,
    FLUSH_SLAVE_TIMEOUT and SLAVE_NOT_AVAILABLE are no failures: the message is in the master's log.
    """
    choices = Choices(
        topic=topic,
        key=key,
        tags=tags,
        queue_id=queue,
        ack=_chosen_ack(sync, ack),
        timeout_seconds=timeout_seconds,
        resend=resend,
        batch=batch,
        in_flight=in_flight,
        rate_per_second=rate,
    )
    tally = Tally()
    with ExitStack() as stack:
        try:
            source = stack.enter_context(file.open("rb")) if file else sys.stdin.buffer
        except OSError as error:
            words = one_line(f"{file}: {error.strerror}; give a file with a message for each line")
            raise typer.BadParameter(words, param_hint="FILE") from error
        name_servers = name_servers_of(name_server, config)
        try:
            run(_produce, choices, source, name_servers, tally)
        finally:
            _print_summary(tally)
    if tally.failed_count:
        raise typer.Exit(1)


def _chosen_ack(sync: bool | None, ack: AckChoice | None) -> AckChoice:
    if ack is not None:
        if sync is not None:
            raise typer.BadParameter("says the same as --sync and --async: use one of them")
        return ack
    return AckChoice.ASYNC if sync is False else AckChoice.REPLICATED


async def _produce(
    choices: Choices, source: IO[bytes], name_servers: list[str], tally: Tally
) -> None:
    import trio

    from tandem.client import Ack, Producer

    async with (
        Producer(
            name_servers,
            group=GROUP,
            ack=Ack(choices.ack.value),
            send_msg_timeout_ms=round(choices.timeout_seconds * 1000),
            resend_until_ok=choices.resend,
        ) as producer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(_show_progress, tally)
        started = trio.current_time()
        async for bodies in _lines(source, tally):
            for portion in _portions(bodies, _portion_count(choices)):
                await _send(producer, choices, portion, tally)
                if choices.rate_per_second is not None:
                    await trio.sleep_until(started + tally.total_count / choices.rate_per_second)
        nursery.cancel_scope.cancel()


def _portion_count(choices: Choices) -> int:
    """How many messages go out before one waits for their answers."""
    if choices.batch > 1:
        return choices.batch
    if choices.rate_per_second is None:
        return choices.in_flight
    return min(choices.in_flight, max(1, round(choices.rate_per_second * PACE_SECONDS)))


def _portions(bodies: list[bytes], count: int) -> Iterator[list[bytes]]:
    for start in range(0, len(bodies), count):
        yield bodies[start : start + count]


class LineReader:
    """Takes lines out of bytes as they come: without their ends, and no empty ones.

    A line of more than `LINE_BYTES_MAX` is no message: it is counted, and not kept in memory.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._is_skipping = False
        """Inside a line that is too long, and is counted already."""
        self.too_long_count = 0

    def lines(self, chunk: bytes) -> list[bytes]:
        """Return the lines that end in `chunk`."""
        *ended, self._rest = (self._rest + chunk).split(b"\n")
        if ended and self._is_skipping:
            del ended[0]
            self._is_skipping = False
        found = [line for raw in ended if (line := self._checked(raw.removesuffix(b"\r")))]
        if self._is_skipping or len(self._rest) > LINE_BYTES_MAX:
            self.too_long_count += not self._is_skipping
            self._is_skipping = True
            self._rest = b""
        return found

    def last(self) -> list[bytes]:
        """Return the line without an end, at the end of all bytes, if there is one."""
        return [line] if (line := self._checked(self._rest)) else []

    def _checked(self, line: bytes) -> bytes:
        if len(line) <= LINE_BYTES_MAX:
            return line
        self.too_long_count += 1
        return b""


async def _lines(source: IO[bytes], tally: Tally) -> AsyncIterator[list[bytes]]:
    """Lines as they come, as many at once as there are."""
    import trio

    read = source.read1 if hasattr(source, "read1") else source.read
    reader = LineReader()
    # Abandoned by Ctrl-C: a read of a terminal cannot be interrupted, and the process ends.
    while chunk := await trio.to_thread.run_sync(read, READ_BYTES_MAX, abandon_on_cancel=True):
        yield reader.lines(chunk)
        tally.refuse(reader.too_long_count, LINE_TOO_LONG)
    yield reader.last()
    tally.refuse(reader.too_long_count, LINE_TOO_LONG)


async def _send(producer: "Producer", choices: Choices, bodies: list[bytes], tally: Tally) -> None:
    from tandem.client.errors import ClientError

    messages = [_message(choices, body) for body in bodies]
    try:
        if choices.batch == 1:
            for outcome in await producer.send_many(messages, queue_id=choices.queue_id):
                tally.take(outcome, 1)
            return
        result = await producer.send_batch(messages, queue_id=choices.queue_id)
    except ClientError as error:
        tally.take(error, len(messages))
    except UnicodeEncodeError:  # a ValueError, too
        raise
    except ValueError as error:
        # Of its options: topic, key and tags are the same in all messages.
        raise CommandError(f"{error}; look at TOPIC, --key, --tags and --batch", 2) from error
    else:
        tally.take(result, len(messages))


def _message(choices: Choices, body: bytes) -> "Message":
    from tandem.wire.message import Message

    return Message(choices.topic, body, keys=choices.key, tags=choices.tags)


async def _show_progress(tally: Tally) -> None:
    """On a terminal: one line that says how it goes."""
    import trio

    console = stderr()
    if not console.is_terminal:
        return
    started = trio.current_time()
    with console.status("sending") as status:
        while True:
            await trio.sleep(0.25)
            seconds = trio.current_time() - started
            status.update(
                f"{tally.total_count:,} sent, {tally.total_count / seconds:,.0f}/s {tally}"
            )


def _print_summary(tally: Tally) -> None:
    from rich.table import Table

    table = Table("status", "messages", "reason")
    for status, count in sorted(tally.by_status.items()):
        reasons = [
            f"{text} ({times:,})"
            for (owner, text), times in tally.reasons.most_common()
            if owner == status
        ]
        left_out = len(reasons) - REASONS_SHOWN_MAX
        if left_out > 0:
            reasons[REASONS_SHOWN_MAX:] = [f"... and {left_out} more"]
        table.add_row(status, f"{count:,}", "\n".join(map(shown, reasons)))
    stdout().print(table if tally.by_status else "nothing was sent")

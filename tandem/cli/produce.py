"""`tandem produce`: send lines of text, or JSON objects, as messages."""

import itertools
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import msgspec
import typer

from tandem.cli.formats import Format
from tandem.cli.interrupts import stopped_by_signals
from tandem.cli.output import (
    FAILED,
    CommandError,
    ConfigOption,
    NameServersOption,
    access_of,
    run,
    say,
)
from tandem.cli.produce_options import (
    IN_FLIGHT_DEFAULT,
    TIMEOUT_SECONDS_DEFAULT,
    AckChoice,
    AckOption,
    BatchOption,
    BodyOption,
    CountOption,
    DelayLevelOption,
    DelayOption,
    FileArgument,
    InFlightOption,
    InputFormat,
    InputFormatOption,
    KeyOption,
    OnError,
    OnErrorOption,
    PriorityOption,
    PropertyOption,
    QueueOption,
    RateOption,
    ResendOption,
    ResultsOption,
    ShardingKeyOption,
    SyncOption,
    TagsOption,
    TimeoutOption,
    TopicArgument,
)
from tandem.cli.produce_results import (
    NOT_STORED,
    ResultPrinter,
    Sent,
    Tally,
    say_bad_line,
    sent_of,
)
from tandem.cli.progress import working
from tandem.cli.times import DURATION_FORMS, duration_ms
from tandem.plain_text import one_line, plain_lines
from tandem.wire.errors import ArgumentError

if TYPE_CHECKING:
    from tandem.cli.produce_input import Fields
    from tandem.client import ClientError, Producer, SendResult
    from tandem.client.cluster_access import ClusterAccess
    from tandem.wire.message import Message

READ_BYTES_MAX: Final = 262_144
PACE_SECONDS: Final = 0.05
"""With --rate, sends go out in portions of this length."""

LINE_TOO_LONG: Final = "a line is longer than a message may be: cut it into several"

BAD_LINE: Final = "a line is no record; see above"

GROUP: Final = "tandem-produce"

TOPIC_OF_RECORDS: Final = "-"
"""In the place of TOPIC: every record names its own."""


class Choices(msgspec.Struct, frozen=True):
    """What the command line asks for."""

    queue_id: int | None = None
    ack: AckChoice = AckChoice.REPLICATED
    input_format: InputFormat = InputFormat.TEXT
    on_error: OnError = OnError.STOP
    batch: int = 1
    in_flight: int = IN_FLIGHT_DEFAULT
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
    resend: bool | None = None
    rate_per_second: float | None = None


def produce(
    topic: TopicArgument,
    file: FileArgument = None,
    body: BodyOption = None,
    count: CountOption = 1,
    key: KeyOption = None,
    tags: TagsOption = "",
    properties: PropertyOption = None,
    delay: DelayOption = None,
    delay_level: DelayLevelOption = 0,
    sharding_key: ShardingKeyOption = "",
    priority: PriorityOption = None,
    queue: QueueOption = None,
    input_format: InputFormatOption = InputFormat.TEXT,
    on_error: OnErrorOption = OnError.STOP,
    sync: SyncOption = None,
    ack: AckOption = None,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS_DEFAULT,
    resend: ResendOption = None,
    batch: BatchOption = 1,
    in_flight: InFlightOption = IN_FLIGHT_DEFAULT,
    rate: RateOption = None,
    output_format: ResultsOption = None,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Send the lines of a file or of standard input.

    Each is a message; empty lines are left out. Exit status 1 if any message was refused or its
    fate is unknown. FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT and SLAVE_NOT_AVAILABLE of a classic
    group are no failures: the message is in the master's log.
    """
    from tandem.cli.produce_input import Fields

    chosen_ack = _chosen_ack(sync, ack)
    choices = Choices(
        queue, chosen_ack, input_format, on_error, batch, in_flight, timeout_seconds, resend, rate
    )
    has_own_topics = topic == TOPIC_OF_RECORDS and input_format is InputFormat.JSONL
    fields = Fields(
        topic="" if has_own_topics else topic,
        keys=tuple(key or ()),
        tags=tags,
        properties=_properties(properties or []),
        delay_ms=_delay_ms(delay),
        delay_level=delay_level,
        sharding_key=sharding_key,
        priority=priority,
    )
    if not has_own_topics or body is not None:
        _check(fields)
    _check_pairs(choices, fields, body=body, file=file, count=count)
    access = access_of(name_server, config)
    sending = Sending(choices, fields, output_format)
    with ExitStack() as stack:
        source: IO[bytes] | None = None
        if body is None:
            source = stack.enter_context(_opened(file)) if file else sys.stdin.buffer
        try:
            run(sending.run, source, (body or "").encode(), count, access)
        finally:
            sending.end()
    if sending.stopped_by:
        raise typer.Exit(128 + sending.stopped_by[0])
    if sending.tally.failed_count:
        raise typer.Exit(FAILED)


def _opened(file: Path) -> IO[bytes]:
    try:
        return file.open("rb")
    except OSError as error:
        words = one_line(f"{file}: {error.strerror}; give a file with a message for each line")
        raise typer.BadParameter(words, param_hint="FILE") from error


def _chosen_ack(sync: bool | None, ack: AckChoice | None) -> AckChoice:
    if ack is not None:
        if sync is not None:
            raise typer.BadParameter("says the same as --sync and --async: use one of them")
        return ack
    return AckChoice.ASYNC if sync is False else AckChoice.REPLICATED


def _properties(texts: list[str]) -> dict[str, str]:
    properties = {}
    for text in texts:
        name, is_given, value = text.partition("=")
        if not is_given or not name:
            raise typer.BadParameter(
                f"{text!r} is no property; give NAME=VALUE", param_hint="--property"
            )
        properties[name] = value
    return properties


def _delay_ms(delay: str | None) -> int:
    if delay is None:
        return 0
    milliseconds = duration_ms(delay)
    if milliseconds is None:
        raise typer.BadParameter(
            f"{delay!r} is no duration; give one as {DURATION_FORMS}", param_hint="--delay"
        )
    return milliseconds


def _check(fields: "Fields") -> None:
    """Refuse options that are wrong for every message, before anything is sent."""
    from tandem.cli.produce_input import BadRecordError

    try:
        fields.message(b"x")
    except BadRecordError as error:
        raise CommandError(
            f"{error}; look at TOPIC, --key, --tags, --property, --priority and the delays", 2
        ) from error


def _check_pairs(
    choices: Choices, fields: "Fields", *, body: str | None, file: Path | None, count: int
) -> None:
    """Refuse options that do not go together."""
    if body is not None and file is not None:
        raise typer.BadParameter("takes the place of FILE; give one of them", param_hint="--body")
    if body is not None and choices.input_format is not InputFormat.TEXT:
        raise typer.BadParameter("is text; leave out --input-format", param_hint="--body")
    if body is None and count != 1:
        raise typer.BadParameter("is for --body, which is missing", param_hint="--count")
    if choices.batch > 1 and (fields.delay_ms or fields.delay_level):
        raise typer.BadParameter("cannot be of messages with a delay", param_hint="--batch")
    if choices.batch > 1 and fields.sharding_key:
        raise typer.BadParameter("cannot be of messages with a sharding key", param_hint="--batch")
    if choices.batch > 1 and fields.priority is not None:
        raise typer.BadParameter("cannot be of messages with a priority", param_hint="--batch")
    if fields.priority is not None and choices.queue_id is not None:
        raise typer.BadParameter("is chosen by --priority", param_hint="--queue")
    if fields.sharding_key and choices.queue_id is not None:
        raise typer.BadParameter("is chosen by --sharding-key", param_hint="--queue")


class Sending:
    """One run of the command: reads, sends, counts, prints results if they are wanted."""

    def __init__(self, choices: Choices, fields: "Fields", output_format: Format | None) -> None:
        self.tally = Tally()
        self._choices = choices
        self._fields = fields
        self._printer = ResultPrinter(output_format) if output_format is not None else None
        self._seconds = 0.0
        self.stopped_by: list[int] = []
        """The signal that has ended it, if one has."""

    async def run(
        self, source: IO[bytes] | None, body: bytes, count: int, access: "ClusterAccess"
    ) -> None:
        """Send what `source` has or, without one, `body` this many times."""
        import trio

        from tandem.client import Ack, Producer

        began = trio.current_time()
        try:
            async with (
                Producer(
                    access,
                    group=GROUP,
                    ack=Ack(self._choices.ack.value),
                    send_msg_timeout_ms=round(self._choices.timeout_seconds * 1000),
                    resend_until_ok=self._choices.resend,
                ) as producer,
                working("sending") as say_news,
            ):
                began = trio.current_time()
                async with stopped_by_signals() as self.stopped_by:
                    if source is None:
                        await self._send_all(producer, self._copies(body, count), say_news)
                        return
                    reading = read_lines(source, self._choices.input_format, self.tally)
                    async with aclosing(reading):
                        async for lines in reading:
                            await self._send_all(producer, self._messages(lines), say_news)
        finally:
            self._seconds = trio.current_time() - began

    def end(self) -> None:
        """Print what is printed at the end, whatever the end was."""
        if self._printer is not None:
            try:
                self._printer.end()
            finally:  # also if nobody reads the results
                typer.echo(plain_lines(self.tally.summary(self._seconds)), err=True)
        else:
            say(self.tally.summary(self._seconds))

    def _copies(self, body: bytes, count: int) -> "Iterator[Message]":
        message = self._fields.message(body)
        return itertools.repeat(message, count)

    def _messages(self, lines: Iterable[tuple[int, bytes]]) -> "Iterator[Message]":
        """Yield messages; say what is wrong with a line, and go on or end after it.

        Raises:
            CommandError: A line is wrong, and that ends it. Earlier lines were yielded.
        """
        from tandem.cli.produce_input import BadRecordError, record_message

        is_text = self._choices.input_format is InputFormat.TEXT
        fields = self._fields
        for number, line in lines:
            try:
                message = fields.message(line) if is_text else record_message(fields, line)
            except BadRecordError as error:
                if self._choices.on_error is OnError.STOP:
                    raise CommandError(
                        f"line {number}: {error}; nothing from there on was sent. --on-error skip"
                        " leaves such lines out"
                    ) from error
                say_bad_line(number, str(error))
                self._refuse(str(error))
            else:
                yield message

    def _refuse(self, reason: str) -> None:
        self.tally.refuse(self.tally.reasons[NOT_STORED, BAD_LINE] + 1, BAD_LINE)
        if self._printer is not None:
            self._printer.take([Sent(status=NOT_STORED, topic="", reason=reason)])

    async def _send_all(
        self, producer: "Producer", messages: "Iterator[Message]", say_news: Callable[[str], None]
    ) -> None:
        import trio

        began, sent_before = trio.current_time(), self.tally.total_count
        for portion in portions(messages, portion_count(self._choices)):
            await self._send(producer, portion)
            say_news(str(self.tally))
            rate = self._choices.rate_per_second
            if rate is not None:
                count = self.tally.total_count - sent_before
                await trio.sleep_until(began + count / rate)

    async def _send(self, producer: "Producer", portion: "list[Message]") -> None:
        import trio

        if self._choices.batch == 1:
            outcomes: dict[int, SendResult | ClientError] = {}
            try:
                await producer.send_many(
                    portion, queue_id=self._choices.queue_id, outcomes=outcomes
                )
            except ArgumentError as error:
                raise CommandError(f"a message cannot be sent: {error}", 2) from error
            except trio.Cancelled:
                self._take_each(portion, outcomes)
                raise
            self._take_each(portion, outcomes)
            return
        for batch in batches(portion):
            try:
                outcome = await self._send_batch(producer, batch)
            except trio.Cancelled:
                self.tally.leave(len(batch))
                raise
            self._take([(batch, outcome)])

    def _take_each(
        self, portion: "list[Message]", outcomes: "dict[int, SendResult | ClientError]"
    ) -> None:
        """Count what is known of a portion; the rest was in flight when a signal came."""
        self.tally.leave(len(portion) - len(outcomes))
        self._take([([portion[index]], outcomes[index]) for index in sorted(outcomes)])

    async def _send_batch(
        self, producer: "Producer", batch: "list[Message]"
    ) -> "SendResult | ClientError":
        from tandem.client import ClientError

        try:
            if len(batch) == 1:
                return await producer.send(batch[0], queue_id=self._choices.queue_id)
            return await producer.send_batch(batch, queue_id=self._choices.queue_id)
        except ClientError as error:
            return error
        except ArgumentError as error:
            raise CommandError(f"{error}; give a smaller --batch", 2) from error

    def _take(self, taken: "Sequence[tuple[Sequence[Message], SendResult | ClientError]]") -> None:
        """Count all of them before one is printed: nobody may be there to read it."""
        for messages, outcome in taken:
            self.tally.take(outcome, len(messages))
        if self._printer is not None:
            self._printer.take([one for each in taken for one in sent_of(*each)])


def portion_count(choices: Choices) -> int:
    """How many messages go out before one waits for their answers."""
    if choices.batch > 1:
        return choices.batch
    if choices.rate_per_second is None:
        return choices.in_flight
    return min(choices.in_flight, max(1, round(choices.rate_per_second * PACE_SECONDS)))


def portions(messages: "Iterator[Message]", count: int) -> "Iterator[list[Message]]":
    """Yield the messages, this many at a time. Lines before an error are yielded before it."""
    while True:
        portion: list[Message] = []
        try:
            for message in itertools.islice(messages, count):
                portion.append(message)  # noqa: PERF402 - those before an error are wanted
        except CommandError:
            if portion:
                yield portion
            raise
        if not portion:
            return
        yield portion


def batches(portion: "list[Message]") -> "Iterator[list[Message]]":
    """Yield what may go into one request: messages of one topic, and those alone that have to."""

    def kind(message: "Message") -> tuple[str, int]:
        is_shared = message.is_for_a_batch and not message.sharding_key
        return message.topic, 0 if is_shared else id(message)

    for _, batch in itertools.groupby(portion, kind):
        yield list(batch)


async def read_lines(
    source: IO[bytes], input_format: InputFormat, tally: Tally
) -> AsyncGenerator[list[tuple[int, bytes]]]:
    """Yield lines and their numbers as they come, as many at once as there are."""
    import trio

    from tandem.cli.produce_input import RECORD_BYTES_MAX, TEXT_BYTES_MAX, LineReader

    # Not what has a buffer around it: Python cannot end while a thread waits inside of that.
    unbuffered = getattr(source, "raw", source)
    read = unbuffered.read1 if hasattr(unbuffered, "read1") else unbuffered.read
    reader = LineReader(TEXT_BYTES_MAX if input_format is InputFormat.TEXT else RECORD_BYTES_MAX)
    # Abandoned by Ctrl-C: a read of a terminal cannot be interrupted, and the process ends.
    while chunk := await trio.to_thread.run_sync(read, READ_BYTES_MAX, abandon_on_cancel=True):
        yield reader.lines(chunk)
        tally.refuse(reader.too_long_count, LINE_TOO_LONG)
    yield reader.last()
    tally.refuse(reader.too_long_count, LINE_TOO_LONG)

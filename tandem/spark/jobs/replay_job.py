"""`tandem pipeline replay`: a window of a topic out of an archive or a log, into a topic again.

A task sends the lane of one broker, some hundred messages at a time, and writes down how far it
has come when they are acknowledged. At least once: what was sent and not written down before an
end is sent again, with the same UNIQ_KEY.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from tandem.client import BlockingAdmin, BlockingProducer
from tandem.client.cluster_access import ClusterAccess
from tandem.client.errors import ClientError
from tandem.spark.archive.disk import LocalDisk, locked
from tandem.spark.errors import SparkSourceError
from tandem.spark.jobs.replay_plan import (
    Lane,
    Pace,
    Position,
    ReplayFacts,
    ReplayFile,
    begin,
    files_left,
    lanes_of,
    read_position,
    replayed,
    window_of,
    write_position,
)
from tandem.spark.jobs.reports import JobError, OnProgress, log_metrics, silent
from tandem.spark.jobs.runner import Runner
from tandem.spark.jobs.settings import ReplaySettings
from tandem.wire.compression import CompressionError
from tandem.wire.message import Message

REQUEST_MESSAGES_MAX: Final = 256
REQUEST_BYTES_MAX: Final = 60_000
"""Below every `max_message_size_bytes` in use; a larger message goes alone."""

_PROPERTY_BYTES: Final = 2
_MESSAGE_BYTES: Final = 64
"""What a message takes beside its body and properties, at most."""


class Sender(Protocol):
    """Sends messages: a `BlockingProducer`, or a stand-in for one."""

    def send_batch(self, messages: Sequence[Message], *, queue_id: int | None = None) -> object:
        """Send messages of one queue in their order; return when they are acknowledged."""


class ReplayReport(msgspec.Struct, frozen=True):
    """What a replay has sent, in this run (`messages`, `size_bytes`) and in all (`total`).

    A dry run counts what there is, and `seconds` is how long it would take at the limits that were
    given; None without limits.
    """

    topic: str
    messages: int
    size_bytes: int
    total: int
    dry_run: bool
    seconds: float | None = None


class _LaneTask(msgspec.Struct, frozen=True):
    settings: ReplaySettings
    access: ClusterAccess
    facts: ReplayFacts
    lane: Lane
    lanes: int
    write_queues: int


class _LaneDone(msgspec.Struct, frozen=True):
    messages: int
    size_bytes: int
    total: int
    error: str = ""


def run_replay(
    settings: ReplaySettings,
    runner: Runner,
    *,
    dry_run: bool = False,
    on_progress: OnProgress = silent,
) -> ReplayReport:
    """Send what is left of a window.

    Raises:
        ClusterConfigError: the settings contradict each other.
        SparkSourceError: what is read, or the state, is not as it should be.
        ClientError: the target topic does not take messages.
    """
    window = window_of(settings)
    lanes = lanes_of(settings, window)
    if dry_run:
        return _count(settings, lanes, runner)
    with locked(Path(settings.state)):
        facts = begin(settings, window, LocalDisk())
        access = settings.access(os.environ)
        write_queues = _write_queues(access, facts.topic)
        tasks = [
            _LaneTask(settings, access, facts, lane, len(lanes), write_queues) for lane in lanes
        ]
        on_progress(f"sending to {facts.topic}")
        done = list(runner.run(send_lane, tasks))
    sent, size = sum(each.messages for each in done), sum(each.size_bytes for each in done)
    log_metrics("replay", "sent", topic=facts.topic, messages=sent, bytes=size)
    errors = [each.error for each in done if each.error]
    if errors:
        raise SparkSourceError(
            f"{errors[0]}; {sent} messages were sent. Run the same replay again: it goes on there"
        )
    total = sum(each.total for each in done)
    return ReplayReport(facts.topic, sent, size, total, dry_run=False)


def send_lane(task: _LaneTask) -> _LaneDone:
    """Send one lane. Runs in a task."""
    settings = task.settings
    with BlockingProducer(task.access, settings.producer_group) as producer:
        return LaneSender(task.settings, task.facts, task.lane, producer).run(
            lanes=task.lanes, write_queues=task.write_queues
        )


class LaneSender:
    """One lane on its way. `clock` and `sleep` are those of the pace."""

    def __init__(
        self,
        settings: ReplaySettings,
        facts: ReplayFacts,
        lane: Lane,
        sender: Sender,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,  # noqa: TID251 - a task of Spark, not a node
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._lane = lane
        self._sender = sender
        self._clock = clock
        self._sleep = sleep
        self._state = Path(settings.state)
        self._messages = 0
        self._bytes = 0
        self._written = 0
        self._sent_before = 0
        self._before = 0

    def run(self, *, lanes: int = 1, write_queues: int = 1) -> _LaneDone:
        """Send what is left, at the share of the limits that one of `lanes` lanes has."""
        settings = self._settings
        self._pace = Pace(
            settings.messages_per_second / lanes, settings.bytes_per_second / lanes, self._clock
        )
        self._write_queues = write_queues
        self._position = Position()
        error = ""
        try:
            with self._locked():
                self._position = read_position(self._state, self._lane.broker)
                self._sent_before = self._position.sent
                left = files_left(self._lane, self._position)
                self._before = len(self._lane.files) - len(left)
                for file, skipped in left:
                    self._send_file(file, skipped)
                    self._before += 1
                self._write()
        except (SparkSourceError, ClientError, CompressionError, ValueError, OSError) as failure:
            error = f"{self._lane.broker}: {failure}"
        return _LaneDone(self._messages, self._bytes, self._position.sent, error)

    def _locked(self) -> AbstractContextManager[None]:
        # A task of a dead driver may still be sending.
        return locked(self._state / f"{self._lane.broker}.lane")

    def _send_file(self, file: ReplayFile, skipped: int) -> None:
        seen = 0
        for batch in file.rows(self._lane.broker):
            start = max(skipped - seen, 0)
            for at in range(start, len(batch), REQUEST_MESSAGES_MAX):
                rows = batch.slice(at, REQUEST_MESSAGES_MAX)
                self._send_rows(self._facts.window.chosen(rows))
                self._moved(file.name, seen + at + len(rows))
            seen += len(batch)

    def _send_rows(self, rows: pa.RecordBatch) -> None:
        lanes: dict[tuple[str, int], list[Message]] = {}
        for row in rows.to_pylist():
            message = replayed(row, self._facts, self._settings.unique_keys)
            key = message.sharding_key
            number = -1 if key else row["queueId"] % self._write_queues
            lanes.setdefault((key, number), []).append(message)
        for (_, number), messages in lanes.items():
            for request in requests_of(messages):
                size = sum(len(message.body) for message in request)
                wait = self._pace.wait_seconds(len(request), size)
                if wait:
                    self._sleep(wait)
                self._sender.send_batch(request, queue_id=None if number < 0 else number)
                self._messages += len(request)
                self._bytes += size

    def _moved(self, name: str, rows: int) -> None:
        sent = self._sent_before + self._messages
        self._position = Position(name, rows, sent, self._before)
        if self._messages - self._written >= self._settings.checkpoint_messages:
            self._write()

    def _write(self) -> None:
        self._written = self._messages
        write_position(self._state, self._lane.broker, self._position, LocalDisk())


def _bytes_of(message: Message) -> int:
    texts = [text for pair in message.property_map().items() for text in pair]
    return (
        len(message.body)
        + sum(len(text.encode()) for text in texts)
        + _PROPERTY_BYTES * len(texts)
        + _MESSAGE_BYTES
    )


def requests_of(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Yield messages in stretches that fit into a request."""
    request: list[Message] = []
    size = 0
    for message in messages:
        taken = _bytes_of(message)
        if request and (size + taken > REQUEST_BYTES_MAX or len(request) >= REQUEST_MESSAGES_MAX):
            yield request
            request, size = [], 0
        request.append(message)
        size += taken
    if request:
        yield request


class _CountTask(msgspec.Struct, frozen=True):
    broker: str
    file: ReplayFile
    settings: ReplaySettings


def count_file(task: _CountTask) -> tuple[int, int] | JobError:
    """Return how many messages of a file are wanted, and the bytes of their bodies."""
    window = window_of(task.settings)
    messages = size = 0
    try:
        for batch in task.file.rows(task.broker):
            rows = window.chosen(batch)
            messages += len(rows)
            size += rows.column("body").nbytes
    except (SparkSourceError, OSError) as error:
        return JobError(str(error))
    return messages, size


def _count(settings: ReplaySettings, lanes: list[Lane], runner: Runner) -> ReplayReport:
    tasks = [_CountTask(lane.broker, file, settings) for lane in lanes for file in lane.files]
    messages = size = 0
    for counted in runner.run(count_file, tasks):
        if isinstance(counted, JobError):
            raise SparkSourceError(counted.text)
        messages += counted[0]
        size += counted[1]
    limits = ((messages, settings.messages_per_second), (size, settings.bytes_per_second))
    seconds = [count / limit for count, limit in limits if limit]
    return ReplayReport(
        settings.topic or settings.source_topic,
        messages,
        size,
        messages,
        dry_run=True,
        seconds=max(seconds) if seconds else None,
    )


def _write_queues(access: ClusterAccess, topic: str) -> int:
    with BlockingAdmin(access) as admin:
        route: Any = admin.topic_route(topic)
    return max((queue.write_queue_nums for queue in route.queue_datas), default=0) or 1

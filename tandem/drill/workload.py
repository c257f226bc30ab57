"""The load: producers that keep the ledger, consumers that read along.

Each producer sends one message after another, never a second before the first is answered: so the
order of its messages in a queue is known. `sync` producers wait for other nodes, `async` ones
(WAIT=false) only for the master. On a classic group no message is sent twice, so a duplicate is the
cluster's. On a fenced group a send that has no clear answer is sent again, with the same UNIQ_KEY,
until it has one: it is one send with one outcome, and the ledger says how often it may be stored.

Readers read each queue from the start as it grows and check what they see. A re-reader starts at
the beginning again and again, so that there is something to read even when nothing new arrives.
"""

from collections.abc import Collection, Sequence
from typing import Final, Protocol

import msgspec
import trio

from tandem.client import (
    BrokerError,
    ClientError,
    MessageQueue,
    PullResult,
    PullStatus,
    SendResult,
)
from tandem.drill.ledger import NO_ANSWER, Answered, Ledger, Sending
from tandem.drill.orders import BodySource
from tandem.drill.outcomes import NOT_SENT, REJECTED, SEND_OK, UNKNOWN, SendMode
from tandem.drill.stream_audit import Content, Place
from tandem.drill.timeline import Phase, Timeline
from tandem.wire.crc import crc32
from tandem.wire.message import Message, MessageExt, decode_offset_msg_id
from tandem.wire.message_properties import PROPERTY_UNIQUE_KEY

BEHIND_SECONDS_MAX: Final = 0.1
"""A producer that was held up longer than this gives up the slots it missed: no burst follows."""

RETRY_SECONDS: Final = 0.2
"""A consumer whose pull no node answered waits this long."""

UNIQUE_KEY_PREFIX: Final = "tandem-drill-"

SUSPEND_TIMEOUT_MS: Final = 1_000
REREAD_SECONDS: Final = 0.05
REREAD_MESSAGES: Final = 32


class SendsMessages(Protocol):
    """What is needed of tandem.Producer."""

    async def send(self, message: Message) -> SendResult:
        """Send one message; raises ClientError."""
        ...


class PullsMessages(Protocol):
    """What is needed of tandem.PullConsumer."""

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_msg_nums: int = ...,
        tags: str = ...,
        suspend_timeout_ms: int = ...,
    ) -> PullResult:
        """Pull from a queue; raises ClientError."""
        ...


class Clock(msgspec.Struct, frozen=True):
    """The drill's two times: seconds since it started, and the wall clock at that start.

    Wall times are computed from the first, so that a step of the clock cannot reorder the ledger.
    """

    started: float
    started_ms: float

    def now(self) -> float:
        """Seconds since the drill started."""
        return trio.current_time() - self.started

    def wall_ms(self, now: float) -> float:
        """Milliseconds since 1970 at a time of `now`."""
        return self.started_ms + now * 1000


class Outcome(msgspec.Struct, frozen=True):
    """What a send came to, in the ledger's words."""

    status: str
    reason: str
    result: SendResult | None = None


class Retries(msgspec.Struct, frozen=True):
    """How a send goes on until it is acknowledged. Seconds for all its attempts together."""

    deadline_seconds: float
    pause_seconds: float = 0.05


class Attempts:
    """One send over all its attempts; what is known of it survives a cancellation."""

    def __init__(self, *, refusal_is_clear: bool = True) -> None:
        self.outcome = Outcome(UNKNOWN, NO_ANSWER)
        self.maybe_stored = 0
        self._refusal_is_clear = refusal_is_clear

    async def run(self, client: SendsMessages, message: Message, retries: Retries | None) -> None:
        """Send until acknowledged, or once if there are no retries."""
        ends_at = trio.current_time() + (retries.deadline_seconds if retries else 0.0)
        while True:
            self.maybe_stored += 1
            before, self.outcome = self.outcome, Outcome(UNKNOWN, NO_ANSWER)
            outcome = await attempt(client, message)
            if outcome.status == REJECTED and not self._refusal_is_clear:
                outcome = Outcome(UNKNOWN, outcome.reason)
            if outcome.status in (NOT_SENT, REJECTED):
                self.maybe_stored -= 1
            if self.maybe_stored and outcome.status in (NOT_SENT, REJECTED):
                # This attempt came to nothing; an earlier one may have been stored.
                outcome = before
            self.outcome = outcome
            if retries is None or outcome.status == SEND_OK or trio.current_time() >= ends_at:
                return
            await trio.sleep(retries.pause_seconds)


class ProducerState:
    """One producer: its next sequence, and its last answer with the phase it was sent in."""

    def __init__(self, name: str, mode: SendMode) -> None:
        self.name = name
        self.mode: SendMode = mode
        self.sequence = 0
        self.latest: tuple[Phase, str] | None = None


class QueueReader:
    """What the readers know of one queue: the next offset, and each producer's last sequence."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.next_offset = 0
        self.acknowledged_end = 0
        self.last_sequence: dict[str, int] = {}


class Workload:
    """Producers and consumers with everything they count."""

    def __init__(
        self,
        *,
        topic: str,
        source: BodySource,
        ledger: Ledger,
        timeline: Timeline,
        clock: Clock,
        rate_per_second: float,
        producers: Sequence[ProducerState],
        retries: Retries | None = None,
        refusal_is_clear: bool = True,
        reads: dict[Place, Content] | None = None,
        owed_reads: Collection[tuple[str, str]] | None = None,
    ) -> None:
        """`owed_reads`: mode and status of sends that readers have to see; None: all with a place.

        What the next master may lack is none of them: its queue may end before that place.
        """
        self.producers = list(producers)
        self.readers: dict[int, QueueReader] = {}
        self.disorder: list[str] = []
        self.read_again = 0
        """Messages that came once more because they had been sent again."""
        self._reads = reads
        self._topic = topic
        self._source = source
        self._ledger = ledger
        self._timeline = timeline
        self._clock = clock
        self._retries = retries
        self._refusal_is_clear = refusal_is_clear
        self._owed_reads = owed_reads
        self._period_seconds = len(self.producers) / rate_per_second
        self._running = trio.Event()

    def pause(self) -> None:
        """Let producers rest once their sends are answered."""
        self._running = trio.Event()

    def resume(self) -> None:
        """Let producers send again."""
        self._running.set()

    def latest(self, mode: SendMode, phase: Phase) -> list[str | None]:
        """Per producer of a mode: the status of its last answer to a send of this phase."""
        return [
            producer.latest[1] if producer.latest and producer.latest[0] is phase else None
            for producer in self.producers
            if producer.mode == mode
        ]

    def left_to_send(self) -> int:
        """Lines of the input that have not been acknowledged yet."""
        return self._source.line_count - self._source.acknowledged_count

    def left_to_read(self) -> int:
        """Acknowledged messages that readers have not seen yet."""
        return sum(
            max(0, reader.acknowledged_end - reader.next_offset) for reader in self.readers.values()
        )

    async def produce(self, producer: ProducerState, client: SendsMessages) -> None:
        """Send at a steady pace until cancelled. A cancelled send is UNKNOWN in the ledger."""
        due = trio.current_time()
        while True:
            await self._running.wait()
            due = max(due, trio.current_time() - BEHIND_SECONDS_MAX)
            await trio.sleep_until(due)
            if self._running.is_set():
                due += self._period_seconds
                await self._send_next(producer, client)

    async def _send_next(self, producer: ProducerState, client: SendsMessages) -> None:
        body = self._source.take(producer.name, producer.sequence)
        phase = self._timeline.phase
        sent_at = self._clock.now()
        sending = Sending(
            send_id=f"{producer.name}-{producer.sequence:07d}",
            scenario=phase.scenario,
            phase=phase.name,
            producer=producer.name,
            sequence=producer.sequence,
            mode=producer.mode,
            topic=self._topic,
            body_crc32=crc32(body.data),
            body_bytes=len(body.data),
            sent_at_ms=self._clock.wall_ms(sent_at),
        )
        producer.sequence += 1
        message = Message(
            self._topic,
            body.data,
            keys=sending.send_id,
            tags=producer.mode,
            wait_store_msg_ok=producer.mode == "sync",
            # One key for all attempts; elsewhere the client would make one for each.
            properties={PROPERTY_UNIQUE_KEY: UNIQUE_KEY_PREFIX + sending.send_id},
        )
        self._ledger.write(sending)
        self._timeline.sent()
        attempts = Attempts(refusal_is_clear=self._refusal_is_clear)
        try:
            await attempts.run(client, message, self._retries)
        finally:
            self._settle(producer, phase, sending, sent_at, attempts)
            self._source.settle(body, acknowledged=attempts.outcome.status == SEND_OK)

    def _settle(
        self,
        producer: ProducerState,
        phase: Phase,
        sending: Sending,
        sent_at: float,
        attempts: Attempts,
    ) -> None:
        now = self._clock.now()
        outcome = attempts.outcome
        answered = _answered(sending.send_id, attempts, self._clock.wall_ms(now), now - sent_at)
        self._ledger.write(answered)
        producer.latest = (phase, outcome.status)
        reader = self.readers.get(answered.queue_id)
        owed = self._owed_reads
        if reader is not None and (owed is None or (producer.mode, outcome.status) in owed):
            reader.acknowledged_end = max(reader.acknowledged_end, answered.queue_offset + 1)
        self._timeline.answered(
            now,
            phase,
            producer.mode,
            outcome.status,
            reason=outcome.reason,
            send_id=sending.send_id,
            latency_ms=answered.latency_ms,
        )

    async def read_along(self, reader: QueueReader, client: PullsMessages) -> None:
        """Read a queue as it grows, from its start, until cancelled; note what is out of order."""
        while True:
            result = await self._pull(client, reader.queue, reader.next_offset, SUSPEND_TIMEOUT_MS)
            if result is None:
                await trio.sleep(RETRY_SECONDS)
            elif result.messages:
                for message in result.messages:
                    self._check(reader, message)
                reader.next_offset = result.next_begin_offset
            elif result.status is PullStatus.OFFSET_ILLEGAL:
                # Another node, which still lags: what the master had is not there yet.
                await trio.sleep(RETRY_SECONDS)

    async def reread(self, client: PullsMessages) -> None:
        """Read all queues from their start, again and again, at a modest pace, until cancelled."""
        while True:
            for reader in list(self.readers.values()):
                offset = 0
                while offset < reader.next_offset:
                    result = await self._pull(client, reader.queue, offset, 0)
                    await trio.sleep(REREAD_SECONDS if result else RETRY_SECONDS)
                    if result is not None and not result.messages:
                        break
                    offset = offset if result is None else result.next_begin_offset
            await trio.sleep(REREAD_SECONDS)

    async def _pull(
        self, client: PullsMessages, queue: MessageQueue, offset: int, suspend_timeout_ms: int
    ) -> PullResult | None:
        try:
            result = await client.pull(
                queue, offset, max_msg_nums=REREAD_MESSAGES, suspend_timeout_ms=suspend_timeout_ms
            )
        except ClientError:
            self._timeline.read_failed()
            return None
        self._timeline.read(self._clock.now(), len(result.messages))
        return result

    def _check(self, reader: QueueReader, message: MessageExt) -> None:
        place = f"queue {reader.queue.queue_id} offset {message.queue_offset}"
        if message.queue_offset != reader.next_offset:
            self.disorder.append(f"{place}: expected offset {reader.next_offset}")
        reader.next_offset = message.queue_offset + 1
        if self._reads is not None:
            read = reader.queue.queue_id, message.queue_offset
            self._reads[read] = message.keys, crc32(message.body)
        name, _, sequence_text = message.keys.rpartition("-")
        if not name or not sequence_text.isdecimal():
            self.disorder.append(f"{place}: key {message.keys!r} is not of this drill")
            return
        sequence = int(sequence_text)
        before = reader.last_sequence.get(name, -1)
        if sequence == before and self._retries is not None:
            self.read_again += 1  # sent again and stored again: told apart by its key
        elif sequence <= before:
            self.disorder.append(f"{place}: {message.keys} came after sequence {before}")
        reader.last_sequence[name] = sequence


async def attempt(client: SendsMessages, message: Message) -> Outcome:
    """Send once and put what came of it into the ledger's words."""
    try:
        result = await client.send(message)
    except BrokerError as error:
        return Outcome(REJECTED, str(error))
    except ClientError as error:
        return Outcome(UNKNOWN if error.outcome_unknown else NOT_SENT, str(error))
    return Outcome(result.status.name, result.reason, result)


def _answered(send_id: str, attempts: Attempts, at_ms: float, seconds: float) -> Answered:
    outcome = attempts.outcome
    result = outcome.result
    if result is None:
        return Answered(
            send_id=send_id,
            status=outcome.status,
            reason=outcome.reason,
            answered_at_ms=at_ms,
            latency_ms=seconds * 1000,
            attempts=max(1, attempts.maybe_stored),
        )
    return Answered(
        send_id=send_id,
        status=outcome.status,
        reason=outcome.reason,
        offset_msg_id=result.offset_msg_id,
        queue_id=result.queue.queue_id,
        queue_offset=result.queue_offset,
        physical_offset=decode_offset_msg_id(result.offset_msg_id)[1],
        answered_at_ms=at_ms,
        latency_ms=seconds * 1000,
        attempts=attempts.maybe_stored,
    )


def producer_states(sync_count: int, async_count: int) -> list[ProducerState]:
    """Name the producers: sync-1, sync-2, … and async-1, …."""
    states: list[ProducerState] = []
    states.extend(ProducerState(f"sync-{n}", "sync") for n in range(1, sync_count + 1))
    states.extend(ProducerState(f"async-{n}", "async") for n in range(1, async_count + 1))
    return states


def producer_states_like(producers: Sequence[ProducerState]) -> list[ProducerState]:
    """Return new ones of the same names and modes."""
    return [ProducerState(each.name, each.mode) for each in producers]

"""Producers and readers of a fenced group: the real client library, writing a `FencedHistory`.

Producers choose one of the three contracts and try again across changes of master, as users are
told to. The group reader commits what it has read and asks now and then where to go on.
"""

import contextlib
import random
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from tandem.client.ack import Ack
from tandem.client.errors import BrokerError, ClientError
from tandem.client.producer import Producer
from tandem.client.pull_consumer import PullConsumer
from tandem.client.results import MessageQueue, PullStatus, SendResult, SendStatus
from tandem.wire.crc import crc32
from tandem.wire.message import Message, MessageExt, decode_offset_msg_id
from tests.sim.checker import Outcome, Probe
from tests.sim.fenced_history import Contract, FencedHistory, FencedSend, OffsetSeen, ReadSeen
from tests.sim.trace import Trace
from tests.sim.workload import ClientMachine

TOPIC: Final = "orders"
RETRY_SECONDS: Final = 0.2
ROUND_SECONDS: Final = 0.3
COMMIT_CHANCE: Final = 0.3
ASK_CHANCE: Final = 0.3
DRAIN_SECONDS_MAX: Final = 20.0
COMMIT_TIMEOUT_MS: Final = 1_000
PROBES_IN_A_ROW: Final = 2

ACKS: Final = {
    Contract.ASYNC: Ack.ASYNC,
    Contract.REPLICATED: Ack.REPLICATED,
    Contract.FLUSHED: Ack.REPLICATED_FLUSHED,
}


class FencedProducerProfile(msgspec.Struct, frozen=True):
    """How one producer behaves."""

    name: str
    ip: str
    contract: Contract
    retries: int | None
    """None: as many as fit into the time."""
    resends: bool
    """Whether it sends again what is stored but not known to be safe."""
    pause_seconds: float
    body_bytes_max: int
    batch_chance: float
    timeout_ms: int
    attempt_timeout_ms: int

    @property
    def attempts_max(self) -> int:
        """How often a message may be stored."""
        return 1_000 if self.retries is None else 1 + self.retries


class FencedProducer:
    """One producer and the part of the history it writes."""

    def __init__(
        self,
        profile: FencedProducerProfile,
        machine: ClientMachine,
        *,
        chance: random.Random,
        history: FencedHistory,
        trace: Trace,
    ) -> None:
        self._profile = profile
        self._machine = machine
        self._chance = chance
        self._history = history
        self._trace = trace
        self._sequence = 0

    def _client(self) -> Producer:
        machine, profile = self._machine, self._profile
        return Producer(
            machine.name_servers,
            profile.name,
            ack=ACKS[profile.contract],
            retry_times_when_send_failed=profile.retries,
            resend_until_ok=profile.resends,
            send_msg_timeout_ms=profile.timeout_ms,
            attempt_timeout_ms=profile.attempt_timeout_ms,
            open_stream=machine.open_stream,
            wall_clock_ms=machine.clock.now_ms,
            identity=machine.identity,
        )

    async def run(self, stop: trio.Event, quiet_until: Callable[[], float]) -> None:
        """Send until `stop`, and finish what is under way."""
        async with self._client() as producer:
            while not stop.is_set():
                await trio.sleep_until(quiet_until())
                if self._chance.random() < self._profile.batch_chance:
                    await self._send(producer, self._chance.randint(2, 4))
                else:
                    await self._send(producer, 1)
                with trio.move_on_after(self._chance.expovariate(1 / self._profile.pause_seconds)):
                    await stop.wait()

    async def probe(
        self, healed_at: float, *, until: float, is_settled: Callable[[], bool]
    ) -> None:
        """Try a send now and then, and note how each went.

        The last one is that at `until`, or the second in a row to succeed while `is_settled`.
        """
        in_a_row = 0
        async with self._client() as producer:
            while True:
                sent_at = trio.current_time()
                (send,) = await self._send(producer, 1)
                succeeded = send.outcome is Outcome.OK
                self._history.probes.append(Probe(sent_at - healed_at, succeeded, send.text))
                in_a_row = in_a_row + 1 if succeeded else 0
                if sent_at >= until or (in_a_row >= PROBES_IN_A_ROW and is_settled()):
                    return
                await trio.sleep_until(
                    min(until, trio.current_time() + self._profile.pause_seconds)
                )

    async def _send(self, producer: Producer, count: int) -> list[FencedSend]:
        messages = [self._next_message() for _ in range(count)]
        invoked_at = trio.current_time()
        queue_id = self._chance.choice((None, None, 0))
        try:
            if count == 1:
                result = await producer.send(messages[0], queue_id=queue_id)
            else:
                result = await producer.send_batch(messages, queue_id=queue_id)
        except ClientError as error:
            outcome = Outcome.UNKNOWN if error.outcome_unknown else Outcome.REFUSED
            text = f"{type(error).__name__} {error}"
            return [self._note(m, invoked_at, outcome, text) for m in messages]
        return self._note_result(messages, invoked_at, result)

    def _next_message(self) -> Message:
        key = f"{self._profile.name}.{self._sequence}"
        self._sequence += 1
        filler = self._chance.randbytes(self._chance.randint(0, self._profile.body_bytes_max))
        return Message(TOPIC, key.encode() + b":" + filler, keys=key)

    def _note_result(
        self, messages: list[Message], invoked_at: float, result: SendResult
    ) -> list[FencedSend]:
        outcome = Outcome.OK if result.status is SendStatus.SEND_OK else Outcome.STORED
        places = [decode_offset_msg_id(text)[1] for text in result.offset_msg_id.split(",")]
        return [
            self._note(
                message,
                invoked_at,
                outcome,
                f"{result.status.name} {result.reason}",
                (result.queue.queue_id, result.queue_offset + index, places[index]),
            )
            for index, message in enumerate(messages)
        ]

    def _note(
        self,
        message: Message,
        invoked_at: float,
        outcome: Outcome,
        text: str,
        place: tuple[int, int, int] = (-1, -1, -1),
    ) -> FencedSend:
        self._trace.note(self._profile.name, f"{message.keys} {outcome.name} {text}")
        now = trio.current_time()
        send = FencedSend(
            key=message.keys,
            body_crc=crc32(message.body),
            contract=self._profile.contract,
            outcome=outcome,
            invoked_at=invoked_at,
            answered_at=float("inf") if outcome is Outcome.UNKNOWN else now,
            ended_at=now,
            attempts_max=self._profile.attempts_max,
            queue_id=place[0],
            queue_offset=place[1],
            physical_offset=place[2],
            text=text,
        )
        self._history.sends.append(send)
        return send


class GroupReader:
    """Pulls every queue along with the producers, commits, and asks where to go on."""

    def __init__(
        self, name: str, machine: ClientMachine, *, chance: random.Random, history: FencedHistory
    ) -> None:
        self._name = name
        self._machine = machine
        self._chance = chance
        self._history = history
        self._next: dict[int, int] = {}

    async def run(self) -> None:
        """Read until cancelled."""
        async with self._machine.consumer(self._name) as consumer:
            while True:
                try:
                    for queue in await consumer.fetch_message_queues(TOPIC):
                        await self._pull(consumer, queue)
                    await trio.sleep(ROUND_SECONDS)
                except ClientError:
                    await trio.sleep(RETRY_SECONDS)

    async def _pull(self, consumer: PullConsumer, queue: MessageQueue) -> None:
        result = await consumer.pull(
            queue,
            self._next.setdefault(queue.queue_id, 0),
            max_msg_nums=self._chance.choice((1, 3, 32)),
            suspend_timeout_ms=self._chance.choice((0, 100, 300)),
        )
        self._history.reads += [read_of(self._name, message) for message in result.messages]
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await trio.sleep(RETRY_SECONDS)
            return
        self._next[queue.queue_id] = result.next_begin_offset
        if self._chance.random() < COMMIT_CHANCE:
            await consumer.update_consume_offset(
                queue, result.next_begin_offset, timeout_ms=COMMIT_TIMEOUT_MS
            )
            self._note(queue.queue_id, result.next_begin_offset)
        if self._chance.random() < ASK_CHANCE:
            self._note(queue.queue_id, await consumer.fetch_consume_offset(queue) or 0)

    def _note(self, queue_id: int, offset: int) -> None:
        """A commit that was answered stands, and so does what was told: neither goes back."""
        self._history.offsets.append(OffsetSeen(trio.current_time(), self._name, queue_id, offset))

    async def ask(self) -> None:
        """Ask once more for every queue, when all is over; until somebody has answered."""
        async with self._machine.consumer(self._name) as consumer:
            while True:
                try:
                    for queue in await consumer.fetch_message_queues(TOPIC):
                        self._note(queue.queue_id, await consumer.fetch_consume_offset(queue) or 0)
                except ClientError:
                    await trio.sleep(RETRY_SECONDS)
                else:
                    return


class FollowingReader:
    """Reads the topic with `PullConsumer.messages`, as most users will."""

    def __init__(self, name: str, machine: ClientMachine, *, history: FencedHistory) -> None:
        self._name = name
        self._machine = machine
        self._history = history
        self._has_begun = False

    async def run(self) -> None:
        """Read until cancelled. An error after the first message ends it, and must not come."""
        async with self._machine.consumer(self._name) as consumer:
            while True:
                try:
                    await self._follow(consumer)
                except ClientError as error:
                    if self._has_begun:
                        text = f"a reader gave up: {type(error).__name__}: {error}"
                        self._history.crashes.append(text)
                        return
                    await trio.sleep(RETRY_SECONDS)

    async def _follow(self, consumer: PullConsumer) -> None:
        async with contextlib.aclosing(consumer.messages(TOPIC)) as messages:
            async for message in messages:
                self._has_begun = True
                self._history.reads.append(read_of(self._name, message))


async def drain(machine: ClientMachine, history: FencedHistory) -> str:
    """Pull every queue from its start to its end; return what went wrong, empty if nothing."""
    fault = ""
    with trio.move_on_after(DRAIN_SECONDS_MAX):
        async with machine.consumer("drain") as consumer:
            while True:
                history.drained.clear()
                try:
                    for queue in await consumer.fetch_message_queues(TOPIC):
                        await _drain_queue(consumer, queue, history)
                except ClientError as error:
                    fault = f"draining failed: {error}"
                    await trio.sleep(RETRY_SECONDS)
                else:
                    return ""
    return fault or f"draining took more than {DRAIN_SECONDS_MAX} s"


async def _drain_queue(consumer: PullConsumer, queue: MessageQueue, history: FencedHistory) -> None:
    offset = await consumer.min_offset(queue)
    end = await consumer.max_offset(queue)
    while offset < end:
        result = await consumer.pull(queue, offset)
        if result.next_begin_offset <= offset:
            raise BrokerError(-1, f"{queue}: stuck at {offset} of {end}, {result.status.name}")
        history.drained += [read_of("drain", message) for message in result.messages]
        offset = result.next_begin_offset


def read_of(reader: str, message: MessageExt) -> ReadSeen:
    """Return what the checker compares of a message that arrived now."""
    return ReadSeen(
        trio.current_time(),
        reader,
        message.topic,
        message.keys,
        crc32(message.body),
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
    )

"""Producers and readers: the real client library, on machines of their own, writing a history.

Every message has a key that says who sent it and when, and a body that nobody else sends. A
producer sends one thing after the other and notes what it was told; chance decides what it sends,
when, and to which queue.
"""

import contextlib
import random
from collections.abc import Sequence
from typing import Final

import msgspec
import trio

from store.machine.network import ConnectionLost
from tandem.client.admin import Admin
from tandem.client.errors import BrokerError, ClientError
from tandem.client.identity import ClientIdentity
from tandem.client.producer import Producer
from tandem.client.pull_consumer import PullConsumer
from tandem.client.results import MessageQueue, PullStatus, SendResult, SendStatus
from tandem.wire.crc import crc32
from tandem.wire.message import Message, MessageExt, decode_offset_msg_id
from tests.sim.checker import History, Outcome, Probe, Read, Send, Stored
from tests.sim.trace import Trace
from tests.support.simulated_network import Machine
from tests.support.trio_stream import TrioStream
from tests.support.virtual_clock import WallClock

TOPIC: Final = "orders"
RETRY_SECONDS: Final = 0.1
"""A reader that got an error waits so long before it asks again."""

ROUND_SECONDS: Final = 0.05
"""Between two rounds of the pulling reader over all queues."""

COMMIT_CHANCE: Final = 0.1

DRAIN_SECONDS_MAX: Final = 20.0


class ProducerProfile(msgspec.Struct, frozen=True):
    """How one producer behaves."""

    name: str
    ip: str
    sync: bool
    retries: int
    pause_seconds: float
    body_bytes_max: int
    batch_chance: float
    """How often it sends several messages as one request."""
    many_chance: float
    """How often it sends several messages at once, each as a request of its own."""


class ClientMachine:
    """Where one client runs."""

    def __init__(self, machine: Machine, name_servers: Sequence[str], salt: int) -> None:
        self.name_servers = list(name_servers)
        self.identity = ClientIdentity(machine.ip, 1, salt)
        self.clock = WallClock()
        self._machine = machine

    async def open_stream(self, host: str, port: int) -> TrioStream:
        """Open a connection as the client library wants it."""
        try:
            return TrioStream(await self._machine.connect(host, port, source=None))
        except ConnectionLost as error:
            raise trio.BrokenResourceError(str(error)) from error

    def producer(self, profile: ProducerProfile, timeout_ms: int) -> Producer:
        """Return a producer, not open yet."""
        return Producer(
            self.name_servers,
            profile.name,
            wait_store_msg_ok=profile.sync,
            retry_times_when_send_failed=profile.retries,
            send_msg_timeout_ms=timeout_ms,
            open_stream=self.open_stream,
            wall_clock_ms=self.clock.now_ms,
            identity=self.identity,
        )

    def consumer(self, name: str) -> PullConsumer:
        """Return a consumer, not open yet."""
        return PullConsumer(
            self.name_servers, name, open_stream=self.open_stream, identity=self.identity
        )

    def admin(self) -> Admin:
        """Return an administrator's client, not open yet."""
        return Admin(self.name_servers, open_stream=self.open_stream, identity=self.identity)


class SendingProducer:
    """One producer and the part of the history it writes."""

    def __init__(
        self,
        profile: ProducerProfile,
        machine: ClientMachine,
        *,
        chance: random.Random,
        history: History,
        trace: Trace,
        timeout_ms: int,
    ) -> None:
        self._profile = profile
        self._machine = machine
        self._chance = chance
        self._history = history
        self._trace = trace
        self._timeout_ms = timeout_ms
        self._sequence = 0

    async def run(self, stop: trio.Event) -> None:
        """Send until `stop`, and finish what is under way.

        Raises:
            ClientError: many sends ended in one error, which must not be.
        """
        async with self._machine.producer(self._profile, self._timeout_ms) as producer:
            while not stop.is_set():
                await self._send_something(producer)
                with trio.move_on_after(self._chance.expovariate(1 / self._profile.pause_seconds)):
                    await stop.wait()

    async def _send_something(self, producer: Producer) -> None:
        choice = self._chance.random()
        if choice < self._profile.batch_chance:
            await self.send_batch(producer, self._chance.randint(2, 6))
        elif choice < self._profile.batch_chance + self._profile.many_chance:
            await self.send_many(producer, self._chance.randint(2, 8))
        else:
            await self.send(producer)

    async def probe(self, healed_at: float, *, until: float) -> None:
        """Try a send now and then, the last one at `until`, and note how each went."""
        async with self._machine.producer(self._profile, self._timeout_ms) as producer:
            while True:
                sent_at = trio.current_time()
                send = await self.send(producer)
                succeeded = send.outcome is Outcome.OK
                self._history.probes.append(Probe(sent_at - healed_at, succeeded, send.text))
                if sent_at >= until:
                    return
                await trio.sleep_until(
                    min(until, trio.current_time() + self._profile.pause_seconds)
                )

    async def send(self, producer: Producer) -> Send:
        """Send one message and note how it ended."""
        message = self._next_message()
        invoked_at = trio.current_time()
        queue_id = self._chance.choice((None, None, None, 0))
        try:
            result = await producer.send(message, queue_id=queue_id)
        except ClientError as error:
            return self._note_error([message], invoked_at, error)[0]
        return self._note_result([message], invoked_at, result)[0]

    async def send_batch(self, producer: Producer, count: int) -> None:
        """Send several messages as one request."""
        messages = [self._next_message() for _ in range(count)]
        invoked_at = trio.current_time()
        try:
            result = await producer.send_batch(messages)
        except ClientError as error:
            self._note_error(messages, invoked_at, error)
        else:
            self._note_result(messages, invoked_at, result)

    async def send_many(self, producer: Producer, count: int) -> None:
        """Send several messages, all in flight together."""
        messages = [self._next_message() for _ in range(count)]
        invoked_at = trio.current_time()
        try:
            results = await producer.send_many(messages)
        except ClientError as error:
            for message in messages:
                self._note(message, invoked_at, Outcome.UNKNOWN, f"not told: {error}")
            raise
        for message, result in zip(messages, results, strict=True):
            if isinstance(result, ClientError):
                self._note_error([message], invoked_at, result)
            else:
                self._note_result([message], invoked_at, result)

    def _next_message(self) -> Message:
        key = f"{self._profile.name}.{self._sequence}"
        self._sequence += 1
        filler = self._chance.randbytes(self._chance.randint(0, self._profile.body_bytes_max))
        return Message(TOPIC, key.encode() + b":" + filler, keys=key)

    def _note_result(
        self, messages: list[Message], invoked_at: float, result: SendResult
    ) -> list[Send]:
        outcome = Outcome.OK if result.status is SendStatus.SEND_OK else Outcome.STORED
        places = [decode_offset_msg_id(text)[1] for text in result.offset_msg_id.split(",")]
        return [
            self._note(
                message,
                invoked_at,
                outcome,
                f"{result.status.name} {result.reason}",
                queue_id=result.queue.queue_id,
                queue_offset=result.queue_offset + index,
                physical_offset=places[index] if index < len(places) else -1,
            )
            for index, message in enumerate(messages)
        ]

    def _note_error(
        self, messages: list[Message], invoked_at: float, error: ClientError
    ) -> list[Send]:
        outcome = Outcome.UNKNOWN if error.outcome_unknown else Outcome.REFUSED
        text = f"{type(error).__name__} {error}"
        return [self._note(message, invoked_at, outcome, text) for message in messages]

    def _note(
        self,
        message: Message,
        invoked_at: float,
        outcome: Outcome,
        text: str,
        *,
        queue_id: int = -1,
        queue_offset: int = -1,
        physical_offset: int = -1,
    ) -> Send:
        self._trace.note(self._profile.name, f"{message.keys} {outcome.name} {text}")
        send = Send(
            key=message.keys,
            body_crc=crc32(message.body),
            sync=self._profile.sync,
            outcome=outcome,
            invoked_at=invoked_at,
            answered_at=float("inf") if outcome is Outcome.UNKNOWN else trio.current_time(),
            ended_at=trio.current_time(),
            attempts_max=1 + self._profile.retries,
            text=text,
            queue_id=queue_id,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
        )
        self._history.sends.append(send)
        return send


class PullingReader:
    """Reads every queue of the topic along with the producers, by pulling one after the other."""

    def __init__(
        self, name: str, machine: ClientMachine, *, chance: random.Random, history: History
    ) -> None:
        self._name = name
        self._machine = machine
        self._chance = chance
        self._history = history
        self._next: dict[MessageQueue, int] = {}

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
            self._next.setdefault(queue, 0),
            max_msg_nums=self._chance.choice((1, 3, 32)),
            suspend_timeout_ms=self._chance.choice((0, 100, 300)),
        )
        for message in result.messages:
            self._history.reads.append(Read(self._name, stored(message)))
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await trio.sleep(RETRY_SECONDS)
            return
        self._next[queue] = result.next_begin_offset
        if self._chance.random() < COMMIT_CHANCE:
            await consumer.update_consume_offset(queue, result.next_begin_offset)


class FollowingReader:
    """Reads the topic with `PullConsumer.messages`, as most users will."""

    def __init__(self, name: str, machine: ClientMachine, *, history: History) -> None:
        self._name = name
        self._machine = machine
        self._history = history
        self._has_begun = False

    async def run(self) -> None:
        """Read until cancelled.

        Raises:
            ClientError: the iterator gave up after it had begun, which it must not.
        """
        async with self._machine.consumer(self._name) as consumer:
            while True:
                try:
                    await self._follow(consumer)
                except ClientError:
                    if self._has_begun:
                        raise
                    await trio.sleep(RETRY_SECONDS)

    async def _follow(self, consumer: PullConsumer) -> None:
        async with contextlib.aclosing(consumer.messages(TOPIC)) as messages:
            async for message in messages:
                self._has_begun = True
                self._history.reads.append(Read(self._name, stored(message)))


async def drain(machine: ClientMachine, history: History) -> str:
    """Pull every queue from its start to its end; return what went wrong, empty if nothing."""
    with trio.move_on_after(DRAIN_SECONDS_MAX):
        async with machine.consumer("drain") as consumer:
            try:
                for queue in await consumer.fetch_message_queues(TOPIC):
                    await _drain_queue(consumer, queue, history)
            except ClientError as error:
                return f"draining failed: {error}"
        return ""
    return f"draining took more than {DRAIN_SECONDS_MAX} s"


async def _drain_queue(consumer: PullConsumer, queue: MessageQueue, history: History) -> None:
    offset = await consumer.min_offset(queue)
    end = await consumer.max_offset(queue)
    while offset < end:
        result = await consumer.pull(queue, offset)
        if result.next_begin_offset <= offset:
            raise BrokerError(-1, f"{queue}: stuck at {offset} of {end}, {result.status.name}")
        history.drained += [Read("drain", stored(message)) for message in result.messages]
        offset = result.next_begin_offset


def stored(message: MessageExt) -> Stored:
    """Return what the checker compares of a message."""
    return Stored(
        key=message.keys,
        body_crc=crc32(message.body),
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
    )

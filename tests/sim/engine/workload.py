"""Producers and readers: the real client library, on machines of their own, writing a history.

Every message has a key that says who sent it and when, and a body that nobody else sends. A
producer sends one thing after the other, tries again if its profile says so, as users are told to,
and notes what it was told; chance decides what it sends, when, and to which queue.
"""

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import trio

from node.simulated.network import Machine
from node.simulated.trio_stream import TrioStream
from node.simulated.virtual_clock import WallClock
from store.machine.network import ConnectionLost
from tandem.client.ack import Ack
from tandem.client.admin import Admin
from tandem.client.cluster_access import ClusterAccess
from tandem.client.errors import BrokerError, ClientError
from tandem.client.identity import ClientIdentity
from tandem.client.producer import Producer
from tandem.client.pull_consumer import PullConsumer
from tandem.client.pull_operations import SWITCH_MS
from tandem.client.results import MessageQueue, PullStatus, SendResult, SendStatus
from tandem.tls_files import TLSFiles
from tandem.wire.crc import crc32
from tandem.wire.message import Message, MessageExt, decode_offset_msg_id
from tests.sim.engine.history import (
    Contract,
    History,
    OffsetSeen,
    Outcome,
    Probe,
    Read,
    Send,
)
from tests.sim.engine.trace import Trace
from tests.support.secret import SECRET

TOPIC: Final = "orders"
DRAIN_SECONDS_MAX: Final = 20.0
PROBES_IN_A_ROW: Final = 2
MANY_MAX: Final = 8
QUEUE_IDS: Final = (None, None, 0)
"""One of these is the queue of what is sent; None: the client chooses."""

ACKS: Final = {
    Contract.ASYNC: Ack.ASYNC,
    Contract.REPLICATED: Ack.REPLICATED,
    Contract.FLUSHED: Ack.REPLICATED_FLUSHED,
}


class ProducerProfile(msgspec.Struct, frozen=True, kw_only=True):
    """How one producer behaves."""

    name: str
    ip: str
    contract: Contract
    retries: int | None
    """None: as many as fit into the time."""
    resends: bool = False
    """Whether it sends again what is stored but not known to be safe."""
    pause_seconds: float
    body_bytes_max: int
    batch_chance: float = 0.0
    """How often it sends several messages as one request."""
    batch_max: int = 4
    many_chance: float = 0.0
    """How often it sends several messages at once, each as a request of its own."""
    timeout_ms: int
    attempt_timeout_ms: int

    @property
    def attempts_max(self) -> int:
        """How often a message may be stored."""
        return 1_000 if self.retries is None else 1 + self.retries


class ReaderProfile(msgspec.Struct, frozen=True):
    """How the readers of a run behave."""

    name: str
    retry_seconds: float
    """Somebody who got an error waits so long before the next try."""
    round_seconds: float
    """Between two rounds over all queues."""
    commit_chance: float
    ask_chance: float = 0.0
    """How often the group asks where to go on."""
    commit_timeout_ms: int = SWITCH_MS


class ClientMachine:
    """Where one client runs."""

    def __init__(
        self,
        machine: Machine,
        name_servers: Sequence[str],
        salt: int,
        tls: TLSFiles | None = None,
    ) -> None:
        self.name_servers = list(name_servers)
        self._tls = tls
        self.identity = ClientIdentity(machine.ip, 1, salt)
        self.clock = WallClock()
        self._machine = machine

    async def open_stream(self, host: str, port: int) -> TrioStream:
        """Open a connection as the client library wants it."""
        try:
            return TrioStream(await self._machine.connect(host, port, source=None))
        except ConnectionLost as error:
            raise trio.BrokenResourceError(str(error)) from error

    @property
    def access(self) -> ClusterAccess:
        """Where the cluster is, and who asks: one client each."""
        return ClusterAccess(
            self.name_servers, secret=SECRET, identity=self.identity, tls=self._tls
        )

    def producer(self, profile: ProducerProfile) -> Producer:
        """Return a producer, not open yet."""
        return Producer(
            self.access,
            profile.name,
            ack=ACKS[profile.contract],
            retry_times_when_send_failed=profile.retries,
            resend_until_ok=None if profile.resends else False,  # None is what users have
            send_msg_timeout_ms=profile.timeout_ms,
            attempt_timeout_ms=profile.attempt_timeout_ms,
            open_stream=self.open_stream,
            wall_clock_ms=self.clock.now_ms,
        )

    def consumer(self, name: str) -> PullConsumer:
        """Return a consumer, not open yet."""
        return PullConsumer(self.access, name, open_stream=self.open_stream)

    def admin(self) -> Admin:
        """Return an administrator's client, not open yet."""
        return Admin(self.access, open_stream=self.open_stream)


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
    ) -> None:
        self._profile = profile
        self._machine = machine
        self._chance = chance
        self._history = history
        self._trace = trace
        self._sequence = 0

    async def run(self, stop: trio.Event, quiet_until: Callable[[], float]) -> None:
        """Send until `stop`, and finish what is under way."""
        async with self._machine.producer(self._profile) as producer:
            while not stop.is_set():
                await trio.sleep_until(quiet_until())
                await self._send_something(producer)
                with trio.move_on_after(self._chance.expovariate(1 / self._profile.pause_seconds)):
                    await stop.wait()

    async def _send_something(self, producer: Producer) -> None:
        profile = self._profile
        choice = self._chance.random()
        if choice < profile.batch_chance:
            await self._send(producer, self._chance.randint(2, profile.batch_max))
        elif choice < profile.batch_chance + profile.many_chance:
            await self._send_many(producer, self._chance.randint(2, MANY_MAX))
        else:
            await self._send(producer, 1)

    async def probe(
        self, healed_at: float, *, until: float, is_settled: Callable[[], bool]
    ) -> None:
        """Try a send now and then, and note how each went.

        The last one is that at `until`, or the second in a row to succeed while `is_settled`.
        """
        in_a_row = 0
        async with self._machine.producer(self._profile) as producer:
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

    async def _send(self, producer: Producer, count: int) -> list[Send]:
        """Send messages as one request, and note how that ended."""
        messages = [self._next_message() for _ in range(count)]
        invoked_at = trio.current_time()
        queue_id = self._chance.choice(QUEUE_IDS)
        try:
            if count == 1:
                result = await producer.send(messages[0], queue_id=queue_id)
            else:
                result = await producer.send_batch(messages, queue_id=queue_id)
        except ClientError as error:
            return self._note_error(messages, invoked_at, error)
        return self._note_result(messages, invoked_at, result)

    async def _send_many(self, producer: Producer, count: int) -> None:
        """Send several messages, all in flight together."""
        messages = [self._next_message() for _ in range(count)]
        invoked_at = trio.current_time()
        try:
            results = await producer.send_many(messages)
        except ClientError as error:
            text = f"{count} sends ended in one error: {error}"
            self._history.crashes.append(f"{self._profile.name}: {text}")
            for message in messages:
                self._note(message, invoked_at, Outcome.UNKNOWN, text)
            return
        for message, result in zip(messages, results, strict=True):
            if isinstance(result, ClientError):
                self._note_error([message], invoked_at, result)
            else:
                self._note_result([message], invoked_at, result)

    def _next_message(self) -> Message:
        key = f"{self._profile.name}.{self._sequence}"
        self._history.contracts[key] = self._profile.contract
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
                (result.queue.queue_id, result.queue_offset + index, place),
            )
            for index, (message, place) in enumerate(zip(messages, places, strict=True))
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
        place: tuple[int, int, int] = (-1, -1, -1),
    ) -> Send:
        self._trace.note(self._profile.name, f"{message.keys} {outcome.name} {text}")
        now = trio.current_time()
        send = Send(
            key=str(message.keys),
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
        self,
        profile: ReaderProfile,
        machine: ClientMachine,
        *,
        chance: random.Random,
        history: History,
    ) -> None:
        self._profile = profile
        self._machine = machine
        self._chance = chance
        self._history = history
        self._next: dict[int, int] = {}

    async def run(self) -> None:
        """Read until cancelled."""
        async with self._machine.consumer(self._profile.name) as consumer:
            while True:
                try:
                    for queue in await consumer.fetch_message_queues(TOPIC):
                        await self._pull(consumer, queue)
                    await trio.sleep(self._profile.round_seconds)
                except ClientError:
                    await trio.sleep(self._profile.retry_seconds)

    async def _pull(self, consumer: PullConsumer, queue: MessageQueue) -> None:
        profile = self._profile
        result = await consumer.pull(
            queue,
            self._next.setdefault(queue.queue_id, 0),
            max_msg_nums=self._chance.choice((1, 3, 32)),
            suspend_timeout_ms=self._chance.choice((0, 100, 300)),
        )
        self._history.reads += [read_now(profile.name, message) for message in result.messages]
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await trio.sleep(profile.retry_seconds)
            return
        self._next[queue.queue_id] = result.next_begin_offset
        if self._chance.random() < profile.commit_chance:
            await consumer.update_consume_offset(
                queue, result.next_begin_offset, timeout_ms=profile.commit_timeout_ms
            )
            self._note(queue.queue_id, result.next_begin_offset)
        if profile.ask_chance and self._chance.random() < profile.ask_chance:
            self._note(queue.queue_id, await consumer.fetch_consume_offset(queue) or 0)

    def _note(self, queue_id: int, offset: int) -> None:
        """A commit that was answered stands, and so does what was told: neither goes back."""
        seen = OffsetSeen(trio.current_time(), self._profile.name, queue_id, offset)
        self._history.offsets.append(seen)

    async def ask(self) -> None:
        """Ask once more for every queue, when all is over; until somebody has answered."""
        async with self._machine.consumer(self._profile.name) as consumer:
            while True:
                try:
                    for queue in await consumer.fetch_message_queues(TOPIC):
                        self._note(queue.queue_id, await consumer.fetch_consume_offset(queue) or 0)
                except ClientError:
                    await trio.sleep(self._profile.retry_seconds)
                else:
                    return


class FollowingReader:
    """Reads the topic with `PullConsumer.messages`, as most users will."""

    def __init__(self, machine: ClientMachine, *, retry_seconds: float, history: History) -> None:
        self._machine = machine
        self._retry_seconds = retry_seconds
        self._history = history
        self._has_begun = False

    async def run(self) -> None:
        """Read until cancelled. An error after the first message ends it, and must not come."""
        async with self._machine.consumer("following") as consumer:
            while True:
                try:
                    await self._follow(consumer)
                except ClientError as error:
                    if self._has_begun:
                        text = f"a reader gave up: {type(error).__name__}: {error}"
                        self._history.crashes.append(text)
                        return
                    await trio.sleep(self._retry_seconds)

    async def _follow(self, consumer: PullConsumer) -> None:
        async with contextlib.aclosing(consumer.messages(TOPIC)) as messages:
            async for message in messages:
                self._has_begun = True
                self._history.reads.append(read_now("following", message))


class RereadingReader:
    """Reads every queue from its start, again and again: what is old, too, and may be damaged.

    Nothing is passed over: as many messages come as an answer moves on, whatever is in them. Where
    a log `may_begin_late` it is read from where it begins.
    """

    def __init__(
        self,
        machine: ClientMachine,
        *,
        retry_seconds: float,
        history: History,
        may_begin_late: bool = False,
    ) -> None:
        self._machine = machine
        self._retry_seconds = retry_seconds
        self._history = history
        self._may_begin_late = may_begin_late

    async def run(self) -> None:
        """Read until cancelled."""
        async with self._machine.consumer("again") as consumer:
            while True:
                with contextlib.suppress(ClientError):
                    for queue in await consumer.fetch_message_queues(TOPIC):
                        await self._read_queue(consumer, queue)
                await trio.sleep(self._retry_seconds)

    async def _read_queue(self, consumer: PullConsumer, queue: MessageQueue) -> None:
        """Read one queue as far as it goes; an error ends that for now."""
        offset = 0
        with contextlib.suppress(ClientError):
            while True:
                result = await consumer.pull(queue, offset)
                moved, count = result.next_begin_offset - offset, len(result.messages)
                is_late = self._may_begin_late and result.status is PullStatus.OFFSET_ILLEGAL
                if moved > 0 and moved != count and not is_late:
                    self._note(queue, offset, moved, count)
                if moved <= 0:
                    return
                offset = result.next_begin_offset

    def _note(self, queue: MessageQueue, offset: int, moved: int, count: int) -> None:
        text = f"queue {queue.queue_id} at {trio.current_time():.3f}: from {offset} on"
        self._history.skipped.append(f"{text} an answer moves on by {moved} and has {count}")


async def drain(machine: ClientMachine, history: History, *, retry_seconds: float | None) -> str:
    """Pull every queue from its start to its end; None: the first try has to succeed.

    Returns:
        What went wrong; empty if nothing did.
    """
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
                    if retry_seconds is None:
                        return fault
                    await trio.sleep(retry_seconds)
                else:
                    return ""
    return fault or f"draining took more than {DRAIN_SECONDS_MAX} s"


async def _drain_queue(consumer: PullConsumer, queue: MessageQueue, history: History) -> None:
    offset = await consumer.min_offset(queue)
    end = await consumer.max_offset(queue)
    while offset < end:
        result = await consumer.pull(queue, offset)
        if result.next_begin_offset <= offset:
            raise BrokerError(-1, f"{queue}: stuck at {offset} of {end}, {result.status.name}")
        history.drained += [read_now("drain", message) for message in result.messages]
        offset = result.next_begin_offset


def read_now(reader: str, message: MessageExt) -> Read:
    """Return what the checkers compare of a message that arrived now."""
    return Read(
        trio.current_time(),
        reader,
        message.topic,
        message.keys,
        crc32(message.body),
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
    )

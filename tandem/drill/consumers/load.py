"""The load that shows what consumers are promised: few messages of each kind, groups that read.

Beside the sends of `workload`, in topics of its own: plain messages, messages that wait,
transactions that are committed, rolled back or left open, and messages whose handler fails. Every
line of the ledger is written before what it speaks of has any effect, and judged at once
(`promises`).
"""

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from random import Random
from typing import Final, Protocol

import msgspec
import trio

from tandem.client import (
    BrokerError,
    ClientError,
    MessageQueue,
    PullResult,
    ReceivedMessage,
    SendResult,
    TransactionState,
)
from tandem.client.admin_results import GroupDescription, GroupQueue
from tandem.drill.consumers.lines import (
    Answered,
    Committed,
    DeadLetter,
    Decided,
    Ended,
    GivenBack,
    Kind,
    Line,
    Seen,
    Sent,
)
from tandem.drill.consumers.names import RECONSUME_MAX, Topics
from tandem.drill.consumers.promises import GroupRules, Promises
from tandem.drill.ledger import NO_ANSWER, Ledger
from tandem.drill.outcomes import NOT_SENT, REJECTED, SEND_OK, UNKNOWN
from tandem.drill.workload import (
    UNIQUE_KEY_PREFIX,
    Attempts,
    Retries,
    SendsMessages,
)
from tandem.wire.message import Message, MessageExt
from tandem.wire.message_properties import PROPERTY_UNIQUE_KEY
from tandem.wire.system_topics import dlq_topic

ALWAYS: Final = 1_000_000
"""Failures of a message that is a dead letter at last."""

RETRY_DELAY_SECONDS: Final = 1.0
DELAYS_MS: Final = {1: 1_000, 2: 5_000}
"""RocketMQ's first delay levels. The second one is rare: a scenario waits for what waits."""

LONG_SHARE: Final = 0.1

TIMED_MS: Final = (700, 2_300)

ENDS: Final[tuple[tuple[TransactionState, TransactionState], ...]] = (
    ("commit", "commit"),
    ("commit", "commit"),
    ("rollback", "rollback"),
    ("unknown", "commit"),
    ("commit", "commit"),
    ("unknown", "rollback"),
)
"""How transactions end, one after the other; and the answer to a question about one left open."""

PAUSE_SECONDS: Final = 1.0
"""Between two looks at dead letters, and after an error."""

OFFSETS_PAUSE_SECONDS: Final = 2.0
"""Between two looks at offsets: to describe a group is several requests."""

DEAD_LETTERS_MAX: Final = 32


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Sends a second, by kind."""

    plain: float = 5.0
    delayed: float = 1.0
    timed: float = 1.0
    transaction: float = 2.0
    retried: float = 1.0


class Consumes(Protocol):
    """What is needed of tandem.Consumer."""

    async def consume(
        self,
        topic: str,
        handler: Callable[[ReceivedMessage], Awaitable[object]],
        *,
        concurrency: int = ...,
    ) -> None:
        """Call the handler with each message; raises ClientError."""
        ...


class DescribesGroups(Protocol):
    """What is needed of tandem.Admin."""

    async def describe_group(self, group: str) -> GroupDescription:
        """Return how far a group is; raises ClientError."""
        ...


class ReadsLetters(Protocol):
    """What is needed of tandem.PullConsumer, in a group of its own: it would be a member."""

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic; raises ClientError."""
        ...

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


class Begun(Protocol):
    """What is needed of tandem.Transaction."""

    @property
    def result(self) -> SendResult:
        """The answer to the half."""
        ...

    def commit(self) -> None: ...  # noqa: D102 - as its name says
    def rollback(self) -> None: ...  # noqa: D102
    def unknown(self) -> None: ...  # noqa: D102


class BeginsTransactions(Protocol):
    """What is needed of tandem.Producer beside its sends."""

    def transaction(self, message: Message) -> AbstractAsyncContextManager[Begun]:
        """Return a block; entering it raises ClientError."""
        ...


class ConsumerLoad:
    """The load and what is known of it. Each method without an end is a task.

    `topics` are what it sends to. `broker_of` says which broker a message was stored by. `wall_ms`
    is the wall clock of now, which brokers go by: after a machine has slept, what is counted from
    the drill's start is late.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        promises: Promises,
        wall_ms: Callable[[], float],
        broker_of: Callable[[MessageExt], str],
        topics: Topics = Topics(),  # noqa: B008 - frozen
        retries: Retries | None = None,
        refusal_is_clear: bool = True,
        chance: Random | None = None,
    ) -> None:
        self.promises = promises
        self.topics = topics
        self._ledger = ledger
        self._wall_ms = wall_ms
        self._broker_of = broker_of
        self._retries = retries
        self._refusal_is_clear = refusal_is_clear
        self._chance = Random(1) if chance is None else chance
        self._numbers: Counter[Kind] = Counter()
        self._answers: dict[str, TransactionState] = {}
        self._running = trio.Event()

    def pause(self) -> None:
        """Let producers rest once their sends are answered."""
        self._running = trio.Event()

    def resume(self) -> None:
        """Let producers send again."""
        self._running.set()

    def _is_running(self) -> trio.Event:
        return self._running

    def left(self) -> str:
        """Return in words what is owed to consumers; nothing if all have all."""
        return ", ".join(f"{count:,} {words}" for words, count in self.promises.left().items())

    def left_unpromised(self) -> int:
        """Return how much may still come that nobody has promised."""
        return sum(self.promises.left_unpromised().values())

    async def send_plain(self, client: SendsMessages, rate_per_second: float) -> None:
        """Send messages that are to be handled at once."""
        pace = Pace(rate_per_second)
        while True:
            await pace.wait(self._is_running)
            await self._send(client, self._sent(Kind.PLAIN, self.topics.plain))

    async def send_delayed(self, client: SendsMessages, rate_per_second: float) -> None:
        """Send messages of the first delay levels, most of them of the shortest."""
        pace = Pace(rate_per_second)
        while True:
            await pace.wait(self._is_running)
            level = 2 if self._chance.random() < LONG_SHARE else 1
            sent = self._sent(Kind.DELAYED, self.topics.waiting, delay_ms=DELAYS_MS[level])
            await self._send(client, sent, delay_level=level)

    async def send_timed(self, client: SendsMessages, rate_per_second: float) -> None:
        """Send messages with a time of their own."""
        pace = Pace(rate_per_second)
        while True:
            await pace.wait(self._is_running)
            sent = self._sent(
                Kind.TIMED, self.topics.waiting, delay_ms=float(self._chance.randint(*TIMED_MS))
            )
            await self._send(client, sent, deliver_time_ms=round(sent.due_ms))

    async def send_retried(self, client: SendsMessages, rate_per_second: float) -> None:
        """Send messages that fail as often as they may, or once more: dead letters."""
        pace = Pace(rate_per_second)
        for number in itertools.count():
            await pace.wait(self._is_running)
            failures = (0, 1, RECONSUME_MAX, ALWAYS)[number % 4]
            await self._send(
                client, self._sent(Kind.RETRIED, self.topics.retried, failures=failures)
            )

    async def send_transactions(self, client: BeginsTransactions, rate_per_second: float) -> None:
        """Begin transactions and end them, or leave the end to a question."""
        pace = Pace(rate_per_second)
        for number in itertools.count():
            await pace.wait(self._is_running)
            await self._transact(client, *ENDS[number % len(ENDS)])

    def answer(self, message: MessageExt) -> TransactionState:
        """Say what became of a transaction: a broker asks.

        It may ask before the answer to the half has come: then nothing is decided yet.
        """
        state = self._answers.get(message.keys, "unknown")
        if message.keys in self._answers:
            decided = Decided(
                message_id=message.keys, state=state, at_ms=self._now_ms(), was_asked=True
            )
            self._write(decided)
        return state

    async def read(
        self, group: GroupRules, member: str, client: Consumes, topic: str, concurrency: int = 4
    ) -> None:
        """Be a member of a group; an error that ends it is noted, and it begins again."""

        async def handle(message: ReceivedMessage) -> None:
            await self._handle(group, member, message)

        while True:
            try:
                await client.consume(topic, handle, concurrency=concurrency)
            except ClientError as error:
                self._write(
                    Ended(
                        group=group.name,
                        member=member,
                        topic=topic,
                        reason=f"{type(error).__name__}: {error}",
                        at_ms=self._now_ms(),
                    )
                )
            await trio.sleep(PAUSE_SECONDS)

    async def watch_offsets(self, client: DescribesGroups, groups: Sequence[GroupRules]) -> None:
        """Look at the groups' offsets again and again."""
        while True:
            for group in groups:
                # No master, or nobody has committed anything yet: it is asked again.
                with suppress(ClientError):
                    for queue in (await client.describe_group(group.name)).queues:
                        if queue.topic in group.topics:
                            self._committed(group, queue)
            await trio.sleep(OFFSETS_PAUSE_SECONDS)

    def _committed(self, group: GroupRules, queue: GroupQueue) -> None:
        self._write(
            Committed(
                group=group.name,
                topic=queue.topic,
                broker_name=queue.broker_name,
                queue_id=queue.queue_id,
                offset=queue.consumer_offset,
                at_ms=self._now_ms(),
            )
        )

    async def watch_dead_letters(self, group: GroupRules, client: ReadsLetters) -> None:
        """Read the dead letters of a group as they come. There is no topic before the first."""
        next_offsets: dict[MessageQueue, int] = {}
        while True:
            # No topic yet, or no master: it is asked again.
            with suppress(ClientError):
                for queue in await client.fetch_message_queues(dlq_topic(group.name)):
                    result = await client.pull(
                        queue, next_offsets.get(queue, 0), DEAD_LETTERS_MAX, suspend_timeout_ms=0
                    )
                    for message in result.messages:
                        next_offsets[queue] = message.queue_offset + 1
                        self._write(
                            DeadLetter(
                                group=group.name, message_id=message.keys, at_ms=self._now_ms()
                            )
                        )
            await trio.sleep(PAUSE_SECONDS)

    def _sent(self, kind: Kind, topic: str, *, delay_ms: float = 0.0, failures: int = 0) -> Sent:
        number = self._numbers[kind]
        self._numbers[kind] += 1
        now_ms = self._now_ms()
        return Sent(
            message_id=f"{kind}-{number:06d}",
            kind=kind,
            topic=topic,
            at_ms=now_ms,
            due_ms=now_ms + delay_ms if delay_ms else 0.0,
            failures=failures,
        )

    async def _send(
        self,
        client: SendsMessages,
        sent: Sent,
        *,
        delay_level: int = 0,
        deliver_time_ms: int = 0,
    ) -> None:
        message = Message(
            sent.topic,
            body_of(sent.message_id),
            keys=sent.message_id,
            delay_time_level=delay_level,
            deliver_time_ms=deliver_time_ms,
            # One key for all attempts; elsewhere the client would make one for each.
            properties={PROPERTY_UNIQUE_KEY: UNIQUE_KEY_PREFIX + sent.message_id},
        )
        self._write(sent)
        attempts = Attempts(refusal_is_clear=self._refusal_is_clear)
        try:
            await attempts.run(client, message, self._retries)
        finally:
            outcome = attempts.outcome
            self._answered(sent, outcome.status, outcome.reason, attempts.maybe_stored)

    def _answered(self, sent: Sent, status: str, reason: str, attempts: int = 1) -> None:
        self._write(
            Answered(
                message_id=sent.message_id,
                status=status,
                reason=reason,
                at_ms=self._now_ms(),
                attempts=max(1, attempts),
            )
        )

    async def _transact(
        self, client: BeginsTransactions, state: TransactionState, answer: TransactionState
    ) -> None:
        """Hold one transaction. Its half is sent once: it is that half which has to end."""
        sent = self._sent(Kind.TRANSACTION, self.topics.transactions)
        message = Message(sent.topic, body_of(sent.message_id), keys=sent.message_id)
        self._write(sent)
        status, reason = UNKNOWN, NO_ANSWER
        is_begun = False
        try:
            async with client.transaction(message) as transaction:
                is_begun = True
                status, reason = transaction.result.status.name, transaction.result.reason
                self._answered(sent, status, reason)
                if status != SEND_OK:
                    self._answers[sent.message_id] = "rollback"
                    transaction.rollback()
                    self._decide(sent, "rollback")
                    return
                if state == "unknown":
                    self._answers[sent.message_id] = answer
                self._decide(sent, state)
                {"commit": transaction.commit, "rollback": transaction.rollback}.get(
                    state, transaction.unknown
                )()
        except ClientError as error:
            # If it had begun, the broker knows of no such transaction: consumers then miss it.
            reason = str(error)
            if isinstance(error, BrokerError):
                status = REJECTED
            else:
                status = UNKNOWN if error.outcome_unknown else NOT_SENT
        finally:
            if not is_begun:
                # Its half may be stored all the same.
                self._answers[sent.message_id] = "rollback"
                self._answered(sent, status, reason)

    def _decide(self, sent: Sent, state: TransactionState) -> None:
        self._write(Decided(message_id=sent.message_id, state=state, at_ms=self._now_ms()))

    async def _handle(self, group: GroupRules, member: str, message: ReceivedMessage) -> None:
        """Note a message, and fail if it is to fail."""
        message_id = message.keys
        self._write(
            Seen(
                group=group.name,
                member=member,
                message_id=message_id,
                topic=message.topic,
                broker_name=self._broker_of(message),
                queue_id=message.queue_id,
                queue_offset=message.queue_offset,
                reconsume_times=message.reconsume_times,
                at_ms=self._now_ms(),
                is_whole=message.body == body_of(message_id),
            )
        )
        if message.reconsume_times >= self.promises.failures_of(message_id):
            return
        delay_seconds = RETRY_DELAY_SECONDS
        self._write(
            GivenBack(
                group=group.name,
                message_id=message_id,
                reconsume_times=message.reconsume_times,
                at_ms=self._now_ms(),
                delay_ms=delay_seconds * 1000,
            )
        )
        await message.retry(delay_seconds)

    def _now_ms(self) -> float:
        return round(self._wall_ms(), 3)

    def _write(self, line: Line) -> None:
        self._ledger.write(line)
        self.promises.take(line)


class Pace:
    """When the next message of a kind is due. Slots that were missed are given up."""

    def __init__(self, rate_per_second: float) -> None:
        self._period_seconds = 1 / rate_per_second
        self._due = trio.current_time()

    async def wait(self, running: Callable[[], trio.Event]) -> None:
        """Return when it is due, and the load runs."""
        await running().wait()
        self._due = max(self._due, trio.current_time())
        await trio.sleep_until(self._due)
        await running().wait()
        self._due += self._period_seconds


def body_of(message_id: str) -> bytes:
    """Return the body of a message: it says which one it is, and has a length of its own."""
    digits = message_id.rpartition("-")[2]
    number = int(digits) if digits.isdecimal() else 0
    return f"{message_id} ".encode() * (1 + number % 7)

"""The consumers' load against a broker in memory, which keeps its promises or breaks them."""

import itertools
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from tandem.client import (
    BrokerError,
    ClientError,
    GroupNotFoundError,
    MessageQueue,
    PullResult,
    PullStatus,
    ReceivedMessage,
    RouteCause,
    RouteNotFoundError,
    SendResult,
    SendStatus,
    SendTimeoutError,
    TransactionState,
)
from tandem.client.admin_results import GroupDescription, GroupQueue
from tandem.drill.consumers.lines import Answered, Ended, Sent, read_lines
from tandem.drill.consumers.load import DELAYS_MS, ConsumerLoad
from tandem.drill.consumers.names import FIRST, GROUPS, ORDERED, RETRYING
from tandem.drill.consumers.promises import (
    EARLY,
    MEMBER_ENDED,
    PASSED_OVER,
    REPEATED,
    STRANGE,
    UNCOMMITTED,
    Promises,
)
from tandem.drill.ledger import Ledger
from tandem.drill.workload import Retries
from tandem.wire.message import Host, Message, MessageExt, offset_msg_id
from tandem.wire.message_properties import PROPERTY_REAL_TOPIC
from tandem.wire.system_topics import dlq_topic

HOST = Host("127.0.0.1", 10911)
BROKER = "broker-a"
QUESTION_SECONDS = 0.5
SLEEP_SECONDS = 3600.0


class Broker:
    """One queue a topic. What is set below makes it break a promise."""

    def __init__(self) -> None:
        self.log: dict[str, list[MessageExt]] = {}
        self.dead: list[MessageExt] = []
        self.check: Callable[[MessageExt], TransactionState] = lambda message: "unknown"
        self.nursery: trio.Nursery | None = None
        self.early = 0.0
        self.machine_sleeps_at = math.inf
        self.shows_everything = False
        self.stores_twice = False
        self.garbles = False
        self.passes_over = 0
        self.send_error: ClientError | None = None
        self.read_error: ClientError | None = None
        self.handled: dict[tuple[str, str], int] = {}
        self.grown = trio.Event()

    def wall_seconds(self) -> float:
        """The wall clock of the machine, which goes on while that sleeps and tasks do not."""
        now = trio.current_time()
        return now + (SLEEP_SECONDS if now >= self.machine_sleeps_at else 0.0)

    async def wait_until(self, wall_seconds: float) -> None:
        while self.wall_seconds() < wall_seconds:
            await trio.sleep(0.01)

    def put(self, message: Message | MessageExt) -> int:
        of_topic = self.log.setdefault(message.topic, [])
        for _ in range(2 if self.stores_twice else 1):
            of_topic.append(stored(message, len(of_topic), garbled=self.garbles))
        self.grown.set()
        self.grown = trio.Event()
        return len(of_topic) - 1

    async def put_later(self, message: Message, seconds: float) -> None:
        await self.wait_until(self.wall_seconds() + seconds - self.early)
        self.put(message)

    async def send(self, message: Message) -> SendResult:
        await trio.sleep(0.001)
        if self.send_error is not None:
            raise self.send_error
        delay_seconds = DELAYS_MS.get(message.delay_time_level, 0) / 1000
        if message.deliver_time_ms:
            delay_seconds = message.deliver_time_ms / 1000 - self.wall_seconds()
        if not delay_seconds:
            return result_of(message, self.put(message))
        assert self.nursery is not None
        self.nursery.start_soon(self.put_later, message, delay_seconds)
        return result_of(message, 0)

    @asynccontextmanager
    async def transaction(self, message: Message) -> AsyncIterator["Half"]:
        await trio.sleep(0.001)
        if self.send_error is not None:
            raise self.send_error
        half = Half(result_of(message, 0))
        yield half
        if half.state == "unknown":
            assert self.nursery is not None
            self.nursery.start_soon(self.ask, message)
        elif half.state == "commit" or self.shows_everything:
            self.put(message)

    async def ask(self, message: Message) -> None:
        await trio.sleep(QUESTION_SECONDS)
        if self.check(stored(message, 0)) == "commit":
            self.put(message)


class Half:
    def __init__(self, result: SendResult) -> None:
        self.result = result
        self.state: TransactionState = "unknown"

    def commit(self) -> None:
        self.state = "commit"

    def rollback(self) -> None:
        self.state = "rollback"

    def unknown(self) -> None:
        self.state = "unknown"


class Delivery:
    """A message in the hands of a group: what becomes of it."""

    def __init__(self, broker: Broker, again: "Member") -> None:
        self._broker = broker
        self._member = again

    @property
    def is_lost(self) -> bool:
        return False

    def handling(self) -> AbstractContextManager[object]:
        raise NotImplementedError

    def put_back(self) -> None:
        raise NotImplementedError

    def done(self) -> None:
        raise NotImplementedError

    async def retry(self, delay_seconds: float | None) -> None:
        await self._member.again(delay_seconds or 0.0)

    async def dead_letter(self) -> None:
        raise NotImplementedError


class Member:
    """The only member of a group; it reads every topic of it by itself."""

    def __init__(self, broker: Broker, group: str) -> None:
        self._broker = broker
        self._group = group
        self._in_hand: tuple[MessageExt, Callable[[ReceivedMessage], Awaitable[object]]]

    async def consume(
        self,
        topic: str,
        handler: Callable[[ReceivedMessage], Awaitable[object]],
        *,
        concurrency: int = 1,
    ) -> None:
        broker = self._broker
        for offset in itertools.count():
            while offset >= len(broker.log.get(topic, [])):
                if broker.read_error is not None:
                    raise broker.read_error
                with trio.move_on_after(1):
                    await broker.grown.wait()
            await self._hand_out(broker.log[topic][offset], 0, handler)
            broker.handled[self._group, topic] = offset + 1

    async def _hand_out(
        self,
        message: MessageExt,
        times: int,
        handler: Callable[[ReceivedMessage], Awaitable[object]],
    ) -> None:
        self._in_hand = (message, handler)
        fields = {name: getattr(message, name) for name in MessageExt.__struct_fields__}
        delivery = Delivery(self._broker, self)
        self._times = times
        await handler(ReceivedMessage(**fields | {"reconsume_times": times}, delivery=delivery))

    async def again(self, delay_seconds: float) -> None:
        message, handler = self._in_hand
        if self._times >= (RETRYING.reconsume_max or 0):
            self._broker.dead.append(message)
            return
        await self._broker.wait_until(self._broker.wall_seconds() + delay_seconds)
        await self._hand_out(message, self._times + 1, handler)


class Watcher:
    """What masters say of groups, and dead letters."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def describe_group(self, group: str) -> GroupDescription:
        await trio.sleep(0.001)
        queues = [
            GroupQueue(
                topic=topic,
                broker_name=BROKER,
                queue_id=0,
                consumer_offset=handled + self._broker.passes_over,
                pull_offset=0,
                broker_offset=len(self._broker.log[topic]),
            )
            for (name, topic), handled in self._broker.handled.items()
            if name == group
        ]
        if not queues:
            raise GroupNotFoundError(group)
        return GroupDescription(group=group, members=[], queues=queues)

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        await trio.sleep(0.001)
        if not self._broker.dead:
            raise RouteNotFoundError(topic, RouteCause.NO_TOPIC, "x")
        return [MessageQueue(topic, BROKER, 0)]

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_msg_nums: int = 32,
        tags: str = "*",
        suspend_timeout_ms: int = 0,
    ) -> PullResult:
        await trio.sleep(0.001)
        assert queue.topic == dlq_topic(RETRYING.name)
        found = [stored(each, number) for number, each in enumerate(self._broker.dead)][offset:]
        return PullResult(PullStatus.FOUND, offset + len(found), 0, len(found), found)


def stored(message: Message | MessageExt, offset: int, *, garbled: bool = False) -> MessageExt:
    properties = message.properties if isinstance(message, MessageExt) else message.property_map()
    return MessageExt(
        topic=message.topic,
        body=b"?" if garbled else message.body,
        properties=properties | {PROPERTY_REAL_TOPIC: message.topic},
        queue_id=0,
        queue_offset=offset,
        physical_offset=offset * 1000,
        store_size=1000,
        flag=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host=HOST,
        store_timestamp_ms=0,
        store_host=HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=0,
    )


def result_of(message: Message, offset: int) -> SendResult:
    queue = MessageQueue(message.topic, BROKER, 0)
    place = offset_msg_id(HOST, offset * 1000)
    return SendResult(SendStatus.SEND_OK, "unique", place, queue, offset, "")


class Bench:
    """A load on a broker that runs for some seconds of virtual time, and what came of it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "consumers.ndjson"
        self.broker = Broker()
        self.promises = Promises(GROUPS)
        self.retries: Retries | None = Retries(0.2, 0.05)

    async def run(self, seconds: float = 5.0, drain_seconds: float = 12.0) -> ConsumerLoad:
        broker = self.broker
        with Ledger(self.path) as ledger:
            load = ConsumerLoad(
                ledger=ledger,
                promises=self.promises,
                wall_ms=lambda: self.broker.wall_seconds() * 1000,
                broker_of=lambda _: BROKER,
                retries=self.retries,
            )
            broker.check = load.answer
            async with trio.open_nursery() as nursery:
                broker.nursery = nursery
                for send, rate in (
                    (partial(load.send_plain, broker), 10.0),
                    (partial(load.send_delayed, broker), 3.0),
                    (partial(load.send_timed, broker), 2.0),
                    (partial(load.send_retried, broker), 2.0),
                    (partial(load.send_transactions, broker), 4.0),
                ):
                    nursery.start_soon(send, rate)
                self._read(nursery, load)
                load.resume()
                await trio.sleep(seconds)
                load.pause()
                with trio.move_on_after(drain_seconds):
                    while load.left():
                        await trio.sleep(0.1)
                await trio.sleep(2)
                nursery.cancel_scope.cancel()
        return load

    def _read(self, nursery: trio.Nursery, load: ConsumerLoad) -> None:
        for group in (FIRST, ORDERED, RETRYING):
            for topic in group.topics:
                member = Member(self.broker, group.name)
                nursery.start_soon(load.read, group, f"{group.name}-1", member, topic, 1)
        watcher = Watcher(self.broker)
        nursery.start_soon(load.watch_offsets, watcher, (FIRST, ORDERED, RETRYING))
        nursery.start_soon(load.watch_dead_letters, RETRYING, watcher)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    found = Bench(tmp_path)
    found.promises = Promises([group for group in GROUPS if group.name != "tandem-drill-second"])
    return found


async def test_a_broker_that_keeps_its_promises_owes_nothing_at_the_end(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    load = await bench.run()

    summary = bench.promises.summary()
    assert load.left() == ""
    assert summary.broken_counts == {}, summary.findings
    assert set(summary.sent) == {"plain", "delayed", "timed", "transaction", "retried"}
    assert summary.sent == summary.acknowledged
    assert summary.handled[ORDERED.name] == summary.sent["plain"]
    assert summary.dead_letters >= 2
    assert summary.asked >= 4


async def test_a_machine_that_sleeps_breaks_no_promise_about_times(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    bench.broker.machine_sleeps_at = 2.0

    load = await bench.run()

    assert load.left() == ""
    assert bench.promises.counts == {}, bench.promises.findings
    waited = [line for line in read_lines(bench.path) if isinstance(line, Sent) and line.due_ms]
    assert any(2_000 < line.due_ms < 2_000 + SLEEP_SECONDS * 1000 for line in waited)
    assert any(line.due_ms > SLEEP_SECONDS * 1000 for line in waited)


async def test_a_load_that_rests_sends_nothing(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    await bench.run(seconds=1.0)
    last = max(line.at_ms for line in read_lines(bench.path) if isinstance(line, Answered))

    assert last < 1_100


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("early", EARLY),
        ("shows_everything", UNCOMMITTED),
        ("stores_twice", REPEATED),
        ("garbles", STRANGE),
        ("passes_over", PASSED_OVER),
    ],
)
async def test_a_broker_that_breaks_a_promise_is_found_out(
    bench: Bench, fault: str, rule: str, autojump_clock: trio.testing.MockClock
) -> None:
    setattr(bench.broker, fault, 1)

    await bench.run(seconds=3.0, drain_seconds=3.0)

    assert rule in bench.promises.counts


async def test_a_broker_that_does_not_ask_owes_its_questions(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    async def never(message: Message) -> None:
        await trio.sleep_forever()

    bench.broker.ask = never  # type: ignore[method-assign]

    load = await bench.run(seconds=3.0, drain_seconds=3.0)

    assert "transactions that no broker asked about" in bench.promises.left()
    assert load.left()
    assert not bench.promises.counts


async def test_sends_that_fail_are_in_the_ledger_and_nothing_is_owed(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    bench.broker.send_error = SendTimeoutError("x", outcome_unknown=True)
    load = await bench.run(seconds=2.0)
    answers = [line for line in read_lines(bench.path) if isinstance(line, Answered)]

    assert {line.status for line in answers} == {"UNKNOWN"}
    assert load.left() == ""


async def test_a_refused_transaction_is_rejected(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    bench.retries = None
    bench.broker.send_error = BrokerError(1, "full", "127.0.0.1:10911")
    await bench.run(seconds=1.0)
    answers = [line for line in read_lines(bench.path) if isinstance(line, Answered)]

    assert {line.status for line in answers} == {"REJECTED"}
    assert {line.message_id.partition("-")[0] for line in answers} >= {"transaction", "plain"}


async def test_a_member_that_an_error_ended_is_noted_and_begins_again(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    bench.broker.read_error = BrokerError(16, "no permission", "127.0.0.1:10911")

    await bench.run(seconds=3.0, drain_seconds=0.0)

    ended = [line for line in read_lines(bench.path) if isinstance(line, Ended)]
    assert len(ended) == bench.promises.counts[MEMBER_ENDED]
    assert len(ended) > len({(line.member, line.topic) for line in ended})


async def test_a_question_before_the_answer_to_the_half_decides_nothing(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    asked: list[TransactionState] = []
    begin = bench.broker.transaction

    def early(message: Message) -> AbstractAsyncContextManager[Half]:
        asked.append(bench.broker.check(stored(message, 0)))
        return begin(message)

    bench.broker.transaction = early  # type: ignore[assignment, method-assign]

    load = await bench.run(seconds=3.0)

    assert set(asked) == {"unknown"}
    assert load.left() == ""
    assert not bench.promises.counts


async def test_a_half_that_may_be_stored_is_rolled_back_when_a_broker_asks(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    broker = Broker()
    broker.send_error = SendTimeoutError("x", outcome_unknown=True)
    half = Message("tandem-drill-transactions", b"x", keys="transaction-000000")
    with Ledger(tmp_path / "consumers.ndjson") as ledger:
        load = ConsumerLoad(
            ledger=ledger,
            promises=Promises(GROUPS),
            wall_ms=lambda: broker.wall_seconds() * 1000,
            broker_of=lambda _: BROKER,
        )
        load.resume()
        with trio.move_on_after(0.5):
            await load.send_transactions(broker, 4.0)

        assert load.answer(stored(half, 0)) == "rollback"
    assert not load.promises.counts

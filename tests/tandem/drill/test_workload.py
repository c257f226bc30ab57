from collections.abc import Callable, Collection
from pathlib import Path

import pytest
import trio
import trio.testing

from tandem.client import (
    BrokerError,
    ClientError,
    ConnectionCause,
    ConnectionLostError,
    MessageQueue,
    PullResult,
    PullStatus,
    RouteCause,
    RouteNotFoundError,
    SendResult,
    SendStatus,
    SendTimeoutError,
)
from tandem.drill.errors import LedgerError
from tandem.drill.ledger import Ledger, LedgerEntry, Sending, read_entries
from tandem.drill.orders import BodySource, FileLines, Orders
from tandem.drill.outcomes import NOT_SENT, REJECTED, SEND_OK, SLAVE_NOT_AVAILABLE, UNKNOWN
from tandem.drill.timeline import Timeline
from tandem.drill.workload import (
    Attempts,
    Clock,
    QueueReader,
    Retries,
    Workload,
    attempt,
    producer_states,
)
from tandem.wire.crc import crc32
from tandem.wire.message import Host, Message, MessageExt, offset_msg_id
from tandem.wire.message_properties import PROPERTY_UNIQUE_KEY

TOPIC = "drill"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
HOST = Host("127.0.0.1", 10911)


def stored(message: Message, offset: int) -> MessageExt:
    return MessageExt(
        topic=message.topic,
        body=message.body,
        properties=message.property_map(),
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
        body_crc=crc32(message.body),
    )


class Broker:
    """One queue in memory. `fault` is raised, `status` answered, `delay_seconds` waited for."""

    def __init__(self) -> None:
        self.log: list[MessageExt] = []
        self.fault: ClientError | None = None
        self.status = SendStatus.SEND_OK
        self.reason = ""
        self.delay_seconds = 0.001
        self.in_flight = 0
        self.on_send: Callable[[Message], None] = lambda message: None

    async def send(self, message: Message) -> SendResult:
        self.on_send(message)
        self.in_flight += 1
        try:
            await trio.sleep(self.delay_seconds)
        finally:
            self.in_flight -= 1
        if self.fault is not None:
            raise self.fault
        offset = len(self.log)
        self.log.append(stored(message, offset))
        place = offset_msg_id(HOST, offset * 1000)
        return SendResult(self.status, "unique", place, QUEUE, offset, self.reason)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_msg_nums: int = 32,
        tags: str = "*",
        suspend_timeout_ms: int = 0,
    ) -> PullResult:
        await trio.sleep(max(self.delay_seconds, 0.05 if offset >= len(self.log) else 0))
        if self.fault is not None:
            raise self.fault
        found = self.log[offset : offset + max_msg_nums]
        status = PullStatus.FOUND if found else PullStatus.NO_NEW_MSG
        return PullResult(status, offset + len(found), 0, len(self.log), found)


class Bench:
    """A workload with its ledger and a broker, in a directory."""

    def __init__(
        self,
        directory: Path,
        source: BodySource | None = None,
        rate_per_second: float = 100,
        owed_reads: Collection[tuple[str, str]] | None = None,
    ) -> None:
        self.path = directory / "ledger.ndjson"
        self.ledger = Ledger(self.path)
        self.timeline = Timeline()
        self.timeline.start_phase(0.0, "slave-loss", "steady")
        self.broker = Broker()
        self.workload = Workload(
            topic=TOPIC,
            source=source or Orders(1),
            ledger=self.ledger,
            timeline=self.timeline,
            clock=Clock(trio.current_time(), 1_000_000.0),
            rate_per_second=rate_per_second,
            producers=producer_states(1, 1),
            owed_reads=owed_reads,
        )
        self.reader = self.workload.readers[0] = QueueReader(QUEUE)

    async def run(self, seconds: float, *, follow: bool = False) -> None:
        self.workload.resume()
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for producer in self.workload.producers:
                    nursery.start_soon(self.workload.produce, producer, self.broker)
                if follow:
                    nursery.start_soon(self.workload.read_along, self.reader, self.broker)

    def entries(self) -> list[LedgerEntry]:
        return list(read_entries(self.path))


async def test_the_rate_is_that_of_all_producers_together(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path, rate_per_second=100)

    await bench.run(10)

    assert len(bench.entries()) == pytest.approx(1000, abs=5)


async def test_each_producer_numbers_its_sends_and_waits_for_each_answer(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path)
    in_flight = []
    bench.broker.on_send = lambda message: in_flight.append(bench.broker.in_flight)

    await bench.run(3)

    assert max(in_flight) <= 1  # the other producer's
    for name in ("sync-1", "async-1"):
        sequences = [entry.sequence for entry in bench.entries() if entry.producer == name]
        assert sequences == list(range(len(sequences)))


async def test_a_message_carries_its_send_id_and_whether_it_waits(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path)

    await bench.run(1)

    waits = {
        message.keys.rpartition("-")[0]: message.properties["WAIT"] for message in bench.broker.log
    }
    assert waits == {"sync-1": "true", "async-1": "false"}
    entries = {entry.send_id: entry for entry in bench.entries()}
    for message in bench.broker.log:
        entry = entries[message.keys]
        assert entry.body_crc32 == message.body_crc
        assert (entry.queue_offset, entry.physical_offset) == (
            message.queue_offset,
            message.physical_offset,
        )


async def test_a_send_is_in_the_ledger_before_it_leaves(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path)
    known_when_sent = []

    def look(message: Message) -> None:
        known_when_sent.append(message.keys in {entry.send_id for entry in bench.entries()})

    bench.broker.on_send = look
    await bench.run(0.5)

    assert known_when_sent
    assert all(known_when_sent)


async def test_nothing_is_sent_that_the_ledger_could_not_take(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)

    def full(line: object) -> None:
        raise LedgerError("the disk is full")

    monkeypatch.setattr(bench.ledger, "write", full)

    bench.workload.resume()
    with pytest.raises(LedgerError):
        await bench.workload.produce(bench.workload.producers[0], bench.broker)
    assert bench.broker.log == []


async def test_an_interrupted_send_is_unknown(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path)
    bench.broker.delay_seconds = 60

    await bench.run(1)

    assert [entry.status for entry in bench.entries()] == [UNKNOWN, UNKNOWN]
    assert bench.timeline.phase.in_flight == 0


async def test_a_producer_that_was_held_up_does_not_catch_up_in_a_burst(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path, rate_per_second=20)
    bench.broker.delay_seconds = 5.0
    bench.workload.resume()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.workload.produce, bench.workload.producers[0], bench.broker)
        await trio.sleep(5.5)
        bench.broker.delay_seconds = 0.001
        await trio.sleep(10)
        nursery.cancel_scope.cancel()

    assert len(bench.broker.log) < 110


async def test_paused_producers_send_nothing(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path)
    async with trio.open_nursery() as nursery:
        for producer in bench.workload.producers:
            nursery.start_soon(bench.workload.produce, producer, bench.broker)
        await trio.sleep(1)
        assert bench.broker.log == []
        bench.workload.resume()
        await trio.sleep(1)
        bench.workload.pause()
        await trio.sleep(0.1)
        sent = len(bench.broker.log)
        await trio.sleep(5)
        assert len(bench.broker.log) == sent > 0
        bench.workload.resume()
        await trio.sleep(1)
        assert sent < len(bench.broker.log) < sent + 120
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BrokerError(2, "busy"), REJECTED),
        (RouteNotFoundError("drill", RouteCause.NO_NAME_SERVER, "nobody"), NOT_SENT),
        (
            ConnectionLostError(
                "a:1", ConnectionCause.UNREACHABLE, "refused", outcome_unknown=False
            ),
            NOT_SENT,
        ),
        (ConnectionLostError("a:1", ConnectionCause.ENDED, "reset", outcome_unknown=True), UNKNOWN),
        (SendTimeoutError("a:1", outcome_unknown=True), UNKNOWN),
        (SendTimeoutError("a:1", outcome_unknown=False), NOT_SENT),
    ],
)
async def test_errors_in_the_words_of_the_ledger(error: ClientError, status: str) -> None:
    broker = Broker()
    broker.fault = error

    outcome = await attempt(broker, Message(TOPIC, b"x"))

    assert (outcome.status, outcome.reason) == (status, str(error))


async def test_an_answer_with_a_reason_keeps_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path)
    bench.broker.status = SendStatus.SLAVE_NOT_AVAILABLE
    bench.broker.reason = "no slave connected"

    await bench.run(0.5)

    entry = bench.entries()[0]
    assert (entry.status, entry.reason) == (SLAVE_NOT_AVAILABLE, "no slave connected")
    assert bench.workload.latest("sync", bench.timeline.phase) == [SLAVE_NOT_AVAILABLE]


async def test_an_answer_of_another_phase_says_nothing_about_this_one(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path)

    await bench.run(0.5)
    assert bench.workload.latest("sync", bench.timeline.phase) == [SEND_OK]
    bench.timeline.start_phase(1.0, "slave-loss", "next")

    assert bench.workload.latest("sync", bench.timeline.phase) == [None]


async def test_lines_are_settled_by_their_answers(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    (tmp_path / "log").write_bytes(b"".join(b"line %d\n" % n for n in range(150)))
    with FileLines(tmp_path / "log", line_bytes_max=100) as lines:
        bench = Bench(tmp_path, lines)
        bench.broker.status = SendStatus.SLAVE_NOT_AVAILABLE
        await bench.run(1)
        assert bench.workload.left_to_send() == 150
        bench.broker.status = SendStatus.SEND_OK
        await bench.run(3)
        assert bench.workload.left_to_send() == 0
    assert {message.body for message in bench.broker.log} == {b"line %d" % n for n in range(150)}


async def test_readers_read_everything_in_order(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path)

    await bench.run(3, follow=True)
    await bench.run(1)
    assert bench.workload.left_to_read() > 50
    with trio.move_on_after(1):
        await bench.workload.read_along(bench.reader, bench.broker)

    assert bench.workload.left_to_read() == 0
    assert bench.reader.next_offset == len(bench.broker.log)
    assert bench.workload.disorder == []
    assert bench.timeline.phase.messages_read == len(bench.broker.log)


async def test_a_reader_notes_a_gap_a_swap_and_a_stranger(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path)
    for offset, key in (
        (0, "sync-1-0000000"),
        (2, "sync-1-0000002"),
        (3, "sync-1-0000001"),
        (4, "?"),
    ):
        bench.broker.log.append(stored(Message(TOPIC, b"x", keys=key), offset))

    with trio.move_on_after(1):
        await bench.workload.read_along(bench.reader, bench.broker)

    assert bench.workload.disorder == [
        "queue 0 offset 2: expected offset 1",
        "queue 0 offset 3: sync-1-0000001 came after sequence 2",
        "queue 0 offset 4: key '?' is not of this drill",
    ]


async def test_readers_go_on_after_a_failed_pull(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path)
    await bench.run(1)
    bench.broker.fault = ConnectionLostError(
        "a:1", ConnectionCause.ENDED, "reset", outcome_unknown=True
    )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.workload.read_along, bench.reader, bench.broker)
        await trio.sleep(1)
        assert bench.timeline.phase.reads_failed > 2
        bench.broker.fault = None
        await trio.sleep(1)
        nursery.cancel_scope.cancel()

    assert bench.reader.next_offset == len(bench.broker.log)


async def test_the_rereader_starts_over_again_and_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path)
    await bench.run(2, follow=True)
    read = bench.timeline.phase.messages_read

    with trio.move_on_after(5):
        await bench.workload.reread(bench.broker)

    assert bench.timeline.phase.messages_read > read + 3 * len(bench.broker.log)


def test_a_sending_is_written_with_the_wall_time_of_the_start() -> None:
    assert Clock(started=100.0, started_ms=5000.0).wall_ms(2.5) == 7500.0
    assert "sent_at_ms" in Sending.__struct_fields__


class Moody:
    """Answers one attempt after the other as told, the last for ever; remembers the keys."""

    def __init__(self, *answers: ClientError | SendStatus) -> None:
        self.answers = list(answers)
        self.keys: list[str] = []

    async def send(self, message: Message) -> SendResult:
        await trio.lowlevel.checkpoint()
        self.keys.append(message.properties[PROPERTY_UNIQUE_KEY])
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ClientError):
            raise answer
        return SendResult(answer, "unique", offset_msg_id(HOST, 0), QUEUE, 0, "why")


UNANSWERED = SendTimeoutError("127.0.0.1:10911")
NOBODY = RouteNotFoundError(TOPIC, RouteCause.NO_BROKER, "no broker")
REFUSED = BrokerError(14, "not master")


@pytest.mark.parametrize(
    ("answers", "status", "maybe_stored", "requests"),
    [
        ((SendStatus.SEND_OK,), SEND_OK, 1, 1),
        ((NOBODY, REFUSED, SendStatus.SEND_OK), SEND_OK, 1, 3),
        ((UNANSWERED, NOBODY, SendStatus.SEND_OK), SEND_OK, 2, 3),
        ((SendStatus.FLUSH_SLAVE_TIMEOUT, SendStatus.SEND_OK), SEND_OK, 2, 2),
        ((UNANSWERED, REFUSED), UNKNOWN, 1, 0),
        ((REFUSED,), REJECTED, 0, 0),
        ((NOBODY,), NOT_SENT, 0, 0),
        ((SendStatus.FLUSH_SLAVE_TIMEOUT, NOBODY), "FLUSH_SLAVE_TIMEOUT", 1, 0),
    ],
)
async def test_a_send_goes_on_until_it_is_acknowledged_and_is_counted(
    answers: tuple[ClientError | SendStatus, ...],
    status: str,
    maybe_stored: int,
    requests: int,
    autojump_clock: trio.testing.MockClock,
) -> None:
    client = Moody(*answers)
    message = Message(TOPIC, b"x", properties={PROPERTY_UNIQUE_KEY: "k"})
    attempts = Attempts()

    await attempts.run(client, message, Retries(deadline_seconds=2.0))

    assert (attempts.outcome.status, attempts.maybe_stored) == (status, maybe_stored)
    assert set(client.keys) == {"k"}
    assert not requests or len(client.keys) == requests


async def test_without_retries_a_send_is_one_request() -> None:
    client = Moody(UNANSWERED)
    attempts = Attempts()
    message = Message(TOPIC, b"x", properties={PROPERTY_UNIQUE_KEY: "k"})

    await attempts.run(client, message, None)

    assert len(client.keys) == attempts.maybe_stored == 1


async def test_a_send_that_is_cut_short_may_have_been_stored() -> None:
    attempts = Attempts()

    class Silent:
        async def send(self, message: Message) -> SendResult:
            await trio.sleep_forever()
            raise AssertionError

    with trio.move_on_after(0.01):
        await attempts.run(Silent(), Message(TOPIC, b"x"), Retries(9.0))

    assert (attempts.outcome.status, attempts.maybe_stored) == (UNKNOWN, 1)


async def test_what_may_be_lost_is_not_waited_for_by_readers(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The next master of a fenced group may lack what waited for it alone, and its end of log."""
    bench = Bench(tmp_path, owed_reads={("sync", SEND_OK)})
    bench.workload.resume()

    async def send(number: int, answer: SendStatus) -> None:
        bench.broker.status = answer
        producer = bench.workload.producers[number]
        await bench.workload._send_next(producer, bench.broker)

    await send(0, SendStatus.SEND_OK)
    assert bench.workload.left_to_read() == 1
    await send(1, SendStatus.SEND_OK)  # async
    await send(0, SendStatus.FLUSH_SLAVE_TIMEOUT)
    del bench.broker.log[1:]  # another master

    with trio.move_on_after(2):
        await bench.workload.read_along(bench.reader, bench.broker)

    assert bench.reader.next_offset == 1
    assert bench.workload.left_to_read() == 0


async def test_what_a_classic_master_has_is_waited_for(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path)
    bench.broker.status = SendStatus.SLAVE_NOT_AVAILABLE
    await bench.workload._send_next(bench.workload.producers[1], bench.broker)
    assert bench.workload.left_to_read() == 1

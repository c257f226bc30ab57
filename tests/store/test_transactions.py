"""The transactions of one broker: from the first step of a master on."""

import msgspec
import pytest
import trio

import store.transactions
from node.simulated.disk import SimulatedDisk
from store.machine.errors import StoreFullError
from store.results import PutMessage
from store.transaction.half_message import committed_message, half_message
from store.transaction.transaction import (
    CheckTransaction,
    EndTransaction,
    EndTransactionStatus,
    TransactionSettings,
)
from store.transactions import Progress, Transactions
from tandem.wire.message_properties import decode_properties, encode_properties
from tests.store.store_world import (
    STORE_HOST,
    Clock,
    a_message,
    heal,
    log_messages,
    number_of,
    open_store,
    queue_messages,
)
from tests.support.logged import logged

T0 = 1_700_000_000_000
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COMMIT, ROLLBACK = 8, 12


def prepared(number: int) -> PutMessage:
    message = a_message(number)
    properties = decode_properties(message.properties) | {"TRAN_MSG": "true", "PGROUP": "pg"}
    return msgspec.structs.replace(
        message, properties=encode_properties(properties), born_timestamp_ms=T0
    )


class World:
    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.clock = Clock(T0, step_ms=0)
        self.store = open_store(self.disk, clock=self.clock)
        self.offsets: dict[str, int] = {}
        self.topics: list[str] = []
        self.asked: list[CheckTransaction] = []
        self.transactions = self.begun_again()

    def begun_again(self) -> Transactions:
        return Transactions(
            self.store,
            store_host=STORE_HOST,
            wall_clock_ms=lambda: self.clock.now_ms,
            settings=TransactionSettings(transaction_check_max=2),
            create_topic=self.topics.append,
            ask=self.asked.append,
        )

    def open(self) -> None:
        self.transactions.open(
            Progress(
                lambda topic, _: self.offsets.get(topic, -1),
                lambda topic, _, offset: self.offsets.update({topic: offset}),
                is_journaled=True,
            )
        )

    def prepare(self, number: int) -> EndTransaction:
        put = self.store.puts.put_message(half_message(prepared(number)), hooks=False)
        self.store.announce()
        return EndTransaction("pg", put.queue_offset, put.wrote_offset, COMMIT)

    def end(self, request: EndTransaction) -> EndTransactionStatus | None:
        result = self.transactions.end(request)
        return None if result is None else result.status

    def delivered(self) -> list[int]:
        return [number_of(message) for message in queue_messages(self.store, "TopicA", 0)]


def test_before_it_is_master_a_broker_ends_nothing() -> None:
    world = World()
    assert world.end(world.prepare(1)) is EndTransactionStatus.NO_SUCH_TRANSACTION


def test_a_missing_op_is_put_once() -> None:
    world = World()
    end = world.prepare(1)
    half = log_messages(world.store)[0]
    message = committed_message(half, half.physical_offset, lambda message: message)
    world.store.puts.put_message(message, hooks=False)
    for _ in range(2):
        world.transactions.put_missing_op()
    assert [m.topic for m in log_messages(world.store)] == [HALF, "TopicA", OP]
    world.open()
    assert world.end(end) is EndTransactionStatus.NO_SUCH_TRANSACTION
    assert world.delivered() == [1]


async def test_a_master_whose_last_commit_has_a_damaged_half_starts_and_goes_on_when_it_is_healed(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    other, end = world.prepare(0), world.prepare(1)
    half = log_messages(world.store)[1]
    message = committed_message(half, half.physical_offset, lambda message: message)
    world.store.puts.put_message(message, hooks=False)
    place = half.physical_offset + 89
    world.store.commit_log.files.files[0].buffer[place] ^= 1
    world.transactions.put_missing_op()
    world.open()
    (line,) = logged(caplog, "store.transaction.uncovered_commit")
    assert line[0] == half.physical_offset
    # What else is open waits until it is known which of it has ended.
    assert world.end(other) is None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.transactions.run, lambda: None, lambda: True)
        await trio.sleep(5)
        assert world.delivered() == [1]
        world.store.commit_log.files.files[0].buffer[place] ^= 1
        heal(world.store)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert world.delivered() == [1, 0]
    assert world.end(end) is EndTransactionStatus.NO_SUCH_TRANSACTION


def test_without_room_for_a_missing_op_there_is_no_master() -> None:
    world = World()
    world.prepare(1)
    half = log_messages(world.store)[0]
    message = committed_message(half, half.physical_offset, lambda message: message)
    world.store.puts.put_message(message, hooks=False)
    world.store.fence("full")
    with pytest.raises(StoreFullError):
        world.transactions.put_missing_op()


async def test_ends_that_come_before_the_queues_are_read_are_ended_after_that(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.transactions, "RECOVERY_SLICE", 3)
    monkeypatch.setattr(store.transactions, "EARLY_ENDS_MAX", 3)
    world = World()
    world.open()
    ends = [world.prepare(number) for number in range(20)]
    assert world.end(ends[0]) is EndTransactionStatus.ENDED
    world.transactions = world.begun_again()
    world.open()
    rounds: list[int] = []
    for end in (ends[0], ends[1], ends[1], ends[2]):
        assert world.end(end) is None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.transactions.run, lambda: rounds.append(1), lambda: True)
        await trio.sleep(1)
        assert world.delivered() == [0, 1], "twice is once, and there was room for three"
        assert rounds == [1]
        assert world.end(ends[2]) is EndTransactionStatus.ENDED
        nursery.cancel_scope.cancel()


async def test_producers_are_asked_again_and_again_and_then_no_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    world.open()
    world.prepare(1)
    may_put = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.transactions.run, world.store.announce, lambda: may_put)
        world.clock.now_ms += 100_000
        await trio.sleep(31)
        assert world.asked == [], "no message would be taken"
        may_put = True
        for count in (1, 2, 2):
            world.clock.now_ms += 30_000
            await trio.sleep(30)
            assert len(world.asked) == count
        nursery.cancel_scope.cancel()
    assert world.topics == ["TRANS_CHECK_MAX_TIME_TOPIC"]
    assert [m.topic for m in log_messages(world.store)] == [HALF] * 3 + [*world.topics, OP]
    assert world.offsets == {HALF: 3, OP: 0}

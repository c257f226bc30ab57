"""What is only there costs nothing each time something happens: steps are counted, not seconds.

Each table has a few members and then many, of which none changes. The same look, message or
request takes as many steps of Python beside many as beside a few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from node.handlers.pull_request_hold_service import HeldPull, PullRequestHoldService
from node.remoting.connection import Connection, Outbox
from node.tables.client_table import ClientTable, Consumer
from node.tables.producer_table import ProducerTable
from node.tables.queue_locks import QueueLocks
from tandem.wire.message import Host
from tandem.wire.request_headers import (
    ConsumerData,
    HeartbeatData,
    MessageQueueBody,
    ProducerData,
    SubscriptionData,
)
from tests.node.doubles import FakeStream
from tests.support.python_steps import python_steps

if TYPE_CHECKING:
    from collections.abc import Callable

FEW: Final = 50
MANY: Final = 2_000
NOW: Final = 100.0


def connection(number: int) -> Connection:
    return Connection(FakeStream(Host(f"10.0.{number // 250}.{number % 250}", 1)), Outbox())


def data_of(number: int) -> ConsumerData:
    return ConsumerData(f"g{number}", subscription_data_set=[SubscriptionData("T", "*", 1)])


def consumers(count: int) -> ClientTable:
    table = ClientTable()
    for number in range(count):
        consumer = Consumer(f"c{number}", connection(number), "JAVA", 1, NOW)
        table.join(data_of(number), consumer)
    return table


def look_for_consumers_that_are_gone(count: int) -> Callable[[], object]:
    table = consumers(count)
    return lambda: table.expire(NOW + 60)


def heartbeat_of_one_consumer(count: int) -> Callable[[], object]:
    table = consumers(count)
    beat = HeartbeatData("c7", [], [data_of(7)])
    by = table.consumers("g7")[0].connection
    return lambda: table.heartbeat(beat, by, NOW + 30)


def look_for_producers_that_are_gone(count: int) -> Callable[[], object]:
    table = ProducerTable()
    for number in range(count):
        beat = HeartbeatData(f"c{number}", [ProducerData(f"g{number}")])
        table.heartbeat(beat, connection(number), "JAVA", 1, NOW)
    return lambda: table.expire(NOW + 60)


def look_for_locks_that_are_over(count: int) -> Callable[[], object]:
    locks = QueueLocks()
    for number in range(count):
        locks.lock(f"g{number}", "c", [MessageQueueBody("b", 0, "T")], NOW)
    return lambda: locks.forget_expired(NOW + 30)


class Waits(HeldPull):
    def run(self) -> None:
        pass


def waiting(count: int) -> PullRequestHoldService:
    service = PullRequestHoldService(lambda: None)
    for number in range(count):
        pull = Waits(0, None, NOW + 15 + number / 100, connection(number))
        assert service.hold(f"T{number}", 0, pull)
    return service


def message_that_no_pull_waits_for(count: int) -> Callable[[], object]:
    service = waiting(count)
    return lambda: service.messages_arrived([(0, "Other", 0, 1, None)])


def message_that_one_pull_waits_for(count: int) -> Callable[[], object]:
    service = waiting(count)
    return lambda: service.messages_arrived([(0, "T7", 0, 1, None)])


def pull_that_begins_to_wait(count: int) -> Callable[[], object]:
    service = waiting(count)
    pull = Waits(0, None, NOW + 15.07, connection(0))
    return lambda: service.hold("Other", 0, pull)


def connection_that_ends(count: int) -> Callable[[], object]:
    service = waiting(count)
    pull = Waits(0, None, NOW + 15, connection(0))
    service.hold("Other", 0, pull)
    return lambda: service.connection_closed(pull.owner)


@pytest.mark.parametrize(
    "beside",
    [
        look_for_consumers_that_are_gone,
        heartbeat_of_one_consumer,
        look_for_producers_that_are_gone,
        look_for_locks_that_are_over,
        message_that_no_pull_waits_for,
        message_that_one_pull_waits_for,
        pull_that_begins_to_wait,
        connection_that_ends,
    ],
    ids=lambda beside: beside.__name__,
)
async def test_it_takes_as_many_steps_beside_many_as_beside_a_few(
    beside: Callable[[int], Callable[[], object]],
) -> None:
    few = python_steps(beside(FEW))
    assert 0 < python_steps(beside(MANY)) <= few

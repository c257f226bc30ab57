"""Consumers of one group at a fake broker, under either event loop."""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import anyio
import msgspec

from tandem.client.cluster_access import ClusterAccess
from tandem.client.consumer import Consumer
from tandem.client.identity import ClientIdentity
from tandem.client.process_queue import ProcessQueue
from tandem.client.queue_reader import QueueReader
from tandem.client.received_message import ReceivedMessage
from tandem.client.results import MessageQueue
from tandem.wire.message import MessageExt
from tests.tandem.client.either_loop import EitherNetwork
from tests.tandem.client.fake_broker import MASTER, NAME_SERVER
from tests.tandem.client.group_broker import GROUP, NOTICE, GroupBroker


class World:
    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.tasks = tasks
        self.broker = GroupBroker()
        self.network = EitherNetwork(tasks, {MASTER: self.broker, NAME_SERVER: self.broker})

    def consumer(self, number: int = 1, **settings: Any) -> Consumer:  # noqa: ANN401  of any of its arguments
        """Return a member; those of higher numbers come later in the list."""
        return Consumer(
            ClusterAccess(NAME_SERVER, identity=ClientIdentity("10.0.0.9", 1000 + number, number)),
            GROUP,
            open_stream=self.network.open_stream,
            wall_clock_ms=lambda: 1_700_000_000_000,
            **settings,
        )

    async def notify(self) -> None:
        """Tell all members that there are others."""
        await self.network.say(MASTER, NOTICE)


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    async with anyio.create_task_group() as tasks:
        yield World(tasks)
        tasks.cancel_scope.cancel()


async def until(condition: Callable[[], object]) -> None:
    """Wait for it; the test's own limit ends it."""
    while not condition():
        await anyio.sleep(0.002)


class FakeReader(QueueReader):
    def __init__(self) -> None:
        self.process_queue = ProcessQueue(MessageQueue("orders", "broker-a", 0), 0)
        self.locked_until = math.inf
        self._clock = lambda: 0.0


class FakeDelivery:
    def __init__(self) -> None:
        self.said: list[object] = []

    @property
    def is_lost(self) -> bool:
        return False

    def handling(self) -> AbstractContextManager[object]:
        return nullcontext()

    def put_back(self) -> None:
        self.said.append("put back")

    def done(self) -> None:
        self.said.append("done")

    async def retry(self, delay_seconds: float | None) -> None:
        self.said.append(delay_seconds)

    async def dead_letter(self) -> None:
        self.said.append("dead letter")


def received(message: MessageExt, delivery: FakeDelivery) -> ReceivedMessage:
    fields = msgspec.structs.asdict(message) | {"delivery": delivery}
    return ReceivedMessage(**fields)

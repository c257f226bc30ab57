"""What was answered about tables, through changes of master at any time: never taken back."""

import random
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from store.machine.network import ConnectionLost
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CreateTopicRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    TopicConfigSerializeWrapper,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import decode_json_body
from tests.node.hurting import hurt
from tests.node.world import NAMES, World, fenced_cluster, open_world

pytestmark = [pytest.mark.slow, pytest.mark.sim]

QUEUES = 3
REQUEST_SECONDS = 4.0


class Tables:
    """A client that changes tables at whichever node takes that, and remembers what was answered.

    Attributes:
        answered: The offset that was answered last, by queue.
        asked: The highest offset that was ever asked for, by queue.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.answered = dict.fromkeys(range(QUEUES), 0)
        self.asked = dict.fromkeys(range(QUEUES), 0)
        self.topics: set[str] = set()

    async def run(self, chance: random.Random) -> None:
        """Go on until cancelled."""
        number = 0
        while True:
            number += 1
            name = chance.choice(NAMES)
            with trio.move_on_after(REQUEST_SECONDS):
                with suppress(ConnectionLost):
                    await self._change(name, chance.randrange(QUEUES), number)
            await trio.sleep(chance.uniform(0, 0.2))

    async def _change(self, name: str, queue_id: int, number: int) -> None:
        async with self._world.client(self._world.address(name)) as client:
            await self.look(name)
            self.asked[queue_id] = offset = self.asked[queue_id] + 1
            commit = UpdateConsumerOffsetRequestHeader("g", "T", queue_id, offset)
            if not (await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code:
                self.answered[queue_id] = offset
            if number % 5 == 0:
                topic = f"Topic{number}"
                create = CreateTopicRequestHeader(
                    topic, "TBW102", 2, 2, 6, "SINGLE_TAG", 0, order=False
                )
                if not (await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, create)).code:
                    self.topics.add(topic)

    async def look(self, name: str) -> bool:
        """Compare what a node tells with what was answered; False if it tells nothing."""
        before = dict(self.answered)
        async with self._world.client(self._world.address(name)) as client:
            for queue_id in range(QUEUES):
                query = QueryConsumerOffsetRequestHeader(
                    "g", "T", queue_id, set_zero_if_not_found=False
                )
                answer = await client.call(RequestCode.QUERY_CONSUMER_OFFSET, query)
                if answer.code == ResponseCode.QUERY_NOT_FOUND:
                    assert before[queue_id] == 0
                elif answer.code == 0:
                    told = answer.decode_header(OffsetResponseHeader).offset
                    assert before[queue_id] <= told <= self.asked[queue_id]
                else:
                    return False
        return True


@pytest.mark.parametrize("seed", range(2))
async def test_an_answered_change_is_never_taken_back(
    tmp_path: Path, autojump_clock: MockClock, seed: int
) -> None:
    chance = random.Random(seed)
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        async with world.client(world.address(master)) as client:
            assert (await client.send(b"creates the topic")).code == 0
        tables = Tables(world)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tables.run, random.Random(seed + 1))
            for _ in range(6):
                await trio.sleep(chance.uniform(0.5, 4))
                await hurt(world, chance)
            await trio.sleep(20)
            nursery.cancel_scope.cancel()
        master = await world.master()
        assert await tables.look(master)
        assert sum(tables.answered.values()) > 20
        assert len(tables.topics) > 2
        await trio.sleep(5)
        for name in NAMES:
            async with world.client(world.address(name)) as client:
                answer = await client.call(RequestCode.GET_ALL_TOPIC_CONFIG)
                known = decode_json_body(answer.body, TopicConfigSerializeWrapper)
                assert tables.topics <= set(known.topic_config_table)

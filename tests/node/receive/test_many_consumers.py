"""Thousands of consumers, at one master after the other.

Each master dies, and what was not confirmed is gone, or some of it. No message is lost, none is
with two at a time, none comes again that was acknowledged.
"""

import random

import msgspec
import pytest
import trio
from trio.testing import MockClock

from node.errors import RequestError
from node.receive.requests import Handle, Received
from tests.node.receive.pop_world import PopWorld, handles, messages

CONSUMERS = 3_000
QUEUES = 3
TURNS = 400
INVISIBLE_MS = (1_000, 5_000)


class Held(msgspec.Struct):
    """A message with a consumer."""

    body: bytes
    handle: Handle
    until: float
    """Nobody else may have it before."""


class Crowd:
    """Consumers, and what each may rely on."""

    def __init__(self, world: PopWorld, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.held: dict[bytes, Held] = {}
        self.done: set[bytes] = set()
        self.maybe_done: set[bytes] = set()
        self.sent: set[bytes] = set()
        self.waiting = 0

    def put(self) -> None:
        for _ in range(self.chance.randint(1, 10)):
            body = b"%d" % len(self.sent)
            self.sent.add(body)
            self.world.put(body, queue_id=self.chance.randrange(QUEUES))

    def receive(self, *, waits: bool = False) -> None:
        """Ask for some; the answer may come when this master is gone."""
        world, now = self.world, trio.current_time()
        invisible_ms = self.chance.choice(INVISIBLE_MS)

        def done(answer: Received | RequestError) -> None:
            self.waiting -= 1
            if isinstance(answer, Received):
                for message, handle in zip(messages(answer), handles(answer), strict=True):
                    self._got(message.body, handle, now + invisible_ms / 1000)

        self.waiting += 1
        request = world.request(
            self.chance.choice((1, 4, 32)),
            invisible_ms=invisible_ms,
            deadline=now + 5 if waits else 0.0,
        )
        world.pop.receive(request, done)

    def _got(self, body: bytes, handle: Handle, until: float) -> None:
        assert body in self.sent
        assert body not in self.done, f"{body!r} was acknowledged"
        held = self.held.get(body)
        assert held is None or held.until <= trio.current_time() + 0.001, f"{body!r} is held"
        self.held[body] = Held(body, handle, until)

    def ack(self, count: int) -> None:
        """Some say that they are done with what they have, be it too late."""
        for body in self.chance.sample(sorted(self.held), min(count, len(self.held))):
            held = self.held.pop(body)
            self.maybe_done.add(body)

            def settled(answer: list[bool] | RequestError, body: bytes = body) -> None:
                if isinstance(answer, list) and answer[0]:
                    self.done.add(body)
                elif isinstance(answer, list) and body not in self.done:
                    self.maybe_done.discard(body)

            self.world.pop.ack([held.handle], settled)

    def change(self) -> None:
        if not self.held:
            return
        held = self.held[self.chance.choice(sorted(self.held))]
        invisible_ms = self.chance.choice((0, 500, 8_000))
        until = trio.current_time() + invisible_ms / 1000
        held.until = min(held.until, until)

        def settled(answer: object) -> None:
            if answer is not None and not isinstance(answer, Exception):
                held.handle = msgspec.structs.replace(
                    held.handle,
                    pop_time_ms=answer.pop_time_ms,  # type: ignore[attr-defined]
                )
                held.until = until

        self.world.pop.change(held.handle, invisible_ms, settled)

    def switch(self) -> None:
        """The master dies; the next one has what was confirmed, and some of the rest."""
        world = self.world
        world.end_round()
        end = self.chance.choice(record_ends(world, world.store.confirm_offset))
        world.skew_ms = self.chance.choice((0, 3_600_000, -3_600_000))
        self.world = world.successor(end)
        world.store.close()


def record_ends(world: PopWorld, begin: int) -> list[int]:
    ends = [begin]
    for topic, queue_id in world.store.queues.queues():
        queue = world.store.queues.find(topic, queue_id)
        assert queue is not None
        for offset, size, _ in queue.units_below(world.store.max_physical_offset):
            if offset < begin:
                break
            ends.append(offset + size)
    return ends


async def turn(crowd: Crowd) -> None:
    """Something happens."""
    chance = crowd.chance
    match chance.choice("pppprrrrrraaaaccwwwws"):
        case "p":
            crowd.put()
        case "r":
            crowd.receive(waits=chance.random() < 0.5)
        case "a":
            crowd.ack(chance.randint(1, 8))
        case "c":
            crowd.change()
        case "w":
            await trio.sleep(chance.choice((0.001, 0.3, 2.0)))
            crowd.world.work()
            if chance.random() < 0.7:
                crowd.world.write_gathered()
                crowd.world.confirm()
        case "s" if chance.random() < 0.3:
            crowd.switch()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_a_crowd_gets_every_message(seed: int, autojump_clock: MockClock) -> None:
    crowd = Crowd(PopWorld(queues=QUEUES, retries=1_000), random.Random(seed))
    for _ in range(CONSUMERS):
        crowd.receive(waits=True)
    for _ in range(TURNS):
        await turn(crowd)
    for _ in range(60):
        crowd.receive()
        crowd.world.confirm()
        crowd.ack(1_000)
        crowd.world.write_gathered()
        await crowd.world.wait(1.0)
    assert crowd.sent == crowd.done | crowd.maybe_done
    assert crowd.world.state() == crowd.world.confirmed_state()
    assert crowd.world.table.live.invisible_count == 0

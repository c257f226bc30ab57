"""Rights through changes of master: none that was not confirmed, none that was taken."""

import random
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from store.machine.network import ConnectionLost
from tandem.wire.ha_status import FencedStatus
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.node.hurting import hurt
from tests.node.security.users_world import (
    ALICE,
    AUTHORIZED,
    OPERATOR,
    as_user,
    entry,
    make_user,
)
from tests.node.world import NAMES, World, fenced_cluster, open_world

pytestmark = [pytest.mark.slow, pytest.mark.sim]

REQUEST_SECONDS = 4.0


class Rights:
    """An operator who gives and takes one right, and a user who tries it.

    Attributes:
        has: Whether the user has it, by the last answered order; None while that is open.
        orders: How many were begun.
        answered: How many were answered.
        tries: How many tries were judged.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.has: bool | None = False
        self.orders = self.answered = self.tries = 0

    async def order(self, chance: random.Random) -> None:
        """Go on until cancelled."""
        while True:
            wanted = chance.random() < 0.5
            self.has, self.orders = None, self.orders + 1
            while not await self._ordered(chance.choice(NAMES), wanted=wanted):
                await trio.sleep(chance.uniform(0, 0.3))
            self.has, self.answered = wanted, self.answered + 1
            await trio.sleep(chance.uniform(0, 1.5))

    async def _ordered(self, name: str, *, wanted: bool) -> bool:
        right = entry("Allow" if wanted else "Deny", "Topic:T", "Pub")
        body = msgspec.json.encode({"policies": [{"entries": [right]}]})
        with trio.move_on_after(REQUEST_SECONDS), suppress(ConnectionLost):
            async with self._world.client(self._world.address(name)) as client:
                answer = await as_user(client, OPERATOR).call(
                    RequestCode.AUTH_UPDATE_ACL, {"subject": "User:alice"}, body
                )
                # A node that is not the master says that it follows one.
                return answer.code == 0 and not answer.remark
        return False

    async def use(self, chance: random.Random) -> None:
        """Try it at whichever node, until cancelled."""
        while True:
            await trio.sleep(chance.uniform(0, 0.1))
            with trio.move_on_after(REQUEST_SECONDS), suppress(ConnectionLost):
                await self._try(chance.choice(NAMES))

    async def _try(self, name: str) -> None:
        async with self._world.client(self._world.address(name)) as client:
            before, orders = self.has, self.orders
            answer = await as_user(client, ALICE).send(b"x")
            if before is None or orders != self.orders:
                return
            if answer.code == 0:
                assert before, f"{name} took a message by a right that was taken"
                self.tries += 1
            elif answer.code == ResponseCode.NO_PERMISSION and await self._is_master(client):
                assert not before, f"{name} refuses a right that was given: {answer.remark}"
                self.tries += 1

    async def _is_master(self, client: object) -> bool:
        """Whether this node takes messages: others may not know yet what was confirmed."""
        answer = await as_user(client, OPERATOR).call(RequestCode.FENCED_STATUS)  # type: ignore[arg-type]
        status = msgspec.json.decode(answer.body, type=FencedStatus)
        return status.role == "MASTER" and not status.refusal


async def first_master(world: World) -> str:
    while True:
        for name in NAMES:
            async with world.client(world.address(name)) as client:
                answer = await as_user(client, OPERATOR).send(b"creates the topic")
                if answer.code == 0:
                    return name
        await trio.sleep(0.1)


@pytest.mark.parametrize("seed", range(4))
async def test_a_right_is_what_was_answered_last(
    tmp_path: Path, autojump_clock: MockClock, seed: int
) -> None:
    chance = random.Random(seed)
    async with open_world(fenced_cluster(tmp_path, clients=AUTHORIZED)) as world:
        await world.start(*NAMES)
        master = await first_master(world)
        async with world.client(world.address(master)) as client:
            await make_user(client, ALICE, entry("Deny", "Topic:T", "Pub"))
        rights = Rights(world)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rights.order, random.Random(seed + 1))
            nursery.start_soon(rights.use, random.Random(seed + 2))
            for _ in range(6):
                await trio.sleep(chance.uniform(0.5, 4))
                await hurt(world, chance)
            await trio.sleep(20)
            nursery.cancel_scope.cancel()
        assert rights.answered > 10
        assert rights.tries > 50

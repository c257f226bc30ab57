"""Handshakes take turns, and no address gets all of them."""

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tandem.handshake_turns import (
    WAITING_OF_ADDRESS_MAX,
    HandshakeTurns,
    TooManyHandshakesError,
)


class Taker:
    """Takes turns of a tenth of a second, and notes who had one."""

    def __init__(self, turns: HandshakeTurns) -> None:
        self._turns = turns
        self.had: list[str] = []

    async def take(self, address: str) -> None:
        await self._turns.take(address)
        self.had.append(address)
        await trio.sleep(0.1)
        self._turns.give(0.1)


async def test_addresses_take_turns(autojump_clock: MockClock) -> None:
    taker = Taker(HandshakeTurns())
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(taker.take, "10.0.0.1")
        await trio.testing.wait_all_tasks_blocked()
        for address in ("10.0.0.2", "10.0.0.3"):
            nursery.start_soon(taker.take, address)
        began = trio.current_time()
        await trio.sleep(1.7)
        assert sorted(taker.had) == ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"]
    # Each turn is followed by a pause of four times its length.
    assert trio.current_time() - began == pytest.approx(22 * 0.5 - 0.4)


async def test_the_pause_after_a_turn_is_as_long_as_wanted(autojump_clock: MockClock) -> None:
    taker = Taker(HandshakeTurns(pause_times=1.0))
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(taker.take, "10.0.0.1")
    assert trio.current_time() - began == pytest.approx(5 * 0.2 - 0.1)


async def test_who_waits_for_a_turn_may_go(autojump_clock: MockClock) -> None:
    turns = HandshakeTurns()
    taker = Taker(turns)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(taker.take, "a")
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.01):
            await turns.take("b")
        assert turns.waiting_count == 0
        nursery.start_soon(taker.take, "c")
        with trio.move_on_after(0.3):  # it has the turn, and waits for the end of the pause
            await turns.take("c")
    with trio.fail_after(2):
        await taker.take("d")


async def test_few_of_an_address_wait(autojump_clock: MockClock) -> None:
    turns = HandshakeTurns()
    refused = 0

    async def take(address: str) -> None:
        nonlocal refused
        try:
            await turns.take(address)
        except TooManyHandshakesError:
            refused += 1
        else:
            await trio.sleep(1)
            turns.give(0)

    async with trio.open_nursery() as nursery:
        for _ in range(WAITING_OF_ADDRESS_MAX + 11):
            nursery.start_soon(take, "10.0.0.1")
        await trio.testing.wait_all_tasks_blocked()
        assert (refused, turns.waiting_count) == (10, WAITING_OF_ADDRESS_MAX)
        nursery.start_soon(take, "10.0.0.2")
        await trio.testing.wait_all_tasks_blocked()
        assert refused == 10
        nursery.cancel_scope.cancel()
    assert turns.waiting_count == 0

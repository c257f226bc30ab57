from functools import partial
from itertools import pairwise

import trio
import trio.testing

from node.remoting.turns import ABREAST_MAX, PASS_SECONDS, Turns


async def passes_taken(turns: Turns, *, again: bool = False, count_of_turns: int = 1) -> int:
    """How many passes over all tasks it takes to get turns, one after the other."""
    passes = 0

    async def count() -> None:
        nonlocal passes
        while True:
            passes += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        for _ in range(count_of_turns):
            await turns.take(again=again)
            turns.give(PASS_SECONDS / 4)
        taken = passes
        nursery.cancel_scope.cancel()
    return taken


async def test_a_turn_is_there_at_once_while_little_is_used() -> None:
    assert await passes_taken(Turns(), count_of_turns=3) == 0


async def test_all_other_tasks_run_before_another_turn_of_the_same() -> None:
    assert await passes_taken(Turns(), again=True, count_of_turns=10) >= 9
    assert await passes_taken(Turns(), count_of_turns=41) >= 9


async def take_and_give(turns: Turns, name: str, order: list[str], *, again: bool = False) -> None:
    await turns.take(again=again)
    order.append(name)
    turns.give(0.001)


async def test_everybody_in_the_row_gets_a_turn_a_few_in_each_pass(nursery: trio.Nursery) -> None:
    turns = Turns()
    order: list[str] = []
    await turns.take()
    turns.give(PASS_SECONDS)
    for number in range(20):
        nursery.start_soon(take_and_give, turns, str(number), order)
    at_pass = []
    for _ in range(30):
        await trio.lowlevel.checkpoint()
        at_pass.append(len(order))
    growth = [after - before for before, after in pairwise(at_pass)]
    assert sorted(order) == sorted(map(str, range(20)))
    assert max(growth) <= 2 * ABREAST_MAX


async def test_new_ones_do_not_wait_for_all_who_want_more(nursery: trio.Nursery) -> None:
    turns = Turns()
    order: list[str] = []
    await turns.take()
    turns.give(PASS_SECONDS)
    for number in range(50):
        nursery.start_soon(partial(take_and_give, turns, f"old{number}", order, again=True))
    await trio.lowlevel.checkpoint()
    nursery.start_soon(take_and_give, turns, "new", order)
    await trio.testing.wait_all_tasks_blocked()
    assert len(order) == 51
    assert order.index("new") <= 3 * ABREAST_MAX


async def test_one_who_wants_more_does_not_wait_for_all_new_ones(nursery: trio.Nursery) -> None:
    turns = Turns()
    order: list[str] = []
    await turns.take()
    turns.give(PASS_SECONDS)
    for number in range(50):
        nursery.start_soon(take_and_give, turns, f"new{number}", order)
    await trio.lowlevel.checkpoint()
    nursery.start_soon(partial(take_and_give, turns, "old", order, again=True))
    await trio.testing.wait_all_tasks_blocked()
    assert len(order) == 51
    assert order.index("old") <= 3 * ABREAST_MAX


async def test_one_that_is_cancelled_in_the_row_keeps_nobody(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    turns = Turns()
    order: list[str] = []
    await turns.take()
    turns.give(PASS_SECONDS)

    async def give_up() -> None:
        with trio.move_on_after(0):
            await turns.take()

    for number in range(10):
        nursery.start_soon(give_up)
        nursery.start_soon(take_and_give, turns, str(number), order)
    await trio.sleep(1)
    assert len(order) == 10
    assert turns.is_free


async def test_a_pass_that_nobody_asked_for_counts_as_one_unless_tasks_wait_in_the_row(
    nursery: trio.Nursery,
) -> None:
    turns = Turns()
    turns.give(PASS_SECONDS)
    turns.passed()
    assert turns.is_free
    turns.give(PASS_SECONDS)
    for number in range(2):
        nursery.start_soon(take_and_give, turns, str(number), [])
    while not turns.waiting_count:
        await trio.lowlevel.checkpoint()
    turns.passed()
    after = turns.is_free
    assert not after

"""The one helper that touches trio's private names: it works, and notices when trio changes."""

import contextvars
import inspect
import os
import random
import subprocess
import sys
import uuid

import trio
from trio._core import _run

from node.simulated import deterministic_trio


async def _interleaving() -> list[str]:
    """Five tasks that race, tie on deadlines and draw random numbers."""
    seen: list[str] = []

    async def racer(name: str) -> None:
        for step in range(5):
            await trio.lowlevel.checkpoint()
            seen.append(f"{name}{step}")
            await trio.sleep(1.0)
        seen.append(f"{name} {random.random()} {uuid.uuid4()} {os.urandom(4).hex()}")

    async with trio.open_nursery() as nursery:
        for name in "abcde":
            nursery.start_soon(racer, name)
    seen.append(f"end {trio.current_time()}")
    return seen


def test_the_same_seed_gives_the_same_order_of_tasks() -> None:
    first = deterministic_trio.run(7, _interleaving)
    assert first == deterministic_trio.run(7, _interleaving)
    assert first[-1] == "end 5.0"


def test_another_seed_gives_another_order() -> None:
    orders = {tuple(deterministic_trio.run(seed, _interleaving)) for seed in range(5)}
    assert len(orders) == 5


def test_another_process_with_other_hash_seeds_gives_the_same_order() -> None:
    program = "\n".join(
        (
            "import os, random, uuid, trio",
            "from node.simulated import deterministic_trio",
            inspect.getsource(_interleaving),
            "print(deterministic_trio.run(7, _interleaving))",
        )
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=dict(os.environ, PYTHONHASHSEED=hash_seed),
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert outputs == {str(deterministic_trio.run(7, _interleaving))}


def test_everything_is_as_before_afterwards() -> None:
    before = (os.urandom, uuid.uuid4, random.getstate(), _run._r.getstate())
    switch, reschedule = _run._ALLOW_DETERMINISTIC_SCHEDULING, _run.Runner.reschedule

    async def end_while_others_are_held() -> None:
        await _interleaving()
        deterministic_trio.Hold(lambda _: False).begin()
        assert _run.Runner.reschedule is not reschedule

    deterministic_trio.run(1, end_while_others_are_held)
    assert _run.Runner.reschedule is reschedule
    assert (os.urandom, uuid.uuid4, random.getstate(), _run._r.getstate()) == before
    assert switch == _run._ALLOW_DETERMINISTIC_SCHEDULING


def test_trio_still_has_the_private_names_and_uses_them_as_we_think() -> None:
    source = inspect.getsource(_run.unrolled_run)
    assert "if _ALLOW_DETERMINISTIC_SCHEDULING:" in source
    assert "batch.sort(key=lambda t: t._counter)" in source
    assert "_r.shuffle(batch)" in source
    heap = inspect.getsource(_run.Deadlines.add)
    assert "heappush(self._heap, (deadline, id(cancel_scope), cancel_scope))" in heap
    assert "self._active += 1" in heap
    due = inspect.getsource(_run.Deadlines.expire)
    assert "if deadline == cancel_scope._registered_deadline:" in due
    assert "cancel_scope._cancel(" in due
    jump, collect = source.index("runner.clock._autojump()"), source.index("batch = list(")
    assert jump < collect


async def _cancelled_in_which_order() -> list[int]:
    """Scopes with one deadline; who is aborted first shows the order of the heap."""
    aborted: list[int] = []

    async def wait(index: int) -> None:
        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            aborted.append(index)
            return trio.lowlevel.Abort.SUCCEEDED

        with trio.move_on_at(1.0):
            await trio.lowlevel.wait_task_rescheduled(abort)

    async with trio.open_nursery() as nursery:
        for index in range(20):
            nursery.start_soon(wait, index)
            await trio.testing.wait_all_tasks_blocked()
    return aborted


def test_equal_deadlines_fall_due_in_the_order_in_which_they_were_set() -> None:
    assert deterministic_trio.run(3, _cancelled_in_which_order) == list(range(20))


def test_an_alarm_wakes_its_task_at_the_time_it_was_moved_to() -> None:
    async def main() -> list[float]:
        alarm = deterministic_trio.Alarm()
        woken: list[float] = []

        async def sleeper() -> None:
            for deadline in (5.0, float("inf"), 7.0):
                await alarm.wait_until(deadline)
                woken.append(trio.current_time())

        alarm.move(0.5)  # nobody waits
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeper)
            await trio.sleep(1.0)
            alarm.move(2.0)
            alarm.move(3.0)
            await trio.sleep(3.0)
            alarm.move(6.0)
        return woken

    assert deterministic_trio.run(1, main) == [3.0, 6.0, 7.0]


def test_whoever_waits_for_an_alarm_can_be_cancelled() -> None:
    async def main() -> float:
        alarm = deterministic_trio.Alarm()
        for _ in range(3):
            with trio.move_on_after(1.0):
                await alarm.wait_until(trio.current_time() + 60.0)
        await alarm.wait_until(trio.current_time() + 1.0)
        return trio.current_time()

    assert deterministic_trio.run(1, main) == 4.0


_held: contextvars.ContextVar[bool] = contextvars.ContextVar("held", default=False)


async def _held_ticker(ticks: list[float]) -> None:
    _held.set(True)
    while True:
        ticks.append(trio.current_time())
        await trio.sleep(1.0)


async def _hold_between(ticks: list[float]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_held_ticker, ticks)
        await trio.sleep(2.5)
        hold = deterministic_trio.Hold(lambda context: context.get(_held, False))
        hold.begin()
        await trio.sleep(10.0)
        hold.release()
        await trio.sleep(1.5)
        nursery.cancel_scope.cancel()


def test_tasks_that_are_held_stand_still_while_time_goes_on() -> None:
    ticks: list[float] = []
    deterministic_trio.run(1, _hold_between, ticks)
    assert ticks == [0.0, 1.0, 2.0, 12.5, 13.5]


def test_a_task_that_is_cancelled_while_it_is_held_ends_when_it_is_released() -> None:
    ended: list[float] = []

    async def victim(scope: trio.CancelScope) -> None:
        _held.set(True)
        with scope:
            await trio.sleep_forever()
        ended.append(trio.current_time())

    async def main() -> None:
        scope = trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(victim, scope)
            await trio.sleep(1.0)
            hold = deterministic_trio.Hold(lambda context: context.get(_held, False))
            hold.begin()
            scope.cancel()
            await trio.sleep(1.0)
            assert not ended
            hold.release()

    deterministic_trio.run(1, main)
    assert ended == [2.0]


def test_a_hold_that_begins_twice_is_released_once() -> None:
    """A process that is killed while it is frozen."""
    ticks: list[float] = []

    async def ticker() -> None:
        _held.set(True)
        await trio.sleep(1.0)
        ticks.append(trio.current_time())

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ticker)
            await trio.sleep(0.5)
            hold = deterministic_trio.Hold(lambda context: context.get(_held, False))
            hold.begin()
            hold.begin()
            await trio.sleep(1.0)
            hold.release()

    deterministic_trio.run(1, main)
    assert ticks == [1.5]

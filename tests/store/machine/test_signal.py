"""One wake-up for many tasks."""

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from store.machine.signal import Signal


async def test_everybody_who_waits_is_woken_once() -> None:
    signal = Signal()
    woken: list[int] = []

    async def wait(name: int) -> None:
        await signal.wait()
        woken.append(name)

    async with trio.open_nursery() as nursery:
        for name in range(3):
            nursery.start_soon(wait, name)
        await wait_all_tasks_blocked()
        signal.notify()
        await wait_all_tasks_blocked()
        assert sorted(woken) == [0, 1, 2]
        signal.notify()
        assert len(woken) == 3


async def test_a_wake_up_is_not_remembered(autojump_clock: MockClock) -> None:
    signal = Signal()
    signal.notify()
    with trio.move_on_after(1) as scope:
        await signal.wait()
    assert scope.cancelled_caught


async def test_a_cancelled_waiter_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    signal = Signal()
    with trio.move_on_after(1):
        await signal.wait()
    signal.notify()
    assert not signal._waiting


def test_who_listens_is_called_before_notify_returns() -> None:
    signal = Signal()
    heard: list[str] = []
    with signal.heard_by(lambda: heard.append("first")):
        with signal.heard_by(lambda: heard.append("second")):
            signal.notify()
        signal.notify()
    signal.notify()
    assert heard == ["first", "second", "first"]

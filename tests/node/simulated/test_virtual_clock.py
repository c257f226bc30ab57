"""Calls at virtual times, and wall clocks."""

import pytest
import trio
from trio.testing import MockClock

from node.simulated import deterministic_trio
from node.simulated.virtual_clock import WALL_CLOCK_START_MS, BootClock, Timeline, WallClock


async def test_calls_come_in_order_of_time_then_of_entry(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    timeline = Timeline()
    seen: list[tuple[str, float]] = []

    def note(name: str) -> None:
        seen.append((name, trio.current_time() - start))

    start = trio.current_time()
    nursery.start_soon(timeline.run)
    timeline.call_later(2.0, lambda: note("c"))
    timeline.call_later(1.0, lambda: note("a"))
    timeline.call_later(2.0, lambda: note("d"))
    await trio.sleep(0.5)
    timeline.call_later(0.75, lambda: note("b"))
    await trio.sleep(3.0)
    assert seen == [("a", 1.0), ("b", 1.25), ("c", 2.0), ("d", 2.0)]
    assert timeline.pending == 0


async def test_a_call_may_add_an_earlier_one_and_one_in_the_past(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    timeline = Timeline()
    seen: list[str] = []
    nursery.start_soon(timeline.run)

    def first() -> None:
        seen.append("first")
        timeline.call_later(-1.0, lambda: seen.append("past"))
        timeline.call_later(1.0, lambda: seen.append("soon"))

    timeline.call_later(1.0, first)
    timeline.call_later(9.0, lambda: seen.append("late"))
    await trio.sleep(5.0)
    assert seen == ["first", "past", "soon"]


async def test_a_wall_clock_has_skew_drift_and_steps(autojump_clock: MockClock) -> None:
    start = trio.current_time()
    right = WallClock()
    wrong = WallClock(skew_ms=-250, drift_ppm=1000)
    assert right.now_ms() == WALL_CLOCK_START_MS + int(start * 1000)
    await trio.sleep(10.0)
    drift_ms = 10 + int(start)
    assert abs(wrong.now_ms() - right.now_ms() + 250 - drift_ms) <= 1
    wrong.step(1_000)
    assert abs(wrong.now_ms() - right.now_ms() - 750 - drift_ms) <= 1


def test_the_boot_clock_counts_suspends_and_begins_again_with_the_machine() -> None:
    async def main() -> None:
        clock = BootClock(drift_ppm=100)
        await trio.sleep(10.0)
        assert clock.now_seconds() == pytest.approx(10.001)
        clock.suspend(5.0)
        assert clock.now_seconds() == pytest.approx(15.001)
        first = clock.boot_id
        clock.restart()
        assert clock.now_seconds() == 0
        assert clock.boot_id != first

    deterministic_trio.run(1, main)

"""Event loops whose time jumps."""

import time

import anyio
import pytest

from tests.support.virtual_loops import LOOPS, run_virtually

DAY_SECONDS = 86_400.0


@pytest.mark.parametrize("loop", LOOPS)
def test_time_jumps_to_what_comes_next(loop: str) -> None:
    async def main() -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []
        began = anyio.current_time()

        async def note(name: str, seconds: float) -> None:
            await anyio.sleep(seconds)
            seen.append((name, anyio.current_time() - began))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(note, "a day", DAY_SECONDS)
            tasks.start_soon(note, "a millisecond", 0.001)
            tasks.start_soon(note, "at once", 0)
        return seen

    seen = run_virtually(loop, main)
    assert [name for name, _ in seen] == ["at once", "a millisecond", "a day"]
    assert [at for _, at in seen] == pytest.approx([0, 0.001, DAY_SECONDS], abs=1e-6)


@pytest.mark.parametrize("loop", LOOPS)
def test_no_time_passes_while_a_task_computes(loop: str) -> None:
    async def main() -> tuple[float, bool]:
        began = anyio.current_time()
        with anyio.move_on_after(0.01) as scope:
            real = time.monotonic()
            while time.monotonic() < real + 0.02:
                await anyio.lowlevel.checkpoint()
        return anyio.current_time() - began, scope.cancelled_caught

    passed, was_cancelled = run_virtually(loop, main)
    assert passed == pytest.approx(0, abs=1e-6)
    assert not was_cancelled


@pytest.mark.parametrize("loop", LOOPS)
def test_what_waits_in_vain_ends_with_its_deadline(loop: str) -> None:
    async def main() -> None:
        with anyio.fail_after(DAY_SECONDS):
            await anyio.sleep_forever()

    with pytest.raises(TimeoutError):
        run_virtually(loop, main)

"""What both event loops promise: `Parked` and `Background`."""

from contextlib import suppress

import anyio
import pytest

from tandem.client.errors import NotOpenError
from tandem.client.event_loop import LoopClock
from tandem.client.running_loop import running_event_loop
from tests.tandem.client.either_loop import under_either_loop


def test_a_clock_without_a_loop_says_that_the_client_is_not_open() -> None:
    clock = LoopClock()
    with pytest.raises(NotOpenError):
        clock()
    clock.read = lambda: 5.0
    assert clock() == 5.0


@under_either_loop
async def test_a_parked_task_gets_the_value_that_wakes_it() -> None:
    loop = running_event_loop()
    async with anyio.create_task_group() as group:
        parked = loop.parked()

        async def wake() -> None:
            parked.wake("morning")

        group.start_soon(wake)
        assert await parked.wait(lambda: pytest.fail("forgotten")) == "morning"


@under_either_loop
async def test_a_cancelled_one_forgets_and_may_be_woken_too_late() -> None:
    parked = running_event_loop().parked()
    forgotten = []
    with anyio.move_on_after(0.01) as scope:
        await parked.wait(lambda: forgotten.append(1))
    assert scope.cancelled_caught
    assert forgotten == [1]


@under_either_loop
async def test_tasks_in_the_background_end_with_it_and_their_errors_come_out() -> None:
    ended = []

    async def live() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(1)

    async def fail() -> None:
        raise KeyError("planned")

    background = running_event_loop().background()
    group = await background.open()
    group.start_soon(live)
    await anyio.lowlevel.checkpoint()
    await anyio.lowlevel.checkpoint()
    await background.close()
    assert ended == [1]

    background = running_event_loop().background()
    with pytest.raises(BaseExceptionGroup) as caught:
        group = await background.open()
        group.start_soon(fail)
        with suppress(anyio.get_cancelled_exc_class()):  # trio cancels what the opener does
            await anyio.sleep(0.05)
        await background.close()
    assert caught.value.subgroup(KeyError) is not None


@under_either_loop
async def test_what_cancels_the_opener_leaves_the_background_alone_until_it_is_closed() -> None:
    ended = []

    async def live() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(1)

    with anyio.CancelScope() as scope:
        background = running_event_loop().background()
        group = await background.open()
        group.start_soon(live)
        scope.cancel()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.wait_all_tasks_blocked()
            assert ended == []
            await background.close()
            assert ended == [1]
    assert scope.cancelled_caught


@under_either_loop
async def test_an_opening_that_is_cancelled_leaves_no_task() -> None:
    tasks_before = len(anyio.get_running_tasks())
    with anyio.CancelScope() as scope:
        scope.cancel()
        await running_event_loop().background().open()
    assert scope.cancelled_caught
    await anyio.wait_all_tasks_blocked()
    assert len(anyio.get_running_tasks()) == tasks_before

"""How a link ends: once, for the first reason, with all of its tasks."""

from functools import partial

import pytest
import trio
from trio.testing import MockClock

from ha.link.link_end import LinkEnd
from store.machine.errors import ConnectionLost


async def fail(error: Exception, seconds: float) -> None:
    await trio.sleep(seconds)
    raise error


async def test_the_first_error_ends_the_link_and_stops_its_other_tasks(
    autojump_clock: MockClock,
) -> None:
    first, second = ConnectionLost("first"), ConnectionLost("second")
    end = LinkEnd(ConnectionLost)
    start = trio.current_time()
    with end.scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end.guard, partial(fail, second, 2.0))
            nursery.start_soon(end.guard, partial(fail, first, 1.0))
            nursery.start_soon(end.guard, trio.sleep_forever)
    end.because(second)
    assert end.reason is first
    assert trio.current_time() - start == 1.0


async def test_whoever_ends_a_link_from_outside_is_heard_in_the_same_step() -> None:
    ended: list[bool] = []
    end = LinkEnd(ConnectionLost, on_end=lambda: ended.append(end.reason is not None))
    end.because(ConnectionLost("replaced"))
    assert ended == [True]
    with end.scope as scope:
        await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_an_error_that_concerns_more_than_the_link_is_raised() -> None:
    end = LinkEnd(ConnectionLost)
    with pytest.raises(ZeroDivisionError):
        await end.guard(partial(fail, ZeroDivisionError(), 0))
    assert end.reason is None

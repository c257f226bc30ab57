"""A thread that was started stays, and serves whoever comes next."""

import os
import threading
from collections.abc import Iterator
from functools import partial

import outcome
import pytest
import trio

from store.machine import kept_threads
from tests.support.patience import PATIENCE_SECONDS, wait_until


@pytest.fixture(autouse=True)
def _none_yet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those that others have left idle are not counted, nor is what they have at work waited for.

    A thread that has said that something is done is idle a moment later; no test ends before that.
    """
    before = threading.enumerate()
    monkeypatch.setattr(kept_threads, "_idle", [])
    monkeypatch.setattr(kept_threads, "_later", kept_threads._Later())
    yield
    own = [each for each in threading.enumerate() if each.name == "disk" and each not in before]
    wait_until(lambda: len(kept_threads._idle) >= len(own))


async def run(limiter: trio.CapacityLimiter) -> int:
    return await kept_threads.run_sync(threading.get_ident, limiter=limiter)


async def test_one_thread_does_all_that_comes_one_by_one() -> None:
    limiter = trio.CapacityLimiter(4)
    threads = {await run(limiter) for _ in range(100)}
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


async def test_a_thread_has_no_time_after_which_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of trio have; without it this one ends at once, and another is started each time."""
    monkeypatch.setattr("trio._core._thread_cache.IDLE_TIMEOUT", 0.0)
    started = 0
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        nonlocal started
        started += 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counted)
    limiter = trio.CapacityLimiter(4)
    for _ in range(20):
        before = threading.active_count()
        await run(limiter)
        with trio.move_on_after(0.01):
            while threading.active_count() >= before:
                await trio.lowlevel.checkpoint()
    assert started == 1


async def test_as_many_threads_as_calls_at_the_same_time_and_as_the_limit_allows() -> None:
    limiter = trio.CapacityLimiter(3)
    barrier = threading.Barrier(3)
    threads: list[int] = []

    async def meet() -> None:
        def met() -> int:
            barrier.wait()
            return threading.get_ident()

        threads.append(await kept_threads.run_sync(met, limiter=limiter))

    for _ in range(3):
        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(meet)
    assert len(threads) == 18
    assert len(set(threads)) == 3


async def test_threads_that_are_there_before_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_threads.have(3)
    kept_threads.have(2)
    monkeypatch.setattr(threading.Thread, "start", pytest.fail)
    limiter, barrier = trio.CapacityLimiter(3), threading.Barrier(3)

    async def meet() -> None:
        await kept_threads.run_sync(barrier.wait, limiter=limiter)

    for _ in range(2):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(meet)


async def test_an_error_is_raised_where_the_call_was_made() -> None:
    limiter = trio.CapacityLimiter(1)
    with pytest.raises(FileNotFoundError):
        await kept_threads.run_sync(os.stat, "/nothing/there", limiter=limiter)
    assert limiter.borrowed_tokens == 0
    assert await run(limiter)


async def test_a_call_that_has_begun_is_not_cancelled() -> None:
    limiter, go_on = trio.CapacityLimiter(1), threading.Event()
    has_ended = False

    async def call() -> None:
        nonlocal has_ended
        await kept_threads.run_sync(go_on.wait, limiter=limiter)
        has_ended = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        while not limiter.borrowed_tokens:
            await trio.lowlevel.checkpoint()
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
        go_on.set()
    assert has_ended


async def test_one_that_is_cancelled_before_does_not_begin() -> None:
    called = False

    def call() -> None:
        nonlocal called
        called = True

    with trio.CancelScope() as scope:
        scope.cancel()
        await kept_threads.run_sync(call, limiter=trio.CapacityLimiter(1))
    assert scope.cancelled_caught
    assert not called


def test_a_child_starts_threads_of_its_own() -> None:
    trio.run(run, trio.CapacityLimiter(1))
    child = os.fork()
    if not child:
        done = threading.Event()
        kept_threads.start_soon(os.getpid, lambda _: done.set())
        os._exit(0 if done.wait(PATIENCE_SECONDS) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_it_can_be_used_without_trio() -> None:
    done = threading.Event()
    results: list[outcome.Outcome[int]] = []

    def deliver(result: outcome.Outcome[int]) -> None:
        results.append(result)
        done.set()

    kept_threads.start_soon(threading.get_ident, deliver)
    assert done.wait(PATIENCE_SECONDS)
    assert results[0].unwrap() != threading.get_ident()


def test_what_nobody_waits_for_is_done_by_one_thread_in_its_order() -> None:
    go_on, done = threading.Event(), threading.Event()
    threads: list[int] = []
    order: list[int] = []

    def failing() -> None:
        raise OSError("nobody hears of it")

    kept_threads.do_later(go_on.wait)
    for number in range(10):
        kept_threads.do_later(failing)
        kept_threads.do_later(partial(order.append, number))
        kept_threads.do_later(lambda: threads.append(threading.get_ident()))
    kept_threads.do_later(done.set)
    assert not order
    go_on.set()
    assert done.wait(PATIENCE_SECONDS)
    assert order == list(range(10))
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


def test_it_goes_on_after_all_was_done() -> None:
    for _ in range(100):
        done = threading.Event()
        kept_threads.do_later(done.set)
        assert done.wait(PATIENCE_SECONDS)


def test_what_is_to_be_done_later_is_done_at_once_where_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        kept_threads.do_later(partial(done.append, 1))
        kept_threads.do_later(partial(done.append, 2))
    assert done == [1, 2]
    kept_threads.do_later(partial(done.append, 3))
    kept_threads.finish()
    assert done == [1, 2, 3]


def test_to_finish_is_to_wait_for_all_that_was_given_before() -> None:
    go_on, order = threading.Event(), list[int]()
    kept_threads.do_later(partial(go_on.wait, PATIENCE_SECONDS))
    kept_threads.do_later(partial(order.append, 1))
    assert not order
    go_on.set()
    kept_threads.finish()
    assert order == [1]

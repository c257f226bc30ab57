import asyncio
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from time import sleep

import pytest

from tandem.testing.errors import NotSimulatedError, RealThing
from tandem.testing.real_world import RealWorld


def in_a_run(function: Callable[[], object], *, at_ms: int = 1_700_000_000_500) -> object:
    world = RealWorld()
    with world.kept_out(), world.run(lambda: at_ms):
        return function()


@pytest.mark.parametrize(
    ("use", "thing"),
    [
        (lambda: time.sleep(0), RealThing.SLEEP),
        (lambda: sleep(0), RealThing.SLEEP),
        (socket.socket, RealThing.SOCKET),
        (lambda: socket.create_connection(("127.0.0.1", 9)), RealThing.SOCKET),
        (lambda: socket.socketpair()[0], RealThing.SOCKET),
        (lambda: subprocess.run(["true"], check=False), RealThing.PROCESS),
        (lambda: threading.Thread(target=print).start(), RealThing.THREAD),
        (lambda: asyncio.new_event_loop().close(), RealThing.ASYNCIO),
        (lambda: asyncio.Runner().get_loop(), RealThing.ASYNCIO),
    ],
)
def test_what_is_real_is_refused_by_its_name(use: Callable[[], object], thing: RealThing) -> None:
    with pytest.raises(NotSimulatedError) as raised:
        in_a_run(use)
    assert raised.value.thing is thing
    assert thing.value in str(raised.value)


def test_what_the_code_under_test_swallows_is_raised_at_the_end() -> None:
    def swallows() -> None:
        with suppress(Exception):
            time.sleep(0)

    with pytest.raises(NotSimulatedError):
        in_a_run(swallows)


def test_a_run_that_uses_nothing_real_ends_well_after_one_that_did() -> None:
    world = RealWorld()
    with world.kept_out():
        with pytest.raises(NotSimulatedError), world.run(lambda: 0):
            time.sleep(0)
        with world.run(lambda: 0):
            pass


def test_clocks_show_the_time_of_the_run() -> None:
    clocks = (time.time, time.time_ns, time.monotonic, time.monotonic_ns)
    assert in_a_run(lambda: [getattr(time, clock.__name__)() for clock in clocks]) == [
        1_700_000_000.5,
        1_700_000_000_500_000_000,
        1_700_000_000.5,
        1_700_000_000_500_000_000,
    ]


def test_between_runs_and_afterwards_all_is_as_it_was() -> None:
    before = (time.time, time.sleep, sleep, socket.socket.__init__, threading.Thread.start)
    world = RealWorld()
    with world.kept_out():
        assert abs(time.time() - before[0]()) < 60
        time.sleep(0)
        socket.socket().close()
    after = (time.time, time.sleep, sleep, socket.socket.__init__, threading.Thread.start)
    assert after == before


def test_other_threads_are_left_alone() -> None:
    begin, end = threading.Event(), threading.Event()
    seen: list[object] = []

    def other() -> None:
        begin.wait()
        time.sleep(0)
        socket.socket().close()
        seen.append(time.time())
        end.set()

    thread = threading.Thread(target=other)
    thread.start()

    def run() -> None:
        begin.set()
        end.wait()

    in_a_run(run, at_ms=0)
    thread.join()
    assert isinstance(seen[0], float)
    assert seen[0] > 1_700_000_000

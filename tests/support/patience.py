"""Waiting for what other processes, threads and the kernel do: for the event, and for long.

A test that waits a fixed time is slow on a quiet machine and wrong on a busy one.
"""

import time
from collections.abc import Callable
from typing import Any, Final

import trio

PATIENCE_SECONDS: Final = 150.0
"""Longer than anything takes that happens at all, on whatever machine; shorter than pytest's limit
for a test, which would not say what was waited for."""

PATIENCE_MS: Final = round(PATIENCE_SECONDS * 1000)

ATTEMPT_MS: Final = PATIENCE_MS // 3
"""For `attempt_timeout_ms` where messages are counted: one that is sent again is there twice."""

PATIENT_LEASE: Final[dict[str, dict[str, Any]]] = {"coordinator": {"lease_ttl_ms": 30_000}}
"""Settings of a fenced cluster in which no lease has to end by itself: nobody is replaced because
the machine is busy. What is killed or stopped is replaced as soon as with any other lease."""

COUNTED: Final[dict[str, dict[str, Any]]] = {"replication": {"slave_timeout_ms": ATTEMPT_MS // 2}}
"""Settings with `ATTEMPT_MS`: nor is it sent again because a node was slow to copy it."""

PASSES: Final = ("ask again", "the request never left")
"""What is said of an order that is carried out a moment later: the master before, or the set, is
changing; or a node that was master does not listen yet, having begun anew as a follower."""

_POLL_SECONDS: Final = 0.01


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    with trio.fail_after(PATIENCE_SECONDS):
        while not holds():
            await trio.sleep(_POLL_SECONDS)


def wait_until(holds: Callable[[], bool]) -> None:
    """Block until something holds; nobody being there yet is that it does not."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not _holds(holds):
        assert time.monotonic() < deadline, f"not in {PATIENCE_SECONDS:g} s"
        time.sleep(_POLL_SECONDS)  # noqa: TID251 - a test waits for other processes


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except ConnectionError:
        return False

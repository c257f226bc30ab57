"""Which seeds a test plays, and how they are shared out among processes that are forked for it.

A run is computing and nothing else, so each core takes a share. A forked process says which seeds
passed; one that fails is played once more in the first process, where a debugger and the report of
pytest see it. `TANDEM_SEEDS=417` or `TANDEM_SEEDS=0-99` takes the place of what a test asks for.
"""

import os
import select
import signal
import struct
import sys
import threading  # noqa: TID251 - counts those of the test
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

from tandem.testing.errors import SeedsError

VARIABLE: Final = "TANDEM_SEEDS"

_RESULT: Final = struct.Struct("<q?")
"""A seed, and whether it passed."""

_FEW: Final = 8
"""As many seeds are not worth a fork."""


def asked_seeds(default: Sequence[int]) -> Sequence[int]:
    """Return the seeds of the environment, or those that a test wants.

    Raises:
        SeedsError: what is in the environment says none.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return default
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise SeedsError(text)
    seeds = range(int(first), int(last or first) + 1)
    if not seeds:
        raise SeedsError(text)
    return seeds


def jobs_default() -> int:
    """Return how many processes play seeds: one where others share the cores already."""
    if "PYTEST_XDIST_WORKER" in os.environ or threading.active_count() > 1:
        return 1
    return len(os.sched_getaffinity(0))


def first_failing(seeds: Sequence[int], passes: Callable[[int], bool], jobs: int) -> int | None:
    """Return the first seed that does not pass, None if all do.

    With one job each seed is played here, until one does not pass.
    """
    if jobs < 2 or len(seeds) <= _FEW:
        return next((seed for seed in seeds if not passes(seed)), None)
    shares = [_Share(seeds[start::jobs], passes) for start in range(jobs)]
    failing: int | None = None
    try:
        while waiting := [s for s in shares if s.left and (failing is None or s.left[0] < failing)]:
            ready, _, _ = select.select(waiting, [], [])
            for share in ready:
                for seed in share.failed_now():
                    failing = seed if failing is None else min(failing, seed)
    finally:
        for share in shares:
            share.end()
    return failing


class _Share:
    """The seeds that a forked process plays, one after the other; it ends with this process."""

    def __init__(self, seeds: Sequence[int], passes: Callable[[int], bool]) -> None:
        self.left = list(seeds)
        self._results, written = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._results)
            _play_and_end(self.left, passes, written)
        os.close(written)

    def fileno(self) -> int:
        """What to wait for."""
        return self._results

    def failed_now(self) -> list[int]:
        """Return the seeds that have not passed, of those that are said to be played now.

        Of a process that has died it is the seed that it was at: it is to be played again.
        """
        results = os.read(self._results, _RESULT.size * 64)
        if not results:
            died_at, self.left = self.left[:1], []
            return died_at
        played = list(_RESULT.iter_unpack(results))
        del self.left[: len(played)]
        return [seed for seed, has_passed in played if not has_passed]

    def end(self) -> None:
        """End the process, at whatever it is."""
        os.close(self._results)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _play_and_end(seeds: list[int], passes: Callable[[int], bool], results: int) -> NoReturn:
    try:
        # What a failing seed prints is seen when it is played again.
        sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        for seed in seeds:
            os.write(results, _RESULT.pack(seed, passes(seed)))
    finally:
        os._exit(0)

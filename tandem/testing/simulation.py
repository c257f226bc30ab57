"""`simulated_cluster`: a test that is played with many seeds, each with a cluster of its own.

    @simulated_cluster(seeds=1000)
    async def test_each_order_is_charged_once(cluster):
        ...

The cluster, the network between it and the test's own processes, the time and all chance are
simulated, in the process and the thread of the test. A seed decides everything, so a seed that
fails once fails each time.
"""

import inspect
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Concatenate, Final, ParamSpec, Protocol, cast

import trio

from tandem.cluster.spec import check_system
from tandem.testing.errors import SimulatedTimeError
from tandem.testing.fault_plan import FAULT_KINDS, FaultKind, PlannedFault, planned_faults
from tandem.testing.real_world import RealWorld
from tandem.testing.seeds import VARIABLE, asked_seeds, first_failing, jobs_default
from tandem.testing.simulated import Note, Room, SimulatedCluster, on_own_machine

P = ParamSpec("P")

SEEDS_COUNT_DEFAULT: Final = 100
FAULTS_WITHIN_SECONDS: Final = 5.0
SECONDS_MAX: Final = 600.0
EVENTS_SHOWN_MAX: Final = 40

_PROGRAM: Final = "node.simulated.play"


class _Play(Protocol):
    def __call__(
        self, seed: int, test: Callable[[Room], Awaitable[None]], note: Note, /
    ) -> None: ...


def simulated_cluster(
    *,
    seeds: int | Sequence[int] = SEEDS_COUNT_DEFAULT,
    faults: Sequence[FaultKind] = FAULT_KINDS,
    faults_within_seconds: float = FAULTS_WITHIN_SECONDS,
    seconds_max: float = SECONDS_MAX,
    jobs: int | None = None,
) -> Callable[[Callable[Concatenate[SimulatedCluster, P], Awaitable[None]]], Callable[P, None]]:
    """Make a test of an async function whose first argument is a `SimulatedCluster`.

    What remains is a plain function, and all other arguments are fixtures of pytest, or what a
    caller gives. It raises what the first failing seed raises, with a note that says how to repeat
    that one.

    Args:
        seeds: how many, from 0 on, or which. `TANDEM_SEEDS` in the environment takes its place.
        faults: what may happen; () for nothing but what the test does itself.
        faults_within_seconds: when the last fault begins at the latest, in the time of the run.
        seconds_max: after as much time of the run it has failed.
        jobs: how many processes are forked to play seeds; None: one for each core. With 1 all is
            played in the process of the test.

    Raises:
        ValueError: there is no such fault.
        SeedsError: the environment says no seeds.
        WrongSystemError: this is not Linux.
        NotSimulatedError: the code under test uses something real.
        SimulatedTimeError: a seed has not ended in time.
    """
    planned_faults(0, faults, faults_within_seconds)
    default = range(seeds) if isinstance(seeds, int) else seeds

    def decorate(
        test: Callable[Concatenate[SimulatedCluster, P], Awaitable[None]],
    ) -> Callable[P, None]:
        @wraps(test)
        def play_seeds(*arguments: P.args, **options: P.kwargs) -> None:
            async def body(cluster: SimulatedCluster) -> None:
                await test(cluster, *arguments, **options)

            game = _Game(body, faults, faults_within_seconds, seconds_max)
            game.play_all(asked_seeds(default), jobs_default() if jobs is None else jobs)

        # pytest looks for a fixture for each parameter that it sees.
        signature = inspect.signature(test)
        others = list(signature.parameters.values())[1:]
        vars(play_seeds)["__signature__"] = signature.replace(
            parameters=others, return_annotation=None
        )
        del vars(play_seeds)["__wrapped__"]
        return play_seeds

    return decorate


class _Game:
    """One test, and the seeds that it is played with."""

    def __init__(
        self,
        body: Callable[[SimulatedCluster], Awaitable[None]],
        faults: Sequence[FaultKind],
        faults_within_seconds: float,
        seconds_max: float,
    ) -> None:
        self._body = body
        self._faults = faults
        self._within = faults_within_seconds
        self._seconds_max = seconds_max
        self._world = RealWorld()
        self._play = _program()

    def play_all(self, seeds: Sequence[int], jobs: int) -> None:
        """Play seeds until one fails, and raise what it raises."""
        failed: list[BaseException] = []

        def passes(seed: int) -> bool:
            try:
                self.play(seed)
            except Exception as error:  # noqa: BLE001 - raised below, or by the first process
                failed[:] = [error]
                return False
            return True

        with self._world.kept_out():
            seed = first_failing(seeds, passes, jobs)
            if seed is None:
                return
            if not failed:
                # It failed in a process of its own. Here is who wants to see it.
                self.play(seed)
                raise AssertionError(f"seed {seed} failed in a forked process, and not here")
        raise failed[0]

    def play(self, seed: int) -> None:
        """Play one seed; an error that leaves it says how to repeat that."""
        events: list[str] = []
        plan = planned_faults(seed, self._faults, self._within)

        def note(source: str, event: str) -> None:
            events.append(f"{trio.current_time():9.3f} {source}: {event}")

        async def test(room: Room) -> None:
            events.clear()
            on_own_machine(room)
            cluster = SimulatedCluster(room, seed, note)
            with self._world.run(room.wall_clock_ms):
                await self._within_time(cluster, plan)

        try:
            self._play(seed, test, note)
        except BaseException as error:
            single = _single(error)
            single.add_note(_report(seed, plan, events))
            if single is error:
                raise
            raise single from None

    async def _within_time(self, cluster: SimulatedCluster, plan: Sequence[PlannedFault]) -> None:
        with trio.move_on_after(self._seconds_max) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cluster.play_faults, plan)
                await self._body(cluster)
                nursery.cancel_scope.cancel()
        if scope.cancelled_caught:
            raise SimulatedTimeError(self._seconds_max)


def _program() -> _Play:
    check_system(sys.platform)
    from tandem_server.inside import inside  # noqa: PLC0415 - nodes are for Linux, errors for all

    return cast("_Play", inside(_PROGRAM).play)


def _single(error: BaseException) -> BaseException:
    """Return what a group of one error is about: nurseries make groups of all that leaves them."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _report(seed: int, plan: Sequence[PlannedFault], events: Sequence[str]) -> str:
    again = f"{VARIABLE}={seed} {_command()}"
    lines = [f"seed {seed}; again: {again}", "faults of this seed:"]
    lines += [f"    {fault}" for fault in plan] or ["    none"]
    if events:
        lines.append("what happened, by seconds of the run:")
        lines += [f"    {event}" for event in events[-EVENTS_SHOWN_MAX:]]
    return "\n".join(lines)


def _command() -> str:
    """Return how the test that runs now is run."""
    test, _, _ = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")
    return f"pytest {shlex.quote(test)}" if test else shlex.join(["python", *sys.argv])

"""One run: a fenced group, the processes of a user, and what a test does with both; one seed."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from node.simulated import deterministic_trio
from node.simulated.group import GROUP, SimulatedGroup, group_config
from node.simulated.machines import incarnation_of_task
from node.simulated.network import SimulatedNetwork
from node.simulated.user_process import UserMachine, UserProcess
from node.simulated.virtual_clock import Timeline, WallClock

Note = Callable[[str, str], None]

READY_SECONDS_MAX: Final = 60.0

_USERS_NETWORK: Final = "127.0.9"
_PROGRAMS: Final = ("node", "ha", "store")
_OUTSIDE: Final = __name__.removesuffix("node.simulated.play")
"""Of what `node` is a part, with its dot: of nothing, or of an installed package."""


class Room:
    """What a test has in hand while its run is under way."""

    group_name: Final = GROUP

    def __init__(
        self, group: SimulatedGroup, network: SimulatedNetwork, nursery: trio.Nursery
    ) -> None:
        self.group = group
        self.network = network
        self.wall_clock_ms = WallClock().now_ms
        self.processes: list[UserProcess] = []
        self._nursery = nursery

    def new_process(
        self, name: str, work: Callable[[UserMachine], Awaitable[object]]
    ) -> UserProcess:
        """Return a process on a machine of its own, not started yet."""
        number = len(self.processes) + 2
        process = UserProcess(
            name,
            f"{_USERS_NETWORK}.{number}",
            work,
            network=self.network,
            nursery=self._nursery,
        )
        self.processes.append(process)
        return process

    def own_machine(self) -> UserMachine:
        """Return the machine of the test itself, which is never killed. To be called once."""
        return UserMachine(self.network.machine(f"{_USERS_NETWORK}.1"), 1)

    async def until_in_sync(self) -> bool:
        """Wait until there is a master and all have what it has; False if that never comes."""
        return await self.group.until(self.group.is_in_sync, READY_SECONDS_MAX)

    def end(self) -> None:
        """End all that runs."""
        self.group.kill_all()
        for process in self.processes:
            process.end()


def play(
    seed: int,
    test: Callable[[Room], Awaitable[None]],
    note: Note,
) -> None:
    """Play one run; `test` begins when all nodes are in sync. What it raises comes out of this.

    `note` gets what nodes warn of, and which faults began and ended: who, and what.
    """

    async def main() -> None:
        with _logs_to(note):
            async with trio.open_nursery() as nursery:
                timeline = Timeline()
                nursery.start_soon(timeline.run)
                network = SimulatedNetwork(timeline, random.Random(f"network {seed}"))
                group = SimulatedGroup(
                    group_config(),
                    network=network,
                    chance=random.Random(f"machines {seed}"),
                    note=_only_faults(note),
                    nursery=nursery,
                )
                room = Room(group, network, nursery)
                try:
                    for name in group.nodes:
                        group.start(name)
                    is_ready = await room.until_in_sync()
                    assert is_ready, "a healthy group has no master"
                    await test(room)
                finally:
                    room.end()
                    nursery.cancel_scope.cancel()

    deterministic_trio.run(seed, main)


def _only_faults(note: Note) -> Note:
    """Return what takes all that happens to machines, and hands on what was done to them."""

    def note_fault(source: str, event: str) -> None:
        if source == "fault":
            note(source, event)

    return note_fault


class _NoteHandler(logging.Handler):
    """Hands on what nodes warn of; what a killed one says while it is let go nobody has heard."""

    def __init__(self, note: Note) -> None:
        super().__init__(logging.WARNING)
        self._hand_on = note

    def emit(self, record: logging.LogRecord) -> None:
        """Note one line."""
        life = incarnation_of_task.get()
        if life is not None and life.network.alive:
            self._hand_on(life.name, record.getMessage())


@contextmanager
def _logs_to(note: Note) -> Iterator[None]:
    """Have warnings of the nodes noted, and nothing of theirs in the logs of the test."""
    handler = _NoteHandler(note)
    loggers = [logging.getLogger(f"{_OUTSIDE}{name}") for name in _PROGRAMS]
    kept = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
        logger.propagate = False
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, kept, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate

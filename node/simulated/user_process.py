"""A process of a user in a simulated run, on a machine of its own: killed, frozen, started again.

Its tasks are those that its first task starts. A kill closes its sockets, as the kernel does, and
its tasks never run again: no `finally` of theirs says goodbye to anybody. They are let go when the
run is over, and what they do then reaches nobody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from node.simulated.machines import Incarnation, incarnation_of_task
from node.simulated.network import Machine, SimulatedNetwork
from node.simulated.trio_stream import TrioStream
from store.machine.network import ConnectionLost


class UserMachine:
    """What a client library sees of the machine of one life of a process."""

    def __init__(self, machine: Machine, life: int) -> None:
        self.ip = machine.ip
        self.life = life
        """How often the process was started."""
        self._machine = machine

    async def open_stream(self, host: str, port: int) -> TrioStream:
        """Open a connection as trio's users know it.

        Raises:
            trio.BrokenResourceError: nobody listens there.
        """
        try:
            return TrioStream(await self._machine.connect(host, port, source=None))
        except ConnectionLost as error:
            raise trio.BrokenResourceError(str(error)) from error


class UserProcess:
    """One process over all its lives."""

    def __init__(
        self,
        name: str,
        ip: str,
        work: Callable[[UserMachine], Awaitable[object]],
        *,
        network: SimulatedNetwork,
        nursery: trio.Nursery,
    ) -> None:
        self.name = name
        self.life = 0
        self._ip = ip
        self._work = work
        self._network = network
        self._nursery = nursery
        self._current: Incarnation | None = None
        self._dead: list[Incarnation] = []
        self._is_over = False

    @property
    def is_up(self) -> bool:
        """True while its first task runs."""
        return self._current is not None

    def start(self) -> None:
        """Start it; harmless if it runs."""
        if self._current is not None or self._is_over:
            return
        self.life += 1
        machine = self._network.machine(self._ip)
        self._current = Incarnation(self.name, machine)
        self._nursery.start_soon(self._run, self._current, UserMachine(machine, self.life))

    async def _run(self, life: Incarnation, machine: UserMachine) -> None:
        incarnation_of_task.set(life)
        try:
            with life.scope:
                await self._work(machine)
        except (Exception, BaseExceptionGroup):
            # What the tasks of a killed process run into when they are let go is nobody's business.
            if self._current is life and not self._is_over:
                raise
        if self._current is life:
            self._current = None
            life.network.kill()

    def kill(self) -> bool:
        """Kill -9; whether it ran."""
        life, self._current = self._current, None
        if life is None:
            return False
        life.network.kill()
        life.hold.begin()
        self._dead.append(life)
        return True

    def freeze(self, seconds: float) -> bool:
        """Let it stand still for a while; whether it ran."""
        life = self._current
        if life is None or life.hold.is_active:
            return False
        life.hold.begin()
        self._network.timeline.call_later(seconds, lambda: self._thaw(life))
        return True

    def thaw(self) -> None:
        """Let it run again; harmless if it does."""
        if self._current is not None:
            self._thaw(self._current)

    def _thaw(self, life: Incarnation) -> None:
        if life is self._current:
            life.hold.release()

    def end(self) -> None:
        """End all its lives, because the run is over."""
        self._is_over = True
        if self._current is not None:
            self._current.network.kill()
            self._dead.append(self._current)
        for life in self._dead:
            life.hold.release()
            life.scope.cancel()

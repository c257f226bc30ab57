"""Writes plans in the language of faults: what a seed of either kind of group draws.

A plan is up to so many faults at times of chance. Faults overlap as chance has it; each ends, here
or by healing. Which there are, and how often each, says the planner of the kind.
"""

import random
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar

import msgspec

from tests.sim.engine.faults import Instruction

WeightedFault = tuple[int, Callable[[float], None]]
"""How often, compared with the others; and what writes it for a given time."""


class FaultMix(msgspec.Struct, frozen=True):
    """Which faults a plan may hold; each kind of group has more to say about that."""

    duration_seconds: float = 6.0
    fault_count_max: int = 8


M = TypeVar("M", bound=FaultMix)


class Planner(Generic[M]):
    """Writes one plan; `plan` may be called once."""

    first_seconds: ClassVar[float]
    """No fault begins sooner."""
    disk_seconds: ClassVar[tuple[float, float]]
    """A disk is full or slow for so long: from, to."""
    down_seconds: ClassVar[tuple[float, ...]]
    """A node is down for about as long as one of these..."""
    down_spread: ClassVar[tuple[float, float]]
    """... times something from here to there."""
    clock_steps_ms: ClassVar[tuple[int, ...]]

    def __init__(
        self,
        chance: random.Random,
        nodes: Sequence[str],
        clients: Sequence[str],
        mix: M,
    ) -> None:
        self._chance = chance
        self._nodes = nodes
        self._clients = clients
        self._mix = mix
        self._plan: list[Instruction] = []

    def plan(self) -> list[Instruction]:
        """Return a plan in order of time."""
        faults = self._faults()
        weights = [weight for weight, _ in faults]
        for _ in range(self._chance.randint(1, self._mix.fault_count_max)):
            ((_, write),) = self._chance.choices(faults, weights)
            write(self._time())
        self._write_rare_ones()
        return sorted(self._plan, key=lambda instruction: instruction.at_seconds)

    def _faults(self) -> list[WeightedFault]:
        """Return what may happen."""
        raise NotImplementedError

    def _write_rare_ones(self) -> None:
        """Write what is not one of so many faults, but has a chance of its own."""

    def _node(self) -> str:
        """Return whom a fault hits."""
        raise NotImplementedError

    def _time(self) -> float:
        return self._chance.uniform(self.first_seconds, self._mix.duration_seconds)

    def _add(self, at: float, verb: str, *arguments: object) -> None:
        self._plan.append(Instruction(round(at, 3), verb, tuple(map(str, arguments))))

    def _down_time(self) -> float:
        return self._chance.choice(self.down_seconds) * self._chance.uniform(*self.down_spread)

    # Faults of both kinds

    def _crash(self, at: float) -> None:
        node = self._node()
        self._add(at, "kill", node)
        self._add(at + self._down_time(), "start", node)

    def _disk_full(self, at: float) -> None:
        node = self._node()
        self._add(at, "disk-full", node)
        self._add(at + self._chance.uniform(*self.disk_seconds), "disk-ok", node)

    def _disk_slow(self, at: float) -> None:
        node = self._node()
        self._add(at, "disk-slow", node, self._chance.choice((0.02, 0.3, 2.0)))
        self._add(at + self._chance.uniform(*self.disk_seconds), "disk-ok", node)

    def _disk_fails(self, at: float) -> None:
        node = self._node()
        self._add(at, "disk-fails", node)
        self._add(at + self._chance.uniform(0.2, 2.0), "disk-ok", node)

    def _garbage(self, at: float) -> None:
        self._add(at, "garbage", self._node(), self._chance.choice(self._clients))

    def _clock(self, at: float) -> None:
        self._add(at, "clock", self._node(), self._chance.choice(self.clock_steps_ms))

"""The plans that seeds write for a classic group, in the language of `engine.faults`."""

from typing import Final

from tests.sim.engine.faults import BY_HAND, ENDINGS, VERBS
from tests.sim.engine.planner import FaultMix, Planner, WeightedFault
from tests.sim.engine.rot import OF_STOPPED

FAULTS: Final = (
    *(verb for verb in VERBS if verb not in BY_HAND | ENDINGS | {"rot"}),
    *(f"rot {kind}" for kind in dict.fromkeys((*OF_STOPPED, "lose-first"))),
    "log repaired from a copy",
)
"""Names under which a run notes the faults that did something."""


class ClassicFaultMix(FaultMix, frozen=True):
    """Who may lose power."""

    master_power_loss: bool = False
    """Also cut the power of the master."""
    slave_power_loss: bool = True
    """Cut the power of slaves. Off where only their page cache keeps what the master lost."""


class ClassicPlanner(Planner[ClassicFaultMix]):
    """The first of the nodes is the master."""

    first_seconds = 0.2
    disk_seconds = (0.2, 2.0)
    down_seconds = (0.001, 0.05, 0.5, 1.5)
    down_spread = (0.5, 2.0)
    clock_steps_ms = (-2_000, -50, 50, 2_000)

    def _faults(self) -> list[WeightedFault]:
        return [
            (3, self._crash),
            (3, self._crash_at),
            (4, self._stall),
            (3, self._cut),
            (1, self._slow),
            (2 if self._powered_nodes() else 0, self._power),
            (1, self._disk_full),
            (1, self._disk_slow),
            (1, self._clock),
            (1, self._stop),
            (1, self._both_slaves),
            (1, self._everybody),
            (1, self._disk_fails),
            (1, self._garbage),
        ]

    def _node(self) -> str:
        return self._chance.choice(self._nodes)

    def _pair(self) -> tuple[str, str]:
        """Two machines, one of them a node, which is the master as often as not."""
        node = self._chance.choice((self._nodes[0], self._node()))
        others = [machine for machine in (*self._nodes, *self._clients) if machine != node]
        pair = [node, self._chance.choice(others)]
        self._chance.shuffle(pair)
        return pair[0], pair[1]

    def _crash_at(self, at: float) -> None:
        node = self._node()
        verb = self._chance.choice(("kill-at-disk", "kill-at-send"))
        self._add(at, verb, node, self._chance.randint(1, 20))
        for _ in range(2):  # the second start finds the first one killed in its recovery
            self._add(at + self._down_time(), "start", node)

    def _stop(self, at: float) -> None:
        node = self._node()
        self._add(at, "stop", node)
        self._add(at + 0.2 + self._down_time(), "start", node)

    def _both_slaves(self, at: float) -> None:
        for node in self._nodes[1:]:
            self._add(at, "kill", node)
            self._add(at + self._down_time(), "start", node)

    def _everybody(self, at: float) -> None:
        for node in self._nodes:
            self._add(at, "kill", node)
            self._add(at + self._down_time(), "start", node)

    def _powered_nodes(self) -> list[str]:
        master = self._nodes[:1] if self._mix.master_power_loss else []
        slaves = self._nodes[1:] if self._mix.slave_power_loss else []
        return [*master, *slaves]

    def _power(self, at: float) -> None:
        node = self._chance.choice(self._powered_nodes())
        self._add(at, "power-off", node)
        self._add(at + self._down_time(), "start", node)

    def _stall(self, at: float) -> None:
        source, target = self._pair()
        seconds = self._chance.choice((0.05, 0.5, 2.5)) * self._chance.uniform(0.5, 1.5)
        directions = self._chance.choice(([(source, target)], [(source, target), (target, source)]))
        for one, other in directions:
            self._add(at, "stall", one, other)
            self._add(at + seconds, "heal", one, other)

    def _slow(self, at: float) -> None:
        source, target = self._pair()
        delay = round(self._chance.choice((0.005, 0.05, 0.4)), 3)
        rate = self._chance.choice((2_000, 20_000, 1_000_000))
        self._add(at, "slow", source, target, delay, rate)
        self._add(at + self._chance.uniform(0.2, 2.0), "heal", source, target)

    def _cut(self, at: float) -> None:
        self._add(at, self._chance.choice(("cut", "half-cut")), *self._pair())

"""Plans in which damage stays open for a while: nodes know of it, and nobody can heal it yet.

Peers do not reach each other where they ask for bytes (`stall-peers`), or are dead; the replication
links, the coordinator and all clients are as they were. Meanwhile a node is started again, the
master dies, or what is asked for the bytes is itself rotten. Everybody reads on.

    one         one node is damaged; the master dies, or the node, or the node is the master
    everybody   each node is damaged at a place of its own, and nobody is whole
    twins       two nodes are damaged at different places of one file, and one asks the other
    lost        a node is started without its first file
"""

import random
from collections.abc import Callable, Sequence
from typing import Final

from tests.sim.engine.faults import MASTER, Instruction

OPEN_SECONDS: Final = (2.5, 4.0)
"""How long nobody can heal anything: a node that has tried in vain waits about as long again."""

WEIGHTS: Final = (3, 3, 4, 1)
"""Of the four."""

KINDS: Final = ("flip", "zero", "misdirect")
"""Others are found at once, and from memory."""

FIRST_SECONDS: Final = (2.5, 3.5)
"""When disks rot: files are full by then, and nodes have known each other for long."""


class OpenDamage:
    """Writes one plan; `plan` may be called once."""

    def __init__(self, chance: random.Random, names: Sequence[str]) -> None:
        self._chance = chance
        self._names = list(names)
        self._plan: list[Instruction] = []

    def plan(self) -> list[Instruction]:
        """Return a plan in order of time."""
        kinds: list[Callable[[float], None]]
        kinds = [self._one, self._everybody, self._twins, self._lost]
        (write,) = self._chance.choices(kinds, WEIGHTS)
        write(self._chance.uniform(*FIRST_SECONDS))
        return sorted(self._plan, key=lambda instruction: instruction.at_seconds)

    def _add(self, at: float, verb: str, *arguments: str) -> None:
        self._plan.append(Instruction(round(at, 3), verb, arguments))

    def _part(self, at: float, node: str, others: Sequence[str], seconds: float) -> None:
        """Let a node get no bytes of others, nor they of it."""
        for other in others:
            if other != node:
                for ends in ((node, other), (other, node)):
                    self._add(at, "stall-peers", *ends)
                    self._add(at + seconds, "heal-peers", *ends)

    def _rot(self, at: float, node: str) -> None:
        self._add(at, "rot-through", node, self._chance.choice(KINDS))
        self._add(at + 0.05, "scrub", node)

    def _again(self, at: float, node: str, how: str = "") -> None:
        """Have a node end and come back: after a stop it looks at the end of its log only."""
        self._add(at, how or self._chance.choice(("stop", "stop", "kill")), node)
        self._add(at + self._chance.choice((0.3, 0.6)), "start", node)

    def _one(self, at: float) -> None:
        node, seconds = self._chance.choice(self._names), self._chance.uniform(*OPEN_SECONDS)
        self._part(at - 0.05, node, self._names, seconds)
        self._rot(at, node)
        later = at + self._chance.uniform(0.6, 1.0)
        what = self._chance.choice(("master", "master", "again", "again", "promote"))
        if what == "master":
            master = f"{MASTER}#open"
            self._add(later, "kill", master)
            self._add(later + seconds, "start", master)
        elif what == "again":
            self._again(later, node)
        elif what == "promote":
            self._add(later, "promote", node)

    def _everybody(self, at: float) -> None:
        seconds = self._chance.uniform(*OPEN_SECONDS)
        for index, node in enumerate(self._names):
            self._part(at - 0.05, node, self._names[index + 1 :], seconds)
            self._rot(at + self._chance.uniform(0.0, 0.2), node)
        later = at + self._chance.uniform(0.8, 1.2)
        if self._chance.random() < 0.5:
            self._again(later, self._chance.choice((MASTER, *self._names)))

    def _twins(self, at: float) -> None:
        giver, asker, *others = self._chance.sample(self._names, len(self._names))
        if self._chance.random() < 0.5:
            # What it has closed within the last second has no fingerprint then.
            self._again(max(1.0, at - 1.0), giver, "kill")
        seconds = self._chance.uniform(*OPEN_SECONDS)
        if len(others) == 1 and self._chance.random() < 0.7:
            self._add(at - 0.05, "kill", others[0])
            self._add(at + seconds, "start", others[0])
        else:
            self._part(at - 0.05, asker, others, seconds + 2.0)
        self._add(at, "rot-bare", giver, self._chance.choice(KINDS))
        self._add(at + 0.1, "rot-twin", asker, self._chance.choice(KINDS))
        self._add(at + 0.15, "scrub", asker)

    def _lost(self, at: float) -> None:
        node = self._chance.choice(self._names)
        self._add(at, "kill", node)
        self._add(at + 0.1, "rot", node, "lose-first")
        self._add(at + 0.2, "start", node)

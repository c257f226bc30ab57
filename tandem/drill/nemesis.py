"""What a drill of chance does to a cluster: a seed decides, from the sentences of scenarios. Pure.

A case is a row of rounds. In each, one to three faults come one after the other, the cluster is put
in order again, and then everybody has to be in sync and sends have to be acknowledged. Whatever is
left out of a case, the rest is a scenario that can be played: a fault has its own way back.

Left out are orders that a sound group may refuse (resign, promote), and faults of disks, which need
more than chance: small files, a node that is down. Scenarios of their own have them.
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

import msgspec

from tandem.cluster_file.choices import GroupKind

ROUNDS: Final = 5
FAULTS_OF_A_ROUND: Final = (1, 2, 3)
WEIGHTS_OF_COUNTS: Final = (6, 3, 1)
PAUSES_SECONDS: Final = (0.0, 0.3, 1.0, 2.0, 4.0, 7.0)
"""How long a fault lasts before the next one, or before the way back: from no time to more than
the lease of a master."""

STEADY_SECONDS: Final = 2.0
IN_SYNC_SECONDS: Final = 60.0
SENDS_OK_SECONDS: Final = 30.0

NETWORK: Final = "heal the network"
DOWN: Final = "start whoever is down"
"""Ways back that faults share: one sentence for all of a round."""


class Fault(msgspec.Struct, frozen=True):
    """One thing that is done to the cluster, and what undoes it.

    `nodes` are those whose processes it ends or stops: no two faults of a round have the same one.
    """

    step: str
    nodes: tuple[str, ...] = ()
    undo: str = ""
    """A sentence, of its own or one that faults share; empty: it passes by itself."""
    pause_seconds: float = 0.0


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is played: the faults of each round, in order."""

    seed: int
    group: GroupKind
    rounds: tuple[tuple[Fault, ...], ...]

    @property
    def faults(self) -> int:
        """How many faults there are."""
        return sum(map(len, self.rounds))

    def steps(self) -> list[str]:
        """Return the case in the sentences of a scenario."""
        found = ["start the load", "begin steady", f"play {STEADY_SECONDS:g} s"]
        for number, faults in enumerate(self.rounds, start=1):
            found += _round(number, faults, self.group)
        return [*found, "begin end", f"play {STEADY_SECONDS:g} s", "drain"]


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to be hurt. `owns_coordinator`: it may be restarted."""

    group: GroupKind
    nodes: tuple[str, ...]
    owns_coordinator: bool = False


def case_of(seed: int, world: World, rounds: int = ROUNDS) -> Case:
    """Return what a seed does to a cluster: the same for the same seed, nodes and version."""
    chance = Random(seed)
    return Case(
        seed=seed,
        group=world.group,
        rounds=tuple(tuple(_faults(chance, world)) for _ in range(rounds)),
    )


def scenario_text(case: Case, promise: str, comments: Sequence[str] = ()) -> str:
    """Return a case as the file of a scenario. Each comment is one line."""
    lines = [f"# {' '.join(comment.split())}" for comment in comments]
    lines += [f"promise: {promise}", f"group: {case.group.value}", "steps:"]
    return "\n".join([*lines, *(f"  - {step}" for step in case.steps())]) + "\n"


def _round(number: int, faults: Sequence[Fault], group: GroupKind) -> Iterator[str]:
    yield f"begin round-{number}"
    for fault in faults:
        yield fault.step
        if fault.pause_seconds:
            yield f"play {fault.pause_seconds:g} s"
    undone = [fault.undo for fault in faults]
    # A node that starts has to reach the others, and a frozen one may be who it waits for.
    if NETWORK in undone:
        yield NETWORK
    yield from (undo for undo in undone if undo not in ("", NETWORK, DOWN))
    if DOWN in undone:
        yield DOWN
    yield f"expect everybody in sync within {IN_SYNC_SECONDS:g} s"
    yield f"expect sends ok within {SENDS_OK_SECONDS:g} s"
    if group is GroupKind.FENCED:
        yield "check at most one master"


def _faults(chance: Random, world: World) -> Iterator[Fault]:
    """Yield the faults of one round."""
    (count,) = chance.choices(FAULTS_OF_A_ROUND, WEIGHTS_OF_COUNTS)
    kinds = _FENCED if world.group is GroupKind.FENCED else _CLASSIC
    used: set[str] = set()
    for _ in range(count):
        (make,) = chance.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
        fault = make(chance, world)
        if fault is not None and not used & set(fault.nodes):
            used |= set(fault.nodes)
            yield msgspec.structs.replace(fault, pause_seconds=chance.choice(PAUSES_SECONDS))


_Kind = Callable[[Random, World], Fault | None]


def _node(chance: Random, world: World) -> str:
    return chance.choice(world.nodes)


def _pair(chance: Random, world: World) -> tuple[str, str] | None:
    if len(world.nodes) < 2:
        return None
    one, other = chance.sample(world.nodes, 2)
    return one, other


def _kill(chance: Random, world: World) -> Fault:
    node = _node(chance, world)
    return Fault(f"kill {node}", (node,), DOWN)


def _stop(chance: Random, world: World) -> Fault:
    node = _node(chance, world)
    return Fault(f"stop {node}", (node,), DOWN)


def _kill_all(chance: Random, world: World) -> Fault:
    return Fault("kill every node", world.nodes, DOWN)


def _freeze(chance: Random, world: World) -> Fault:
    node = _node(chance, world)
    return Fault(f"freeze {node}", (node,), f"resume {node}")


def _freeze_all(chance: Random, world: World) -> Fault:
    return Fault("freeze every node", world.nodes, "resume every node")


def _restart_coordinator(chance: Random, world: World) -> Fault | None:
    return Fault("restart the coordinator") if world.owns_coordinator else None


def _cut_off(chance: Random, world: World) -> Fault:
    return Fault(f"cut {_node(chance, world)} from everything", (), NETWORK)


def _cut_coordinator(chance: Random, world: World) -> Fault:
    return Fault(f"cut {_node(chance, world)} from the coordinator", (), NETWORK)


def _of_pair(sentence: str) -> _Kind:
    def make(chance: Random, world: World) -> Fault | None:
        pair = _pair(chance, world)
        return pair and Fault(sentence.format(*pair), (), NETWORK)

    return make


def _delay(chance: Random, world: World) -> Fault | None:
    pair = _pair(chance, world)
    ms = chance.choice((20, 100, 400))
    return pair and Fault(f"delay {pair[0]} and {pair[1]} by {ms} ms", (), NETWORK)


def _limit(chance: Random, world: World) -> Fault:
    size = chance.choice((20, 100))
    return Fault(f"limit bytes to {_node(chance, world)} to {size} kB/s", (), NETWORK)


def _reset(chance: Random, world: World) -> Fault:
    return Fault(f"reset connections of {_node(chance, world)}")


def _disturb(chance: Random, world: World) -> Fault:
    return Fault(f"disturb {_node(chance, world)}")


_CLASSIC: Final[tuple[tuple[_Kind, int], ...]] = (
    (_kill, 10),
    (_stop, 6),
    (_freeze, 8),
    (_kill_all, 2),
    (_freeze_all, 1),
)
_FENCED: Final[tuple[tuple[_Kind, int], ...]] = (
    *_CLASSIC,
    (_restart_coordinator, 3),
    (_cut_off, 7),
    (_cut_coordinator, 4),
    (_of_pair("cut {} from {}"), 4),
    (_of_pair("cut bytes from {} to {}"), 5),
    (_of_pair("cut replication between {} and {}"), 4),
    (_delay, 3),
    (_limit, 2),
    (_reset, 3),
    (_disturb, 2),
)
"""Kinds of faults and how often they come, beside each other."""

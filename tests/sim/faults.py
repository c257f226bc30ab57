"""The language of faults: one line, one thing that happens at one time.

    at 1.500 kill broker-a-0

Scenarios are written in it, and a seed writes a plan in it, so that what a seed found can be cut
down and kept as a scenario. Times are seconds of virtual time after the workload began.

    kill NODE               kill -9: the page cache survives; a record may be torn at the log's end
    kill-at-disk NODE N     kill -9 in the middle of whatever touches the disk for the Nth time
    kill-at-send NODE N     kill -9 when something has been sent for the Nth time
    power-off NODE          the machine is dark; what was not synced may be lost
    stop NODE               SIGTERM: a clean stop
    start NODE              start it again; harmless if it runs
    wipe NODE               the operator moves the store of a stopped node away
    stall FROM TO           nothing arrives in this direction
    slow FROM TO DELAY BYTES_PER_SECOND
    heal FROM TO            end of stall or slow
    cut NODE NODE           connections between the two are reset
    half-cut NODE NODE      only the first learns of it at once
    disk-full NODE          no room for another byte
    disk-slow NODE SECONDS  every sync takes so long
    disk-fails NODE         every sync ends in an error
    disk-ok NODE            end of the three above
    clock NODE MS           the wall clock jumps
    garbage NODE IP         somebody at IP sends nonsense to every port of the node

In fenced groups as well, where FROM, TO may also be `coordinator` and `all`:

    quiet SECONDS           producers send nothing for so long
    freeze NODE SECONDS     SIGSTOP, and SIGCONT so much later
    freeze-at-event NODE EVENT N SECONDS    when the node tells of the Nth such event of events.py
    kill-at-event NODE EVENT N
    kill-at-coordinator NODE N              when it asks the coordinator for the Nth time
    late-vote NODE SECONDS  when it next runs for master, and has told how long its log is: what it
                            asks the coordinator from then on is late
    boottime NODE SECONDS   the machine has slept for so long, and only its boot clock knows
    stall-ha FROM TO        nothing arrives on replication links in this direction
    heal-ha FROM TO
    flip-wire FROM TO       one bit of what is sent next on a replication link
    flip-tail NODE          one bit of one of the last records of a stopped node
    promote NODE            the master of the moment is ordered to hand over to it
    resign NODE             it is ordered to give up mastership
    rejoin NODE             it is ordered to set its store aside and to copy the log anew
    revoke NODE             its lease ends, as when a supervisor takes it for dead
    coordinator-leader SECONDS      answers nobody for so long; then all leases run in full
    coordinator-stop
    coordinator-start
    lose-replies NODE N     the next N answers to it get lost, after the work was done
    break-watches           streams of events end
    late-watches SECONDS    ... or are late
    lose-epochs NODE        the epoch file of a stopped node and its copy are gone
    save-coordinator        what `restore-coordinator` sets it back to
    restore-coordinator
"""

import random
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

VERBS: Final = {
    "kill": 1,
    "kill-at-disk": 2,
    "kill-at-send": 2,
    "power-off": 1,
    "stop": 1,
    "start": 1,
    "wipe": 1,
    "stall": 2,
    "slow": 4,
    "heal": 2,
    "cut": 2,
    "half-cut": 2,
    "disk-full": 1,
    "disk-slow": 2,
    "disk-fails": 1,
    "disk-ok": 1,
    "clock": 2,
    "garbage": 2,
}
"""How many arguments each verb takes."""

FENCED_VERBS: Final = {
    **VERBS,
    "quiet": 1,
    "freeze": 2,
    "freeze-at-event": 4,
    "kill-at-event": 3,
    "kill-at-coordinator": 2,
    "late-vote": 2,
    "boottime": 2,
    "stall-ha": 2,
    "heal-ha": 2,
    "flip-wire": 2,
    "flip-tail": 1,
    "promote": 1,
    "resign": 1,
    "rejoin": 1,
    "revoke": 1,
    "coordinator-leader": 1,
    "coordinator-stop": 0,
    "coordinator-start": 0,
    "lose-replies": 2,
    "break-watches": 0,
    "late-watches": 1,
    "lose-epochs": 1,
    "save-coordinator": 0,
    "restore-coordinator": 0,
}
"""The same for runs of a fenced group."""


class Instruction(msgspec.Struct, frozen=True):
    """One line of a plan."""

    at_seconds: float
    verb: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((f"at {self.at_seconds:.3f}", self.verb, *self.arguments))


def parse_instruction(line: str) -> Instruction:
    """Read a line as `str(Instruction)` writes it.

    Raises:
        ValueError: the line is not in the language; the text says why.
    """
    words = line.split()
    if len(words) < 3 or words[0] != "at":
        raise ValueError(f"{line!r}: expected 'at SECONDS VERB ARGUMENTS'")
    verb, arguments = words[2], tuple(words[3:])
    if verb not in FENCED_VERBS:
        raise ValueError(f"{line!r}: {verb!r} is not one of {', '.join(FENCED_VERBS)}")
    if len(arguments) != FENCED_VERBS[verb]:
        raise ValueError(f"{line!r}: {verb} takes {FENCED_VERBS[verb]} arguments")
    return Instruction(float(words[1]), verb, arguments)


class FaultMix(msgspec.Struct, frozen=True):
    """Which faults a plan may hold."""

    duration_seconds: float = 8.0
    fault_count_max: int = 8
    master_power_loss: bool = False
    """Also cut the power of the master."""
    slave_power_loss: bool = True
    """Cut the power of slaves. Off where only their page cache keeps what the master lost."""


class _Planner:
    """Writes one plan. Faults overlap as chance has it; each ends, here or by healing."""

    def __init__(
        self, chance: random.Random, nodes: Sequence[str], clients: Sequence[str], mix: FaultMix
    ) -> None:
        self._chance = chance
        self._nodes = nodes
        self._clients = clients
        self._machines = [*nodes, *clients]
        self._mix = mix
        self._plan: list[Instruction] = []

    def plan(self) -> list[Instruction]:
        kinds = [
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
        for _ in range(self._chance.randint(1, self._mix.fault_count_max)):
            (chosen,) = self._chance.choices(kinds, [weight for weight, _ in kinds])
            chosen[1](self._chance.uniform(0.2, self._mix.duration_seconds))
        return sorted(self._plan, key=lambda instruction: instruction.at_seconds)

    def _add(self, at: float, verb: str, *arguments: object) -> None:
        self._plan.append(Instruction(round(at, 3), verb, tuple(map(str, arguments))))

    def _down_time(self) -> float:
        return self._chance.choice((0.001, 0.05, 0.5, 1.5)) * self._chance.uniform(0.5, 2.0)

    def _node(self) -> str:
        return self._chance.choice(self._nodes)

    def _pair(self) -> tuple[str, str]:
        """Two machines, one of them a node, which is the master as often as not."""
        node = self._chance.choice((self._nodes[0], self._node()))
        others = [machine for machine in self._machines if machine != node]
        pair = [node, self._chance.choice(others)]
        self._chance.shuffle(pair)
        return pair[0], pair[1]

    def _crash(self, at: float) -> None:
        node = self._node()
        self._add(at, "kill", node)
        self._add(at + self._down_time(), "start", node)

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

    def _disk_full(self, at: float) -> None:
        node = self._node()
        self._add(at, "disk-full", node)
        self._add(at + self._chance.uniform(0.2, 2.0), "disk-ok", node)

    def _disk_slow(self, at: float) -> None:
        node = self._node()
        self._add(at, "disk-slow", node, self._chance.choice((0.02, 0.3, 2.0)))
        self._add(at + self._chance.uniform(0.2, 2.0), "disk-ok", node)

    def _disk_fails(self, at: float) -> None:
        node = self._node()
        self._add(at, "disk-fails", node)
        self._add(at + self._chance.uniform(0.2, 2.0), "disk-ok", node)

    def _garbage(self, at: float) -> None:
        self._add(at, "garbage", self._node(), self._chance.choice(self._clients))

    def _clock(self, at: float) -> None:
        self._add(at, "clock", self._node(), self._chance.choice((-2_000, -50, 50, 2_000)))


def plan_faults(
    chance: random.Random, nodes: Sequence[str], clients: Sequence[str], mix: FaultMix
) -> list[Instruction]:
    """Return a plan in order of time. The first of `nodes` is the master."""
    return _Planner(chance, nodes, clients, mix).plan()


def parse_plan(lines: Sequence[str]) -> Iterator[Instruction]:
    """Read a plan; empty lines and lines that begin with # are for people."""
    for line in lines:
        if line.strip() and not line.startswith("#"):
            yield parse_instruction(line)

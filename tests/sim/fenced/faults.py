"""The plans that seeds write for a fenced group, in the language of `engine.faults`.

Nobody knows beforehand who is master when. `master#1` is whoever is master when it is first named,
and the same node from then on. Faults that wait for an event which only a master tells of
(`kill-at-event NODE AckDecided 3`) hit a master if they hit at all.
"""

from typing import Final

from tests.sim.engine.faults import (
    ALL,
    BY_HAND,
    COORDINATOR,
    ENDINGS,
    FENCED_VERBS,
    MASTER,
    PREPARATIONS,
)
from tests.sim.engine.planner import FaultMix, Planner, WeightedFault
from tests.sim.engine.rot import OF_STOPPED

ROT_VERBS: Final = ("rot", "rot-through", "rot-bare", "rot-twin")
OPEN_VERBS: Final = ("stall-peers", "rot-through", "rot-bare", "rot-twin")

MASTER_EVENTS: Final = (
    "Promised",
    "Elected",
    "EpochAppended",
    "MasterOpened",
    "IsrChanging",
    "IsrChanged",
    "ConfirmAdvanced",
    "AckDecided",
)
SLAVE_EVENTS: Final = ("Promised", "FrameTaken", "ReplicaReported", "TruncationDecided")

MOMENT: Final = "all killed, one put back by a moment"
"""A directory went back by less than what is noted in the coordinator every second."""

FAULTS: Final = (
    *(
        verb
        for verb in FENCED_VERBS
        if verb not in BY_HAND | ENDINGS | PREPARATIONS | {"kill-at-event", *ROT_VERBS}
    ),
    *(f"kill-at-event {name}" for name in dict.fromkeys((*MASTER_EVENTS, *SLAVE_EVENTS))),
    *(f"rot {kind}" for kind in dict.fromkeys((*OF_STOPPED, "lose-first"))),
    "rot without a fingerprint",
    "rot-twin",
    "store moved away",
    MOMENT,
)
"""Names under which a run notes the faults that did something."""

LATE_VOTE_CHANCE: Final = 0.12
MOMENT_CHANCE: Final = 0.05


class FencedFaultMix(FaultMix, frozen=True):
    """Who may lose power, whose log may rot, and how long a lease lives."""

    powered: tuple[str, ...] = ()
    """Nodes that may lose power."""
    lease_seconds: float = 2.0
    spoiled: tuple[str, ...] = ()
    """Nodes whose logs may rot while they are stopped: only where others must have all of it."""


class FencedPlanner(Planner[FencedFaultMix]):
    """Nobody knows who is master; see the module's words about `master#1`."""

    first_seconds = 0.1
    disk_seconds = (0.5, 3.0)
    down_seconds = (0.001, 0.3, 1.0, 3.0)
    down_spread = (0.5, 1.5)
    clock_steps_ms = (-3_600_000, -50, 3_600_000)

    _master_count = 0
    _is_set_back = False

    def _faults(self) -> list[WeightedFault]:
        return [
            (4, self._crash),
            (4, self._crash_at_step),
            (9, self._crash_at_event),
            (2, self._crash_in_change),
            (3, self._crash_in_cut),
            (3, self._crash_twice),
            (3, self._freeze),
            (3, self._freeze_at_event),
            (2, self._isolate),
            (2, self._one_way),
            (3, self._ha_only),
            (3, self._coordinator_only),
            (2, self._cut),
            (1, self._slow),
            (3 if self._mix.powered else 0, self._power),
            (1, self._stop),
            (2, self._several),
            (1, self._disk_full),
            (2, self._disk_slow),
            (2, self._disk_fails),
            (1, self._garbage),
            (2, self._clock),
            (1, self._boottime),
            (2, self._flip_wire),
            (2 if self._mix.spoiled else 0, self._flip_tail),
            (3 if self._mix.spoiled else 0, self._older_copy),
            (2, self._recover),
            (2 if self._mix.spoiled else 0, self._set_back),
            (2, self._promote),
            (2, self._resign),
            (3, self._rejoin),
            (1, self._revoke),
            (4, self._depose),
            (2, self._own_disk_slow),
            (2, self._coordinator_slow),
            (2, self._coordinator_leader),
            (1, self._coordinator_stop),
            (3, self._lose_replies),
            (2, self._watches),
        ]

    def _write_rare_ones(self) -> None:
        if self._chance.random() < LATE_VOTE_CHANCE:
            self._late_vote(self._time())
        if self._mix.spoiled and self._chance.random() < MOMENT_CHANCE:
            self._copy_of_a_moment(self._time())

    def _node(self) -> str:
        """A node, the master of the moment as often as not."""
        if self._chance.random() < 0.5:
            return self._any_node()
        return self._master()

    def _master(self) -> str:
        self._master_count += 1
        return f"{MASTER}#{self._master_count}"

    def _any_node(self) -> str:
        return self._chance.choice(self._nodes)

    def _long(self) -> float:
        """Shorter than a lease, about as long, longer."""
        return self._mix.lease_seconds * self._chance.choice((0.3, 0.8, 1.2, 2.0))

    def _crash_at_step(self, at: float) -> None:
        node = self._node()
        verb, count_max = self._chance.choice(
            (("kill-at-disk", 12), ("kill-at-send", 60), ("kill-at-coordinator", 6))
        )
        self._add(at, verb, node, self._chance.randint(1, count_max))
        self._add(at + self._chance.uniform(0.5, 2.5), "start", node)

    def _event(self) -> tuple[str, int]:
        name = self._chance.choice((*MASTER_EVENTS, *SLAVE_EVENTS))
        is_frequent = name in ("ConfirmAdvanced", "AckDecided", "FrameTaken", "ReplicaReported")
        return name, self._chance.randint(1, 12 if is_frequent else 1)

    def _crash_at_event(self, at: float) -> None:
        name, count = self._event()
        nodes = self._chance.choice((list(self._nodes), [self._any_node()]))
        for node in nodes:
            self._add(at, "kill-at-event", node, name, count)
        back = at + self._chance.uniform(0.5, 3.0)
        for node in nodes:
            self._add(back, "start", node)

    def _crash_twice(self, at: float) -> None:
        """The master dies, and its successor on the way to its office."""
        first = self._node()
        name = self._chance.choice(("Promised", "Elected", "EpochAppended", "MasterOpened"))
        for node in self._nodes:
            self._add(at, "kill-at-event", node, name, 1)
        self._add(at + 0.01, "kill", first)
        back = at + self._chance.uniform(1.0, 4.0)
        for node in self._nodes:
            self._add(back + self._chance.choice((0.0, 0.5)), "start", node)

    def _crash_in_change(self, at: float) -> None:
        """A node dies and comes back: the set changes, and whoever changes it dies over that."""
        name = self._chance.choice(("IsrChanging", "IsrChanged"))
        for node in self._nodes:
            self._add(at, "kill-at-event", node, name, self._chance.choice((1, 1, 2)))
        self._add(at + 0.01, "kill", self._any_node())
        back = at + self._chance.uniform(0.5, 1.5)
        for node in self._nodes:
            self._add(back, "start", node)

    def _crash_in_cut(self, at: float) -> None:
        """A master that writes on while it is cut off has to cut its log, and dies over that."""
        node = self._node()
        for other in self._nodes:
            self._add(at, "kill-at-event", other, "TruncationDecided", 1)
        healed = at + self._mix.lease_seconds * 1.2
        for other in (*self._nodes, COORDINATOR):
            for verb, time in (("stall", at), ("heal", healed)):
                self._add(time, verb, node, other)
                self._add(time, verb, other, node)
        for other in self._nodes:
            self._add(healed + 0.3, "start", other)

    def _freeze(self, at: float) -> None:
        self._add(at, "freeze", self._node(), round(self._long(), 3))

    def _freeze_at_event(self, at: float) -> None:
        name, count = self._event()
        node = self._node()
        self._add(at, "freeze-at-event", node, name, count, round(self._long(), 3))

    def _isolate(self, at: float) -> None:
        node = self._node()
        until = at + self._long()
        for verb, time in (("stall", at), ("heal", until)):
            self._add(time, verb, node, ALL)
            self._add(time, verb, ALL, node)

    def _one_way(self, at: float) -> None:
        node = self._node()
        others = [*(other for other in self._nodes if other != node), COORDINATOR, ALL]
        ends = [node, self._chance.choice(others)]
        self._chance.shuffle(ends)
        self._add(at, "stall", *ends)
        self._add(at + self._long(), "heal", *ends)

    def _ha_only(self, at: float) -> None:
        node = self._node()
        other = self._chance.choice([*(n for n in self._nodes if n != node), ALL])
        until = at + self._long() * self._chance.choice((1, 3))
        both = self._chance.random() < 0.7
        for verb, time in (("stall-ha", at), ("heal-ha", until)):
            self._add(time, verb, node, other)
            if both:
                self._add(time, verb, other, node)

    def _coordinator_only(self, at: float) -> None:
        node = self._node()
        until = at + self._long()
        for verb, time in (("stall", at), ("heal", until)):
            self._add(time, verb, node, COORDINATOR)
            self._add(time, verb, COORDINATOR, node)

    def _cut(self, at: float) -> None:
        node = self._node()
        others = [m for m in (*self._nodes, *self._clients) if m != node]
        verb = self._chance.choice(("cut", "half-cut"))
        self._add(at, verb, node, self._chance.choice(others))

    def _slow(self, at: float) -> None:
        ends = self._chance.sample(list(self._nodes), 2)
        delay = self._chance.choice((0.01, 0.1, 0.5))
        rate = self._chance.choice((5_000, 50_000, 1_000_000))
        self._add(at, "slow", *ends, delay, rate)
        self._add(at + self._chance.uniform(0.5, 3.0), "heal", *ends)

    def _power(self, at: float) -> None:
        node = self._chance.choice(self._mix.powered)
        if self._chance.random() < 0.3:
            self._add(max(0.0, at - 1.0), "disk-slow", node, 5.0)
        self._add(at, "power-off", node)
        self._add(at + self._down_time(), "start", node)

    def _stop(self, at: float) -> None:
        node = self._node()
        self._add(at, "stop", node)
        self._add(at + self._down_time(), "start", node)

    def _several(self, at: float) -> None:
        """Two, or all of them, die about together; the order of their return is chance's."""
        count = self._chance.choice((2, 2, len(self._nodes)))
        for node in self._chance.sample(list(self._nodes), count):
            self._add(at + self._chance.choice((0.0, 0.0, 0.3)), "kill", node)
            self._add(at + 0.3 + self._down_time(), "start", node)

    def _boottime(self, at: float) -> None:
        self._add(at, "boottime", self._node(), round(self._long(), 3))

    def _flip_wire(self, at: float) -> None:
        ends = self._chance.sample(list(self._nodes), 2)
        self._add(at, "flip-wire", *ends)

    def _promote(self, at: float) -> None:
        self._add(at, "promote", self._any_node())

    def _resign(self, at: float) -> None:
        self._add(at, "resign", self._node())

    def _rejoin(self, at: float) -> None:
        self._add(at, "rejoin", self._any_node())

    def _flip_tail(self, at: float) -> None:
        node = self._chance.choice(self._mix.spoiled)
        down = max(0.5, self._down_time())
        self._add(at, self._chance.choice(("kill", "kill", "stop")), node)
        self._add(at + down - 0.1, "flip-tail", node)
        self._add(at + down, "start", node)

    def _older_copy(self, at: float) -> None:
        """A directory comes back from a backup, and its node is perhaps the first to start."""
        node = self._chance.choice(self._mix.spoiled)
        age = self._chance.choice((1.5, 2.0, 3.0))
        at = max(at, age)
        self._add(at - age, "keep-copy", node)
        down = max(0.3, self._down_time())
        everybody = self._chance.random() < 0.5
        for other in self._nodes if everybody else (node,):
            self._add(at, self._chance.choice(("kill", "kill", "stop")), other)
            late = 0.0 if other == node else self._chance.choice((0.0, 0.5, 2.5))
            self._add(at + down + late, "start", other)
        self._add(at + down - 0.1, "put-back", node)
        if self._chance.random() < 0.5:
            self._add(at + down + self._chance.uniform(0.0, 2.0), "rejoin", self._any_node())

    def _copy_of_a_moment(self, at: float) -> None:
        """All are killed, and the first to start has an older directory, of which nothing tells."""
        node = self._chance.choice(self._mix.spoiled)
        age = self._chance.uniform(0.1, 0.8)
        at = max(at, age)
        self._add(at - age, "keep-copy", node)
        for other in self._nodes:
            self._add(at, "kill", other)
            late = self._chance.choice((0.5, self._mix.lease_seconds + 0.5))
            self._add(at + 0.3 + (0.0 if other == node else late), "start", other)
        self._add(at + 0.2, "put-back", node)

    def _recover(self, at: float) -> None:
        """At a wrong moment, as like as not."""
        self._add(at, "recover-group")

    def _set_back(self, at: float) -> None:
        """The coordinator is restored from a backup; somebody recovers the group, sooner or later.

        Once a run: the second backup would be of what nobody has recovered yet.
        """
        if self._is_set_back:
            return
        self._is_set_back = True
        self._add(max(0.0, at - self._chance.uniform(0.3, 3.0)), "save-coordinator")
        self._add(at, "restore-coordinator")
        self._add(at + self._chance.uniform(0.1, 2.0), "recover-group")

    def _revoke(self, at: float) -> None:
        self._add(at, "revoke", self._node())

    def _late_vote(self, at: float) -> None:
        """A candidate's vote for itself arrives when another one has won, and is dead again."""
        late = self._any_node()
        self._add(at, "late-vote", late, 1.0)
        self._add(at + 0.01, "kill", self._node())
        for other in self._nodes:
            if other != late:
                self._add(at + 0.02, "kill-at-event", other, "MasterOpened", 1)
        self._add(at + self._mix.lease_seconds + 2.0, "heal", late, COORDINATOR)
        for other in self._nodes:
            self._add(at + self._mix.lease_seconds + 1.5, "start", other)

    def _depose(self, at: float) -> None:
        """A master loses its lease and does not hear of it: it goes on beside the next one."""
        node = self._node()
        self._add(at, "stall", COORDINATOR, node)
        self._add(at + 0.001, "revoke", node)
        self._add(at + self._mix.lease_seconds * 0.9, "heal", COORDINATOR, node)

    def _own_disk_slow(self, at: float) -> None:
        """The master's own disk is the last to have what everybody else has."""
        node = self._master()
        self._add(at, "disk-slow", node, self._chance.choice((0.1, 0.4)))
        self._add(at + self._chance.uniform(1.0, 2.0), "disk-ok", node)

    def _coordinator_slow(self, at: float) -> None:
        """Keep-alives are answered late, but in time to count: a lease runs from when it was asked.

        By more than what a master keeps for itself of a lease, and by less than it waits.
        """
        node = self._master()
        delay = self._mix.lease_seconds * self._chance.uniform(0.16, 0.23)
        self._add(at, "slow", COORDINATOR, node, round(delay, 3), 1_000_000)
        self._add(at + self._long(), "heal", COORDINATOR, node)

    def _coordinator_leader(self, at: float) -> None:
        self._add(at, "coordinator-leader", self._chance.choice((0.1, 0.5, 1.5)))

    def _coordinator_stop(self, at: float) -> None:
        self._add(at, "coordinator-stop")
        self._add(at + self._long(), "coordinator-start")

    def _lose_replies(self, at: float) -> None:
        self._add(at, "lose-replies", self._node(), self._chance.choice((1, 1, 2, 5)))

    def _watches(self, at: float) -> None:
        if self._chance.random() < 0.5:
            self._add(at, "break-watches")
        else:
            self._add(at, "late-watches", self._chance.choice((0.3, 3.0)))

"""The language of faults: one line, one thing that happens at one time.

    at 1.500 kill broker-a-0

Scenarios are written in it, and a seed writes a plan in it, so that what a seed found can be cut
down and kept as a scenario. Times are seconds of virtual time after the workload began. NODE may be
a role, as `first` or `master`; see `tests.sim.engine.scenario`.

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
    rot NODE KIND           a full file of its log rots, at rest or under a running process: `flip`,
                            `zero`, `misdirect`, `lose`, `shorten`, or `any`; `lose-first` is the
                            first file

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
    stall-peers FROM TO     nothing arrives in this direction but on replication links: the one gets
    heal-peers FROM TO      no bytes of the other to heal its log with
    flip-wire FROM TO       one bit of what is sent next on a replication link
    flip-tail NODE          one bit of one of the last records of a stopped node
    rot-through NODE KIND   like `rot`, and a running process has it so in memory, too
    rot-bare NODE KIND      ... of a file that was left without a fingerprint, if there is one
    rot-twin NODE KIND      ... of a file that has rotted at one other node
    scrub NODE              it is ordered to look through its disk
    blackout                all machines lose power at once; when everything is healed, an operator
                            has the group go on with the longest log
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
    keep-copy NODE          somebody copies its directory
    put-back NODE           ... and the copy takes the place of the directory of the stopped node
    recover-group           an operator does what `tandem ha recover-group` does, without
                            `--accept-loss`
    lose-epochs NODE        the epoch file of a stopped node and its copy are gone
    upgrade NODE            it is stopped in order, and started as one of the newer of two versions
    downgrade NODE          ... of the older one
    raise-features          the master is ordered to have the group go to the highest feature level
    save-coordinator        what `restore-coordinator` sets it back to
    restore-coordinator
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

MASTER: Final = "master"
"""The master of the moment; with `#` and a number, of the moment when it was first named."""
ALL: Final = "all"
COORDINATOR: Final = "coordinator"
BLACKOUT: Final = "blackout"

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
    "rot": 2,
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
    "stall-peers": 2,
    "heal-peers": 2,
    "flip-wire": 2,
    "flip-tail": 1,
    "rot-through": 2,
    "rot-bare": 2,
    "rot-twin": 2,
    "scrub": 1,
    BLACKOUT: 0,
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
    "keep-copy": 1,
    "put-back": 1,
    "recover-group": 0,
    "lose-epochs": 1,
    "save-coordinator": 0,
    "restore-coordinator": 0,
    "upgrade": 1,
    "downgrade": 1,
    "raise-features": 0,
}
"""The same for runs of a fenced group."""

CLIENT_VERBS: Final = {"client-kill": 1, "client-vanish": 1, "client-start": 1}
"""The same for runs with consumer groups; see `tests.sim.consumers.faults`."""

_ALL_VERBS: Final = {**FENCED_VERBS, **CLIENT_VERBS}

BY_HAND: Final = frozenset(
    {"wipe", "quiet", "lose-epochs", "upgrade", "downgrade", "raise-features"}
)
"""What only scenarios do, and seeds with two versions."""

ENDINGS: Final = frozenset(
    {"start", "heal", "heal-ha", "heal-peers", "disk-ok", "coordinator-start"}
)
"""What ends a fault that the plan began."""

PREPARATIONS: Final = frozenset({"keep-copy", "save-coordinator"})
"""What only makes a later fault possible."""


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
    if verb not in _ALL_VERBS:
        raise ValueError(f"{line!r}: {verb!r} is not one of {', '.join(_ALL_VERBS)}")
    if len(arguments) != _ALL_VERBS[verb]:
        raise ValueError(f"{line!r}: {verb} takes {_ALL_VERBS[verb]} arguments")
    return Instruction(float(words[1]), verb, arguments)


def parse_plan(lines: Iterable[str]) -> Iterator[Instruction]:
    """Read a plan; empty lines and lines that begin with # are for people."""
    for line in lines:
        if line.strip() and not line.startswith("#"):
            yield parse_instruction(line)

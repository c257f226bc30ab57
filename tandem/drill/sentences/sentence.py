"""A sentence is a template with places to fill in, and what it does with the words in them."""

import enum
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from tandem.drill.scenario import (
    NodeFailedError,
    NotPossibleError,
    OutOfPlaceError,
    Seen,
    Stage,
    UnmetError,
)

_WHO: Final = (
    r"the master|the old master|the slaves|the others|slave [1-9]\d{0,3}|every node|the coordinator"
    r"|[A-Za-z0-9][\w-]*"
)
_PLACES: Final = {
    "who": _WHO,
    "other": f"{_WHO}|everything",
    # Eleven days at most: a clock of nanoseconds has an end.
    "seconds": r"\d{1,6}(?:\.\d{1,3})?",
    "share": r"\d+",
    "number": r"\d+",
    "name": r"[\w-]+",
    "mode": "sync|async",
    "statuses": r"[A-Z_]+(?: or [A-Z_]+)*",
}


class Takes(enum.Enum):
    """Who may be the subject of a sentence, or its object."""

    NODES = enum.auto()
    ONE_NODE = enum.auto()
    NODES_OR_COORDINATOR = enum.auto()


class Fault(enum.StrEnum):
    """What a target can do to its nodes, or cannot; its value completes "this target cannot …"."""

    KILL = "kill a node"
    STOP = "stop a node"
    FREEZE = "freeze a node"
    RESIGN = "ask a master to resign"
    PROMOTE = "name a new master"
    BY_HAND = "run `tandem ha`"
    COORDINATOR = "hurt the coordinator"
    NETWORK = "cut the network"
    CUT_OFF = "cut the network around a node"
    FULL_DISK = "fill a disk"
    COPY = "put a copy of a directory back"
    TORN_TAIL = "damage the end of a log"
    ROT = "damage a full file of a log"
    POWER = "cut the power of a node"
    LOST_DISK = "lose a disk"
    SLOW_DISK = "slow a disk down"
    CLOCK = "set a clock wrong"
    OTHER_GROUP = "act on another group"
    VERSION = "change the version of a node (`--previous` gives it another one)"


_FAULT_OF_NEED: Final = {"network": Fault.NETWORK, "disks": Fault.FULL_DISK}

GROUP_PATTERN: Final = re.compile(
    r" (?:of|in) (?:group (?P<name>[\w-]+)|(?P<other>another) group)$"
)
"""How a sentence ends that means another group."""

Words = Mapping[str, str]
"""What a line has in the places of its template."""

Action = Callable[[Stage, Words], Awaitable[None]]


class Sentence(msgspec.Struct, frozen=True):
    """One sentence. `needs` names what has to be prepared before the cluster starts."""

    template: str
    act: Action
    needs: str = ""
    """`network`: the fault proxy; `disks`: a small file system for each node;
    `machines`: a library that is preloaded into nodes."""
    fenced_only: bool = False
    fault: Fault | None = None
    """What it asks of a target, beside what `needs` says."""
    takes: Takes = Takes.NODES
    of_stopped: bool = False
    """It is done to nodes that are down. In a fenced group that is not the master of now."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """What a line of this sentence looks like."""
        parts = re.split(r"\{(\w+)\}", self.template)
        text = "".join(
            f"(?P<{part}>{_PLACES[part]})" if index % 2 else re.escape(part)
            for index, part in enumerate(parts)
        )
        return re.compile(text)


SEVERAL: Final = ("the slaves", "the others", "every node")
"""Subjects that may be more than one node."""


def bad_subject(sentence: Sentence, words: Words, *, is_fenced: bool) -> str:
    """Return why a line can be done to nobody, whatever nodes there are; or ""."""
    who, other = words.get("who", ""), words.get("other", "")
    if "the coordinator" in (who, other) and sentence.takes is not Takes.NODES_OR_COORDINATOR:
        return "this is done to nodes, and the coordinator is none"
    if who in SEVERAL and sentence.takes is Takes.ONE_NODE:
        return f"this is done to one node, and {who} may be several"
    if who == "the master" and sentence.of_stopped and is_fenced:
        return (
            "this is done to a node that is down, and there is no master then; it is the old master"
        )
    has_all = who == "every node" and other not in ("", "everything", "the coordinator")
    if other and (who == other or has_all or (who == "the slaves" and other.startswith("slave "))):
        return f"{who} has no link to {other}: it would be one to itself"
    return ""


class Step(msgspec.Struct, frozen=True):
    """One line of a scenario."""

    text: str
    line: int
    sentence: Sentence
    words: dict[str, str]
    group: str = ""
    """Whose nodes and sends are meant; empty: those of the group that is drilled."""

    @property
    def faults(self) -> frozenset[Fault]:
        """What a target has to be able to do for this line."""
        fault = self.sentence.fault
        if fault is Fault.CUT_OFF and self.words.get("other", "everything") == "everything":
            found: set[Fault | None] = {fault}
        elif fault is Fault.CUT_OFF:
            found = {Fault.NETWORK}
        else:
            found = {fault, _FAULT_OF_NEED.get(self.sentence.needs)}
        # A link to it is cut by the network, whosever it is.
        if "the coordinator" in self.words.values() and self.sentence.needs != "network":
            found.add(Fault.COORDINATOR)
        if self.group:
            found.add(Fault.OTHER_GROUP)
        return frozenset(fault for fault in found if fault is not None)

    async def play(self, stage: Stage) -> None:
        """Do what the line says.

        Raises:
            UnmetError: it could not be done, or what it waits for did not come; it is noted.
            NotPossibleError: this machine cannot do it.
        """
        try:
            await self.sentence.act(stage.of_group(self.group), self.words)
        except NodeFailedError as error:
            seen = Seen(held=False, text=str(error))
            stage.check(self.text, seen, is_liveness=not isinstance(error, OutOfPlaceError))
            raise UnmetError from error
        except NotPossibleError as error:
            raise NotPossibleError(f"line {self.line}, {self.text!r}: {error}") from error

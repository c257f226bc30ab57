"""Why a drill cannot be played. Each message is one line that names the thing and the remedy."""

import enum
from collections.abc import Sequence
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class DrillError(Exception):
    """The drill cannot go on as asked for. It says nothing about the cluster's promises."""

    def __str__(self) -> str:
        return str(self.args[0])


class BadOptionsError(DrillError):
    """An option cannot be played: no such file, a directory in use, a binary input. Change it."""


class InputFault(enum.Enum):
    """Why the file of `--input` cannot be sent."""

    UNREADABLE = enum.auto()
    """The system does not let us open it; `__cause__` says why."""
    NOT_A_FILE = enum.auto()
    BINARY = enum.auto()
    EMPTY = enum.auto()
    LONG_LINE = enum.auto()
    """A line is longer than a message may be."""
    SHRUNK = enum.auto()
    """It became shorter while it was being sent."""


class InputError(BadOptionsError):
    """The file of `--input` cannot be sent; `fault` says why."""

    def __init__(self, text: str, fault: InputFault) -> None:
        super().__init__(text, fault)
        self.fault = fault


class OutFault(enum.Enum):
    """Why the directory of `--out` cannot be used."""

    FOREIGN = enum.auto()
    """Something is in it that is not of a drill."""
    IN_USE = enum.auto()
    """Another drill is writing there."""
    REFUSED = enum.auto()
    """The system refuses; `__cause__` says why."""


class OutError(BadOptionsError):
    """The directory of `--out` cannot be used; `fault` says why."""

    def __init__(self, text: str, fault: OutFault) -> None:
        super().__init__(text, fault)
        self.fault = fault


class NoPromiseError(BadOptionsError):
    """The cluster file makes no promise that could be tested. `setting` is what has to change."""

    def __init__(self, text: str, setting: str) -> None:
        super().__init__(text, setting)
        self.setting = setting


class Requirement(enum.Enum):
    """What may be missing on this machine."""

    LIBRARIES = enum.auto()
    JAVA = enum.auto()
    FREE_PORTS = enum.auto()
    OWN_ADDRESS = enum.auto()
    """A node's address is not of this machine."""
    LOOPBACK_NODES = enum.auto()
    """The network can be broken only between nodes at 127.0.0.0/8."""
    ONE_ENDPOINT = enum.auto()
    """The network can be broken only with a coordinator that is one address."""
    ROCKETMQ = enum.auto()
    """RocketMQ is not where it was said to be."""
    PROXY_ADDRESSES = enum.auto()
    """No addresses are free for the fault proxy."""


class MissingRequirementError(DrillError):
    """A library, a Java runtime or a free port is missing on this machine. Bring it.

    Attributes:
        requirement: What kind of thing is missing.
        names: Which: the libraries, or the addresses with their ports.
    """

    def __init__(self, text: str, requirement: Requirement, names: Sequence[str] = ()) -> None:
        super().__init__(text, requirement, names)
        self.requirement = requirement
        self.names = list(names)


class NotReadyError(DrillError):
    """The cluster took no messages in time, before anything was done to it.

    Attributes:
        late_seconds: How late the drill itself was woken at most until then.
        machine_was_slow: Whether that explains it: the drill shows nothing.
    """

    def __init__(self, text: str, *, late_seconds: float, machine_was_slow: bool) -> None:
        if machine_was_slow:
            text += (
                f". The drill itself was woken up to {late_seconds:.1f} s late: the machine was too"
                " slow. Run it again, with less beside it"
            )
        super().__init__(text, late_seconds, machine_was_slow)
        self.late_seconds = late_seconds
        self.machine_was_slow = machine_was_slow


class TargetError(DrillError):
    """The target does not start, or not as it was asked to. Its programs' logs have more."""


class AuditError(DrillError):
    """The logs could not be read to their end, so nothing is known about promises. See the text."""


class ReportError(DrillError):
    """The report cannot be written, most likely because the disk is full."""


class LedgerError(DrillError):
    """The ledger cannot be written, most likely because the disk is full. Nothing more was sent."""


class BadScenarioError(DrillError):
    """There is no such scenario, or its file says something that nobody understands."""


class NoScenarioError(BadScenarioError):
    """The catalogue has no scenario `name`."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text, name)
        self.name = name


class WrongGroupError(BadScenarioError):
    """The scenario `name` is for groups of the other kind."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text, name)
        self.name = name


class StreamStartError(DrillError):
    """The Spark stream did not start. `reason`: what it said, empty if nothing in time."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text, reason)
        self.reason = reason


class WitnessStartError(DrillError):
    """The consumer of another client did not start. The text says what it said."""


def first_of(errors: BaseExceptionGroup[E]) -> E:
    """Return one of the errors that ended a drill; they all say the same or follow from another."""
    first = errors.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first

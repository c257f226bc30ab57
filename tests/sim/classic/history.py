"""What a run of a classic group leaves behind, beside what every run does."""

import msgspec

from tests.sim.engine.history import History
from tests.sim.engine.walked_log import Log


class Report(msgspec.Struct, frozen=True):
    """What a slave reported to its master, and what it had when it did so. Offsets in bytes."""

    slave: str
    reported_offset: int
    stored_end: int
    at_seconds: float


class Refusal(msgspec.Struct, frozen=True):
    """An alarm: a slave was refused as another history. Both logs at that time."""

    name: str
    slave: Log
    master: Log


class ClassicHistory(History):
    """Everything, each list in order of time."""

    reports: list[Report] = msgspec.field(default_factory=list)
    refusals: list[Refusal] = msgspec.field(default_factory=list)
    hurt: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """Where the log of some node rotted, from offset to offset."""
    unnoticed: list[str] = msgspec.field(default_factory=list)
    """What had rotted, and the node did not know of it when its disk had been looked through."""
    given_up: list[tuple[str, Log]] = msgspec.field(default_factory=list)
    """Logs that were moved away, and whose they were."""

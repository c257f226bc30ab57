"""One node of a simulated group: its lives, its disk, its clocks, its last words."""

import contextvars

import msgspec
import trio

from tandem.cluster_file.cluster_config import NodeConfig
from tests.sim.engine.log_tail import LogTail
from tests.sim.engine.whole_disk import Rot, WholeDisk
from tests.support.deterministic_trio import Hold
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_network import Machine
from tests.support.virtual_clock import BootClock, WallClock


class Incarnation:
    """One run of a node, from start to kill."""

    def __init__(self, node: "SimulatedNode", network: Machine) -> None:
        self.name = node.name
        self.network = network
        self.stop = trio.Event()
        """Set by SIGTERM."""
        self.scope = trio.CancelScope()
        self.tail = LogTail(node.whole_disk, node.directory)
        self.reported = bytearray()
        """What it sent of a report that is not whole yet."""
        self.hold = Hold(lambda context: context.get(incarnation_of_task) is self)
        """Begun while the process stands still."""


incarnation_of_task: contextvars.ContextVar[Incarnation | None] = contextvars.ContextVar(
    "incarnation", default=None
)
"""Whose task is running; tells whose log line it is."""


class SimulatedNode:
    """One node over all its incarnations. Its disk is the one the next start will find."""

    def __init__(self, config: NodeConfig, disk: SimulatedDisk, clock: WallClock) -> None:
        self.config = config
        self.name = config.node.name
        self.ip = config.node.address
        self.directory = str(config.directory)
        self.disk = disk
        self.clock = clock
        self.boot_clock = BootClock()
        self.current: Incarnation | None = None
        self.life = 0
        """How often it was started."""
        self.disk_was_hurt = False
        """It was full or failed, so that giving up was right."""
        self.sync_has_failed = False
        self.start_again = False
        """As soon as the process has ended that was told to."""
        self.kill_at: tuple[str, int] | None = None
        """The verb, and how often more it has to come to pass."""
        self.rots: list[Rot] = []
        """What of its disk was hurt at rest and is not whole again."""
        self._whole_disk = WholeDisk(disk, self.rots)

    @property
    def whole_disk(self) -> WholeDisk:
        """Its disk with what has rotted as it was."""
        if self._whole_disk.disk is not self.disk:
            self._whole_disk = WholeDisk(self.disk, self.rots)
        return self._whole_disk

    @property
    def is_up(self) -> bool:
        """True while a process runs."""
        return self.current is not None


def read_log(node: SimulatedNode) -> bytes:
    """Return the commit log on a node's disk, up to its last whole record."""
    tail = LogTail(node.whole_disk, node.directory)
    return tail.read(0, tail.end())


def common_end(one: bytes, other: bytes) -> int | None:
    """Return where two logs part; None if one is a beginning of the other."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (ours, theirs) in pairs if ours != theirs), None)


class Crash(msgspec.Struct, frozen=True):
    """A node that ended by itself."""

    node: str
    at_seconds: float
    text: str
    excused: bool
    """True if its disk was being hurt, so that giving up was right."""


class LogLine(msgspec.Struct, frozen=True):
    """A line of WARNING or above that a node wrote for its operator."""

    node: str
    at_seconds: float
    level: int
    text: str
    has_traceback: bool

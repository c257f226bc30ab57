"""One node of a simulated group, with what judges keep of it: its log, what rots, last words."""

import msgspec

from node.simulated import machines
from node.simulated.disk import SimulatedDisk
from node.simulated.network import Machine
from node.simulated.virtual_clock import WallClock
from tandem.cluster_file.cluster_config import NodeConfig
from tests.sim.engine.log_tail import LogTail
from tests.sim.engine.whole_disk import Rot, WholeDisk


class Incarnation(machines.Incarnation):
    """One run of a node, and what those who judge it keep of it."""

    def __init__(self, node: "SimulatedNode", network: Machine) -> None:
        super().__init__(node.name, network)
        self.tail = LogTail(node.whole_disk, node.directory)
        self.reported = bytearray()
        """What it sent of a report that is not whole yet."""


class SimulatedNode(machines.SimulatedNode):
    """One node over all its incarnations, and what is to come to pass with it."""

    current: Incarnation | None

    def __init__(self, config: NodeConfig, disk: SimulatedDisk, clock: WallClock) -> None:
        super().__init__(config, disk, clock)
        self.sync_has_failed = False
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


def read_log(node: SimulatedNode) -> bytes:
    """Return the commit log on a node's disk, up to its last whole record."""
    tail = LogTail(node.whole_disk, node.directory)
    return tail.read(0, tail.end())


def common_end(one: bytes, other: bytes) -> int | None:
    """Return where two logs part; None if one is a beginning of the other."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (ours, theirs) in pairs if ours != theirs), None)


class LogLine(msgspec.Struct, frozen=True):
    """A line of WARNING or above that a node wrote for its operator."""

    node: str
    at_seconds: float
    level: int
    text: str
    has_traceback: bool

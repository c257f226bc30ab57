"""A master and two slaves in one process: what slaves report, and whom an alarm refuses."""

import random
from typing import Final

import trio

from node.simulated.machines import leaves
from node.simulated.network import SimulatedNetwork
from store.machine.errors import CorruptLogError
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.wire.message import Host
from tests.sim.classic.history import ClassicHistory, Refusal, Report
from tests.sim.engine.cluster import SimulatedCluster
from tests.sim.engine.node import LogLine, SimulatedNode, read_log
from tests.sim.engine.repair import repair_log
from tests.sim.engine.rot import fingerprint_of
from tests.sim.engine.rot_watch import RotWatch
from tests.sim.engine.trace import Trace
from tests.sim.engine.walked_log import walk_log
from tests.sim.engine.whole_disk import Rot, bad_offsets

REPORT_BYTES: Final = 8

REMEDY_SECONDS: Final = 0.3
"""From a node that ends because its log is damaged to when somebody has repaired it."""

MISSING: Final = "the file is missing, and was not deleted as too old"
"""What a start says of a first file that is gone; see `tell_missing` in `missing_files.py`."""

SLAVE_ALARM: Final = "This log is not a part of the master's"
MASTER_ALARM: Final = "holds messages that this master has not"
"""What an operator is told; see `_remedy` in `master_follower.py` and `slave_server.py`."""


class ClassicCluster(SimulatedCluster):
    """The nodes of one classic group, the master first."""

    def __init__(
        self,
        config: ClusterConfig,
        history: ClassicHistory,
        *,
        network: SimulatedNetwork,
        chance: random.Random,
        trace: Trace,
        nursery: trio.Nursery,
    ) -> None:
        super().__init__(
            config, history, network=network, chance=chance, trace=trace, nursery=nursery
        )
        self.history: ClassicHistory = history
        self.master_lost_cache = False
        self.master, *self.slaves = self.nodes.values()
        self._ha_address = Host(self.master.ip, self.master.config.node.ha_port)
        self._slaves_by_ip = {slave.ip: slave for slave in self.slaves}
        self.master_is_never_killed = False
        self.rot_watch = RotWatch(self.nodes, history)
        self._alarmed: set[str] = set()
        """Slaves about which there was an alarm since their last wipe."""

    def _lost_power(self, node: SimulatedNode) -> None:
        self.master_lost_cache |= node is self.master

    def _must_be_fresh(self, node: SimulatedNode, since: float) -> bool:
        return node is self.master

    def _wiping(self, node: SimulatedNode) -> None:
        self.history.given_up.append((node.name, walk_log(read_log(node))))
        self._alarmed.discard(node.name)

    def note_log_line(self, line: LogLine) -> None:
        """Take a line of WARNING or above. An alarm is judged by the logs as they are now.

        Not if the master has died between its last word and the alarm: what it lost is gone.
        """
        super().note_log_line(line)
        for slave in self.slaves:
            if not self._is_alarm_of(slave, line):
                continue
            self._alarmed.add(slave.name)
            # One whose log has rotted is refused with cause, whatever was there before.
            if self.master.is_up and not slave.rots and not self.master.rots:
                logs = walk_log(read_log(slave)), walk_log(read_log(self.master))
                self.history.refusals.append(Refusal(slave.name, *logs))

    def _is_alarm_of(self, slave: SimulatedNode, line: LogLine) -> bool:
        if line.node == slave.name:
            return SLAVE_ALARM in line.text
        is_about_it = line.text.startswith(f"slave {slave.name} ")
        return line.node == self.master.name and is_about_it and MASTER_ALARM in line.text

    def needs_remedy(self, slave: SimulatedNode) -> bool:
        """True if there was an alarm since the last wipe and the logs still differ.

        A power loss of the slave can take away what the master has not.
        """
        is_alarmed = slave.name in self._alarmed
        differs = not read_log(self.master).startswith(read_log(slave))
        return is_alarmed and (differs or bool(slave.rots))

    def rot(self, name: str, kind: str) -> None:
        """Hurt a full file of a node's log, below where all logs end: others have it whole.

        What a process has in memory rots only if there is a fingerprint from before. The master's
        log rots only after a clean stop, or if no plan kills it: after a kill, what has changed
        since its checkpoint is a torn put for its start, which cuts it off.
        """
        node = self.nodes[name]
        was_stopped = not node.is_up and not node.disk.exists(f"{node.directory}/abort")
        if node is self.master and not (was_stopped or self.master_is_never_killed):
            return
        self._rot(
            name,
            kind,
            lambda start, _: not node.is_up or fingerprint_of(node, start) is not None,
            memory_chance=0.5,
        )
        for rot in node.rots:
            changed = (rot.start + rot.at, rot.start + rot.last + 1)
            if changed not in self.history.hurt:
                self.history.hurt.append(changed)

    def _rots_below(self, _: SimulatedNode) -> int:
        return min(self.extent(other).flushed for other in self.nodes.values())

    def unnoticed(self) -> list[str]:
        """Return what has rotted and its node knows nothing of, though it could."""
        self._forget_healed()
        return [
            rot.where
            for node in self.nodes.values()
            for rot in node.rots
            if not self._is_noticed(node, rot)
        ]

    def _is_noticed(self, node: SimulatedNode, rot: Rot) -> bool:
        if not node.disk.exists(rot.path):
            # A start says so. A hole stops it, and the operator has seen to that.
            return any(
                line.node == node.name
                and line.at_seconds >= rot.at_seconds
                and MISSING in line.text
                for line in self.log_lines
            )
        noted = self.rot_watch.noted(node)
        bad = bad_offsets(rot, node.disk)
        is_noted = any(found.start <= at < found.end for found in noted for at in bad)
        return is_noted or not _can_be_noticed(node, rot)

    def repair(self, node: SimulatedNode) -> None:
        """Do what an alarm says to a stopped node: `tandem log repair --from`; and start it."""
        if not node.is_up and repair_log(node, self.nodes.values()):
            self.note_hit("log repaired from a copy")
            self._trace.note("fault", f"the log of {node.name} is repaired from copies")
        self.start(node.name)

    def _is_remedied(self, node: SimulatedNode, error: BaseException) -> bool:
        """A start that damage has stopped says what to do."""
        if not node.rots or not any(isinstance(leaf, CorruptLogError) for leaf in leaves(error)):
            return False
        self.network.timeline.call_later(REMEDY_SECONDS, lambda: self.repair(node))
        return True

    def _syncs_log(self, node: SimulatedNode) -> None:
        self.rot_watch.look_at(node)

    def _was_sent(self, source: Host, target: Host, data: bytes) -> None:
        """Note what a slave reports to its master, and what is on its disk as it does so."""
        node = self._nodes_by_ip.get(source.ip)
        if node is not None and node.rots and node.is_up:
            self.rot_watch.was_sent(node, source, target, data)
        slave = self._slaves_by_ip.get(source.ip)
        if slave is None or target != self._ha_address or slave.current is None:
            return
        life = slave.current
        life.reported += data
        while len(life.reported) >= REPORT_BYTES:
            report = int.from_bytes(life.reported[:REPORT_BYTES], "big", signed=True)
            del life.reported[:REPORT_BYTES]
            if report >= 0:
                end = life.tail.end()
                self.history.reports.append(Report(slave.name, report, end, trio.current_time()))


def _can_be_noticed(node: SimulatedNode, rot: Rot) -> bool:
    """Whether a fingerprint or the CRC of a body tells that a file has changed."""
    content = node.disk.read(rot.path) or b""
    found = fingerprint_of(node, rot.start)
    if found is not None:
        return bool(found.differing(found.start, content))
    return bool(walk_log(content, rot.start).fault)

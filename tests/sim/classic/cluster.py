"""A master and two slaves in one process: what slaves report, and whom an alarm refuses."""

import random
from typing import Final

import trio

from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.wire.message import Host
from tests.sim.classic.history import ClassicHistory, Refusal, Report
from tests.sim.engine.cluster import SimulatedCluster
from tests.sim.engine.node import LogLine, SimulatedNode, read_log
from tests.sim.engine.trace import Trace
from tests.sim.engine.walked_log import walk_log
from tests.support.simulated_network import SimulatedNetwork

REPORT_BYTES: Final = 8

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
            if self.master.is_up:
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
        return is_alarmed and not read_log(self.master).startswith(read_log(slave))

    def _was_sent(self, source: Host, target: Host, data: bytes) -> None:
        """Note what a slave reports to its master, and what is on its disk as it does so."""
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

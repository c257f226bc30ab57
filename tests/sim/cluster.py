"""A master and two slaves in one process: started, killed, cut off and started again.

Nothing in here knows how a node works. A node is a function that is given a configuration, a disk,
a network and a clock, and runs until it is cancelled or told to stop; what it did is read from its
disk, from the bytes it sends and from its log lines.
"""

import contextvars
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec
import trio

from ha.fenced.events import OnEvent, ignore
from store.machine.errors import CorruptLogError, StoreError
from store.machine.network import ConnectionLost
from tandem.cluster_file.cluster_config import ClusterConfig, NodeConfig
from tandem.coordinator.interface import Coordinator
from tandem.wire.message import Host
from tests.sim.checker import Log, Refusal, Report, walk_log
from tests.sim.faults import Instruction
from tests.sim.log_tail import LogTail
from tests.sim.trace import Trace
from tests.support.deterministic_trio import Hold
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_network import Machine, SimulatedNetwork
from tests.support.virtual_clock import BootClock, WallClock

REPORT_BYTES: Final = 8

SLAVE_ALARM: Final = "This log is not a part of the master's"
MASTER_ALARM: Final = "holds messages that this master has not"
"""What an operator is told; see `_remedy` in `master_follower.py` and `slave_server.py`."""


class NodeSeams(msgspec.Struct, frozen=True):
    """What a node gets instead of the real world."""

    config: NodeConfig
    disk: SimulatedDisk
    network: Machine
    wall_clock_ms: Callable[[], int]
    random: random.Random
    stop: trio.Event
    boottime: Callable[[], float]
    boot_id: str
    coordinator: Coordinator | None = None
    on_event: OnEvent = ignore


NodeFunction = Callable[[NodeSeams], Awaitable[None]]


class Incarnation:
    """One run of a node, from start to kill."""

    def __init__(self, seams: NodeSeams, directory: str) -> None:
        self.name = seams.config.node.name
        self.seams = seams
        self.scope = trio.CancelScope()
        self.tail = LogTail(seams.disk, directory)
        self.reported = bytearray()
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
        self.disk_was_hurt = False
        self.sync_has_failed = False
        self.start_again = False
        self.has_alarm = False
        self.kill_at: tuple[str, int] | None = None

    @property
    def is_up(self) -> bool:
        """True while a process runs."""
        return self.current is not None


def read_log(node: SimulatedNode) -> bytes:
    """Return the commit log on a node's disk, up to its last whole record."""
    tail = LogTail(node.disk, node.directory)
    return tail.read(0, tail.end())


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


class SimulatedCluster:
    """The nodes of one group, the master first."""

    def __init__(
        self,
        config: ClusterConfig,
        node_function: NodeFunction,
        *,
        network: SimulatedNetwork,
        chance: random.Random,
        trace: Trace,
        nursery: trio.Nursery,
    ) -> None:
        self.network = network
        self.crashes: list[Crash] = []
        self.log_lines: list[LogLine] = []
        self.reports: list[Report] = []
        self.refusals: list[Refusal] = []
        self.given_up: list[tuple[str, Log]] = []
        self.master_lost_cache = False
        self._node_function = node_function
        self._chance = chance
        self._trace = trace
        self._nursery = nursery
        self.nodes = {
            settings.name: SimulatedNode(
                config.node(settings.name),
                self._new_disk(settings.name),
                WallClock(skew_ms=chance.randint(-200, 200), drift_ppm=chance.randint(-100, 100)),
            )
            for settings in config.nodes
        }
        self.master, *self.slaves = self.nodes.values()
        self._ha_address = Host(self.master.ip, self.master.config.node.ha_port)
        self._slaves_by_ip = {slave.ip: slave for slave in self.slaves}
        self._nodes_by_ip = {node.ip: node for node in self.nodes.values()}
        network.on_sent = self._watch_sent

    def _new_disk(self, name: str) -> SimulatedDisk:
        return SimulatedDisk(
            sync_seconds=lambda: self._chance.uniform(0.000_1, 0.002),
            on_event=lambda event: self._disk_event(name, event),
        )

    def _disk_event(self, name: str, event: str) -> None:
        self._trace.note(name, f"disk {event}")
        self._count_down(self.nodes[name], "kill-at-disk")

    def _count_down(self, node: SimulatedNode, verb: str) -> None:
        """Kill the node if this is what it was waiting for, in the middle of what it is doing."""
        if node.kill_at is None or node.kill_at[0] != verb:
            return
        left = node.kill_at[1] - 1
        node.kill_at = (verb, left) if left else None
        if not left:
            self._trace.note("fault", f"{verb} {node.name} now")
            self.kill(node.name)

    def start(self, name: str) -> None:
        """Start a node's process, once the one before has ended; harmless if it runs."""
        node = self.nodes[name]
        if node.current is not None:
            node.start_again = node.current.seams.stop.is_set()
            return
        node.start_again = False
        self._trace.note("fault", f"start {name}")
        node.current = Incarnation(self._new_seams(node), node.directory)
        self._nursery.start_soon(self._run, node, node.current)

    def _new_seams(self, node: SimulatedNode) -> NodeSeams:
        return NodeSeams(
            config=node.config,
            disk=node.disk,
            network=self.network.machine(node.ip),
            wall_clock_ms=node.clock.now_ms,
            random=random.Random(self._chance.random()),
            stop=trio.Event(),
            boottime=node.boot_clock.now_seconds,
            boot_id=node.boot_clock.boot_id,
        )

    async def _run(self, node: SimulatedNode, incarnation: Incarnation) -> None:
        incarnation_of_task.set(incarnation)
        error: BaseException | None = None
        try:
            with incarnation.scope:
                await self._node_function(incarnation.seams)
        except BaseExceptionGroup as group:
            _, error = group.split(trio.Cancelled)
            if error is None:
                raise
        except Exception as caught:  # noqa: BLE001  # judged below
            error = caught
        # Of a node that was killed, what its tasks ran into meanwhile is nobody's business.
        if node.current is incarnation:
            node.current = None
            incarnation.seams.network.kill()
            node.disk = node.disk.crashed()
            if error is not None:
                self._note_crash(node, error)
            if node.start_again:
                self.start(node.name)

    def _note_crash(self, node: SimulatedNode, error: BaseException) -> None:
        text = "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))
        excused = node.disk_was_hurt and all(
            isinstance(leaf, StoreError | OSError) and not isinstance(leaf, CorruptLogError)
            for leaf in leaves(error)
        )
        self._trace.note(node.name, f"ended by itself: {text}")
        self.crashes.append(Crash(node.name, trio.current_time(), text, excused))

    def kill(self, name: str) -> None:
        """Kill -9. What is in the page cache stays."""
        node = self.nodes[name]
        if node.current is None:
            return
        dead, node.current = node.current, None
        dead.hold.release()
        dead.seams.network.kill()
        node.disk = node.disk.crashed()
        self._tear(node, dead.tail.end())
        dead.scope.cancel()

    def power_off(self, name: str) -> None:
        """Cut the power. What was not synced may be lost."""
        node = self.nodes[name]
        if node.current is None:
            return
        dead, node.current = node.current, None
        dead.hold.release()
        dead.seams.network.power_off()
        node.boot_clock.restart()
        node.disk = node.disk.powered_off(self._chance)
        self.master_lost_cache |= node is self.master
        dead.scope.cancel()

    def stop(self, name: str) -> None:
        """SIGTERM. The process ends when it has finished what it has to."""
        incarnation = self.nodes[name].current
        if incarnation is not None:
            incarnation.seams.stop.set()

    def wipe(self, name: str) -> None:
        """Move the store of a stopped node away, as the remedy in an alarm says."""
        node = self.nodes[name]
        assert not node.is_up
        self._trace.note("fault", f"wipe {name}")
        self.given_up.append((name, walk_log(read_log(node))))
        node.has_alarm = False
        node.disk = self._new_disk(name)

    def note_log_line(self, line: LogLine) -> None:
        """Take a line of WARNING or above. An alarm is judged by the logs as they are now.

        Not if the master has died between its last word and the alarm: what it lost is gone.
        """
        self.log_lines.append(line)
        for slave in self.slaves:
            if not self._is_alarm_of(slave, line):
                continue
            slave.has_alarm = True
            if self.master.is_up:
                self.refusals.append(
                    Refusal(slave.name, walk_log(read_log(slave)), walk_log(read_log(self.master)))
                )

    def _is_alarm_of(self, slave: SimulatedNode, line: LogLine) -> bool:
        if line.node == slave.name:
            return SLAVE_ALARM in line.text
        is_about_it = line.text.startswith(f"slave {slave.name} ")
        return line.node == self.master.name and is_about_it and MASTER_ALARM in line.text

    def needs_remedy(self, slave: SimulatedNode) -> bool:
        """True if there was an alarm since the last wipe and the logs still differ.

        A power loss of the slave can take away what the master has not.
        """
        return slave.has_alarm and not read_log(self.master).startswith(read_log(slave))

    def ip_of(self, machine: str) -> str:
        """Return the address of a node, or of a client, which is named by its address."""
        return self.nodes[machine].ip if machine in self.nodes else machine

    def carry_out(self, instruction: Instruction) -> None:  # noqa: C901, PLR0912
        """Do what a line of a plan says."""
        self._trace.note("fault", str(instruction))
        arguments = instruction.arguments
        name = arguments[0]
        match instruction.verb:
            case "kill":
                self.kill(name)
            case "kill-at-disk" | "kill-at-send":
                self.nodes[name].kill_at = (instruction.verb, int(arguments[1]))
            case "power-off":
                self.power_off(name)
            case "stop":
                self.stop(name)
            case "start":
                self.start(name)
            case "wipe":
                self.wipe(name)
            case "stall":
                self.network.stall(*map(self.ip_of, arguments))
            case "heal":
                self.network.heal(*map(self.ip_of, arguments))
            case "slow":
                self.network.slow(
                    *map(self.ip_of, arguments[:2]),
                    delay_seconds=float(arguments[2]),
                    bytes_per_second=float(arguments[3]),
                )
            case "cut" | "half-cut":
                half_open = instruction.verb == "half-cut"
                self.network.cut(*map(self.ip_of, arguments), half_open=half_open)
            case "garbage":
                self._nursery.start_soon(self._send_garbage, self.nodes[name], arguments[1])
            case "clock":
                self.nodes[name].clock.step(int(arguments[1]))
            case _:
                self._hurt_disk(instruction)

    def _ports(self, node: SimulatedNode) -> tuple[int, ...]:
        settings = node.config.node
        return settings.port, settings.ha_port, settings.name_server_port

    async def _send_garbage(self, node: SimulatedNode, ip: str) -> None:
        """Send nonsense to every port: noise, then what looks like the beginning of a frame."""
        machine = self.network.machine_at(ip)
        for port in self._ports(node):
            for head in (b"", b"\0\0\0\x64\0\0\0\x20", b"\x7f\xff\xff\xff"):
                noise = head + self._chance.randbytes(self._chance.randint(1, 200))
                with trio.move_on_after(1.0), suppress(ConnectionLost):
                    stream = await machine.connect(node.ip, port, source=None)
                    await stream.send_all(noise)
                    await stream.receive_some(1000)
                    await stream.aclose()

    def _hurt_disk(self, instruction: Instruction) -> None:
        node = self.nodes[instruction.arguments[0]]
        disk = node.disk
        node.disk_was_hurt |= instruction.verb in ("disk-full", "disk-fails")
        node.sync_has_failed |= instruction.verb == "disk-fails"
        match instruction.verb:
            case "disk-full":
                disk.capacity_bytes = disk.used_bytes
            case "disk-slow":
                seconds = float(instruction.arguments[1])
                disk.sync_seconds = lambda: seconds
            case "disk-fails":
                disk.sync_fails = True
            case "disk-ok":
                self._heal_disk(node)
            case _:
                raise AssertionError(f"no such instruction: {instruction}")

    def _heal_disk(self, node: SimulatedNode) -> None:
        healthy = self._new_disk(node.name)
        node.disk.capacity_bytes = healthy.capacity_bytes
        node.disk.sync_seconds = healthy.sync_seconds
        node.disk.sync_fails = False

    def heal(self) -> None:
        """End every fault and start every node. One whose disk failed has to start again."""
        self._trace.note("fault", "heal everything")
        self.network.heal_all()
        for node in self.nodes.values():
            node.kill_at = None
            self._heal_disk(node)
            if node.sync_has_failed:
                self.kill(node.name)
            self.start(node.name)

    def _tear(self, node: SimulatedNode, end: int) -> None:
        """Now and then leave the beginning of a record behind the log, as a kill in a put does.

        A record is written from behind its length to its end, then its length: what a kill leaves
        is bytes behind four zeros.
        """
        if not end or self._chance.random() < 0.5:
            return
        file_bytes = node.config.cluster.store.mapped_file_size_commit_log_bytes
        path = f"{node.directory}/commitlog/{end - end % file_bytes:020d}"
        if not node.disk.exists(path):
            return
        buffer = node.disk.open(path).buffer
        position = end % file_bytes
        size = self._chance.randint(5, 120)
        if position + size > file_bytes:
            return
        buffer[position + 4 : position + size] = buffer[4:size]
        self._trace.note(node.name, f"torn {size} bytes at {end}")

    def _watch_sent(self, source: Host, target: Host, data: bytes) -> None:
        self._watch_reports(source, target, data)
        if source.ip in self._nodes_by_ip:
            self._count_down(self._nodes_by_ip[source.ip], "kill-at-send")

    def _watch_reports(self, source: Host, target: Host, data: bytes) -> None:
        """Note what a slave tells its master, and what is on its disk as it says so."""
        slave = self._slaves_by_ip.get(source.ip)
        if slave is None or target != self._ha_address or slave.current is None:
            return
        incarnation = slave.current
        incarnation.reported += data
        while len(incarnation.reported) >= REPORT_BYTES:
            report = int.from_bytes(incarnation.reported[:REPORT_BYTES], "big", signed=True)
            del incarnation.reported[:REPORT_BYTES]
            if report >= 0:
                end = incarnation.tail.end()
                self.reports.append(Report(slave.name, report, end, trio.current_time()))


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in leaves(part)]
    return [error]


class NodeLogHandler(logging.Handler):
    """Takes the log lines of all nodes: into the trace, and from WARNING on into the cluster.

    What a killed node's tasks say while they are being cancelled, nobody has heard.
    """

    def __init__(self, cluster: SimulatedCluster, trace: Trace) -> None:
        super().__init__(logging.INFO)
        self._cluster = cluster
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        """Note one line."""
        incarnation = incarnation_of_task.get()
        node = incarnation.name if incarnation else "client"
        if incarnation and self._cluster.nodes[node].current is not incarnation:
            return
        text = record.getMessage()
        self._trace.note(node, f"{record.levelname} {text}")
        if record.levelno >= logging.WARNING:
            line = LogLine(
                node, trio.current_time(), record.levelno, text, record.exc_info is not None
            )
            self._cluster.note_log_line(line)

"""A fenced group of three that is simulated, as a test sees it: what there is, and what to hurt."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import trio

from tandem.client.event_loop import ByteStream
from tandem.client.identity import ClientIdentity
from tandem.client.running_machine import machine_of_task
from tandem.cluster_file.errors import UnknownNodeError
from tandem.testing.errors import NotInSyncError
from tandem.testing.fault_plan import PlannedFault

LAST_FAULT_SECONDS: Final = 0.5
"""How long the last fault of a seed has before all is healed, at least."""


class Machine(Protocol):
    """A machine of the test's own processes, as the programs of a node simulate it."""

    ip: str
    life: int

    async def open_stream(self, host: str, port: int) -> ByteStream:
        """Open a connection."""


class Process(Protocol):
    """One of its processes."""

    name: str

    @property
    def is_up(self) -> bool:
        """Whether it runs."""

    def start(self) -> None:
        """Start it; harmless if it runs."""

    def kill(self) -> bool:
        """Whether it ran."""

    def freeze(self, seconds: float) -> bool:
        """Whether it ran."""

    def thaw(self) -> None:
        """Let it go on."""


class Node(Protocol):
    """A node of the group."""

    @property
    def is_up(self) -> bool:
        """Whether it runs."""


class Group(Protocol):
    """The group; see `node.simulated.group`."""

    @property
    def nodes(self) -> Any:  # noqa: ANN401 - by name, and their type is that of the programs
        """By name."""

    def name_servers(self) -> list[str]:
        """Where clients ask for routes."""

    def master(self) -> str | None:
        """The one that takes messages now, or nothing."""

    def start(self, name: str) -> None:
        """Start a node."""

    def kill(self, name: str) -> None:
        """Kill it."""

    def stop(self, name: str) -> None:
        """Stop it in order."""

    def power_off(self, name: str) -> None:
        """Cut its power."""

    def freeze(self, name: str, seconds: float) -> None:
        """Let it stand still."""

    def partition(self, names: Sequence[str]) -> None:
        """Hold up what is sent across."""

    def end_partition(self, names: Sequence[str]) -> None:
        """Let it go."""

    def reset_connections(self, name: str) -> None:
        """Reset them."""

    def slow_disk(self, name: str, seconds: float) -> None:
        """Have each sync take this long."""

    def heal(self) -> None:
        """End all faults, start all nodes."""


class Room(Protocol):
    """What the programs of a node give a run; see `node.simulated.play`."""

    group: Group
    wall_clock_ms: Callable[[], int]

    def new_process(self, name: str, work: Callable[[Machine], Awaitable[object]]) -> Process:
        """One on a machine of its own."""

    def own_machine(self) -> Machine:
        """That of the test itself."""

    async def until_in_sync(self) -> bool:
        """Whether it ever is."""


Note = Callable[[str, str], None]


class _ClientMachine:
    """The machine as clients look for it: see `tandem.client.running_machine`."""

    def __init__(self, machine: Machine) -> None:
        self.open_stream = machine.open_stream
        self._ip = machine.ip
        self._life = machine.life
        self._clients_count = 0

    def new_identity(self) -> ClientIdentity:
        """Return who one more client is: the same in each run of a seed."""
        self._clients_count += 1
        return ClientIdentity(self._ip, self._life, self._clients_count)


class SimulatedProcess:
    """A process of a test: it has a machine of its own, and can be killed, frozen and restarted.

    It is the first task and those that it starts, on a heap that all processes share. A killed one
    never runs again, so none of its `finally` blocks does: what it held (a lock in memory), it
    holds.
    """

    def __init__(self, process: Process, note: Note) -> None:
        self._process = process
        self._note = note

    @property
    def name(self) -> str:
        """What reports call it."""
        return self._process.name

    @property
    def is_up(self) -> bool:
        """Whether it runs."""
        return self._process.is_up

    def start(self) -> None:
        """Start it anew, with the same function; nothing happens if it runs."""
        if not self.is_up:
            self._note("fault", f"start {self.name}")
            self._process.start()

    def kill(self) -> None:
        """SIGKILL, as in a crash. Nothing happens if it does not run."""
        if self._process.kill():
            self._note("fault", f"kill {self.name}")

    def freeze(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT this much later: its connections stay open and silent."""
        if self._process.freeze(seconds):
            self._note("fault", f"freeze {self.name} for {seconds:g} s")

    def thaw(self) -> None:
        """Let it go on now."""
        self._process.thaw()


class SimulatedCluster:
    """A simulated fenced group: `broker-a-1` to `broker-a-3`, in sync when a test begins.

    Commands take no time and wait for nothing, but for those that are awaited. They have the names
    of those of `RunningCluster`.
    """

    def __init__(self, room: Room, seed: int, note: Note) -> None:
        self._room = room
        self._group = room.group
        self._note = note
        self._processes: list[SimulatedProcess] = []
        self._all_begun = trio.Event()
        self._has_recovered = False
        self.seed: Final = seed
        """What decides this run."""

    # --- what there is -------------------------------------------------------------------------

    @property
    def name_servers(self) -> list[str]:
        """What clients take: every node's `host:port`."""
        return self._group.name_servers()

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes."""
        return list(self._group.nodes)

    def master(self) -> str:
        """The node that takes messages now; empty while there is none."""
        return self._group.master() or ""

    def is_up(self, node: str) -> bool:
        """Whether a node runs."""
        return bool(self._node(node).is_up)

    async def start_process(
        self, function: Callable[..., Awaitable[object]], *arguments: object, name: str = ""
    ) -> SimulatedProcess:
        """Run an async function as a process: on a machine of its own, until it returns.

        An error that leaves it ends the test. Seeds kill and freeze it, and start it anew.
        """
        shown = name or f"{getattr(function, '__name__', 'process')}-{len(self._processes) + 1}"

        async def work(machine: Machine) -> None:
            machine_of_task.set(_ClientMachine(machine))
            await function(*arguments)

        process = SimulatedProcess(self._room.new_process(shown, work), self._note)
        self._processes.append(process)
        process.start()
        await trio.lowlevel.checkpoint()
        return process

    # --- what to hurt --------------------------------------------------------------------------

    def kill(self, node: str) -> None:
        """SIGKILL, as in a crash: what the disk had not synced is kept, as by Linux."""
        self._node(node)
        self._note("fault", f"kill {node}")
        self._group.kill(node)

    def kill_master(self) -> str:
        """Kill the master and return its name; empty if there is none now."""
        master = self.master()
        if master:
            self.kill(master)
        return master

    def power_off(self, node: str) -> None:
        """Cut the power of a node: what was not synced may be gone, and nobody hears of its end."""
        self._node(node)
        self._note("fault", f"power off {node}")
        self._group.power_off(node)

    def stop(self, node: str) -> None:
        """Stop a node in an orderly way; it takes a moment."""
        self._node(node)
        self._note("fault", f"stop {node}")
        self._group.stop(node)

    def start(self, node: str) -> None:
        """Start a node that is down; it takes a moment."""
        self._node(node)
        self._group.start(node)

    def freeze(self, node: str, seconds: float) -> None:
        """SIGSTOP, and SIGCONT this much later: its connections stay open and silent."""
        self._node(node)
        self._note("fault", f"freeze {node} for {seconds:g} s")
        self._group.freeze(node, seconds)

    def partition(self, *nodes: str) -> None:
        """Hold up what these nodes and the others send each other, and the coordinator, too.

        Clients reach every node. It ends with `heal`.
        """
        for node in nodes:
            self._node(node)
        self._note("fault", f"partition {' '.join(nodes)}")
        self._group.partition(nodes)

    def reset_connections(self, node: str) -> None:
        """Reset all connections of a node."""
        self._node(node)
        self._note("fault", f"reset connections of {node}")
        self._group.reset_connections(node)

    def slow_disk(self, node: str, seconds: float) -> None:
        """Have every sync of a node take this long. It ends with `heal`."""
        self._node(node)
        self._note("fault", f"slow disk of {node}: {seconds:g} s for a sync")
        self._group.slow_disk(node, seconds)

    def heal(self) -> None:
        """End every fault, and start what is down: nodes, and processes that were killed."""
        self._note("fault", "heal everything")
        self._group.heal()
        for process in self._processes:
            process.thaw()
            process.start()

    async def recover(self) -> None:
        """Wait until the last fault of the seed has begun, heal, and wait until all are in sync.

        Raises:
            NotInSyncError: they never are, and that is no fault of the test.
        """
        await self._all_begun.wait()
        self._has_recovered = True
        self.heal()
        if not await self._room.until_in_sync():
            raise NotInSyncError

    # --- what the seed does --------------------------------------------------------------------

    async def play_faults(self, plan: Sequence[PlannedFault]) -> None:
        """Play the plan of a seed, from now on, until it is over or all has recovered."""
        begin = trio.current_time()
        async with trio.open_nursery() as nursery:
            for fault in plan:
                await trio.sleep_until(begin + fault.at_seconds)
                nursery.start_soon(self._play_fault, fault)
            await trio.sleep(LAST_FAULT_SECONDS)
            self._all_begun.set()

    async def _play_fault(self, fault: PlannedFault) -> None:
        undo = self._begin(fault)
        await trio.sleep(fault.seconds)
        # What has recovered has nothing to undo, and may be hurt by the test itself by now.
        if not self._has_recovered:
            undo()

    def _begin(self, fault: PlannedFault) -> Callable[[], None]:
        """Begin a fault and return what ends it."""
        node = self.nodes[fault.choice % len(self.nodes)]
        if fault.kind.endswith("_master"):
            node = self.master() or node
        process = self._processes[fault.choice % len(self._processes)] if self._processes else None
        match fault.kind:
            case "kill_master" | "kill_node":
                self.kill(node)
                return lambda: self.start(node)
            case "freeze_master":
                self.freeze(node, fault.seconds)
            case "partition_master":
                self.partition(node)
                return lambda: self._group.end_partition([node])
            case "reset_connections":
                self.reset_connections(node)
            case "slow_disk":
                self.slow_disk(node, fault.seconds / 10)
                return lambda: self._group.slow_disk(node, 0.001)
            case "kill_process" if process is not None:
                process.kill()
                return process.start
            case "freeze_process" if process is not None:
                process.freeze(fault.seconds)
        return lambda: None

    def _node(self, name: str) -> Node:
        if name not in self._group.nodes:
            raise UnknownNodeError(name, self.nodes)
        node: Node = self._group.nodes[name]
        return node


def on_own_machine(room: Room) -> None:
    """Let clients that this task and its own make run on the machine of the test."""
    machine_of_task.set(_ClientMachine(room.own_machine()))

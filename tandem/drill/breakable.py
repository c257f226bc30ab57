"""What scenarios act on: nodes, the network between them, their disks and machines, and the load.

`NodeFailedError` and `NotPossibleError` are those of `scenario`.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tandem.drill.outcomes import SendMode
from tandem.drill.rot import Rot, RotKind
from tandem.drill.timeline import Phase


class Cluster(Protocol):
    """The nodes, to be broken, and their coordinator. Everything raises NodeFailedError."""

    async def start(self, node: str) -> None:
        """Start a node that is not running; returns once it recovered and listens."""
        ...

    async def stop(self, node: str) -> None:
        """Stop a node in an orderly way."""
        ...

    async def kill(self, node: str) -> None:
        """Kill -9; returns when the process is gone."""
        ...

    async def freeze(self, node: str) -> None:
        """Stop its process with SIGSTOP."""
        ...

    async def wake(self, node: str) -> None:
        """Let a frozen process go on."""
        ...

    async def resign(self, node: str) -> None:
        """Ask a master to give up."""
        ...

    async def promote(self, node: str) -> None:
        """Ask the master to hand over to this node."""
        ...

    async def by_hand(self, *order: str) -> str:
        """Run `tandem ha ORDER` on this cluster, as an operator does; return what it said."""
        ...

    def upgrade(self, node: str) -> None:
        """Let the next start of a node be of this version."""
        ...

    def go_back(self, node: str) -> None:
        """Let the next start of a node be of the version before."""
        ...

    def runs(self, node: str) -> bool:
        """Whether a node has a process."""
        ...

    def unexpected_exits(self) -> list[str]:
        """Nodes that ended by themselves, each as one sentence."""
        ...


class Network(Protocol):
    """The links between nodes, and of each with the coordinator."""

    def cut(self, source: str, target: str, *, replication_only: bool = False) -> None:
        """Hold all bytes from one to the other."""
        ...

    async def cut_off(self, node: str, others: Sequence[str]) -> None:
        """Hold all bytes between a node and all others, in both directions."""
        ...

    def slow(
        self, source: str, target: str, *, delay_seconds: float = 0, bytes_per_second: float = 0
    ) -> None:
        """Let bytes from one to the other arrive late, or few of them a second."""
        ...

    def reset(self, node: str) -> None:
        """Break all connections of a node that exist."""
        ...

    async def heal(self) -> None:
        """Undo everything."""
        ...

    async def disturb(self, node: str) -> str:
        """Connect to a node's replication ports and send nonsense; say what was done."""
        ...


class Disks(Protocol):
    """The file systems of the nodes' stores."""

    def fill(self, node: str) -> None:
        """Leave no room. Raises NotPossibleError."""
        ...

    def free(self, node: str) -> None:
        """Make room again."""
        ...

    def keep_copy(self, who: str) -> None:
        """Copy a directory as it is, of a node that may run. Blocks for as long as that takes."""
        ...

    def put_back(self, who: str) -> None:
        """Let the copy take the directory's place. Raises NodeFailedError without one."""
        ...

    def lose(self, node: str) -> None:
        """Leave an empty disk to a node that is down."""
        ...

    def count_files(self, node: str) -> int:
        """Return how many files are in the store of a node."""
        ...

    def room_bytes(self, who: str) -> int:
        """Return how much can be written to the disk of a node, or of the coordinator."""
        ...

    def damage_tail(self, node: str, size_bytes: int, *, cut: bool) -> None:
        """Cut off or overwrite the last bytes of the log of a node that is down."""
        ...

    def rot(self, node: str, kind: RotKind) -> Rot:
        """Hurt a full file of the log of a node; return what was done. Raises NodeFailedError."""
        ...

    def is_healed(self, node: str, rot: Rot) -> bool:
        """Whether what was hurt is as on the disks of all other nodes."""
        ...


class Felt(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine has done to its node, since the drill began."""

    syncs_delayed: int = 0
    syncs_forgotten: int = 0
    times_wrong: int = 0
    """How often the node read a wall clock that was wrong."""


class Machines(Protocol):
    """What is under the nodes. Everything raises NotPossibleError where there is none of ours."""

    def check_ready(self, nodes: Sequence[str]) -> None:
        """Find out that machines of nodes can be hurt, before anything is."""
        ...

    def cut_power(self, node: str) -> int:
        """Leave of the store of a node that is down what had been synced. It boots anew.

        Returns how many files and directories that has changed.
        """
        ...

    def felt(self, node: str) -> Felt:
        """Return what the machine of a node has done to it."""
        ...

    def new_disk(self, node: str) -> None:
        """Forget what was synced: the store is another one now."""
        ...

    def set_clock(self, node: str, ahead_seconds: float) -> None:
        """Let the wall clock of a node be that much ahead, or behind if it is below 0."""
        ...

    def slow_syncs(self, node: str, seconds: float) -> None:
        """Let each sync of a node take that much longer."""
        ...

    def lie_about_syncs(self, node: str) -> None:
        """Let syncs of a node be answered, and nothing be kept by them."""
        ...


class Load(Protocol):
    """The producers and consumers."""

    def latest(self, mode: SendMode, phase: Phase) -> list[str | None]:
        """Per producer: the status of its last answer to a send of this phase, if there is one."""
        ...

    def pause(self) -> None:
        """Let producers rest once their sends are answered."""
        ...

    def resume(self) -> None:
        """Let producers send again."""
        ...

    def left_to_send(self) -> int:
        """Lines of the input that have not been acknowledged yet."""
        ...

    def left_to_read(self) -> int:
        """Acknowledged messages that the consumers have not seen yet."""
        ...

    def allow_early(self, seconds: float) -> None:
        """Let groups get what waits before its time: a clock is that much ahead, or behind."""
        ...

    def left_to_handle(self) -> str | None:
        """Return in words what is owed to groups; None where no groups are audited."""
        ...

    def left_unpromised(self) -> int:
        """How much may still come to groups that nobody has promised."""
        ...

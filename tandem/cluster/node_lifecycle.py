"""The life of one node process, as its supervisor sees it: a state machine with no I/O in it.

            spawned()           ready()            paused()
    STOPPED --------> STARTING --------> RUNNING ----------> PAUSED
       ^               ^  |  |            |  |  <----------   |  |
       |     spawned() |  |  |            |  |    resumed()   |  |
       |               |  |  |            |  |                |  |
       |            FAILED <-|------------+--|----------------+  |     exited()
       |                     |               |                   |
       +---- STOPPING <------+---------------+-------------------+     stopping()
        exited()  |  ^
                  +--+ stopping()

An exit that nobody asked for is FAILED, whatever the exit status says.
"""

import enum
import signal
from typing import Final

import msgspec

from tandem.cluster.errors import NodeCommandError


class NodeState(enum.Enum):
    """Where a node process is in its life."""

    STOPPED = "STOPPED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPING = "STOPPING"
    FAILED = "FAILED"


_NEXT: Final = {
    (NodeState.STOPPED, "spawned"): NodeState.STARTING,
    (NodeState.FAILED, "spawned"): NodeState.STARTING,
    (NodeState.STARTING, "ready"): NodeState.RUNNING,
    (NodeState.RUNNING, "paused"): NodeState.PAUSED,
    (NodeState.PAUSED, "resumed"): NodeState.RUNNING,
    (NodeState.STARTING, "stopping"): NodeState.STOPPING,
    (NodeState.RUNNING, "stopping"): NodeState.STOPPING,
    (NodeState.PAUSED, "stopping"): NodeState.STOPPING,
    (NodeState.STOPPING, "stopping"): NodeState.STOPPING,
    (NodeState.STARTING, "exited"): NodeState.FAILED,
    (NodeState.RUNNING, "exited"): NodeState.FAILED,
    (NodeState.PAUSED, "exited"): NodeState.FAILED,
    (NodeState.STOPPING, "exited"): NodeState.STOPPED,
}

_HAS_PROCESS: Final = {
    NodeState.STARTING,
    NodeState.RUNNING,
    NodeState.PAUSED,
    NodeState.STOPPING,
}


class NodeExit(msgspec.Struct, frozen=True):
    """How a node process ended."""

    exit_status: int
    """As the system tells it; negative: the number of the signal that ended it."""
    last_line: str
    """The last line it wrote on standard error, empty if it wrote none."""

    @property
    def text(self) -> str:
        """One line for people."""
        if self.exit_status < 0:
            how = f"ended by {signal.Signals(-self.exit_status).name}"
        else:
            how = f"ended with status {self.exit_status}"
        # The last words of a killed process have nothing to do with its end.
        return f"{how}: {self.last_line}" if self.exit_status > 0 and self.last_line else how


class NodeStatus(msgspec.Struct, frozen=True):
    """What there is to know about one node, for people and over the control socket."""

    name: str
    role: str
    """At the moment: MASTER or SLAVE; in a fenced group MASTER or FOLLOWER, NODE if not known."""
    address: str
    state: NodeState
    pid: int | None
    starts_count: int
    last_exit: str
    """How the process before this one ended, if there is none now; empty otherwise."""


class NodeLifecycle:
    """The state of one node. Owned by the cluster that starts it.

    Invariant: `pid` is set exactly while there is a process that has not been reaped.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = NodeState.STOPPED
        self.pid: int | None = None
        self.starts_count = 0
        self.last_exit: NodeExit | None = None

    @property
    def has_process(self) -> bool:
        """Whether there is a process to send signals to."""
        return self.state in _HAS_PROCESS

    def spawned(self, pid: int) -> None:
        """A process was started for the node."""
        self._step("spawned", "started")
        self.pid = pid
        self.starts_count += 1
        self.last_exit = None

    def ready(self) -> None:
        """The process said that it serves."""
        self._step("ready", "called ready")

    def paused(self) -> None:
        """The process is to be frozen."""
        self._step("paused", "paused")

    def resumed(self) -> None:
        """The frozen process is to go on."""
        self._step("resumed", "resumed")

    def stopping(self) -> None:
        """The process is to end, kindly or not; from here its exit is expected."""
        self._step("stopping", "stopped")

    def exited(self, how: NodeExit) -> None:
        """The process has ended and was reaped."""
        self._step("exited", "reaped")
        self.pid = None
        self.last_exit = how

    def check(self, event: str, wish: str) -> None:
        """Refuse an event that does not fit the state, before anything is done for it.

        Raises:
            NodeCommandError: Says the state, in the words of the person's wish.
        """
        if (self.state, event) not in _NEXT:
            raise NodeCommandError(self.name, self.state.value, wish)

    def _step(self, event: str, wish: str) -> None:
        self.check(event, wish)
        self.state = _NEXT[self.state, event]

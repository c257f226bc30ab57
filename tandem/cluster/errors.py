"""What can go wrong with a local cluster, by whose doing it is.

What is wrong with its file is in `tandem.cluster_file.errors`.

Every text is one that a person at a terminal can act on; the command line prints it as it is.
"""

from collections.abc import Sequence
from pathlib import Path

from tandem.cluster_file.errors import ClusterError


class AlreadyRunningError(ClusterError):
    """A supervisor has this cluster already. Use it, or take it down first.

    Attributes:
        pid: The process id of that supervisor.
    """

    def __init__(self, config: Path, pid: int) -> None:
        self.pid = pid
        super().__init__(
            f"the cluster of {config} is up already (supervisor {pid});"
            " stop it with `tandem cluster down`"
        )


class NotRunningError(ClusterError):
    """No supervisor has this cluster. `instead` is said in place of how to start one."""

    def __init__(self, config: Path, instead: str = "") -> None:
        self.config = config
        is_not_up = f"the cluster of {config} is not up; start it with `tandem cluster up`"
        super().__init__(instead or is_not_up)


class NotOursError(ClusterError):
    """Nodes of the cluster run by themselves, or belong to other machines. Nothing was touched.

    Attributes:
        names: Those nodes.
    """

    def __init__(self, names: Sequence[str], text: str) -> None:
        self.names = list(names)
        super().__init__(text)


class NodeCommandError(ClusterError):
    """A command does not fit the state that the node is in; nothing was done.

    Attributes:
        name: The node.
        state: The value of its `NodeState`.
        wish: What it was to be: "started", "killed", ...
    """

    def __init__(self, name: str, state: str, wish: str) -> None:
        super().__init__(name, state, wish)
        self.name = name
        self.state = state
        self.wish = wish

    def __str__(self) -> str:
        return f"{self.name} is {self.state}: it cannot be {self.wish}"


class OrderVersionError(ClusterError):
    """An order is of a later version than the supervisor.

    Attributes:
        version: Of the order.
        known: The highest that the supervisor knows.
    """

    def __init__(self, version: int, known: int) -> None:
        super().__init__(version, known)
        self.version = version
        self.known = known

    def __str__(self) -> str:
        return (
            f"this order is of version {self.version}, and the supervisor, which began before the"
            f" upgrade, knows none above {self.known}: `tandem cluster down` of the version before,"
            " and `tandem cluster up`"
        )


class NoNodeNamedError(ClusterError):
    """A command needs the name of a node, and has none.

    Attributes:
        command: The command.
    """

    def __init__(self, command: str) -> None:
        super().__init__(command)
        self.command = command

    def __str__(self) -> str:
        return f"{self.command} needs the name of a node"


class NodeStartError(ClusterError):
    """A node ended, or did not become ready in time, while it was starting.

    Attributes:
        name: The node.
        exit_status: Its exit status (negative: the signal), None if it was still running.
        reason: The last line it wrote, or how long it was waited for.
        log_file: All that it wrote.
    """

    def __init__(self, name: str, exit_status: int | None, reason: str, log_file: Path) -> None:
        self.name = name
        self.exit_status = exit_status
        self.reason = reason
        self.log_file = log_file
        super().__init__(f"{name} did not start: {reason} (log: {log_file})")


class AuditFileError(ClusterError):
    """Who orders what cannot be written.

    Attributes:
        file: Where it was to be.
    """

    def __init__(self, file: Path, reason: str) -> None:
        self.file = file
        super().__init__(
            f"{file}: who orders what cannot be written there: {reason}; let this user write there"
        )


class NoCoordinatorError(ClusterError):
    """The cluster has no coordinator, or serves none of its own. Nothing was done."""


class CoordinatorStoppedError(ClusterError):
    """The embedded coordinator does not run; start it."""


class CoordinatorStartError(ClusterError):
    """The embedded coordinator of the fenced groups cannot be served.

    If it is for its journal, `__cause__` says what is wrong with that.
    """


class CoordinatorRunsError(CoordinatorStartError):
    """It is served already."""


class CoordinatorAddressError(CoordinatorStartError):
    """Nobody can listen at its address, most likely because the port is taken.

    Attributes:
        address: The address.
        port: The port.
    """

    def __init__(self, address: str, port: int, reason: str) -> None:
        super().__init__(address, port, reason)
        self.address = address
        self.port = port
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the coordinator cannot be served at {self.address}:{self.port}: {self.reason};"
            " stop what has the port, or set coordinator.port in the cluster file"
        )


class WrongSystemError(ClusterError):
    """Nodes do not run on this system.

    Attributes:
        system: Its name, as in `sys.platform`.
    """

    def __init__(self, system: str) -> None:
        super().__init__(system)
        self.system = system

    def __str__(self) -> str:
        return (
            f"nodes run on Linux, and this is {self.system}: start them in a container or a virtual"
            " machine with Linux; clients of it may be anywhere"
        )


class ForkServerError(ClusterError):
    """A fork server could not start a process, or is gone."""


class ForkServerGoneError(ForkServerError):
    """The fork server has ended."""


class ControlError(ClusterError):
    """The supervisor refused a command, or did not answer as a supervisor does."""


class OrderRefusedError(ControlError):
    """The supervisor refused a command, or could not start the cluster. The text is its own.

    Attributes:
        refusal: The name of the class of the error that it has met.
    """

    def __init__(self, text: str, refusal: str) -> None:
        super().__init__(text, refusal)
        self.text = text
        self.refusal = refusal

    def __str__(self) -> str:
        return self.text


class SupervisorGoneError(ControlError):
    """The supervisor ended, or was silent, before it had answered."""


class SocketDirectoryError(ControlError):
    """The directory for sockets of supervisors belongs to somebody else.

    Attributes:
        path: The directory.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path} belongs to somebody else; set TMPDIR to another directory"

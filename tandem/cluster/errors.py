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
    """A command does not fit the state that the node is in; nothing was done."""


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


class CoordinatorStartError(ClusterError):
    """The embedded coordinator of the fenced groups cannot be served."""


class ForkServerError(ClusterError):
    """A fork server could not start a process, or is gone."""


class ControlError(ClusterError):
    """The supervisor refused a command, or did not answer as a supervisor does."""

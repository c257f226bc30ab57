"""What can go wrong with a local cluster, by whose doing it is.

What is wrong with its file is in `tandem.cluster_file.errors`.

Every text is one that a person at a terminal can act on; the command line prints it as it is.
"""

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
    """No supervisor has this cluster. Start one first."""

    def __init__(self, config: Path) -> None:
        self.config = config
        super().__init__(f"the cluster of {config} is not up; start it with `tandem cluster up`")


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

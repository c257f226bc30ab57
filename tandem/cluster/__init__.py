"""A cluster of node processes on this machine: start, watch, hurt and stop them.

The names below are loaded when first used, so that reading a cluster file loads no trio.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tandem.cluster.errors import (
        AlreadyRunningError,
        ControlError,
        CoordinatorAddressError,
        CoordinatorRunsError,
        CoordinatorStartError,
        CoordinatorStoppedError,
        NoCoordinatorError,
        NodeCommandError,
        NodeStartError,
        NoNodeNamedError,
        NotOursError,
        NotRunningError,
        OrderRefusedError,
        SocketDirectoryError,
        SupervisorGoneError,
        WrongSystemError,
    )
    from tandem.cluster.local_cluster import LocalCluster
    from tandem.cluster.node_lifecycle import NodeState, NodeStatus
    from tandem.cluster.spec import ClusterSpec, GroupSpec, NodeSpec, default_config, read_spec
    from tandem.cluster_file.coordinator_settings import CoordinatorSettings
    from tandem.cluster_file.errors import ClusterConfigError, ClusterError, UnknownNodeError

_HOMES: Final = {
    "ClusterConfigError": "tandem.cluster_file.errors",
    "ClusterError": "tandem.cluster_file.errors",
    "ClusterSpec": "tandem.cluster.spec",
    "CoordinatorSettings": "tandem.cluster_file.coordinator_settings",
    "GroupSpec": "tandem.cluster.spec",
    "LocalCluster": "tandem.cluster.local_cluster",
    "NodeSpec": "tandem.cluster.spec",
    "NodeState": "tandem.cluster.node_lifecycle",
    "NodeStatus": "tandem.cluster.node_lifecycle",
    "UnknownNodeError": "tandem.cluster_file.errors",
    "default_config": "tandem.cluster.spec",
    "read_spec": "tandem.cluster.spec",
}
"""Where the names live that `tandem.cluster.errors` does not have."""

__all__ = [
    "AlreadyRunningError",
    "ClusterConfigError",
    "ClusterError",
    "ClusterSpec",
    "ControlError",
    "CoordinatorAddressError",
    "CoordinatorRunsError",
    "CoordinatorSettings",
    "CoordinatorStartError",
    "CoordinatorStoppedError",
    "GroupSpec",
    "LocalCluster",
    "NoCoordinatorError",
    "NoNodeNamedError",
    "NodeCommandError",
    "NodeSpec",
    "NodeStartError",
    "NodeState",
    "NodeStatus",
    "NotOursError",
    "NotRunningError",
    "OrderRefusedError",
    "SocketDirectoryError",
    "SupervisorGoneError",
    "UnknownNodeError",
    "WrongSystemError",
    "default_config",
    "read_spec",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'tandem.cluster' has no attribute {name!r}")
    home = _HOMES.get(name, "tandem.cluster.errors")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

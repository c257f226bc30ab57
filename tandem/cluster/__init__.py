"""A cluster of node processes on this machine: start, watch, hurt and stop them."""

from tandem.cluster.errors import (
    AlreadyRunningError,
    ClusterConfigError,
    ClusterError,
    ControlError,
    CoordinatorStartError,
    NodeCommandError,
    NodeStartError,
    NotRunningError,
    UnknownNodeError,
)
from tandem.cluster.local_cluster import LocalCluster, NodeStatus
from tandem.cluster.node_lifecycle import NodeState
from tandem.cluster.spec import (
    ClusterSpec,
    CoordinatorSpec,
    GroupSpec,
    NodeSpec,
    default_config,
    read_spec,
)

__all__ = [
    "AlreadyRunningError",
    "ClusterConfigError",
    "ClusterError",
    "ClusterSpec",
    "ControlError",
    "CoordinatorSpec",
    "CoordinatorStartError",
    "GroupSpec",
    "LocalCluster",
    "NodeCommandError",
    "NodeSpec",
    "NodeStartError",
    "NodeState",
    "NodeStatus",
    "NotRunningError",
    "UnknownNodeError",
    "default_config",
    "read_spec",
]

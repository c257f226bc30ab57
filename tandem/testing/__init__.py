"""Clusters in tests: real ones, each node a process, as fixtures for pytest; and simulated ones.

`pip install tandem-mq[testing]` is all there is to do; see `tandem.testing.plugin` for the fixtures
and `RunningCluster` for what one can do to a cluster; `simulated_cluster` for one on virtual time,
played with a thousand seeds.

The names below are loaded when first used, so that a test run without clusters pays nothing.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tandem.testing.cluster import RunningCluster
    from tandem.testing.cluster_files import GROUP, Kind, write_cluster_file
    from tandem.testing.effects import Effects
    from tandem.testing.faults import Fault
    from tandem.testing.simulated import SimulatedCluster, SimulatedProcess
    from tandem.testing.simulation import simulated_cluster
    from tandem.testing.start import running_cluster, running_fenced_cluster

_HOMES: Final = {
    "Effects": "tandem.testing.effects",
    "GROUP": "tandem.testing.cluster_files",
    "Fault": "tandem.testing.faults",
    "Kind": "tandem.testing.cluster_files",
    "RunningCluster": "tandem.testing.cluster",
    "SimulatedCluster": "tandem.testing.simulated",
    "SimulatedProcess": "tandem.testing.simulated",
    "running_cluster": "tandem.testing.start",
    "running_fenced_cluster": "tandem.testing.start",
    "simulated_cluster": "tandem.testing.simulation",
    "write_cluster_file": "tandem.testing.cluster_files",
}

__all__ = [
    "GROUP",
    "Effects",
    "Fault",
    "Kind",
    "RunningCluster",
    "SimulatedCluster",
    "SimulatedProcess",
    "running_cluster",
    "running_fenced_cluster",
    "simulated_cluster",
    "write_cluster_file",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tandem.testing' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""What hatchling puts into a wheel besides the packages that are imported by their own names.

An editable installation has the checkout itself, where all of this is at the top.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SERVER_PACKAGES = ("node", "ha", "store")

DISCOVERY = "tandem/spark/discovery"
"""Its modules are found by Spark where they are at the top."""


class ServerPackages(BuildHookInterface):
    """Maps the packages of the server into `tandem_server`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add to what is included. `version` is `standard` or `editable`."""
        if version == "editable":
            return
        included = build_data["force_include"]
        for name in SERVER_PACKAGES:
            included[f"{self.root}/{name}"] = f"tandem_server/{name}"
        for module in Path(self.root, DISCOVERY).glob("pyspark_*.py"):
            included[str(module)] = module.name
        # The example cluster is also what `tandem cluster up` starts where there is no other.
        included[f"{self.root}/cluster.yaml"] = "tandem/cluster/cluster.yaml"

"""Imports what a node needs, for a process that forks nodes: see `tandem.cluster.forking`."""

import importlib
import sys
from pathlib import Path

from tandem_server.__main__ import directory_of_programs

sys.path.insert(0, str(directory_of_programs(Path(__file__).resolve().parent)))

# Not `node.__main__`, which each node runs itself.
for _name in ("argparse", "node.run", "tandem.coordinator.client", "tandem.process_log"):
    importlib.import_module(_name)

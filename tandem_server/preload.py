"""Imports what a node needs, for a process that forks nodes: see `tandem.cluster.forking`."""

import importlib

from tandem_server.__main__ import make_importable

make_importable()

# Not `node.__main__`, which each node runs itself.
for _name in ("argparse", "node.run", "tandem.coordinator.client", "tandem.process_log"):
    importlib.import_module(_name)

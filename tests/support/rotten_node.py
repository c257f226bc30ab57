"""A node of a simulated group with a log of three full files, to be hurt."""

from node.simulated.disk import SimulatedDisk
from node.simulated.virtual_clock import WallClock
from tandem.cluster_file.cluster_config import NodeConfig
from tests.sim.engine.node import SimulatedNode
from tests.sim.fenced.settings import draw_settings
from tests.sim.fenced.simulation import cluster_config
from tests.support.log_builder import LogBuilder

FILE_BYTES = 4096


def a_node(*, message_count: int = 60) -> SimulatedNode:
    """Return it; nothing runs on it."""
    config = cluster_config(draw_settings(1))
    node = SimulatedNode(NodeConfig(config, config.nodes[0]), SimulatedDisk(), WallClock())
    log = LogBuilder(file_bytes=FILE_BYTES)
    for number in range(message_count):
        log.put(body=b"body %d " % number * 20)
    data = bytes(log.log)
    for start in range(0, len(data), FILE_BYTES):
        piece = data[start : start + FILE_BYTES].ljust(FILE_BYTES, b"\0")
        node.disk.replace(f"{node.directory}/commitlog/{start:020d}", piece)
    return node

import random

import pytest

from tandem.cluster_file.cluster_config import NodeConfig
from tests.sim.engine.node import SimulatedNode, read_log
from tests.sim.engine.whole_disk import is_healed
from tests.sim.fenced.rot import OF_STOPPED, rot_log
from tests.sim.fenced.settings import draw_settings
from tests.sim.fenced.simulation import cluster_config
from tests.support.log_builder import LogBuilder
from tests.support.simulated_disk import SimulatedDisk
from tests.support.virtual_clock import WallClock

FILE_BYTES = 4096


def a_node(*, message_count: int = 60) -> SimulatedNode:
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


@pytest.mark.parametrize("kind", dict.fromkeys(OF_STOPPED))
def test_what_rots_is_read_as_it_was_until_it_is_whole(kind: str) -> None:
    for seed in range(20):
        node = a_node()
        log = read_log(node)
        rot = rot_log(node, kind, 2 * FILE_BYTES, random.Random(seed), share=(0, 1))
        if rot is None:
            continue  # a sector that was written where it is
        assert not is_healed(rot, node.disk)
        node.rots.append(rot)
        assert read_log(node) == log
        node.disk.replace(rot.path, rot.before)
        assert is_healed(rot, node.disk)
        node.rots.clear()
        assert read_log(node) == log


def test_only_files_that_all_have_rot_and_of_each_node_others() -> None:
    hurt = {
        (number, rot.path)
        for seed in range(30)
        for number in range(3)
        if (rot := rot_log(a_node(), "flip", 3 * FILE_BYTES, random.Random(seed), (number, 3)))
    }
    names = {number: path.rpartition("/")[2] for number, path in hurt}
    assert names == {number: f"{number * FILE_BYTES:020d}" for number in range(3)}
    assert len(hurt) == 3


def test_nothing_rots_where_no_file_is_full() -> None:
    assert rot_log(a_node(), "any", FILE_BYTES - 1, random.Random(1), share=(0, 1)) is None

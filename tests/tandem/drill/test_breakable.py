"""The parts of the stage have the same methods, whoever plays them."""

import inspect

import pytest

from tandem.drill import breakable
from tandem.drill.consumers.both_loads import BothLoads
from tandem.drill.drilled import DrilledNetwork, DrilledNodes
from tandem.drill.machines import Machines
from tandem.drill.small_disks import Disks
from tandem.drill.targets.process_nodes import ProcessNetwork, ProcessNodes
from tests.tandem.drill.fake_world import World


@pytest.mark.parametrize(
    ("part", "players"),
    [
        (breakable.Cluster, (DrilledNodes, ProcessNodes, World)),
        (breakable.Network, (DrilledNetwork, ProcessNetwork, World)),
        (breakable.Disks, (Disks, World)),
        (breakable.Machines, (Machines, World)),
        (breakable.Load, (BothLoads, World)),
    ],
)
def test_each_part_is_played_whole(part: type, players: tuple[type, ...]) -> None:
    asked = {name: value for name, value in vars(part).items() if inspect.isfunction(value)}
    own = {name: value for name, value in asked.items() if not name.startswith("_")}
    assert own
    for player in players:
        for name, method in own.items():
            there = getattr(player, name)
            assert inspect.iscoroutinefunction(there) == inspect.iscoroutinefunction(method)
            wanted = list(inspect.signature(method).parameters)
            assert list(inspect.signature(there).parameters) == wanted

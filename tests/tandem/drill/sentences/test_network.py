import pytest
import trio.testing

from tandem.drill.scenario_file import parse_scenario
from tandem.drill.sentences.sentence import Fault
from tests.tandem.drill.fake_world import MASTER, SLAVES, World


async def test_links_are_cut_by_direction_and_port(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.play(
        "cut slave 1 from everything",
        "cut bytes from the master to the coordinator",
        "cut replication between the master and slave 2",
        "delay slave 1 and slave 2 by 50 ms",
        "limit bytes to slave 1 to 20 kB/s",
        "reset connections of slave 1",
        "disturb slave 2",
        "heal the network",
    )
    one, two = SLAVES
    assert world.done == [
        *(f"cut {a} {b}" for other in (MASTER, two) for a, b in ((one, other), (other, one))),
        f"cut {one} coordinator",
        f"cut coordinator {one}",
        f"cut {MASTER} coordinator",
        f"cut {MASTER} {two} replication",
        f"cut {two} {MASTER} replication",
        f"slow {one} {two} 0.05 0",
        f"slow {two} {one} 0.05 0",
        *(f"slow {other} {one} 0 20000" for other in (MASTER, two, "coordinator")),
        f"reset {one}",
        f"disturb {two}",
        "heal",
    ]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("cut the master from everything", Fault.CUT_OFF),
        ("heal the network", Fault.CUT_OFF),
        ("cut the master from slave 1", Fault.NETWORK),
        ("cut bytes from the master to everything", Fault.NETWORK),
        ("delay slave 1 and everything by 5 ms", Fault.NETWORK),
    ],
)
def test_to_cut_a_node_off_is_less_than_to_cut_a_link(line: str, fault: Fault) -> None:
    scenario = parse_scenario(f"promise: x\nsteps:\n  - {line}\n", "x", "here")
    assert scenario.faults == {fault}

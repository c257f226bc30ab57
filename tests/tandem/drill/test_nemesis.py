from collections import Counter
from random import Random

import pytest

from tandem.cluster_file.choices import GroupKind
from tandem.drill.nemesis import DOWN, NETWORK, Case, Fault, World, case_of, scenario_text
from tandem.drill.scenario_file import parse_scenario

NODES = ("broker-a-0", "broker-a-1", "broker-a-2")
FENCED = World(group=GroupKind.FENCED, nodes=NODES, owns_coordinator=True)
CLASSIC = World(group=GroupKind.CLASSIC, nodes=NODES)
WORLDS = pytest.mark.parametrize("world", [FENCED, CLASSIC], ids=["fenced", "classic"])


@WORLDS
def test_a_seed_always_does_the_same_and_another_one_something_else(world: World) -> None:
    assert case_of(7, world) == case_of(7, world)
    assert len({case_of(seed, world) for seed in range(50)}) == 50


@pytest.mark.slow
@WORLDS
def test_whatever_a_seed_does_is_a_scenario(world: World) -> None:
    for seed in range(200):
        case = case_of(seed, world)
        text = scenario_text(case, "x", ["a comment: of two\nlines"])
        scenario = parse_scenario(text, "random", "here")
        assert [step.text for step in scenario.steps] == case.steps()
        assert scenario.group is world.group


@WORLDS
def test_whatever_is_left_out_the_rest_is_a_scenario(world: World) -> None:
    chance = Random(1)
    for seed in range(100):
        case = case_of(seed, world)
        rounds = tuple(
            tuple(fault for fault in faults if chance.random() < 0.5) for faults in case.rounds
        )
        part = Case(seed=seed, group=case.group, rounds=rounds)
        parse_scenario(scenario_text(part, "x"), "random", "here")


@WORLDS
def test_what_is_hurt_is_healed_in_its_round(world: World) -> None:
    for seed in range(200):
        for number, faults in enumerate(case_of(seed, world).rounds):
            steps = Case(seed=1, group=world.group, rounds=(faults,)).steps()
            for fault in faults:
                at = steps.index(fault.step)
                assert not fault.undo or fault.undo in steps[at:], (seed, number)
            hurt = [node for fault in faults for node in fault.nodes]
            assert len(hurt) == len(set(hurt)), "a node is ended or frozen once in a round"


def test_the_network_is_healed_before_nodes_start() -> None:
    faults = (Fault("kill broker-a-0", ("broker-a-0",), DOWN), Fault("cut x from y", (), NETWORK))
    steps = Case(seed=1, group=GroupKind.FENCED, rounds=(faults,)).steps()
    assert steps.index("heal the network") < steps.index("start whoever is down")


def test_faults_come_by_their_weights() -> None:
    found = Counter(
        fault.step.split()[0]
        for seed in range(500)
        for faults in case_of(seed, FENCED).rounds
        for fault in faults
    )
    assert found.keys() == {
        "kill", "stop", "freeze", "restart", "cut", "delay", "limit", "reset", "disturb"
    }  # fmt: skip
    assert found["cut"] > found["kill"] > found["limit"]


def test_only_a_coordinator_of_ours_is_restarted() -> None:
    others = World(group=GroupKind.FENCED, nodes=NODES)
    for seed in range(200):
        assert "restart the coordinator" not in case_of(seed, others).steps()


def test_one_node_alone_can_be_hurt() -> None:
    alone = World(group=GroupKind.FENCED, nodes=("a",))
    assert sum(case_of(seed, alone).faults for seed in range(50)) > 50

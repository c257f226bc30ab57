"""The plans that seeds write for classic groups."""

import random

from tests.sim.classic.faults import ClassicFaultMix, ClassicPlanner
from tests.sim.classic.settings import NOT_BESIDE_ROT, draw_settings
from tests.sim.engine.faults import BY_HAND, VERBS, Instruction, parse_instruction

NODES = ["broker-a-0", "broker-a-1", "broker-a-2"]
CLIENTS = ["client-0", "client-1"]


def _plan(seed: int, mix: ClassicFaultMix | None = None) -> list[Instruction]:
    return ClassicPlanner(random.Random(seed), NODES, CLIENTS, mix or ClassicFaultMix()).plan()


def test_a_seed_always_writes_the_same_plan() -> None:
    assert _plan(3) == _plan(3)
    assert _plan(3) != _plan(4)


def test_plans_are_in_order_and_in_the_language() -> None:
    for seed in range(50):
        plan = _plan(seed)
        assert plan == sorted(plan, key=lambda instruction: instruction.at_seconds)
        assert [parse_instruction(str(instruction)) for instruction in plan] == plan


def test_every_fault_is_ended_by_the_plan_itself() -> None:
    ends = {
        "kill": "start",
        "kill-at-disk": "start",
        "kill-at-send": "start",
        "power-off": "start",
        "stop": "start",
        "stall": "heal",
        "slow": "heal",
        "disk-full": "disk-ok",
        "disk-slow": "disk-ok",
        "disk-fails": "disk-ok",
    }
    for seed in range(50):
        plan = _plan(seed)
        for instruction in plan:
            if end := ends.get(instruction.verb):
                assert any(
                    later.verb == end
                    and later.arguments == instruction.arguments[: VERBS[end]]
                    and later.at_seconds >= instruction.at_seconds
                    for later in plan
                ), (seed, str(instruction))


def test_the_master_loses_power_only_where_that_is_allowed() -> None:
    def loses_power(mix: ClassicFaultMix) -> bool:
        return any(
            instruction.verb == "power-off" and instruction.arguments == (NODES[0],)
            for seed in range(60)
            for instruction in _plan(seed, mix)
        )

    assert not loses_power(ClassicFaultMix())
    assert loses_power(ClassicFaultMix(master_power_loss=True))
    assert loses_power(ClassicFaultMix(master_power_loss=True, slave_power_loss=False))
    assert not loses_power(ClassicFaultMix(slave_power_loss=False))


def test_seeds_reach_every_fault() -> None:
    seen = {instruction.verb for seed in range(90) for instruction in _plan(seed)}
    assert seen == set(VERBS) - BY_HAND - {"rot"}


def test_the_disk_of_one_node_rots_in_some_seeds_and_its_first_file_is_lost_in_some() -> None:
    settings = list(map(draw_settings, range(300)))
    rotting = [each for each in settings if each.rots]
    assert 0.15 < len(rotting) / len(settings) < 0.35
    kinds = set()
    for each in rotting:
        rots = [i for i in each.plan if i.verb == "rot"]
        assert len({i.arguments[0] for i in rots}) == 1
        kinds |= {i.arguments[1] for i in rots}
        assert not {i.verb for i in each.plan} & NOT_BESIDE_ROT
        assert [parse_instruction(str(i)) for i in each.plan] == list(each.plan)
    assert kinds == {"any", "lose-first"}

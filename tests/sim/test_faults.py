"""The language of faults, and the plans that seeds write in it."""

import random

import pytest

from tests.sim.faults import (
    VERBS,
    FaultMix,
    Instruction,
    parse_instruction,
    parse_plan,
    plan_faults,
)

NODES = ["broker-a-0", "broker-a-1", "broker-a-2"]
CLIENTS = ["client-0", "client-1"]


def _plan(seed: int, mix: FaultMix | None = None) -> list[Instruction]:
    return plan_faults(random.Random(seed), NODES, CLIENTS, mix or FaultMix())


def test_an_instruction_reads_as_it_is_written() -> None:
    line = "at 1.500 slow broker-a-0 client-1 0.05 20000"
    instruction = parse_instruction(line)
    assert instruction == Instruction(1.5, "slow", ("broker-a-0", "client-1", "0.05", "20000"))
    assert str(instruction) == line


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("kill broker-a-0", "expected 'at SECONDS"),
        ("at 1.0 murder broker-a-0", "'murder' is not one of kill, kill-at-disk"),
        ("at 1.0 stall broker-a-0", "stall takes 2 arguments"),
        ("at soon kill broker-a-0", "could not convert"),
    ],
)
def test_a_line_outside_the_language_is_refused_with_the_reason(line: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_instruction(line)


def test_prose_and_empty_lines_are_skipped() -> None:
    assert list(parse_plan(["# why", "", "at 1.000 kill broker-a-0"])) == [
        Instruction(1.0, "kill", ("broker-a-0",))
    ]


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
    def loses_power(mix: FaultMix) -> bool:
        return any(
            instruction.verb == "power-off" and instruction.arguments == (NODES[0],)
            for seed in range(60)
            for instruction in _plan(seed, mix)
        )

    assert not loses_power(FaultMix())
    assert loses_power(FaultMix(master_power_loss=True))
    assert loses_power(FaultMix(master_power_loss=True, slave_power_loss=False))
    assert not loses_power(FaultMix(slave_power_loss=False))


def test_seeds_reach_every_fault() -> None:
    seen = {instruction.verb for seed in range(90) for instruction in _plan(seed)}
    assert seen == set(VERBS) - {"wipe"}

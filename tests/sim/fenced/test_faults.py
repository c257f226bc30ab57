"""The plans that seeds write for fenced groups."""

import random

from tandem.cluster_file.choices import AckLevel
from tests.sim.engine.faults import (
    BLACKOUT,
    BY_HAND,
    FENCED_VERBS,
    Instruction,
    parse_instruction,
)
from tests.sim.fenced.faults import ROT_VERBS, FencedFaultMix, FencedPlanner
from tests.sim.fenced.settings import NOT_BESIDE_ROT, draw_settings

NODES = ["broker-a-0", "broker-a-1", "broker-a-2"]
CLIENTS = ["127.0.1.1", "127.0.1.2"]


def _plan(seed: int, mix: FencedFaultMix | None = None) -> list[Instruction]:
    chosen = mix or FencedFaultMix(powered=(NODES[1],), spoiled=(NODES[1],))
    return FencedPlanner(random.Random(seed), NODES, CLIENTS, chosen).plan()


def test_the_same_chance_writes_the_same_plan() -> None:
    assert _plan(5) == _plan(5)
    assert _plan(5) != _plan(6)


def test_plans_are_in_the_language_and_in_order_of_time() -> None:
    for seed in range(200):
        plan = _plan(seed)
        assert plan
        assert [i.at_seconds for i in plan] == sorted(i.at_seconds for i in plan)
        for instruction in plan:
            assert parse_instruction(str(instruction)) == instruction


def test_seeds_reach_every_fault() -> None:
    seen = {instruction.verb for seed in range(1_000) for instruction in _plan(seed)}
    peers = {"stall-peers", "heal-peers"}
    assert seen == set(FENCED_VERBS) - BY_HAND - {BLACKOUT, "scrub", *ROT_VERBS, *peers}


def test_disks_rot_in_seeds_that_leave_a_whole_copy() -> None:
    verbs = [{i.verb for i in draw_settings(seed).plan} for seed in range(300)]
    rotting = [seen for seen in verbs if seen & set(ROT_VERBS)]
    assert 0.2 < len(rotting) / len(verbs) < 0.4
    assert any("scrub" in seen for seen in rotting)
    assert not set().union(*rotting) & NOT_BESIDE_ROT


def test_damage_stays_open_in_most_of_them() -> None:
    settings = [s for s in map(draw_settings, range(300)) if s.rots]
    verbs = [{i.verb for i in s.plan} for s in settings]
    is_open = [bool(seen & {"stall-peers", "rot-twin"}) for seen in verbs]
    assert any(
        "rot lose-first" in " ".join((i.verb, *i.arguments[1:])) for s in settings for i in s.plan
    )
    assert 0.4 < sum(is_open) / len(is_open) < 0.8
    for each, seen in zip(settings, verbs, strict=True):
        assert ("stall-peers" in seen) <= ("heal-peers" in seen)
        assert each.plan[-1].at_seconds < each.load_seconds or "stall-peers" not in seen
        assert [parse_instruction(str(i)) for i in each.plan] == list(each.plan)


def test_seeds_reach_a_blackout_where_it_takes_something() -> None:
    for seed in range(300):
        settings = draw_settings(seed)
        if any(instruction.verb == BLACKOUT for instruction in settings.plan):
            assert settings.ack_level is AckLevel.WRITTEN
            assert settings.plan[-1].verb == BLACKOUT
            return
    raise AssertionError("no seed has one")


def test_only_those_lose_power_that_may() -> None:
    victims = {
        instruction.arguments[0]
        for seed in range(300)
        for instruction in _plan(seed)
        if instruction.verb == "power-off"
    }
    assert victims == {NODES[1]}
    without = FencedFaultMix()
    for seed in range(300):
        verbs = {instruction.verb for instruction in _plan(seed, without)}
        assert not verbs & {"power-off", "flip-tail"}

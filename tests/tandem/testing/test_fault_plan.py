import pytest

from tandem.testing.fault_plan import FAULT_KINDS, FAULTS_COUNT_MAX, planned_faults


def test_a_seed_is_one_plan_and_another_seed_another() -> None:
    plans = [planned_faults(seed, FAULT_KINDS, 5.0) for seed in range(50)]
    assert plans == [planned_faults(seed, FAULT_KINDS, 5.0) for seed in range(50)]
    assert len({tuple(plan) for plan in plans}) == 50


def test_a_thousand_seeds_play_every_fault_early_and_late() -> None:
    faults = [f for seed in range(1000) for f in planned_faults(seed, FAULT_KINDS, 5.0)]
    assert {fault.kind for fault in faults} == set(FAULT_KINDS)
    times = [fault.at_seconds for fault in faults]
    assert min(times) < 0.01
    assert 4.0 < max(times) <= 5.0
    for early, late in ((0.002, 0.02), (0.02, 0.2), (0.2, 5.0)):
        assert sum(early <= time < late for time in times) > len(times) / 20


def test_a_plan_is_in_order_of_time_and_short() -> None:
    for seed in range(200):
        plan = planned_faults(seed, FAULT_KINDS, 5.0)
        assert 1 <= len(plan) <= FAULTS_COUNT_MAX
        assert plan == sorted(plan, key=lambda fault: fault.at_seconds)
        assert all(fault.seconds > 0 for fault in plan)


def test_only_what_is_asked_for_happens() -> None:
    faults = [f for seed in range(100) for f in planned_faults(seed, ("kill_master",), 5.0)]
    assert {fault.kind for fault in faults} == {"kill_master"}
    assert planned_faults(1, (), 5.0) == []


def test_what_is_no_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="kill_master"):
        planned_faults(1, ("kill_everybody",), 5.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="second"):
        planned_faults(1, FAULT_KINDS, 0.0)


def test_a_line_of_a_plan_says_when_what_and_for_how_long() -> None:
    (fault, *_) = planned_faults(3, ("freeze_master",), 5.0)
    said = str(fault)
    assert f"{fault.at_seconds:.3f}" in said
    assert "freeze_master" in said
    assert f"{fault.seconds:.3f}" in said

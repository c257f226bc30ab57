"""Whose fault it is that something was not seen; of leases: test_summary, test_lost_leases."""

import msgspec
import pytest

from tandem.drill.headline import in_words
from tandem.drill.lost_leases import Late
from tandem.drill.plan import TargetFacts
from tandem.drill.summary import Summary, summarise, why
from tandem.drill.witness_audit import WitnessSummary
from tests.tandem.drill import samples
from tests.tandem.drill.consumers.planted_consumers import PLANTS, judged_promises

BEFORE_FAULT = msgspec.structs.replace(samples.expectation(held=False), at_seconds=2.0)
"""The samples' first fault is at 3 s, their lease takes some seconds."""


def judged(
    *lateness: Late,
    at_seconds: float = 2.0,
    is_liveness: bool = True,
    waited_seconds: float = 0.0,
) -> Summary:
    missed = msgspec.structs.replace(
        BEFORE_FAULT,
        at_seconds=at_seconds,
        is_liveness=is_liveness,
        waited_seconds=waited_seconds,
    )
    return samples.summary(
        expectations=[missed],
        runs=[samples.RUN],
        lateness=list(lateness),
        stopped_because="slave-loss could not go on after steady",
    )


def test_what_did_not_come_before_any_fault_on_a_slow_machine_shows_nothing() -> None:
    assert judged(Late(1.0, 2.5)).verdict == "INCONCLUSIVE"


def test_on_a_machine_with_time_it_is_a_failure() -> None:
    assert judged().verdict == "FAILED"
    assert judged(Late(1.0, 0.3)).verdict == "FAILED", "far less than the tenth of a lease"


def test_after_a_fault_a_late_moment_excuses_nothing_without_a_lost_lease() -> None:
    assert judged(Late(1.0, 2.5), at_seconds=4.0).verdict == "FAILED"
    assert judged(Late(1.0, 2.5), at_seconds=40.0, waited_seconds=30.0).verdict == "FAILED"


def test_who_did_not_run_for_a_tenth_of_a_wait_cannot_say_that_it_was_long_enough() -> None:
    late = [Late(20.0, 1.4), Late(30.0, 1.7)]
    assert judged(*late, at_seconds=40.0, waited_seconds=30.0).verdict == "INCONCLUSIVE"
    assert judged(*late[:1], at_seconds=40.0, waited_seconds=30.0).verdict == "FAILED"
    safety = judged(*late, at_seconds=40.0, waited_seconds=30.0, is_liveness=False)
    assert safety.verdict == "FAILED"


def test_lateness_after_it_was_not_seen_is_no_reason() -> None:
    assert judged(Late(2.5, 2.5)).verdict == "FAILED"


def test_what_is_not_about_time_is_a_failure_on_any_machine() -> None:
    assert judged(Late(1.0, 2.5), is_liveness=False).verdict == "FAILED"


@pytest.mark.parametrize(
    "wrong",
    [
        {"found": samples.audit(sync_lost=1)},
        {"audited": False},
        {"disorder": ["queue 1"]},
        {"exits": {"broker-a-1 ended"}},
    ],
)
def test_nothing_excuses_what_is_wrong_beside_it(wrong: dict[str, object]) -> None:
    found = samples.summary(
        expectations=[BEFORE_FAULT],
        runs=[samples.RUN],
        lateness=[Late(1.0, 2.5)],
        **wrong,  # type: ignore[arg-type]
    )
    assert found.verdict == "FAILED"


@pytest.mark.parametrize(
    ("ready_at", "late_seconds", "verdict"),
    [
        (20.0, 2.5, "INCONCLUSIVE"),
        (2.0, 2.5, "FAILED"),  # it started in time: what came later is no fault of the machine
        (20.0, 0.3, "FAILED"),  # nobody but the cluster was slow
    ],
)
def test_a_machine_on_which_the_cluster_took_long_to_start_is_too_slow_for_the_rest(
    ready_at: float, late_seconds: float, verdict: str
) -> None:
    of_drill = samples.recording(
        expectations=[msgspec.structs.replace(BEFORE_FAULT, at_seconds=4.0)], runs=[samples.RUN]
    )
    of_drill.ready_at = ready_at
    of_drill.lateness = [Late(1.0, late_seconds)]
    found = summarise(
        samples.plan(), of_drill, audit=samples.audit(), audit_seconds=1.0, interrupted=False
    )
    assert (found.verdict, found.ready_seconds) == (verdict, ready_at)


def test_a_promise_to_consumers_is_broken_on_the_slowest_machine() -> None:
    promises = judged_promises(PLANTS[0])

    found = samples.summary(
        expectations=[BEFORE_FAULT],
        runs=[samples.RUN],
        lateness=[Late(1.0, 2.5)],
        promises=promises,
    )

    assert found.verdict == "FAILED"


def test_a_drill_in_which_a_fault_did_nothing_did_not_pass_and_is_no_failure() -> None:
    felt = samples.summary(effects=samples.effects(is_felt=True))
    unfelt = samples.summary(effects=samples.effects())
    assert (felt.verdict, unfelt.verdict) == ("PASSED", "INCONCLUSIVE")
    assert [effect.count for effect in unfelt.effects] == [0]
    assert why(unfelt) == ["let syncs of a be slow: 0 syncs were delayed"]
    assert "slow" not in in_words(unfelt)


def test_that_a_fault_did_nothing_excuses_nothing() -> None:
    lost = samples.summary(effects=samples.effects(), found=samples.audit(sync_lost=1))
    unmet = samples.summary(effects=samples.effects(), expectations=[BEFORE_FAULT])
    assert (lost.verdict, unmet.verdict) == ("FAILED", "FAILED")


def test_an_order_that_nobody_promised_makes_no_failure_of_what_a_slow_machine_explains() -> None:
    strange = WitnessSummary(client="x", deliveries=9, different=1)
    of_drill = samples.recording(
        expectations=[BEFORE_FAULT], runs=[samples.RUN], disorder=["queue 1 offset 7"]
    )
    of_drill.lateness = [Late(1.0, 2.5)]
    of_drill.witness = strange
    plan = samples.plan()
    facts = msgspec.structs.replace(plan.target, not_promised={"read_out_of_order": "why"})

    def verdict(facts: TargetFacts) -> str:
        return summarise(
            msgspec.structs.replace(plan, target=facts),
            of_drill,
            audit=samples.audit(),
            audit_seconds=1.0,
            interrupted=False,
        ).verdict

    assert verdict(plan.target) == "FAILED"
    assert verdict(facts) == "INCONCLUSIVE"

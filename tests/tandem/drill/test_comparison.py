import msgspec

from tandem.drill.comparison import compare, is_worse
from tandem.drill.run_record import RunRecord
from tests.tandem.drill import samples

FIRST = msgspec.structs.replace(samples.RUN, name="slave-loss", ended_at_seconds=5.0)
PASSED = samples.record(samples.summary(runs=[FIRST]))
FAILED = samples.record(
    samples.summary(
        runs=[FIRST],
        found=samples.audit(sync_lost=2),
        expectations=[samples.expectation(held=False)],
    )
)


def changes(first: RunRecord, second: RunRecord) -> dict[str, str]:
    return {each.what: each.change for each in compare(first, second)}


def test_a_run_is_as_good_as_itself() -> None:
    assert not is_worse(compare(PASSED, PASSED))
    assert set(changes(PASSED, PASSED).values()) == {""}


def test_a_broken_promise_is_worse_and_a_mended_one_better() -> None:
    worse, better = changes(PASSED, FAILED), changes(FAILED, PASSED)
    for what in ("verdict", "sync_lost", "expectations not met", "slave-loss"):
        assert (worse[what], better[what]) == ("worse", "better")
    assert is_worse(compare(PASSED, FAILED))
    assert not is_worse(compare(FAILED, PASSED))


def test_a_run_that_shows_nothing_is_worse_than_one_that_passed() -> None:
    slow = samples.record(samples.inconclusive())
    assert changes(PASSED, slow)["verdict"] == "worse"
    assert changes(slow, FAILED)["verdict"] == "worse"


def test_times_are_shown_and_judge_nothing() -> None:
    slower = samples.record(
        samples.summary(runs=[msgspec.structs.replace(FIRST, unavailable_seconds=30.0)])
    )
    found = changes(PASSED, slower)
    assert found["slave-loss: without an acknowledgement"] == "other"
    assert not is_worse(compare(PASSED, slower))


def test_settings_that_differ_are_said_and_equal_ones_are_not() -> None:
    other = msgspec.structs.replace(PASSED, seed=7, machine="another")
    found = changes(PASSED, other)
    assert found["seed"] == found["machine"] == "other"
    assert "rate per second" not in found


def test_a_scenario_that_was_not_played_is_no_worse_than_one_that_failed() -> None:
    without = msgspec.structs.replace(PASSED, scenarios=PASSED.scenarios[1:])
    assert changes(FAILED, without)["slave-loss"] == "better"
    assert changes(PASSED, without)["slave-loss"] == "worse"


def test_a_group_that_was_disturbed_is_worse_and_one_that_is_new_is_neither() -> None:
    calm = samples.record(samples.summary(groups=samples.two_groups(disturbed=0, sync_lost=0)))
    hurt = samples.record(samples.summary(groups=samples.two_groups(sync_lost=0)))
    worse, better = changes(calm, hurt), changes(hurt, calm)
    for what in ("verdict", "group broker-b", "broker-b: disturbed"):
        assert (worse[what], better[what]) == ("worse", "better")
    assert "group broker-a" not in worse
    assert changes(hurt, hurt)["group broker-b: slowest send while others were hurt"] == ""
    assert changes(samples.record(), calm)["group broker-b"] == "other"
    assert not is_worse(compare(samples.record(), calm))

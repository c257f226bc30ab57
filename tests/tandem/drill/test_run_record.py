import msgspec
import pytest

from tandem.drill.evidence import PROMISES
from tandem.drill.outcomes import EXIT_STATUSES
from tandem.drill.run_record import NotASummaryError, RunRecord, record_of
from tandem.drill.scenario import NOT_POSSIBLE
from tandem.drill.stream_audit import StreamSummary
from tandem.drill.witness_audit import WitnessSummary
from tests.tandem.drill import samples
from tests.tandem.drill.consumers.planted_consumers import PLANTS, judged_promises

FIRST = msgspec.structs.replace(samples.RUN, name="slave-loss", ended_at_seconds=5.0)
SECOND = msgspec.structs.replace(
    samples.RUN, name="master-loss", started_at_seconds=5.0, unavailable_seconds=None
)


def test_a_record_has_what_the_summary_says() -> None:
    found = samples.record(samples.summary(runs=[FIRST, SECOND]), label="abc123")

    assert (found.verdict, found.exit_status, found.why) == ("PASSED", 0, "")
    assert (found.label, found.started_at) == ("abc123", "2026-01-01T00:00:00.000Z")
    assert (found.nodes, found.group_kind, found.seed) == (3, "classic", 1)
    assert (found.sync_acknowledged, found.async_lost, found.broken) == (51, 3, {})
    assert [(each.name, each.outcome) for each in found.scenarios] == [
        ("slave-loss", "passed"),
        ("master-loss", "passed"),
    ]
    assert [each.unavailable_seconds for each in found.scenarios] == [1.5, None]
    assert found.scenarios[0].seconds == 5.0


def test_what_failed_is_said_of_its_scenario() -> None:
    missed = samples.expectation(held=False)
    found = samples.record(samples.summary(runs=[FIRST, SECOND], expectations=[missed]))

    assert [each.outcome for each in found.scenarios] == ["failed", "passed"]
    assert found.scenarios[0].failed == [f"expected: {missed.expected}; seen: {missed.seen}"]
    assert found.failed_expectations == 1
    assert missed.expected in found.why


def test_a_time_that_was_rounded_up_belongs_to_the_run_that_began_there() -> None:
    second = msgspec.structs.replace(SECOND, started_at_seconds=4.0005)
    missed = samples.expectation(held=False)
    assert missed.at_seconds == 4.0
    found = samples.record(samples.summary(runs=[FIRST, second], expectations=[missed]))
    assert [each.outcome for each in found.scenarios] == ["passed", "failed"]


def test_runs_of_one_scenario_are_one_row_with_their_median() -> None:
    runs = [
        msgspec.structs.replace(FIRST, unavailable_seconds=seconds) for seconds in (1.0, 2.0, 9.0)
    ]
    (row, unplayed) = samples.record(samples.summary(runs=runs)).scenarios
    assert (row.runs, row.unavailable_seconds, row.unavailable_seconds_max) == (3, 2.0, 9.0)
    assert (unplayed.runs, unplayed.outcome) == (0, "interrupted")


@pytest.mark.parametrize("name", PROMISES)
def test_each_promise_that_is_broken_is_counted(name: str) -> None:
    audit = (
        samples.audit(second_slave_equal=False)
        if name == "slaves_not_identical"
        else msgspec.structs.replace(samples.audit(), **{name: 5})
    )
    found = samples.record(samples.summary(found=audit))
    assert found.broken == {name: 1 if name == "slaves_not_identical" else 5}
    assert (found.verdict, found.exit_status) == ("FAILED", 1)


def test_a_stream_and_consumers_count_too() -> None:
    found = samples.record(
        samples.summary(stream=StreamSummary(rows=9, repeated=2), disorder=["queue 1"])
    )
    assert found.broken == {"read_out_of_order": 1, "stream_repeated": 2}


def test_what_a_witness_was_not_given_counts_too() -> None:
    found = samples.record(
        samples.summary(witness=WitnessSummary(client="Java", deliveries=9, missing=2))
    )
    assert found.broken == {"witness_missing": 2}


def test_promises_to_groups_count_too() -> None:
    found = samples.record(samples.summary(promises=judged_promises(PLANTS[0])))
    assert found.broken == {"consumers_passed_over": 1}
    assert found.verdict == "FAILED"


def test_what_was_not_possible_and_what_shows_nothing_have_outcomes_of_their_own() -> None:
    impossible = msgspec.structs.replace(FIRST, outcome=f"{NOT_POSSIBLE}: no root")
    found = samples.record(samples.summary(runs=[impossible]))
    assert (found.verdict, found.scenarios[0].outcome) == ("NOT POSSIBLE", "not possible")
    assert "no root" in found.why
    slow = samples.record(samples.inconclusive())
    assert slow.verdict == "INCONCLUSIVE"
    assert "inconclusive" in {each.outcome for each in slow.scenarios}


@pytest.mark.parametrize(
    ("stopped_because", "shorter", "broken"),
    [
        ("x could not go on", ["broker-a-2"], {}),  # it had no time to catch up
        ("x could not go on", [], {"slaves_not_identical": 1}),
        ("", ["broker-a-2"], {"slaves_not_identical": 1}),
    ],
)
def test_a_log_that_is_shorter_counts_as_the_verdict_was_judged(
    stopped_because: str, shorter: list[str], broken: dict[str, int]
) -> None:
    found = samples.audit(second_slave_equal=False, shorter_slaves=shorter)
    missed = [samples.expectation(held=False)]
    record = samples.record(
        samples.summary(found=found, stopped_because=stopped_because, expectations=missed)
    )
    assert record.verdict == "FAILED"
    assert record.broken == broken


def test_each_verdict_has_a_status_of_its_own() -> None:
    assert len(set(EXIT_STATUSES.values())) == len(EXIT_STATUSES)
    assert 2 not in EXIT_STATUSES.values(), "that is of a drill without a verdict"


def test_a_summary_of_another_version_is_read_as_far_as_it_goes() -> None:
    whole = msgspec.to_builtins(samples.summary())
    del whole["switches"], whole["late_seconds_max"], whole["expectations"]
    whole["of_tomorrow"] = {"x": [1]}
    found = record_of(msgspec.json.encode(whole))
    assert (found.verdict, found.failovers) == ("PASSED", 0)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"verdict": "SPLENDID"}', b"\0" * 99]
)
def test_what_is_no_summary_is_refused(data: bytes) -> None:
    with pytest.raises(NotASummaryError):
        record_of(data)


def test_a_record_can_be_written_and_read() -> None:
    found = samples.record()
    assert msgspec.json.decode(msgspec.json.encode(found), type=RunRecord) == found


def test_a_scenario_whose_fault_did_nothing_is_inconclusive_and_the_others_are_not() -> None:
    others = msgspec.structs.replace(samples.RUN, name="slave-loss", started_at_seconds=9.0)
    of = samples.summary(
        runs=[samples.RUN, others], effects=samples.effects(scenario="master-kill")
    )
    record = samples.record(of)
    outcomes = {each.name: each.outcome for each in record.scenarios if each.runs}
    assert outcomes == {"master-kill": "inconclusive", "slave-loss": "passed"}
    assert (record.verdict, record.exit_status) == ("INCONCLUSIVE", 3)
    assert "0 syncs" in record.why


def test_groups_of_several_are_kept_with_what_became_of_each() -> None:
    found = samples.record(samples.summary(groups=samples.two_groups()))
    hurt, other = found.groups
    assert (hurt.name, hurt.is_hurt, hurt.outcome) == ("broker-a", True, "passed")
    assert (other.outcome, other.broken) == ("failed", {"sync_lost": 1, "disturbed": 2})
    assert other.slowest_calm_seconds == 2.345
    assert found.broken == {"broker-b: sync_lost": 1, "broker-b: disturbed": 2}
    assert "broker-b: sync-1-0000007" in found.why
    assert samples.record().groups == []
    stopped = samples.summary(interrupted=True, groups=samples.two_groups(disturbed=0, sync_lost=0))
    assert {each.outcome for each in samples.record(stopped).groups} == {"interrupted"}


def test_of_a_scenario_that_is_repeated_a_fault_that_did_nothing_shows_nothing() -> None:
    """Effects have the name of the round, and runs that of the scenario."""
    again = msgspec.structs.replace(samples.RUN, started_at_seconds=9.0, ended_at_seconds=18.0)
    summary = samples.summary(
        runs=[samples.RUN, again], effects=samples.effects(scenario="master-kill 1")
    )

    record = samples.record(summary)

    assert record.verdict == "INCONCLUSIVE"
    outcomes = {each.name: each.outcome for each in record.scenarios}
    assert outcomes["master-kill"] == "inconclusive"

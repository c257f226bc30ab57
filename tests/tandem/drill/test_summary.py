from typing import Any

import msgspec
import pytest

from tandem.drill.consumers.lines import Answered, Kind, Sent
from tandem.drill.consumers.names import GROUPS, Topics
from tandem.drill.consumers.promises import Promises
from tandem.drill.evidence import PROMISES
from tandem.drill.headline import in_words
from tandem.drill.lost_leases import Late
from tandem.drill.outcomes import NOT_SENT, SEND_OK, SLAVE_NOT_AVAILABLE, UNKNOWN
from tandem.drill.stream_audit import StreamSummary
from tandem.drill.summary import (
    TO_GROUPS_MIN,
    Summary,
    _slow_nodes,
    broken_promises,
    failed_expectations,
    summarise,
    unavailability,
    why,
)
from tandem.drill.timeline import Fault
from tandem.drill.witness_audit import WitnessSummary
from tests.tandem.drill import samples


def test_a_drill_without_a_flaw_passes() -> None:
    summary = samples.summary()

    assert summary.verdict == "PASSED"
    assert summary.promises_broken == 0
    assert summary.byte_identical is True
    assert broken_promises(summary) == []


def test_a_lost_async_message_breaks_no_promise() -> None:
    assert samples.summary().async_lost == 3


def test_a_lost_sync_message_fails_the_drill() -> None:
    summary = samples.summary(found=samples.audit(sync_lost=2, duplicated=1))

    assert summary.verdict == "FAILED"
    assert summary.promises_broken == 3
    assert broken_promises(summary) == [("sync_lost", 2), ("duplicated", 1)]


def test_a_slave_that_differs_fails_the_drill() -> None:
    summary = samples.summary(found=samples.audit(second_slave_equal=False))

    assert (summary.verdict, summary.promises_broken) == ("FAILED", 1)
    assert summary.byte_identical is False
    assert broken_promises(summary) == [("slaves_not_identical", 1)]


@pytest.mark.parametrize("name", [name for name in PROMISES if name != "slaves_not_identical"])
def test_every_promise_counts(name: str) -> None:
    found = msgspec.structs.replace(samples.audit(), **{name: 5})

    summary = samples.summary(found=found)

    assert (summary.verdict, summary.promises_broken) == ("FAILED", 5)


def test_a_stream_that_lost_or_repeated_rows_fails_the_drill() -> None:
    whole = samples.summary(stream=StreamSummary(rows=105))
    assert (whole.verdict, broken_promises(whole)) == ("PASSED", [])
    repeated = samples.summary(stream=StreamSummary(rows=107, repeated=2))
    assert (repeated.verdict, broken_promises(repeated)) == ("FAILED", [("stream_repeated", 2)])
    assert in_words(repeated) == "FAILED: 2 broken promises"
    assert samples.summary().stream is None


def test_an_expectation_that_did_not_hold_fails_the_drill() -> None:
    missed = samples.expectation(held=False)

    summary = samples.summary(expectations=[samples.expectation(), missed])

    assert (summary.verdict, summary.expectations_failed) == ("FAILED", 1)
    assert failed_expectations(summary) == [missed]


def test_messages_that_consumers_saw_out_of_order_fail_the_drill() -> None:
    summary = samples.summary(disorder=["queue 1 offset 5: expected offset 4"])

    assert (summary.verdict, summary.read_out_of_order) == ("FAILED", 1)


def test_a_drill_that_stopped_early_fails_even_if_the_audit_is_clean() -> None:
    assert samples.summary(stopped_because="it rained").verdict == "FAILED"


def test_a_drill_in_which_nothing_was_acknowledged_shows_nothing_and_does_not_pass() -> None:
    seen = samples.recording()
    for phase in seen.timeline.phases:
        phase.sends.clear()
    found = summarise(
        samples.plan(), seen, audit=samples.audit(), audit_seconds=1.0, interrupted=False
    )
    assert found.verdict == "FAILED"
    assert found.stopped_because


def test_a_drill_without_an_audit_never_passes() -> None:
    summary = samples.summary(audited=False)

    assert summary.verdict == "FAILED"
    assert summary.promises_broken is None
    assert summary.sync_lost is None


def test_an_interrupted_drill_says_so_whatever_was_found() -> None:
    assert samples.summary(interrupted=True).verdict == "INTERRUPTED"
    assert samples.summary(audited=False, interrupted=True).verdict == "INTERRUPTED"


def test_phases_are_listed_by_scenario_with_times_and_counts() -> None:
    summary = samples.summary()

    assert [scenario.name for scenario in summary.scenarios] == ["slave-loss", "master-loss"]
    down = summary.scenarios[0].phases[1]
    assert down.name == "slaves-down"
    assert down.start == "2026-01-01T00:00:03.000Z"
    assert down.counts == {SLAVE_NOT_AVAILABLE: 40}
    assert down.counts_by_mode["sync"] == {SLAVE_NOT_AVAILABLE: 20}
    assert down.messages_read == 60


def test_totals_are_by_status_from_best_to_worst() -> None:
    summary = samples.summary()

    assert list(summary.sends_by_status) == [SEND_OK, SLAVE_NOT_AVAILABLE, UNKNOWN, NOT_SENT]
    assert summary.sends == sum(summary.sends_by_status.values())


def test_reasons_have_counts_and_an_example() -> None:
    reasons = samples.summary().reasons

    assert reasons[0].status == SLAVE_NOT_AVAILABLE
    assert reasons[0].reason == "no slave connected"
    assert reasons[0].count == 40
    assert reasons[0].example_send_id.startswith("sync-1-")


def test_the_json_has_the_keys_that_scripts_rely_on() -> None:
    decoded = msgspec.json.decode(msgspec.json.encode(samples.summary()))

    assert decoded.keys() >= {
        "promises_broken",
        "sync_acknowledged",
        "sync_lost",
        "async_acknowledged",
        "async_lost",
        "duplicated",
        "out_of_order",
        "phantom",
        "byte_identical",
        "scenarios",
    }
    assert decoded["scenarios"][0]["phases"][0].keys() >= {"name", "start", "end", "counts"}


def test_unavailability_is_told_by_scenario_over_all_runs() -> None:
    seconds = [1.0, 2.0, 9.0]
    runs = [msgspec.structs.replace(samples.RUN, unavailable_seconds=each) for each in seconds]
    unhurt = msgspec.structs.replace(samples.RUN, name="unhurt", unavailable_seconds=None)

    (found,) = unavailability([*runs, unhurt])

    assert (found.scenario, found.runs) == ("master-kill", 3)
    assert (found.median_seconds, found.p99_seconds, found.max_seconds) == (2.0, 9.0, 9.0)


def test_an_acknowledged_message_that_was_cut_off_breaks_a_promise() -> None:
    found = msgspec.structs.replace(samples.audit(), acknowledged_cut=2)

    summary = samples.summary(found=found)

    assert summary.verdict == "FAILED"
    assert broken_promises(summary) == [("acknowledged_cut", 2)]


def test_what_was_stored_again_breaks_none() -> None:
    found = msgspec.structs.replace(samples.audit(), stored_again=5)

    assert samples.summary(found=found).verdict == "PASSED"


def test_the_verdict_is_said_in_words() -> None:
    unmet = [samples.expectation(held=False)]
    lost = samples.audit(sync_lost=2)

    assert in_words(samples.summary()) == "PASSED: every promise held"
    assert in_words(samples.summary(found=lost)) == "FAILED: 2 broken promises"
    assert in_words(samples.summary(found=lost, expectations=unmet)) == (
        "FAILED: 2 broken promises, 1 expectation not met"
    )
    assert in_words(samples.summary(audited=False, stopped_because="no room")) == "FAILED: no room"
    assert "not complete" in in_words(samples.summary(audited=False, interrupted=True))


def test_how_long_nothing_was_acknowledged_is_in_the_facts() -> None:
    summary = samples.summary(runs=[samples.RUN])

    (outage,) = summary.outages
    assert outage.seconds == samples.RUN.unavailable_seconds
    assert summary.settings.nodes == list(samples.NODES)
    assert summary.settings.lease_ttl_ms == 5000


def test_what_follows_a_lease_that_a_slow_machine_lost_is_inconclusive() -> None:
    assert samples.inconclusive().verdict == "INCONCLUSIVE"
    assert [each.node for each in samples.inconclusive().lost_leases] == ["broker-a-0"]


@pytest.mark.slow
def test_a_lease_that_was_lost_on_a_machine_with_time_is_a_failure() -> None:
    assert samples.inconclusive(late_seconds=0.0).verdict == "FAILED"


def test_no_slow_machine_excuses_a_lost_message_or_a_node_that_ended() -> None:
    lost = samples.audit(sync_lost=1)
    assert samples.inconclusive(found=lost).verdict == "FAILED"
    crashed = samples.summary(
        expectations=[samples.expectation(held=False)],
        history=samples.LOST,
        runs=[samples.RUN],
        lateness=[Late(1.0, 2.5)],
        exits={"broker-a-0 ended by SIGSEGV"},
    )
    assert crashed.verdict == "FAILED"
    assert "broker-a-0 ended by SIGSEGV: nobody had stopped it" in why(crashed)


@pytest.mark.parametrize(
    "broken",
    [
        {"disorder": ["queue 0: 5 after 7"]},
        {"stream": StreamSummary(rows=9, missing=1)},
        {"stream": StreamSummary(rows=9, repeated=1)},
        {"witness": WitnessSummary(client="Java", deliveries=9, missing=1)},
        {"audited": False},
    ],
)
def test_no_slow_machine_excuses_disorder_or_a_broken_stream(broken: dict[str, Any]) -> None:
    def verdict(**facts: Any) -> str:  # noqa: ANN401
        return samples.summary(
            expectations=[samples.expectation(held=False)],
            history=samples.LOST,
            runs=[samples.RUN],
            lateness=[Late(1.0, 2.5)],
            **facts,
        ).verdict

    assert verdict(stream=StreamSummary(rows=9)) == "INCONCLUSIVE"
    assert verdict(**broken) == "FAILED"


def test_that_the_machine_was_slow_is_said_of_a_failure_too() -> None:
    failed = samples.summary(
        expectations=[samples.expectation(held=False)], lateness=[Late(1.0, 2.5), Late(4.0, 0.5)]
    )
    assert failed.verdict == "FAILED"
    assert why(failed) == [
        "the drill itself was woken up to 2.5 s late: the machine had too much to do"
    ]


def test_what_failed_before_the_lease_was_lost_is_not_excused() -> None:
    early = msgspec.structs.replace(samples.expectation(held=False), at_seconds=0.5)
    seen = samples.summary(
        expectations=[early, samples.expectation(held=False)],
        history=samples.LOST,
        runs=[samples.RUN],
        lateness=[Late(1.0, 2.5)],
    )
    assert seen.verdict == "FAILED"


def test_a_lease_that_was_lost_in_another_scenario_excuses_nothing() -> None:
    later = msgspec.structs.replace(samples.RUN, started_at_seconds=3.0)
    seen = samples.summary(
        expectations=[samples.expectation(held=False)],
        history=samples.LOST,
        runs=[samples.RUN, later],
        lateness=[Late(1.0, 2.5)],
    )
    assert seen.verdict == "FAILED"


def test_a_log_that_is_shorter_because_the_drill_ended_early_is_excused_and_no_other_is() -> None:
    def seen(shorter_slaves: list[str], stopped_because: str) -> Summary:
        return samples.summary(
            found=samples.audit(second_slave_equal=False, shorter_slaves=shorter_slaves),
            expectations=[samples.expectation(held=False)],
            history=samples.LOST,
            runs=[samples.RUN],
            lateness=[Late(1.0, 2.5)],
            stopped_because=stopped_because,
        )

    early = "slave-loss could not go on after slaves-down"
    shorter = seen(["broker-a-2"], early)
    assert shorter.verdict == "INCONCLUSIVE"
    assert "broker-a-2" in why(shorter)[-1]
    differs = seen([], early)
    assert differs.verdict == "FAILED"  # an acknowledged byte is another one
    assert len(why(differs)) == len(why(shorter)) - 1
    assert seen(["broker-a-2"], "").verdict == "FAILED"


def test_a_log_that_is_not_compared_is_named() -> None:
    early = samples.summary(stopped_because="it could not go on", apart=["broker-a-2"])
    assert early.not_compared == ["broker-a-2"]
    assert "broker-a-2 followed the master" in why(early)[-1]


def test_two_masters_or_a_message_that_nobody_reads_are_a_failure_on_the_slowest_machine() -> None:
    seen = samples.summary(
        expectations=[
            samples.expectation(held=False),
            samples.expectation(held=False, is_liveness=False),
        ],
        history=samples.LOST,
        runs=[samples.RUN],
        lateness=[Late(1.0, 2.5)],
    )
    assert seen.verdict == "FAILED"


def test_a_machine_that_was_slow_when_all_was_over_excuses_nothing() -> None:
    def verdict(at_seconds: float) -> str:
        return samples.summary(
            expectations=[samples.expectation(held=False)],
            history=samples.LOST,
            runs=[samples.RUN],
            lateness=[Late(at_seconds, 2.5)],
        ).verdict

    assert samples.LOST[1].at_seconds == 2.0  # when the lease was gone
    assert verdict(2.5) == "INCONCLUSIVE"
    assert verdict(2.6) == "FAILED"


def test_a_node_on_a_slow_machine_says_so_in_the_verdict_unless_it_was_frozen() -> None:
    seen = samples.recording(history=[])
    assert seen.watched is not None
    seen.watched.too_slow = {"broker-a-1": "not run for 3 s", "broker-a-2": "not run for 9 s"}
    seen.timeline.faults.append(Fault(1.0, "freeze broker-a-2"))
    assert _slow_nodes(seen) == ["broker-a-1 is too slow: not run for 3 s"]
    said = msgspec.structs.replace(samples.summary(), slow_nodes=_slow_nodes(seen))
    assert "broker-a-1 is too slow: not run for 3 s" in why(said)


def test_what_is_broken_at_another_group_fails_the_drill() -> None:
    found = samples.summary(groups=samples.two_groups())
    assert found.verdict == "FAILED"
    assert broken_promises(found) == [("broker-b: sync_lost", 1), ("broker-b: disturbed", 2)]
    assert any("sync-1-0000007" in words for words in why(found))
    lost = samples.summary(groups=samples.two_groups(disturbed=0))
    assert lost.verdict == "FAILED"
    assert samples.summary(groups=samples.two_groups(disturbed=0, sync_lost=0)).verdict == "PASSED"


def test_what_a_slow_machine_explains_at_another_group_shows_nothing() -> None:
    late = samples.two_groups(disturbed=0, excused=3, sync_lost=0)
    assert samples.summary(groups=late).verdict == "INCONCLUSIVE"
    assert samples.summary(groups=late, audited=False).verdict == "FAILED"
    lost = samples.audit(sync_lost=1)
    assert samples.summary(groups=late, found=lost).verdict == "FAILED"
    broken = samples.two_groups(disturbed=0, excused=3, sync_lost=1)
    assert samples.summary(groups=broken).verdict == "FAILED"


def test_groups_for_which_nothing_was_acknowledged_were_promised_nothing() -> None:
    """That nothing was broken says nothing then, as with the sends that are looked for on disk."""

    def judged(*statuses: str) -> Summary:
        promises = Promises(GROUPS)
        for number, status in enumerate(statuses):
            name = f"plain-{number}"
            promises.take(Sent(message_id=name, kind=Kind.PLAIN, topic=Topics().plain, at_ms=1.0))
            promises.take(Answered(message_id=name, status=status, reason="", at_ms=2.0))
        return samples.summary(promises=promises)

    nothing = judged(*[UNKNOWN] * TO_GROUPS_MIN)
    assert nothing.verdict == "FAILED"
    assert "groups" in nothing.stopped_because
    assert judged(SEND_OK, *[UNKNOWN] * TO_GROUPS_MIN).verdict == "PASSED"
    assert judged(UNKNOWN).verdict == "PASSED", "one may have come before the slaves"


def test_a_node_that_ended_by_itself_fails_the_drill_however_well_all_went() -> None:
    """Something may have started it again, or it is a program that the drain does not ask."""
    summary = samples.summary(exits={"name-server-1 ended with status 1: OutOfMemoryError"})

    assert summary.verdict == "FAILED"
    assert in_words(summary) == "FAILED: 1 program ended by itself"
    assert samples.record(summary).exit_status == 1

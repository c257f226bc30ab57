from xml.etree import ElementTree as ET

import msgspec
import pytest

from tandem.drill.junit import AUDIT, junit_of
from tandem.drill.run_record import RunRecord
from tandem.drill.scenario import NOT_POSSIBLE
from tandem.drill.summary import Summary
from tests.tandem.drill import samples

FIRST = msgspec.structs.replace(samples.RUN, name="slave-loss", ended_at_seconds=5.0)
SECOND = msgspec.structs.replace(samples.RUN, name="master-loss", started_at_seconds=5.0)


def suite(record: RunRecord) -> ET.Element:
    found = ET.fromstring(junit_of(record)).find("testsuite")
    assert found is not None
    return found


def cases(summary: Summary) -> dict[str, list[str]]:
    """Of each test, what it has beside its name: nothing where it passed."""
    return {
        case.attrib["name"]: [child.tag for child in case]
        for case in suite(samples.record(summary))
    }


def counts(summary: Summary) -> tuple[int, int, int]:
    found = suite(samples.record(summary)).attrib
    return int(found["failures"]), int(found["errors"]), int(found["skipped"])


def test_scenarios_and_the_audit_are_tests() -> None:
    whole = samples.summary(runs=[FIRST, SECOND])
    assert cases(whole) == {"slave-loss": [], "master-loss": [], AUDIT: []}
    found = suite(samples.record(whole))
    assert (found.attrib["tests"], counts(whole)) == ("3", (0, 0, 0))
    assert found[0].attrib["time"] == "5.000"


def test_what_was_not_seen_fails_its_scenario() -> None:
    missed = samples.expectation(held=False)
    summary = samples.summary(runs=[FIRST, SECOND], expectations=[missed])
    assert cases(summary) == {"slave-loss": ["failure"], "master-loss": [], AUDIT: []}
    failure = suite(samples.record(summary)).find("testcase/failure")
    assert failure is not None
    assert missed.expected in (failure.text or "")


def test_a_broken_promise_fails_the_audit() -> None:
    summary = samples.summary(runs=[FIRST, SECOND], found=samples.audit(sync_lost=2))
    assert cases(summary) == {"slave-loss": [], "master-loss": [], AUDIT: ["failure"]}


def test_without_an_audit_that_test_is_not_passed() -> None:
    summary = samples.summary(runs=[FIRST, SECOND], audited=False, stopped_because="no audit")
    assert cases(summary)[AUDIT] == ["failure"]


def test_what_shows_nothing_is_skipped() -> None:
    impossible = msgspec.structs.replace(FIRST, outcome=f"{NOT_POSSIBLE}: no root")
    summary = samples.summary(runs=[impossible])
    assert cases(summary)["slave-loss"] == ["skipped"]
    assert cases(summary)[AUDIT] == ["skipped"]
    assert counts(samples.inconclusive())[0] == 0
    assert counts(samples.inconclusive())[2] >= 1


def test_what_was_interrupted_is_an_error() -> None:
    summary = samples.summary(runs=[FIRST], audited=False, interrupted=True)
    assert cases(summary) == {"slave-loss": [], "master-loss": ["error"], AUDIT: ["error"]}


@pytest.mark.parametrize("verdict", ["FAILED", "INTERRUPTED", "INCONCLUSIVE", "NOT POSSIBLE"])
def test_no_drill_that_did_not_pass_is_all_green(verdict: str) -> None:
    record = msgspec.structs.replace(samples.record(), verdict=verdict)
    assert any(len(case) for case in suite(record))


def test_foreign_text_is_still_xml() -> None:
    strange = "\x00\x1b[31m<&\"'\ud800\uffff ]]> \U0001f600"
    missed = msgspec.structs.replace(samples.expectation(held=False), seen="x")
    record = samples.record(
        samples.summary(runs=[msgspec.structs.replace(FIRST, name="a")], expectations=[missed])
    )
    scenario = msgspec.structs.replace(record.scenarios[-1], name=strange, failed=[strange])
    scenario = msgspec.structs.replace(scenario, outcome="failed")
    found = suite(msgspec.structs.replace(record, scenarios=[scenario], why=strange))
    assert "<&" in found[0].attrib["name"]
    assert "\x1b" not in found[0].attrib["name"]


def test_each_group_of_several_is_a_test() -> None:
    sound = samples.summary(runs=[FIRST], groups=samples.two_groups(disturbed=0, sync_lost=0))
    names = {"slave-loss", "master-loss", "group broker-a", "group broker-b", AUDIT}
    assert {*cases(sound)} == names
    assert cases(sound)["group broker-b"] == []
    broken = samples.summary(runs=[FIRST], groups=samples.two_groups())
    found = cases(broken)
    assert (found["group broker-a"], found["group broker-b"]) == ([], ["failure"])
    assert found[AUDIT] == [], "what is broken there is said once"
    failure = suite(samples.record(broken)).find("testcase/failure")
    assert failure is not None
    assert "sync-1-0000007" in (failure.text or "")


def test_a_group_of_which_a_slow_machine_shows_nothing_is_skipped() -> None:
    groups = samples.two_groups(disturbed=0, excused=3, sync_lost=0)
    summary = samples.summary(runs=[FIRST, SECOND], groups=groups)
    assert summary.verdict == "INCONCLUSIVE"
    assert cases(summary)["group broker-b"] == ["skipped"]

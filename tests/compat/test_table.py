"""The table of compatibility: how it judges, and the whole of it against RocketMQ (long)."""

from pathlib import Path

import pytest

from tests.compat import mqadmin, recorded
from tests.compat.__main__ import run_table
from tests.compat.markdown import page_of
from tests.compat.mqadmin import Command, difference_of, problem_of, shape_of
from tests.compat.suites import STAGES, SUITES, compared, suites_for
from tests.compat.table import Outcome, as_text, rows_of
from tests.compat.targets import OPEN, TARGET_NAMES, Guarded


def outcome(target: str, *, ok: bool = True, suite: str = "java5", name: str = "send") -> Outcome:
    assert target in TARGET_NAMES
    reason = "" if ok else f"{target} does not"
    return Outcome(suite, name, target, ok, reason=reason)


def test_a_row_fails_that_only_rocketmq_passes() -> None:
    (row,) = rows_of([outcome("real"), outcome("classic", ok=False), outcome("fenced")])
    assert row.failures == {"classic": "classic does not"}
    assert [row.verdict(name) for name in TARGET_NAMES] == ["yes", "no", "yes"]
    assert "classic does not" in as_text([row])
    assert "| send | yes | no | yes |" in page_of([row])


def test_a_row_that_rocketmq_does_not_pass_does_not_count() -> None:
    (row,) = rows_of([outcome("real", ok=False), outcome("classic", ok=False)])
    assert row.failures == {}
    assert "0 scenarios" in as_text([row])
    assert "does not count" in as_text([row])


def test_what_is_refused_by_design_is_no_failure() -> None:
    refused = [
        outcome(name, ok=name == "real", suite="admin", name="getColdDataFlowCtrInfo")
        for name in ("real", "fenced")
    ]
    (row,) = rows_of(refused)
    assert row.failures == {}
    assert row.verdict("fenced") == "refused"
    assert "fenced 0 and 1 refused" in as_text([row])


def test_outputs_are_compared_without_what_differs_from_run_to_run() -> None:
    command = Command("brokers", "clusterList", compared="lines")
    real = shape_of("#Name  #Addr\nbroker-a 10.0.0.1:10911 12.5\n")
    assert difference_of(command, real, shape_of("#Name #Addr\nbroker-a 127.0.0.9:1 7\n")) == ""
    wrong = difference_of(command, real, shape_of("#Name #Address\nbroker-a 127.0.0.9:1 7\n"))
    assert wrong == "not printed: #Name #Addr; printed instead: #Name #Address"


def test_of_keys_only_missing_ones_are_told() -> None:
    command = Command("status", "brokerStatus", compared="keys")
    real = shape_of("bootTimestamp : 17\nruntime : 3\n")
    assert difference_of(command, real, shape_of("runtime: 9\nmore: 1")) == (
        "keys that are missing: bootTimestamp"
    )


def test_a_stack_trace_is_a_problem_unless_it_is_the_subject() -> None:
    trace = "org.apache.rocketmq.client.exception.MQClientException: CODE: 3\n"
    asked = Command("route", "topicRoute", ("CODE: 3",))
    assert problem_of(asked, trace).startswith("it prints org.apache")
    assert problem_of(Command("route", "topicRoute", ("CODE: 3",), is_refused=True), trace) == ""
    assert problem_of(asked, "all is well").startswith("no 'CODE: 3'")


def test_what_a_tool_prints_otherwise_fails() -> None:
    name = mqadmin.COMMANDS[0].name
    rows = [
        Outcome("mqadmin", name, "real", ok=True, shape=["#Name"]),
        Outcome("mqadmin", name, "classic", ok=True, shape=["#Names"]),
        Outcome("mqadmin", name, "fenced", ok=True, shape=["#Name"]),
    ]
    assert [row.ok for row in compared(rows)] == [True, False, True]


def test_every_suite_is_in_a_stage_and_every_command_has_a_name_of_its_own() -> None:
    assert sorted(suite for stage in STAGES for suite in stage) == sorted(SUITES)
    names = [command.name for command in mqadmin.ALL_COMMANDS]
    assert len(set(names)) == len(names) >= 60


def test_commands_of_users_are_run_with_users_alone_and_ours_with_tls_too() -> None:
    assert "users" not in [*suites_for(OPEN), *suites_for(Guarded(with_tls=True))]
    assert "users" in suites_for(Guarded(with_users=True))
    assert "go" in suites_for(OPEN)
    assert "go" not in suites_for(Guarded(with_tls=True))


def test_a_secret_is_one_word_whether_it_is_shown_or_not() -> None:
    shown, hidden = "a  secret-of-somebody  Normal", "a  ******  Normal"
    assert shape_of(shown) == shape_of(hidden) == ["a SECRET Normal"]


def test_recording_some_suites_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "FILE", tmp_path / "recorded.json")
    java, users = (outcome("real", suite=suite) for suite in ("java5", "users"))
    recorded.record([java, outcome("classic")])
    recorded.record([users])
    assert recorded.load_recorded() == [java, users]
    anew = outcome("real", ok=False)
    recorded.record([anew])
    assert recorded.load_recorded() == [anew, users]


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.xdist_group("rocketmq")
def test_what_rocketmq_does_is_done_here_or_refused_by_design(tmp_path: Path) -> None:
    """Every scenario that passes on RocketMQ passes on both kinds of group."""
    rows = rows_of(compared(run_table(TARGET_NAMES, suites_for(OPEN), "", tmp_path)))
    if not any("real" in row.outcomes for row in rows):
        pytest.skip("RocketMQ cannot be had: Java, Maven and a network are needed")
    assert [row.name for row in rows if row.failures] == [], as_text(rows)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.xdist_group("rocketmq")
def test_what_passes_passes_for_users_who_may_no_more_than_they_need(tmp_path: Path) -> None:
    """RocketMQ's results without users count, and those that it has with users alone."""
    guarded = Guarded(with_users=True)
    ours = run_table(["classic", "fenced"], suites_for(guarded), "", tmp_path, guarded)
    if not ours:
        pytest.skip("RocketMQ's programs cannot be had: Java, Maven and a network are needed")
    rows = rows_of(compared([*ours, *recorded.load_recorded()]))
    assert [row.name for row in rows if row.failures] == [], as_text(rows)

"""The checks before a start; whole plays are in tests/faults/test_drill*.py."""

from pathlib import Path
from typing import Any

import pytest

from tandem.cluster_file.choices import GroupKind
from tandem.drill.errors import NoPromiseError, WrongGroupError
from tandem.drill.scenario_file import find_scenario
from tandem.drill.sentences.sentence import Fault
from tandem.drill.targets import tandem_cluster
from tandem.drill.targets.tandem_cluster import TandemTarget
from tandem.drill.targets.target import cannot
from tandem.testing import Kind, write_cluster_file


def test_settings_that_scenarios_ask_for_are_put_together() -> None:
    scenarios = [find_scenario("slave-disk-full"), find_scenario("master-kill")]

    wanted = tandem_cluster._settings_of(scenarios, GroupKind.FENCED)

    assert wanted["store"]["mapped_file_size_commit_log_bytes"] == 2_097_152
    assert wanted["store"]["timer_wheel_enable"], "timers are audited where they cost nothing"
    assert wanted["broker"]["transaction_check_interval_ms"] < 5_000
    assert "store" not in tandem_cluster._settings_of([], GroupKind.CLASSIC)


def test_its_ground_is_below_the_directory_of_the_report(tmp_path: Path) -> None:
    target = TandemTarget(write_cluster_file(tmp_path, 2, {}, kind="fenced"))
    out = tmp_path / "report"
    out.mkdir()
    scenarios = target.choose(["master-kill"], short=False)
    target.check(scenarios)

    ground = target.lay_out(out, scenarios)

    assert target.faults == frozenset(Fault)
    assert all(store.is_relative_to(out) for store in ground.stores.values())
    assert ground.config.is_relative_to(out)
    assert not ground.facts.not_promised
    assert ground.facts.has_consumers
    assert ground.facts.has_timers


def test_a_scenario_of_the_other_kind_and_a_group_without_a_promise_are_refused(
    tmp_path: Path,
) -> None:
    target = TandemTarget(write_cluster_file(tmp_path, 2, {}, kind="fenced"))
    with pytest.raises(WrongGroupError):
        target.choose(["slave-loss"], short=False)
    alone = tmp_path / "alone"
    alone.mkdir()
    with pytest.raises(NoPromiseError):
        TandemTarget(write_cluster_file(alone, 0, {}, kind="classic"))


@pytest.mark.parametrize(
    ("kind", "coordinator"),
    [("classic", {}), ("fenced", {"kind": "etcd", "endpoints": ["http://127.0.0.1:2379"]})],
)
def test_a_coordinator_that_is_not_the_clusters_own_is_not_hurt(
    kind: Kind, coordinator: dict[str, Any], tmp_path: Path
) -> None:
    settings = {"coordinator": coordinator} if coordinator else {}
    target = TandemTarget(write_cluster_file(tmp_path, 2, settings, kind=kind))
    assert target.faults == frozenset(Fault) - {Fault.COORDINATOR}
    for name in ("coordinator-restart", "coordinator-full", "coordinator-restored"):
        assert cannot("tandem", target.faults, find_scenario(name))
    cut = find_scenario("coordinator-cut-short")
    assert cannot("tandem", target.faults, cut) == "", (
        "a link is cut by the network, whosever it is"
    )

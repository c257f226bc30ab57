"""The checks before a start; whole plays are in tests/faults/test_drill*.py."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tandem.cluster.spec import read_spec
from tandem.drill.errors import BadOptionsError, BadScenarioError, NoPromiseError, WrongGroupError
from tandem.drill.scenario_file import find_scenario
from tandem.drill.sentences.sentence import Fault
from tandem.drill.targets import tandem_cluster
from tandem.drill.targets.tandem_cluster import TandemTarget
from tandem.drill.targets.target import cannot
from tandem.testing import Kind, write_cluster_file
from tests.support.paths import ROOT


def test_settings_that_scenarios_ask_for_are_put_together() -> None:
    scenarios = [find_scenario("slave-disk-full"), find_scenario("master-kill")]

    wanted = tandem_cluster._settings_of(scenarios, is_fenced=True)

    assert wanted["store"]["mapped_file_size_commit_log_bytes"] == 2_097_152
    assert wanted["store"]["timer_wheel_enable"], "timers are audited where they cost nothing"
    assert wanted["broker"]["transaction_check_interval_ms"] < 5_000
    assert "store" not in tandem_cluster._settings_of([], is_fenced=False)


def test_its_ground_is_below_the_directory_of_the_report(tmp_path: Path) -> None:
    target = TandemTarget(write_cluster_file(tmp_path, 2, {}, kind="fenced"))
    out = tmp_path / "report"
    out.mkdir()
    scenarios = target.choose(["master-kill"], short=False)
    target.check(scenarios)

    ground = target.lay_out(out, scenarios)

    assert target.faults == frozenset(Fault) - {Fault.OTHER_GROUP, Fault.VERSION}
    assert all(store.is_relative_to(out) for store in ground.stores.values())
    assert ground.config.is_relative_to(out)
    assert not ground.facts.not_promised
    assert ground.facts.has_consumers
    assert ground.facts.has_timers


def test_a_classic_group_may_repeat_what_waited(tmp_path: Path) -> None:
    target = TandemTarget(write_cluster_file(tmp_path, 2, {}, kind="classic"))
    (tmp_path / "report").mkdir()
    ground = target.lay_out(tmp_path / "report", target.choose(["slave-loss"], short=False))

    assert list(ground.facts.not_promised) == ["consumers_repeated_delays"]


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
    assert target.faults == frozenset(Fault) - {
        Fault.COORDINATOR,
        Fault.OTHER_GROUP,
        Fault.VERSION,
    }
    for name in ("coordinator-restart", "coordinator-full", "coordinator-restored"):
        assert cannot("tandem", target.faults, find_scenario(name))
    cut = find_scenario("coordinator-cut-short")
    assert cannot("tandem", target.faults, cut) == "", (
        "a link is cut by the network, whosever it is"
    )


def test_the_one_group_of_a_file_is_made_several(tmp_path: Path) -> None:
    config = write_cluster_file(tmp_path, 2, {}, kind="fenced")
    target = TandemTarget(config, groups_count=2, group="broker-b")
    out = tmp_path / "report"
    out.mkdir()
    scenarios = target.choose(["partition"], short=False)
    target.check(scenarios)

    ground = target.lay_out(out, scenarios)

    assert target.group.name == "broker-b"
    assert [group.name for group in target.others] == ["broker-a"]
    assert Fault.OTHER_GROUP in target.faults
    assert len(ground.stores) == len({*ground.stores.values()}) == 6
    assert len(ground.facts.name_servers) == len({*ground.facts.name_servers}) == 6
    listens = [(pair.listen_address, port) for pair in ground.pairs for port in pair.ports]
    assert len(listens) == len({*listens}), "no two links share an address"
    assert {pair.source for pair in ground.pairs} >= set(ground.stores)
    written = read_spec(ground.config)
    assert [*written.groups] == ["broker-a", "broker-b"]
    assert {node.group for node in written.nodes} == {*written.groups}


def test_a_group_that_is_not_there_is_said_before_anything_starts(tmp_path: Path) -> None:
    config = write_cluster_file(tmp_path, 2, {}, kind="fenced")
    with pytest.raises(BadOptionsError):
        TandemTarget(config, group="broker-x")
    scenario = tmp_path / "mine.yaml"
    scenario.write_text("promise: x\nsteps:\n  - kill the master of group broker-x\n")
    with pytest.raises(BadScenarioError):
        TandemTarget(config, groups_count=2).choose([str(scenario)], short=False)


def test_with_another_version_all_nodes_begin_as_that_and_it_can_be_changed(tmp_path: Path) -> None:
    config = write_cluster_file(tmp_path, 2, {}, kind="fenced")
    python = Path(sys.executable)
    target = TandemTarget(config, previous=python)
    out = tmp_path / "report"
    out.mkdir()
    scenarios = target.choose(["rolling-upgrade"], short=False)
    assert cannot("tandem", target.faults, scenarios[0]) == ""
    assert str(ROOT) in target.lay_out(out, scenarios).facts.version
    versions = target._versions()
    assert versions is not None
    assert all(
        versions.command(config, node.name)[:4] == ["env", "-u", "PYTHONPATH", str(python)]
        for node in target.group.nodes
    )
    alone = TandemTarget(config)
    assert "--previous" in cannot("tandem", alone.faults, scenarios[0])
    assert alone._versions() is None

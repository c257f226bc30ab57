"""RocketMQ as a target, with programs that stand in for it; the real one: tests/compat."""

import socket
from pathlib import Path

import pytest

from tandem.drill.errors import MissingRequirementError, Requirement, WrongGroupError
from tandem.drill.machines import STORE_VARIABLE, Machines
from tandem.drill.scenario import NotPossibleError
from tandem.drill.scenario_file import FOLDER, catalogue
from tandem.drill.targets import rocketmq
from tandem.drill.targets.java_program import JavaProgram
from tandem.drill.targets.rocketmq import RocketMQNodes, RocketMQTarget
from tandem.drill.targets.rocketmq_jars import Jars
from tandem.drill.targets.rocketmq_layout import Mode
from tandem.drill.targets.target import cannot
from tandem.drill.watched_group import WatchedGroup

OP_BATCH_SECONDS = 3.0
"""After which a broker has noted which transactions are over (`transactionOpBatchInterval`)."""

JARS = Jars(version="5.3.3", class_path="x.jar", has_controller=True)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RocketMQTarget:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return RocketMQTarget(JARS, Mode.CONTROLLER, {"allAckInSyncStateSet": "true"})


def test_every_scenario_for_rocketmq_can_be_played_on_it(target: RocketMQTarget) -> None:
    found = catalogue(FOLDER / "rocketmq")
    assert len(found) >= 8
    for scenario in found:
        assert cannot(target.name, target.faults, scenario) == ""
        assert scenario.steps[-1].sentence.template == "drain"
        assert not scenario.settings


def test_without_names_it_plays_its_own_scenarios(target: RocketMQTarget) -> None:
    chosen = target.choose((), short=False)
    assert [scenario.name for scenario in chosen] == ["master-kill", "master-freeze"]
    own = {scenario.promise for scenario in catalogue(FOLDER / "rocketmq")}
    assert {scenario.promise for scenario in chosen} <= own
    with pytest.raises(WrongGroupError, match="--mode"):
        target.choose(["slave-loss"], short=False)
    (other,) = target.choose(["partition"], short=False)
    assert "cut the network" in cannot(target.name, target.faults, other)


def test_its_ground_is_below_the_report_and_has_its_contract(
    target: RocketMQTarget, tmp_path: Path
) -> None:
    scenarios = target.choose((), short=False)
    target.check(scenarios)
    ground = target.lay_out(tmp_path / "report", scenarios)

    assert all(store.is_relative_to(tmp_path / "report") for store in ground.stores.values())
    assert "sync_lost" in ground.facts.rules
    assert not ground.facts.refusal_is_clear
    assert ground.facts.version == "5.3.3 controller"


def test_groups_are_audited_by_what_they_were_promised(
    target: RocketMQTarget, tmp_path: Path
) -> None:
    facts = target.lay_out(tmp_path, ()).facts

    assert facts.has_consumers
    assert facts.has_timers
    assert facts.settle_seconds > OP_BATCH_SECONDS
    assert "consumers_passed_over" in facts.rules
    assert {"consumers_repeated_delays", "consumers_owed_retries"} <= set(facts.not_promised)
    given = target._layout.broker_properties(target.group.nodes[0])
    # It must not ask again before it has noted the answer: each would be a commit more.
    assert int(given["transactionCheckInterval"]) > OP_BATCH_SECONDS * 1000
    assert int(given["transactionTimeOut"]) > OP_BATCH_SECONDS * 1000
    assert int(given["transactionCheckMax"]) > 100


def test_groups_of_version_4_are_not_audited(target: RocketMQTarget, tmp_path: Path) -> None:
    """What they are promised there was never seen."""
    jars = Jars(version="4.9.8", class_path="x.jar", has_controller=False)
    facts = RocketMQTarget(jars, Mode.SYNC_MASTER, {}).lay_out(tmp_path, ()).facts

    assert not facts.has_consumers


@pytest.mark.parametrize(
    ("setting", "has_consumers", "has_timers"),
    [
        ({"autoCreateSubscriptionGroup": "false"}, False, True),
        ({"messageDelayLevel": "1s 1s"}, False, True),
        ({"timerWheelEnable": "false"}, True, False),
        ({"autoCreateSubscriptionGroup": "true"}, True, True),
    ],
)
def test_groups_are_played_where_the_settings_of_the_user_let_them(
    target: RocketMQTarget, setting: dict[str, str], *, has_consumers: bool, has_timers: bool
) -> None:
    facts = RocketMQTarget(JARS, Mode.SYNC_MASTER, setting).lay_out(Path("x"), ()).facts

    assert (facts.has_consumers, facts.has_timers) == (has_consumers, has_timers)


def test_ports_that_are_taken_on_all_addresses_are_named(
    target: RocketMQTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        monkeypatch.setattr(
            "tandem.drill.targets.rocketmq_layout.NAME_SERVER_PORT", taken.getsockname()[1]
        )
        with pytest.raises(MissingRequirementError) as refused:
            RocketMQTarget(JARS, Mode.CONTROLLER, {})
        with pytest.raises(MissingRequirementError):
            target.check(())
    assert refused.value.requirement is Requirement.FREE_PORTS
    assert len(refused.value.names) == 1


async def test_what_happens_to_a_node_is_noted_and_orders_are_not_possible(tmp_path: Path) -> None:
    serves = ("sh", "-c", "echo boot success; exec sleep 1000")
    program = JavaProgram("broker-r-0", serves, tmp_path / "log", tmp_path)
    watched = WatchedGroup(["broker-r-0"])
    nodes = RocketMQNodes({"broker-r-0": program}, watched, lambda: 3.0)
    try:
        await nodes.start("broker-r-0")
        await nodes.freeze("broker-r-0")
        await nodes.wake("broker-r-0")
        assert nodes.runs("broker-r-0")
        await nodes.kill("broker-r-0")
    finally:
        program.kill_now()
        program.reap()

    assert [change.kind for change in watched.history] == ["ended"]
    assert nodes.unexpected_exits() == []
    for order in (nodes.resign("x"), nodes.promote("x"), nodes.by_hand("x"), nodes.start("x")):
        with pytest.raises(NotPossibleError):
            await order
    for change in (nodes.upgrade, nodes.go_back):
        with pytest.raises(NotPossibleError):
            change("broker-r-0")


def test_a_program_gets_its_properties_and_keeps_its_logs(
    target: RocketMQTarget, tmp_path: Path
) -> None:
    target.lay_out(tmp_path, ())
    programs = target._programs(tmp_path)

    assert next(iter(programs)) == "name-server"
    assert len(programs) == 4
    given = (tmp_path / "data" / "broker-r-1" / "given.properties").read_text()
    assert "enableControllerMode=true" in given
    assert programs["broker-r-1"].log == tmp_path / "data" / "logs" / "broker-r-1.log"


def test_several_name_servers_are_programs_of_their_own_and_clients_get_all(tmp_path: Path) -> None:
    target = RocketMQTarget(JARS, Mode.CONTROLLER, {}, 3)
    ground = target.lay_out(tmp_path, ())
    programs = target._programs(tmp_path)
    assert list(programs)[:3] == ["name-server", "name-server-1", "name-server-2"]
    assert len(programs) == 6
    assert len({*ground.facts.name_servers}) == 3


def test_free_ports_are_different_ones() -> None:
    assert len(set(rocketmq._free_ports(3))) == 3


def test_brokers_are_started_on_their_machines_and_the_name_server_is_not(
    target: RocketMQTarget, tmp_path: Path
) -> None:
    ground = target.lay_out(tmp_path, ())
    programs = target._programs(tmp_path, Machines(tmp_path / "machines", ground.stores))

    for node, store in ground.stores.items():
        assert f"{STORE_VARIABLE}={store}" in programs[node]._command
        assert store.is_dir()
    assert not [word for word in programs["name-server"]._command if STORE_VARIABLE in word]
    assert not [
        word
        for program in target._programs(tmp_path).values()
        for word in program._command
        if "LD_PRELOAD" in word
    ]


def test_power_and_disks_of_brokers_are_nothing_that_it_can_take(target: RocketMQTarget) -> None:
    """What SEND_OK means then depends on how often a broker syncs; no contract says so yet."""
    for name in ("power-cut-master", "lost-disk"):
        (scenario,) = target.choose([name], short=False)
        assert cannot(target.name, target.faults, scenario)

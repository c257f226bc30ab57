"""A deployed cluster as a target, before anything runs; whole drills: tests/faults."""

from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import trio

from tandem.client import Admin, BrokerError
from tandem.cluster_file.secret_file import SecretFileError
from tandem.drill.consumers.promises import Promises
from tandem.drill.errors import BadOptionsError, TargetError
from tandem.drill.outcomes import FLUSH_SLAVE_TIMEOUT, SEND_OK, SLAVE_NOT_AVAILABLE
from tandem.drill.recording import Recording
from tandem.drill.scenario_file import FOLDER, catalogue
from tandem.drill.targets import processes, putting_back
from tandem.drill.targets.process_nodes import RefusedError
from tandem.drill.targets.processes import ProcessesTarget
from tandem.drill.targets.rocketmq_contract import DECIDING
from tandem.drill.targets.target import cannot
from tandem.drill.workload import Clock
from tandem.wire.response_code import ResponseCode
from tests.tandem.drill import samples
from tests.tandem.drill.targets.process_samples import COMMANDS, read


def test_its_stores_are_where_the_file_says_or_are_fetched_below_the_report(tmp_path: Path) -> None:
    local = ProcessesTarget(read(tmp_path)).lay_out(tmp_path / "report", ())
    assert local.stores == {"a": tmp_path / "a", "b": tmp_path / "b"}
    nodes = [{"name": name, "address": "127.0.0.1", "port": 1 + at} for at, name in enumerate("ab")]
    file = read(tmp_path, commands={**COMMANDS, "fetch": "x"}, nodes=nodes)
    fetched = ProcessesTarget(file).lay_out(tmp_path / "report", ())
    assert fetched.stores["a"] == tmp_path / "report" / "data" / "a"


def test_each_drill_has_a_topic_of_its_own(tmp_path: Path) -> None:
    target = ProcessesTarget(read(tmp_path))
    first, second = (target.lay_out(tmp_path, ()).facts.topic for _ in range(2))
    assert first != second
    assert first.startswith("tandem-drill-")


async def test_a_node_of_another_kind_is_named_with_what_to_correct(tmp_path: Path) -> None:
    file = read(tmp_path, kind="fenced")

    class Classic:
        async def fenced_status(self, address: str) -> None:
            await trio.lowlevel.checkpoint()
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            raise BrokerError(code, "request type 20001 not supported", address)

    with pytest.raises(RefusedError, match="`kind`") as refused:
        await processes._answers({"a": cast("Admin", Classic())}, file, "a")

    assert refused.value.is_lasting
    assert str(file.file) in str(refused.value)


def test_a_scenario_whose_fault_has_no_command_is_not_possible(tmp_path: Path) -> None:
    target = ProcessesTarget(read(tmp_path, kind="fenced"))
    (partition,) = target.choose(["partition"], short=False)
    (cut,) = target.choose(["ha-link-cut-one"], short=False)
    (kill,) = target.choose(["master-kill"], short=False)
    assert cannot(target.name, target.faults, kill) == ""
    assert "cut the network around a node" in cannot(target.name, target.faults, partition)
    both = ProcessesTarget(
        read(tmp_path, kind="fenced", commands={**COMMANDS, "cut": "x", "heal": "y"})
    )
    assert cannot(both.name, both.faults, partition) == ""
    assert "cut the network" in cannot(both.name, both.faults, cut)


def test_a_scenario_with_settings_of_its_own_is_refused_if_it_could_be_played(
    tmp_path: Path,
) -> None:
    target = ProcessesTarget(read(tmp_path, kind="fenced"))
    impossible = [scenario for scenario in catalogue() if scenario.settings]
    assert impossible
    target.check(impossible)
    (playable,) = target.choose(("master-kill",), short=False)
    target.check([playable])
    with pytest.raises(BadOptionsError):
        target.check([msgspec.structs.replace(playable, settings=impossible[0].settings)])


def test_the_contract_of_rocketmq_follows_from_the_settings(tmp_path: Path) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
    target = ProcessesTarget(read(tmp_path, kind="rocketmq-classic", settings=settings))
    assert target.group.status_without_slaves == FLUSH_SLAVE_TIMEOUT
    ground = target.lay_out(tmp_path, ())
    assert "sync_lost" in ground.facts.rules
    assert not ground.facts.refusal_is_clear
    own = {scenario.promise for scenario in catalogue(FOLDER / "rocketmq")}
    assert {scenario.promise for scenario in target.choose((), short=False)} <= own

    elected = read(tmp_path, kind="rocketmq-controller", controllers=["127.0.0.1:1"])
    target = ProcessesTarget(elected)
    assert target.group.status_without_slaves == SEND_OK
    assert "sync_lost" in target.lay_out(tmp_path, ()).facts.not_promised


@pytest.mark.parametrize("settings", [{}, {"brokerRole": "SLAVE"}])
def test_a_classic_master_of_rocketmq_has_a_role(settings: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(BadOptionsError):
        ProcessesTarget(read(tmp_path, kind="rocketmq-classic", settings=settings))


def test_what_our_classic_groups_answer_without_slaves_is_in_the_file(tmp_path: Path) -> None:
    assert ProcessesTarget(read(tmp_path)).group.status_without_slaves == SLAVE_NOT_AVAILABLE
    five = ProcessesTarget(read(tmp_path, in_sync_replicas=2))
    assert five.group.status_without_slaves == FLUSH_SLAVE_TIMEOUT
    assert "2 replicas" in five.lay_out(tmp_path, ()).facts.contract


def test_a_store_that_is_not_there_is_said(tmp_path: Path) -> None:
    file = read(tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(TargetError) as refused:
        processes._check_stores(file)
    assert str(tmp_path / "b") in str(refused.value)
    (tmp_path / "b").mkdir()
    processes._check_stores(file)


async def test_a_drill_that_is_cut_short_leaves_the_nodes_as_they_were_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answers(*_: object) -> bool:
        await trio.lowlevel.checkpoint()
        return True

    async def take_away(*_: object) -> list[str]:
        await trio.sleep(0.01)
        return ["the topic is gone"]

    monkeypatch.setattr(processes, "_answers", answers)
    monkeypatch.setattr(putting_back, "take_away", take_away)
    done = tmp_path / "done"
    monkeypatch.setattr(Admin, "broker_config", partial(Brokers.broker_config, Brokers()))
    commands = {
        "find": "cat $NODE.pid 2>/dev/null",
        "start": f"echo 7 > $NODE.pid; echo start $NODE >> {done}",
        "stop": f"rm $NODE.pid; echo stop $NODE >> {done}",
    }
    for name in "ab":
        (tmp_path / name).mkdir()
    (tmp_path / "a.pid").write_text("7")
    target = ProcessesTarget(read(tmp_path, commands=commands))
    (scenario,) = target.choose(["master-loss"], short=False)
    plan = samples.plan(scenario)
    facts = target.lay_out(tmp_path / "report", [scenario]).facts
    plan = msgspec.structs.replace(plan, out=tmp_path / "report", group=target.group, target=facts)
    (tmp_path / "report" / "data" / "logs").mkdir(parents=True)
    recording = Recording(Clock(0.0, 0.0), target.group)

    with trio.CancelScope() as scope:
        async with target.running(plan, recording):
            scope.cancel()  # Ctrl-C
            await trio.sleep_forever()

    assert done.read_text().splitlines() == ["start b", "stop b"], "a ran before"
    assert recording.notes == ["the topic is gone"]


def with_user(directory: Path, kind: str = "classic", **changes: Any) -> ProcessesTarget:  # noqa: ANN401
    secret = directory / "me.secret"
    secret.write_text("0123456789abcdef\n")
    secret.chmod(0o600)
    keys = {"access_key": "me", "secret_key_file": "me.secret"}
    return ProcessesTarget(read(directory, kind=kind, **keys, **changes))


def test_the_user_of_the_file_asks_everything_and_their_secret_is_not_shown(tmp_path: Path) -> None:
    target = with_user(tmp_path)
    (scenario,) = target.choose(["master-loss"], short=False)
    ground = target.lay_out(tmp_path / "report", [scenario])
    plan = msgspec.structs.replace(
        samples.plan(scenario), target=ground.facts, given_access=ground.access
    )

    assert plan.access.access_key == "me"
    assert plan.access.secret_key == "0123456789abcdef"
    assert plan.access.signatures == "replay_proof"
    assert "0123456789abcdef" not in repr(ground) + repr(plan) + repr(ground.facts)

    settings = {"brokerRole": "SYNC_MASTER"}
    brokers = with_user(tmp_path, "rocketmq-classic", settings=settings).lay_out(tmp_path, ())
    assert brokers.access is not None
    assert brokers.access.signatures == "any", "RocketMQ knows no others"
    assert ProcessesTarget(read(tmp_path)).lay_out(tmp_path, ()).access is None


def test_a_secret_or_a_certificate_that_cannot_be_used_ends_the_drill(tmp_path: Path) -> None:
    target = with_user(tmp_path)
    (tmp_path / "me.secret").chmod(0o644)
    with pytest.raises(SecretFileError):
        target.lay_out(tmp_path, ())
    (tmp_path / "me.secret").unlink()
    with pytest.raises(SecretFileError):
        target.lay_out(tmp_path, ())
    with pytest.raises(BadOptionsError):
        ProcessesTarget(read(tmp_path, ca_file="no-such-ca.pem")).lay_out(tmp_path, ())


class Brokers:
    """Brokers that say their settings, by address."""

    def __init__(self, **said: str) -> None:
        self.said = {"brokerRole": "SYNC_MASTER", **dict(DECIDING), **said}
        self.of_slave: dict[str, str] = {}

    async def broker_config(self, address: str) -> dict[str, str]:
        await trio.lowlevel.checkpoint()
        return self.said | (self.of_slave if address.endswith(":10921") else {})


async def check_settings(target: ProcessesTarget, brokers: Brokers) -> None:
    await target._check_settings(cast("Admin", brokers))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("allAckInSyncStateSet", "true"),  # it is judged as not promised, and is promised
        ("inSyncReplicas", "2"),
        ("transientStorePoolEnable", "true"),  # it is judged as promised, and is not
    ],
)
async def test_a_setting_that_decides_what_is_promised_is_not_left_to_be_guessed(
    key: str, value: str, tmp_path: Path
) -> None:
    controllers = ["127.0.0.1:1"]
    silent = ProcessesTarget(read(tmp_path, kind="rocketmq-controller", controllers=controllers))
    with pytest.raises(TargetError, match=f"{key}={value}"):
        await check_settings(silent, Brokers(**{key: value}))
    await check_settings(silent, Brokers())

    said = read(
        tmp_path, kind="rocketmq-controller", controllers=controllers, settings={key: value}
    )
    await check_settings(ProcessesTarget(said), Brokers(**{key: value}))


async def test_the_slaves_of_a_classic_group_decide_nothing(tmp_path: Path) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "1"}
    target = ProcessesTarget(read(tmp_path, kind="rocketmq-classic", settings=settings))
    brokers = Brokers()
    brokers.of_slave = {"transientStorePoolEnable": "true", "brokerRole": "SLAVE"}
    await check_settings(target, brokers)
    brokers.said["transientStorePoolEnable"] = "true"
    with pytest.raises(TargetError):
        await check_settings(target, brokers)


async def test_groups_of_consumers_are_played_with_names_of_the_drill_alone(tmp_path: Path) -> None:
    fenced = read(tmp_path, kind="fenced")
    target = ProcessesTarget(fenced)
    first, second = (target.lay_out(tmp_path, ()).facts for _ in range(2))
    assert first.has_consumers
    assert first.consumers_suffix != second.consumers_suffix
    assert first.not_promised == {}
    classic = ProcessesTarget(read(tmp_path)).lay_out(tmp_path, ()).facts
    assert list(classic.not_promised) == ["consumers_repeated_delays"]

    sends = ProcessesTarget(read(tmp_path, consumers=False)).lay_out(tmp_path, ()).facts
    assert not sends.has_consumers


def test_what_rocketmq_promises_to_groups_follows_from_the_settings(tmp_path: Path) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
    file = read(tmp_path, kind="rocketmq-classic", settings=settings)
    facts = ProcessesTarget(file).lay_out(tmp_path, ()).facts
    assert facts.has_consumers
    assert "consumers_passed_over" in facts.rules
    assert "consumers_repeated_transactions" in facts.not_promised
    assert facts.settle_seconds > 0
    assert facts.topic_copy_seconds > 60, "slaves without a controller copy topics once a minute"

    old = msgspec.structs.replace(file, version="4.9.8")
    assert not ProcessesTarget(old).lay_out(tmp_path, ()).facts.has_consumers


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("autoCreateSubscriptionGroup", "false"),
        ("rejectTransactionMessage", "true"),
        ("messageDelayLevel", "3s 5s"),
    ],
)
@pytest.mark.parametrize("kind", ["fenced", "rocketmq-classic"])
async def test_nodes_on_which_groups_cannot_be_played_are_named_with_the_way_out(
    kind: str, key: str, value: str, tmp_path: Path
) -> None:
    given = {"settings": {"brokerRole": "SYNC_MASTER"}} if kind.startswith("rocketmq") else {}
    brokers = Brokers(**{key: value})

    with pytest.raises(TargetError, match=rf"a has {key}=.*`consumers: false`"):
        await check_settings(ProcessesTarget(read(tmp_path, kind=kind, **given)), brokers)

    sends = read(tmp_path, kind=kind, consumers=False, **given)
    await check_settings(ProcessesTarget(sends), brokers)


async def test_a_node_of_ours_that_keeps_its_settings_to_itself_can_be_drilled_without_groups(
    tmp_path: Path,
) -> None:
    class Silent:
        async def broker_config(self, address: str) -> dict[str, str]:
            await trio.lowlevel.checkpoint()
            raise BrokerError(ResponseCode.NO_PERMISSION, "not for this user", address)

    with pytest.raises(TargetError, match=r"not for this user.*`consumers: false`"):
        await ProcessesTarget(read(tmp_path))._check_settings(cast("Admin", Silent()))
    sends = ProcessesTarget(read(tmp_path, consumers=False))
    await sends._check_settings(cast("Admin", Silent()))


async def test_messages_have_times_where_each_possible_master_takes_them(tmp_path: Path) -> None:
    fenced, classic = (ProcessesTarget(read(tmp_path, kind=kind)) for kind in ("fenced", "classic"))
    brokers = Brokers(timerWheelEnable="true")
    assert await fenced._check_settings(cast("Admin", brokers))
    brokers.of_slave = {"timerWheelEnable": "false"}
    assert not await fenced._check_settings(cast("Admin", brokers))
    assert await classic._check_settings(cast("Admin", brokers)), "slaves take none"


async def test_clocks_that_are_apart_make_nothing_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node's may be ahead of the drill's, and another's behind."""

    class Notes:
        def __init__(self) -> None:
            self.allowed: list[float] = []

        def allow_early(self, milliseconds: float) -> None:
            self.allowed.append(milliseconds)

    for name in "ab":
        (tmp_path / name).mkdir()

    async def answers(*_: object) -> bool:
        await trio.lowlevel.checkpoint()
        return True

    async def nothing(*_: object) -> list[str]:
        await trio.lowlevel.checkpoint()
        return []

    async def config(*_: object) -> dict[str, str]:
        await trio.lowlevel.checkpoint()
        return {}

    monkeypatch.setattr(processes, "_answers", answers)
    monkeypatch.setattr(putting_back, "take_away", nothing)
    monkeypatch.setattr(Admin, "broker_config", config)
    commands = {"find": "echo 7", "start": "true"}
    target = ProcessesTarget(read(tmp_path, commands=commands, clock_ms=700))
    (scenario,) = target.choose(["master-loss"], short=False)
    facts = target.lay_out(tmp_path / "report", [scenario]).facts
    plan = msgspec.structs.replace(
        samples.plan(scenario), out=tmp_path / "report", group=target.group, target=facts
    )
    (tmp_path / "report" / "data" / "logs").mkdir(parents=True)
    recording = Recording(Clock(0.0, 0.0), target.group)
    notes = Notes()
    recording.promises = cast("Promises", notes)

    with trio.CancelScope() as scope:
        async with target.running(plan, recording):
            scope.cancel()

    assert sorted(notes.allowed) == [-700, 700]


async def test_a_version_without_such_a_setting_has_none_of_its_effects(tmp_path: Path) -> None:
    settings = {"brokerRole": "SYNC_MASTER"}
    file = read(tmp_path, kind="rocketmq-classic", settings=settings, version="4.9.8")
    brokers = Brokers()
    brokers.said = {"brokerRole": "SYNC_MASTER"}
    await check_settings(ProcessesTarget(file), brokers)

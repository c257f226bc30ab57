"""Who is meant by the words of scenarios: each either can be hurt, or is refused beforehand.

The last test plays every sentence with every subject on what a real drill acts on (nodes, network
and disks), whose processes are stand-ins.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tandem.cluster.errors import NodeCommandError
from tandem.cluster.node_lifecycle import NodeState
from tandem.cluster_file.choices import GroupKind
from tandem.cluster_file.coordinator_settings import COORDINATOR
from tandem.cluster_file.errors import UnknownNodeError
from tandem.drill.drilled import DrilledNetwork, DrilledNodes
from tandem.drill.errors import BadScenarioError
from tandem.drill.fault_proxy import FaultProxy
from tandem.drill.preflight import proxied_pairs
from tandem.drill.scenario import NotPossibleError, UnmetError
from tandem.drill.scenario_file import Scenario, parse_scenario
from tandem.drill.sentences.sentence import Sentence, Takes, bad_subject
from tandem.drill.small_disks import Disks
from tandem.drill.subjects import check_names, too_few
from tandem.drill.vocabulary import SENTENCES
from tests.support.log_builder import LogBuilder
from tests.tandem.drill import samples
from tests.tandem.drill.fake_world import MASTER, SLAVES, World

NODES = (MASTER, *SLAVES)
SUBJECTS = (
    "the master",
    "the old master",
    "the slaves",
    "the others",
    "slave 1",
    "slave 2",
    "slave 7",
    "every node",
    "the coordinator",
    SLAVES[0],
    "no-such-node",
    "everything",
)
EXAMPLES = {
    "{seconds}": "0.5",
    "{share}": "1",
    "{number}": "20",
    "{name}": "steady",
    "{mode}": "sync",
    "{statuses}": "SEND_OK",
}


def scenario_of(*lines: str, group: str = "fenced") -> Scenario:
    steps = "".join(f"  - {line}\n" for line in lines)
    return parse_scenario(f"promise: x\ngroup: {group}\nsteps:\n{steps}", "mine", "mine.yaml")


@pytest.mark.parametrize("who", ["broker-a-7", "master", "coordinator"])
def test_a_name_that_no_node_has_is_refused_with_its_line_and_the_names_there_are(who: str) -> None:
    scenario = scenario_of("start the load", "kill slave 1", f"cut slave 1 from {who}")
    with pytest.raises(BadScenarioError) as refused:
        check_names([scenario], NODES)
    assert all(word in str(refused.value) for word in ("line 6", f"no node {who}", *NODES))
    with pytest.raises(BadScenarioError):
        check_names([scenario_of("kill everything")], NODES)
    check_names([scenario_of(f"kill {MASTER}", "cut slave 1 from everything")], NODES)


def test_a_scenario_for_more_nodes_than_there_are_is_not_possible() -> None:
    assert too_few(scenario_of("kill slave 2"), NODES) == ""
    assert "slave 3" in too_few(scenario_of("kill slave 1", "kill slave 3"), NODES)
    assert too_few(scenario_of("kill slave 2"), NODES[:2])
    with pytest.raises(BadScenarioError):
        scenario_of("kill slave 0")


@pytest.mark.parametrize(
    "line",
    [
        "kill the coordinator",
        "lose the disk of the coordinator",
        "cut the power of the coordinator",
        "disturb the coordinator",
        "cut replication between slave 1 and the coordinator",
        "ask every node to resign",
        "promote the slaves",
        "expect the others to be master within 1 s",
        "cut slave 1 from slave 1",
        "delay every node and the master by 5 ms",
        "cut bytes from the slaves to slave 2",
    ],
)
def test_what_can_be_done_to_nobody_is_refused_as_the_file_is_read(line: str) -> None:
    with pytest.raises(BadScenarioError) as refused:
        scenario_of("start the load", line)
    assert str(refused.value).startswith("mine.yaml:5: ")
    assert "\n" not in str(refused.value)


class StandIns:
    """The nodes of a local cluster, without processes. Another name is an error, as there."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.spec = self
        self.file = Path("cluster.yaml")
        self._coordinator_runs = True

    def node(self, name: str) -> Any:  # noqa: ANN401 - a stand-in
        self._known(name)
        return samples.group(GroupKind.FENCED).nodes[NODES.index(name)]

    def state(self, name: str) -> NodeState:
        self._known(name)
        return NodeState.RUNNING if name in self._world.up else NodeState.STOPPED

    def status(self) -> list[Any]:
        return []

    async def start(self, name: str) -> None:
        self._has_process(name, wanted=False)
        await self._world.start(name)

    async def kill(self, name: str) -> None:
        self._has_process(name, wanted=True)
        await self._world.kill(name)

    async def stop(self, name: str) -> None:
        self._has_process(name, wanted=True)
        await self._world.stop(name)

    def pause(self, name: str) -> None:
        self._has_process(name, wanted=True)
        self._world.frozen.add(name)

    def resume(self, name: str) -> None:
        self._has_process(name, wanted=True)
        self._world.frozen.discard(name)

    async def start_coordinator(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._coordinator_runs:
            raise NodeCommandError(COORDINATOR, "RUNNING", "started")
        self._coordinator_runs = True

    async def stop_coordinator(self) -> None:
        await trio.lowlevel.checkpoint()
        if not self._coordinator_runs:
            raise NodeCommandError(COORDINATOR, "STOPPED", "stopped")
        self._coordinator_runs = False

    async def fenced_command(self, address: str, command: Any) -> Any:  # noqa: ANN401 - a stand-in
        if command.command == "promote":
            await self._world.promote(command.node)
        else:
            await self._world.resign(MASTER)
        return type("Result", (), {"done": True, "text": ""})()

    def _known(self, name: str) -> None:
        if name not in NODES:
            raise UnknownNodeError(name, list(NODES))

    def _has_process(self, name: str, *, wanted: bool) -> None:
        self._known(name)
        if (name in self._world.up) != wanted:
            raise NodeCommandError(name, "STOPPED" if wanted else "RUNNING", "hurt")


class RealWorld(World):
    """What a drill really acts on: its nodes, its network and its disks, in a directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(is_fenced=True)
        self.stores = {name: directory / name for name in NODES}
        log = LogBuilder(file_bytes=8192)
        for number in range(60):
            log.put(body=bytes([number]) * 300)
        for store in self.stores.values():
            log.write(store)
        (directory / COORDINATOR).mkdir()
        stand_ins: Any = StandIns(self)
        group = samples.group(GroupKind.FENCED)
        nodes = DrilledNodes(
            stand_ins,
            watched=self.watched,
            orders=stand_ins,
            coordinator=stand_ins,
            group="broker-a",
        )
        vars(nodes)["by_hand"] = self.by_hand  # no program is started
        disks = Disks(self.stores, "a test fills no disk")
        disks.add_coordinator(directory / COORDINATOR)
        pairs = proxied_pairs(group, samples.plan(kind=GroupKind.FENCED).coordinator)
        self.stage.cluster, self.stage.disks = nodes, disks
        self.stage._network = DrilledNetwork(FaultProxy(pairs), group)

    def check_ready(self, nodes: Any) -> None:  # noqa: ANN401 - names
        for node in nodes:
            assert node in self.stores

    async def outcome(self, line: str) -> str:
        """Play a line; return `works`, or in one word why it did not."""
        (step,) = scenario_of(line).steps
        try:
            await step.play(self.stage)
        except UnmetError:
            return "unmet"
        except NotPossibleError:
            return "not possible"
        return "works"


def lines_of(sentence: Sentence) -> Iterator[str]:
    """Yield the sentence with every subject, and with every object."""
    places = re.findall(r"\{(who|other)\}", sentence.template)
    for subjects in itertools.product(SUBJECTS, repeat=len(places)):
        text = sentence.template
        filled: Mapping[str, str] = dict(zip(places, subjects, strict=True))
        for place, example in (*((f"{{{p}}}", w) for p, w in filled.items()), *EXAMPLES.items()):
            text = text.replace(place, example)
        yield text


def is_refused(line: str) -> bool:
    """Whether a line is refused, in one sentence, before anything starts."""
    try:
        scenario = scenario_of(line)
        check_names([scenario], NODES)
    except BadScenarioError as error:
        refusal = str(error)
    else:
        refusal = too_few(scenario, NODES)
    assert "\n" not in refusal
    return bool(refusal)


SWITCH = ("kill the master", "expect a new master within 5 s", "start the old master")
STATES = {
    "up": (),
    "down": ("kill every node", "stop the coordinator"),
    "down, with copies": (
        "copy the directory of every node",
        "copy the directory of the coordinator",
        "kill every node",
        "stop the coordinator",
    ),
    "one down": ("kill slave 1",),
    "frozen": ("freeze every node",),
    "slave 2 is master": ("promote slave 2", "expect slave 2 to be master within 5 s"),
    "another master": SWITCH,
    "another master from the beginning": SWITCH,
}
WITH_SUBJECTS = [sentence for sentence in SENTENCES if "{who}" in sentence.template]


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("sentence", WITH_SUBJECTS, ids=lambda each: each.template)
async def test_every_sentence_works_with_each_subject_that_is_not_refused_before_the_start(
    sentence: Sentence, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """In one state of the nodes at least; in the others it ends in words and in no other error."""
    working = []
    for number, line in enumerate(lines_of(sentence)):
        if is_refused(line):
            continue
        outcomes: dict[str, str] = {}
        for name, before in STATES.items():
            directory = tmp_path / f"{number}-{name}"
            async with trio.open_nursery() as nursery:
                world = RealWorld(directory)
                nursery.start_soon(world.run)
                await world.play(*before)
                if "beginning" in name:
                    world.stage.bind("mine")
                outcomes[name] = await world.outcome(line)
                nursery.cancel_scope.cancel()
            if outcomes[name] == "works":
                break
        if not line.startswith("expect "):
            possible = {"works", "not possible"}
            assert possible & set(outcomes.values()), (line, outcomes)
        working.append(line)
    assert len(working) >= 4, "some subjects are meant to work"
    has_coordinator = any("the coordinator" in line for line in working)
    assert has_coordinator == (sentence.takes is Takes.NODES_OR_COORDINATOR)


def test_who_is_several_nodes_is_refused_where_one_is_meant_and_nowhere_else() -> None:
    for sentence in WITH_SUBJECTS:
        words = {"who": "the slaves", "other": "everything"}
        refusal = bad_subject(sentence, words, is_fenced=True)
        assert bool(refusal) == (sentence.takes is Takes.ONE_NODE)


def test_the_master_of_a_classic_group_may_be_down() -> None:
    line = "lose the disk of the master"
    assert scenario_of("kill the master", line, group="classic").steps
    with pytest.raises(BadScenarioError):
        scenario_of("kill the master", line)

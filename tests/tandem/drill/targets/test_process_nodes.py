"""Nodes that commands of a file hurt: here shells that sleep."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import trio

from tandem.client import ClientError
from tandem.drill.errors import TargetError
from tandem.drill.scenario import NodeFailedError, NotPossibleError, OutOfPlaceError
from tandem.drill.targets import process_nodes
from tandem.drill.targets.node_commands import NodeCommands, TargetCommandError
from tandem.drill.targets.process_file import Commands, ProcessNode
from tandem.drill.targets.process_nodes import ProcessNetwork, ProcessNodes, RefusedError
from tandem.drill.watched_group import WatchedGroup
from tandem.wire.ha_status import FencedCommand, FencedCommandResult
from tests.support.patience import PATIENCE_SECONDS

FIND = (
    "if grep -qs 'State:.[^ZX]' /proc/$(cat $NODE.pid)/status; then cat $NODE.pid; fi 2>/dev/null"
)
SLEEPERS = Commands(
    find=FIND,
    start="sleep 3600 >/dev/null 2>&1 & echo $! > $NODE.pid; echo start $NODE >> done",
    stop="kill $PID; echo stop $NODE >> done",
    kill="kill -9 $PID; echo kill $NODE >> done",
    freeze="kill -STOP $PID; echo freeze $NODE >> done",
    resume="kill -CONT $PID; echo resume $NODE >> done",
    cut="echo cut $NODE >> done",
    heal="echo heal $NODE >> done",
)


class Scene:
    """Nodes `a` and `b`, which answer while they run."""

    def __init__(self, directory: Path, commands: Commands = SLEEPERS) -> None:
        self.directory = directory
        self.watched = WatchedGroup(["a", "b"])
        self.commands = {
            name: NodeCommands(
                ProcessNode(name=name, address="127.0.0.1", port=1, store=None, commands=commands),
                directory,
                directory / "log",
                60.0,
            )
            for name in ("a", "b")
        }
        self.nodes = ProcessNodes(
            self.commands,
            answers=self.answers,
            watched=self.watched,
            orders=None,
            now=lambda: 3.0,
        )

    async def answers(self, node: str) -> bool:
        pid = await self.commands[node].find()
        if pid and _is_frozen(pid):
            await trio.sleep_forever()
        return bool(pid)

    @property
    def done(self) -> list[str]:
        place = self.directory / "done"
        return place.read_text().splitlines() if place.exists() else []

    async def end(self) -> None:
        for commands in self.commands.values():
            pid = await commands.find()
            if pid:
                await commands.run("kill", {"PID": str(pid)})


def _is_frozen(pid: int) -> bool:
    try:
        return "\nState:\tT" in Path(f"/proc/{pid}/status").read_text()
    except OSError:  # there is no such process
        return False


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    found = Scene(tmp_path)
    yield found
    await found.end()


async def test_what_does_not_run_is_started_and_stopped_at_the_end(scene: Scene) -> None:
    await scene.commands["a"].run("start")
    await scene.nodes.begin(60.0)
    assert scene.nodes.runs("a")
    assert scene.nodes.runs("b")
    assert scene.done == ["start a", "start b"]

    await scene.nodes.kill("a")
    assert not scene.nodes.runs("a")
    assert [change.kind for change in scene.watched.history] == ["ended"]
    await scene.nodes.freeze("b")

    assert await scene.nodes.let_run() == []
    assert await scene.nodes.stop_started() == []
    assert scene.done[2:] == ["kill a", "freeze b", "resume b", "start a", "stop b"]


UNHURRIED = msgspec.structs.replace(SLEEPERS, stop="(sleep 0.5; kill $PID) >/dev/null 2>&1 &")
"""A `stop` that asks for an end, and does not wait for it."""


async def test_what_is_stopped_at_the_end_is_gone_when_that_is_said(tmp_path: Path) -> None:
    scene = Scene(tmp_path, UNHURRIED)
    await scene.nodes.begin(60.0)
    assert await scene.nodes.stop_started() == []
    assert [await scene.commands[name].find() for name in ("a", "b")] == [0, 0]


async def test_what_does_not_end_at_the_end_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_nodes, "GONE_SECONDS_MAX", 0.1)
    scene = Scene(tmp_path, Commands(find="echo 77", stop="true"))
    await scene.nodes.begin(60.0)
    assert await scene.nodes.stop_started() == [], "it ran before, and is left alone"
    scene.nodes._ran_before["a"] = False
    (left,) = await scene.nodes.stop_started()
    assert "a still has its process 77" in left


async def test_a_node_is_stopped_started_and_found_anew(scene: Scene) -> None:
    await scene.nodes.begin(60.0)
    await scene.nodes.stop("a")
    with pytest.raises(OutOfPlaceError):
        await scene.nodes.kill("a")
    await scene.nodes.start("a")
    await scene.nodes.freeze("a")
    await scene.nodes.wake("a")
    assert scene.nodes.runs("a")
    assert scene.nodes.unexpected_exits() == []


async def test_an_end_that_nobody_wanted_is_seen(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_nodes, "FIND_SECONDS", 0.01)
    await scene.nodes.begin(60.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.nodes.watch, "a")
        nursery.start_soon(scene.nodes.watch, "b")
        await scene.nodes.kill("b")
        await scene.commands["a"].run("kill", {"PID": str(await scene.commands["a"].find())})
        while not scene.nodes.unexpected_exits():
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    (exit_,) = scene.nodes.unexpected_exits()
    assert exit_.startswith("a ")
    assert not scene.nodes.runs("a")


async def test_a_node_that_does_not_run_and_has_no_start_is_said(tmp_path: Path) -> None:
    with pytest.raises(TargetError):
        await Scene(tmp_path, Commands(find="true")).nodes.begin(60.0)


async def test_a_node_that_never_answers_is_said_with_its_address(tmp_path: Path) -> None:
    one = Scene(tmp_path, Commands(find="echo 1"))

    async def silent(node: str) -> bool:
        await trio.lowlevel.checkpoint()
        return False

    nodes = ProcessNodes(one.commands, answers=silent, watched=None, orders=None, now=lambda: 0.0)
    with pytest.raises(TargetError) as refused:
        await nodes.begin(0.1)
    assert "127.0.0.1:1" in str(refused.value)


async def test_a_kill_that_kills_nobody_ends_the_drill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_nodes, "GONE_SECONDS_MAX", 0.2)
    one = Scene(tmp_path, Commands(find="echo 77", kill="true", start="exit 3", stop="exit 4"))
    await one.nodes.begin(60.0)
    with pytest.raises(TargetError) as failed:
        await one.nodes.kill("a")
    assert "77" in str(failed.value)
    with pytest.raises(NodeFailedError):  # it may be the node's fault
        await one.nodes.stop("a")


async def test_a_start_that_fails_is_the_nodes_and_a_freeze_the_commands(tmp_path: Path) -> None:
    one = Scene(tmp_path, Commands(find="cat pid", start="exit 3", freeze="exit 9"))
    (tmp_path / "pid").write_text("1")
    await one.nodes.begin(60.0)
    with pytest.raises(TargetCommandError):
        await one.nodes.freeze("a")
    (tmp_path / "pid").write_text("")
    with pytest.raises(NodeFailedError):
        await one.nodes.start("a")
    assert len(await one.nodes.let_run()) >= 1


async def test_a_network_cuts_nodes_off_and_no_single_link(scene: Scene) -> None:
    network = ProcessNetwork(scene.commands)
    await network.cut_off("a", ["b"])
    await network.heal()
    await network.heal()
    assert scene.done == ["cut a", "heal a"]
    with pytest.raises(NotPossibleError):
        await network.cut_off("the coordinator", [])
    with pytest.raises(NotPossibleError):
        network.cut("a", "b")
    with pytest.raises(NotPossibleError):
        network.slow("a", "b")
    with pytest.raises(NotPossibleError):
        network.reset("a")
    with pytest.raises(NotPossibleError):
        await network.disturb("a")


class Orders:
    """Takes every order, or refuses it, or does not answer."""

    def __init__(self) -> None:
        self.given: list[tuple[str, FencedCommand]] = []
        self.done = True
        self.is_silent = False

    async def fenced_command(self, address: str, command: FencedCommand) -> FencedCommandResult:
        await trio.lowlevel.checkpoint()
        if self.is_silent:
            raise ClientError("silent")
        self.given.append((address, command))
        return FencedCommandResult(done=self.done, text="no")


async def test_orders_go_to_the_node_and_a_refusal_is_the_nodes(scene: Scene) -> None:
    orders = Orders()
    nodes = ProcessNodes(
        scene.commands, answers=scene.answers, watched=None, orders=orders, now=lambda: 0.0
    )
    await nodes.resign("a")
    assert orders.given == [("127.0.0.1:1", FencedCommand(command="resign"))]
    with pytest.raises(NodeFailedError):
        await nodes.promote("a")  # nobody is master
    orders.done = False
    with pytest.raises(NodeFailedError):
        await nodes.resign("a")
    orders.is_silent = True
    with pytest.raises(NodeFailedError):
        await nodes.resign("a")
    with pytest.raises(NotPossibleError):
        await scene.nodes.resign("a")
    with pytest.raises(NotPossibleError):
        await nodes.by_hand("rejoin")
    for change in (nodes.upgrade, nodes.go_back):
        with pytest.raises(NotPossibleError):
            change("a")


@pytest.mark.parametrize("is_lasting", [True, False])
async def test_a_node_that_answers_something_else_is_not_said_to_be_silent(
    is_lasting: bool,  # noqa: FBT001 - a parameter
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_nodes, "REFUSED_SECONDS_MAX", 0.05)
    scene = Scene(tmp_path)

    async def answers(node: str) -> bool:
        await trio.lowlevel.checkpoint()
        raise RefusedError(f"{node} refuses me, of /my/file", is_lasting=is_lasting)

    monkeypatch.setattr(scene.nodes, "_answers", answers)
    try:
        with pytest.raises(TargetError, match="a refuses me, of /my/file") as refused:
            await scene.nodes.begin(60.0 if is_lasting else 0.3)
        assert ("so it said" in str(refused.value)) != is_lasting
    finally:
        await scene.nodes.stop_started()


async def test_a_freeze_that_stops_nobody_is_said_and_no_drill_passes_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_nodes, "STILL_LOOKS_MAX", 2)
    monkeypatch.setattr(process_nodes, "AT_ONCE_SECONDS", PATIENCE_SECONDS)
    scene = Scene(tmp_path, msgspec.structs.replace(SLEEPERS, freeze="true"))
    await scene.nodes.begin(60.0)
    try:
        with pytest.raises(TargetError, match="freeze"):
            await scene.nodes.freeze("a")
    finally:
        await scene.end()

"""Commands of a file: what they get, and how they fail."""

import os
from pathlib import Path
from typing import Any

import pytest
import trio

from tandem.drill.targets.node_commands import NodeCommands, TargetCommandError
from tandem.drill.targets.process_file import Commands, ProcessNode


def commands(directory: Path, seconds_max: float = 60.0, **given: str) -> NodeCommands:
    node = ProcessNode(
        name="a", address="10.0.0.1", port=10911, store=None, commands=Commands(**given)
    )
    return NodeCommands(node, directory, directory / "logs" / "a.log", seconds_max)


async def test_a_command_gets_its_node_and_runs_beside_the_file(tmp_path: Path) -> None:
    one = commands(tmp_path, start="echo $NODE $ADDRESS $PORT $PID; pwd")

    said = await one.run("start", {"PID": "7"})

    assert said.splitlines() == ["a 10.0.0.1 10911 7", str(tmp_path)]
    assert "(status 0)" in (tmp_path / "logs" / "a.log").read_text()


async def test_a_command_that_fails_says_its_status_and_its_last_line(tmp_path: Path) -> None:
    one = commands(tmp_path, kill="echo first; echo no such host >&2; exit 255")

    with pytest.raises(TargetCommandError) as failed:
        await one.run("kill")

    assert (failed.value.node, failed.value.name, failed.value.status) == ("a", "kill", 255)
    assert "no such host" in str(failed.value)
    assert "\n" not in str(failed.value)


async def test_one_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    noted = tmp_path / "child"
    noted.touch()
    for seconds_max in (1.0, 10.0, 60.0):  # as a busy machine may need to begin with it
        one = commands(tmp_path, seconds_max, freeze="sleep 3600 & echo $! > child; wait")
        with pytest.raises(TargetCommandError) as failed:
            await one.run("freeze")
        assert failed.value.status is None
        if noted.read_text():
            break

    child = int(noted.read_text())
    with trio.fail_after(60):
        while is_alive(child):
            await trio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_what_a_command_leaves_running_keeps_nobody_waiting(tmp_path: Path) -> None:
    one = commands(tmp_path, start="sleep 3600 & echo $!")

    child = int(await one.run("start"))

    assert is_alive(child)
    os.kill(child, 9)


async def test_a_command_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    one = commands(tmp_path, start="x")
    assert one.has("start")
    assert not one.has("stop")
    with pytest.raises(TargetCommandError):
        await one.run("stop")


@pytest.mark.parametrize(
    ("find", "pid"),
    [("echo 42", 42), ("true", 0), ("exit 1", 0), ("echo 0", 0), ("echo; echo ' 7 '", 7)],
)
async def test_a_process_is_found_or_there_is_none(find: str, pid: int, tmp_path: Path) -> None:
    assert await commands(tmp_path, find=find).find() == pid


@pytest.mark.parametrize(
    "find", ["exit 255", "echo a", "echo 1 2", "echo -1", "echo 1; exit 3", "no-such-program-x"]
)
async def test_what_prints_no_process_id_is_an_error(find: str, tmp_path: Path) -> None:
    with pytest.raises(TargetCommandError) as failed:
        await commands(tmp_path, find=find).find()
    assert failed.value.name == "find"


async def test_a_cancelled_command_is_ended(tmp_path: Path) -> None:
    one = commands(tmp_path, start="echo $$ > own; exec sleep 3600")

    async def run() -> Any:  # noqa: ANN401 - nothing comes
        return await one.run("start")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        while not (tmp_path / "own").exists() or not (tmp_path / "own").read_text():
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()

    assert not is_alive(int((tmp_path / "own").read_text()))

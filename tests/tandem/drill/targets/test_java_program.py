"""Programs that stand in for Java: the shell says that it serves, or ends."""

import signal
from pathlib import Path

import pytest
import trio

from tandem.drill.scenario import NodeFailedError, OutOfPlaceError
from tandem.drill.targets.java_program import JavaProgram

SERVES = ("sh", "-c", "echo boot success; exec sleep 1000")
ENDS = ("sh", "-c", "echo java.lang.IllegalStateException: no port; echo bye; exit 3")
DIES_LATER = ("sh", "-c", "echo boot success; exit 7")


def program(directory: Path, command: tuple[str, ...]) -> JavaProgram:
    return JavaProgram("a", command, directory / "logs" / "a.log", directory / "home")


def runs(one: JavaProgram) -> bool:
    return one.runs  # asked anew: it changes


async def test_it_is_started_frozen_killed_and_started_again(tmp_path: Path) -> None:
    one = program(tmp_path, SERVES)
    try:
        await one.start()
        assert runs(one)
        one.signal(signal.SIGSTOP)
        one.wake_if_frozen()
        with pytest.raises(OutOfPlaceError):
            await one.start()
        await one.kill()
        assert not runs(one)
        assert one.unexpected_exit == ""
        await one.start()
        assert runs(one)
        await one.stop()
        assert not runs(one)
    finally:
        one.kill_now()
        one.reap()


async def test_one_that_ends_instead_says_its_error(tmp_path: Path) -> None:
    one = program(tmp_path, ENDS)

    with pytest.raises(NodeFailedError, match="IllegalStateException"):
        await one.start()
    with pytest.raises(OutOfPlaceError):
        one.signal(signal.SIGSTOP)
    one.reap()


async def test_a_command_that_is_not_there_is_an_error_of_the_node(tmp_path: Path) -> None:
    one = program(tmp_path, (str(tmp_path / "none"),))
    with pytest.raises(NodeFailedError):
        await one.start()
    with pytest.raises(NodeFailedError):
        await program(tmp_path, SERVES).kill()


async def test_an_end_that_nobody_wanted_is_told(tmp_path: Path) -> None:
    one = program(tmp_path, DIES_LATER)
    await one.start()
    while one.runs:
        await trio.sleep(0.01)
    assert "status 7" in one.unexpected_exit
    one.reap()


async def test_who_kills_a_program_does_not_cover_up_that_it_has_ended_by_itself(
    tmp_path: Path,
) -> None:
    one = program(tmp_path, DIES_LATER)
    await one.start()
    while one.runs:
        await trio.sleep(0.01)

    with pytest.raises(OutOfPlaceError, match="status 7"):
        await one.kill()

    assert "status 7" in one.unexpected_exit
    one.reap()

import logging

import pytest
import trio

from node.simulated.play import Room
from tests.node.simulated.group_world import played

pytestmark = [pytest.mark.sim, pytest.mark.slow]


def test_a_seed_is_the_same_run_each_time() -> None:
    async def test(room: Room) -> None:
        room.group.kill(str(room.group.master()))
        await room.group.until(lambda: room.group.master() is not None, 20.0)
        drawn = room.network.chance.random()
        ends.append((room.group.master(), trio.current_time(), drawn))

    ends: list[tuple[str | None, float, float]] = []
    notes = [played(test, seed) for seed in (5, 6, 5)]
    assert notes[0] == notes[2]
    assert ends[0] == ends[2] != ends[1]


def test_warnings_of_nodes_are_noted_and_stay_out_of_the_logs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(room: Room) -> None:
        logging.getLogger("node").error("of nobody")
        room.group.kill(str(room.group.master()))
        await room.group.until(lambda: room.group.master() is not None, 20.0)

    notes = played(test)
    assert {source for source, _ in notes} <= {"fault", *(f"broker-a-{n}" for n in (1, 2, 3))}
    assert any(source != "fault" for source, _ in notes)
    assert caplog.records == []
    assert logging.getLogger("node").propagate


def test_what_a_test_raises_comes_out_and_the_next_run_is_as_ever() -> None:
    async def fails(_: Room) -> None:
        raise LookupError

    async def passes(room: Room) -> None:
        assert room.group.is_in_sync()

    with pytest.raises(ExceptionGroup):
        played(fails)
    played(passes)

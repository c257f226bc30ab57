"""What one replica does for the health of its log."""

import pytest
import trio
from trio.testing import MockClock

from ha.fenced.disputed_joint import DisputedJoint
from ha.fenced.healing_tasks import Healing
from tests.ha.fenced_parts import open_parts
from tests.ha.fenced_world import FencedWorld, WorldPeerLogs


async def test_without_peers_nothing_is_done(autojump_clock: MockClock) -> None:
    with open_parts() as parts:
        healing = Healing(parts.parts, None)
        await healing.run()
        assert (healing.healed, healing.not_healed, healing.undecided) == ([], [], [])


async def test_a_part_that_is_doubted_again_and_again_is_looked_at_once_a_second(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    async def look(_self: DisputedJoint, _start: int, _end: int) -> None:
        looks.append(trio.current_time())

    monkeypatch.setattr(DisputedJoint, "look", look)
    with open_parts() as parts:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Healing(parts.parts, WorldPeerLogs(FencedWorld())).run)
            for _ in range(30):
                await trio.sleep(0.1)
                parts.parts.standing.was_doubted(0, 100)
            nursery.cancel_scope.cancel()
    assert [round(at - looks[0]) for at in looks] == [0, 1, 2]

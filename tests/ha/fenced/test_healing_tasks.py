"""What one replica does for the health of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.fenced.healing_tasks import Healing
from tests.ha.fenced_parts import open_parts

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_without_peers_nothing_is_done(autojump_clock: MockClock) -> None:
    with open_parts() as parts:
        healing = Healing(parts.parts, None)
        await healing.run()
        assert (healing.healed, healing.not_healed, healing.undecided) == ([], [], [])

"""An operator's order to look at all of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tandem.wire.ha_status import FencedCommand
from tests.ha.fingerprinted import flip
from tests.ha.healing_world import open_group
from tests.ha.world import FILE_SIZE_BYTES

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_a_flip_is_found_and_healed(autojump_clock: MockClock) -> None:
    async with open_group() as group:
        flip(group.first.store, FILE_SIZE_BYTES + 5_000)
        node = group.first.ha
        assert node.status().scrub == ""
        result = await node.command(FencedCommand(command="scrub"))
        assert result.done
        await group.world.wait_for(lambda: "has looked at" in node.status().scrub)
        assert "found damage in 1 places" in node.status().scrub
        await group.healed(group.first)
        assert node.status().healed
        result = await node.command(FencedCommand(command="scrub"))
        assert result.done
        await group.world.wait_for(lambda: "found damage in 0 places" in node.status().scrub)


async def test_a_second_order_does_not_begin_anew(autojump_clock: MockClock) -> None:
    async with open_group() as group:
        first = await group.first.ha.command(FencedCommand(command="scrub"))
        second = await group.first.ha.command(FencedCommand(command="scrub"))
        assert (first.done, second.done) == (True, True)
        assert "already" in second.text

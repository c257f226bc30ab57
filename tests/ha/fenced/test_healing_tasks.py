"""What is kept of what was healed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ha.fenced.healing_tasks import FILE_NAME, Healing
from tandem.wire.ha_status import HealedPart
from tests.ha.fenced_parts import open_parts
from tests.ha.world import DIRECTORY

if TYPE_CHECKING:
    from trio.testing import MockClock

PATH = f"{DIRECTORY}/{FILE_NAME}"
PART = HealedPart(0, 9, "b", "a flip", 7)


async def test_without_peers_nothing_is_done(autojump_clock: MockClock) -> None:
    with open_parts() as parts:
        healing = Healing(parts.parts, None)
        await healing.run()
        assert (healing.healed, healing.not_healed, healing.undecided) == ([], [], [])


async def test_what_was_healed_is_kept() -> None:
    with open_parts() as parts:
        healing = Healing(parts.parts, None)
        healing.healed.append(PART)
        healing._save()
        assert Healing(parts.parts, None).healed == [PART]


async def test_a_damaged_file_is_forgotten_and_a_full_disk_does_no_harm() -> None:
    with open_parts() as parts:
        disk = parts.world.disks["a"]
        healing = Healing(parts.parts, None)
        healing.healed.append(PART)
        healing._save()
        data = bytearray(disk.read(PATH) or b"")
        data[random.Random(1).randrange(10)] ^= 1
        disk.replace(PATH, bytes(data))
        assert Healing(parts.parts, None).healed == []
        disk.capacity_bytes = 0
        healing._save()

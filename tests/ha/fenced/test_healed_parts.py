"""What is kept of what was healed."""

from ha.fenced.healed_parts import FILE_NAME, KEPT_MAX, HealedParts
from node.simulated.disk import SimulatedDisk
from tandem.wire.ha_status import HealedPart
from tests.ha.world import DIRECTORY

PATH = f"{DIRECTORY}/{FILE_NAME}"
PART = HealedPart(0, 9, "b", "a flip", 7)


def test_what_was_healed_is_kept() -> None:
    disk = SimulatedDisk()
    healed = HealedParts(disk, DIRECTORY)
    healed.save()
    assert disk.read(PATH) is None
    healed.add(PART)
    healed.save()
    assert HealedParts(disk, DIRECTORY).parts == [PART]


def test_what_goes_on_where_the_last_one_ended_is_one_with_it() -> None:
    healed = HealedParts(SimulatedDisk(), DIRECTORY)
    healed.add(PART)
    healed.add(HealedPart(9, 20, "b", "a flip", 8))
    assert healed.parts == [HealedPart(0, 20, "b", "a flip", 8)]
    healed.add(HealedPart(20, 21, "c", "a flip", 9))
    healed.add(HealedPart(30, 31, "c", "a flip", 9))
    healed.add(HealedPart(31, 32, "c", "zeros", 9))
    assert len(healed.parts) == 4
    for start in range(100, 1000, 2):
        healed.add(HealedPart(start, start + 1, "b", "a flip", 8))
    assert len(healed.parts) == KEPT_MAX


def test_a_damaged_file_is_forgotten_and_a_full_disk_does_no_harm() -> None:
    disk = SimulatedDisk()
    healed = HealedParts(disk, DIRECTORY)
    healed.add(PART)
    healed.save()
    data = bytearray(disk.read(PATH) or b"")
    data[5] ^= 1
    disk.replace(PATH, bytes(data))
    assert HealedParts(disk, DIRECTORY).parts == []
    disk.capacity_bytes = 0
    healed.add(PART)
    healed.save()
    disk.capacity_bytes = 1 << 40
    healed.save()
    assert HealedParts(disk, DIRECTORY).parts == healed.parts

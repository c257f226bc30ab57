"""The file of a checkpoint: its length, its second copy, and a disk that changes it."""

import pytest

from node.simulated.disk import SimulatedDisk
from store.files.checkpoint_file import CheckpointFile
from store.machine.errors import CorruptLogError, LogFault
from tandem.wire.store_layout import CHECKPOINT_BYTES

PATH = "/store/checkpoint"
NUMBERS = (1, 2, 3)


def opened(disk: SimulatedDisk) -> CheckpointFile:
    return CheckpointFile(PATH, disk, len(NUMBERS), without_it="it begins again")


def written(disk: SimulatedDisk) -> CheckpointFile:
    file = opened(disk)
    assert file.write(NUMBERS)
    file.file.sync()
    return file


def test_a_new_file_is_all_zeros_and_is_nothing_to_go_by() -> None:
    disk = SimulatedDisk()
    file = opened(disk)
    assert (file.numbers, file.trouble) == ((0, 0, 0), "")
    assert disk.kept.of(PATH) is None
    assert not file.write((0, 0, 0))


def test_what_was_written_is_there_at_the_next_opening_and_is_not_written_again() -> None:
    disk = SimulatedDisk()
    written(disk).close()
    file = opened(disk)
    assert (file.numbers, file.trouble) == (NUMBERS, "")
    assert not file.write(NUMBERS)
    assert file.write((1, 2, 4))


@pytest.mark.parametrize("size", [0, 1, CHECKPOINT_BYTES - 1, CHECKPOINT_BYTES + 1])
def test_a_file_of_another_length_is_refused_with_what_comes_without_it(size: int) -> None:
    disk = SimulatedDisk()
    disk.replace(PATH, bytes(size))
    with pytest.raises(CorruptLogError, match="delete it: it begins again") as caught:
        opened(disk)
    assert (caught.value.path, caught.value.fault) == (PATH, LogFault.LENGTH)


def test_after_a_change_at_rest_the_settled_numbers_are_written_once_more() -> None:
    disk = SimulatedDisk()
    file = written(disk)
    file.file.buffer[7] ^= 1
    file.file.sync()
    file.close()
    again = opened(disk)
    assert again.numbers == NUMBERS
    assert again.trouble
    assert disk.kept.of(PATH) is None, "what is on the disk is not what counts"
    assert again.write(NUMBERS)
    again.close()
    assert not opened(disk).trouble


def test_a_file_that_is_lost_while_it_is_open_is_written_anew_and_goes_on() -> None:
    disk = SimulatedDisk()
    file = written(disk)
    kept = disk.kept.of(PATH)
    assert kept is not None
    disk.remove(PATH)
    kept.write_anew()
    assert disk.read(PATH) == kept.content
    assert file.write((4, 5, 6))
    file.file.sync()
    file.close()
    assert disk.kept.of(PATH) is None
    assert opened(disk).numbers == (4, 5, 6)

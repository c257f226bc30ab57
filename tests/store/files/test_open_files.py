from node.simulated.disk import SimulatedDisk
from store.files.open_files import OpenFiles


class Pretended:
    """A file that can be closed, or not."""

    def __init__(self, *, is_synced: bool = True) -> None:
        self.is_synced = is_synced
        self.is_open = True
        self.asked = 0

    def let_go(self, *, unsynced: bool = False) -> bool:
        self.asked += 1
        self.is_open = not (self.is_synced or unsynced)
        return not self.is_open


def opened(count: int, files: OpenFiles, *, is_synced: bool = True) -> list[Pretended]:
    made = [Pretended(is_synced=is_synced) for _ in range(count)]
    for file in made:
        files.used(file)
    return made


def test_the_one_that_was_not_used_for_longest_is_closed_for_another() -> None:
    files = OpenFiles(SimulatedDisk(), 3)
    first, second, third = opened(3, files)
    files.used(first)
    opened(1, files)
    assert [each.is_open for each in (first, second, third)] == [True, False, True]
    assert files.count == 3
    assert not files.are_too_many


def test_what_is_not_synced_stays_open_until_it_is() -> None:
    files = OpenFiles(SimulatedDisk(), 20)
    made = opened(40, files, is_synced=False)
    assert files.count == 40
    assert files.are_too_many
    for file in made:
        file.is_synced = True
    files.let_go()
    assert files.count == 20
    assert [file.is_open for file in made].count(True) == 20


def test_of_twice_as_many_the_oldest_is_closed_unsynced() -> None:
    files = OpenFiles(SimulatedDisk(), 2)
    made = opened(10, files, is_synced=False)
    assert files.count == 4
    assert [file.is_open for file in made].count(True) == 4


def test_a_file_that_is_closed_otherwise_is_forgotten() -> None:
    files = OpenFiles(SimulatedDisk(), 2)
    (first,) = opened(1, files)
    files.closed(first)
    files.closed(first)
    assert files.count == 0


def test_files_that_are_not_synced_are_not_asked_again_for_each_one_that_is_opened() -> None:
    files = OpenFiles(SimulatedDisk(), 100)
    made = opened(199, files, is_synced=False)
    assert 0 < sum(file.asked for file in made) <= 2 * 99
    for file in made:
        file.is_synced = True
    files.let_go()
    assert files.count == 100
    opened(1, files)
    assert files.count == 100

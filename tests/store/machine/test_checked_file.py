import random

import pytest

from node.simulated.disk import SimulatedDisk
from store.machine.checked_file import read_checked_json, replace_with_checked_json
from tandem.wire.untrusted import UnreadableError

PATH = "/store/small.json"


def test_what_was_put_is_read_after_a_power_cut() -> None:
    disk = SimulatedDisk()
    replace_with_checked_json(disk, PATH, {"a": 1})
    assert read_checked_json(disk.powered_off(random.Random(1)), PATH, dict[str, int]) == {"a": 1}


def test_no_file_is_none_and_an_empty_one_is_damaged() -> None:
    disk = SimulatedDisk()
    assert read_checked_json(disk, PATH, dict[str, int]) is None
    disk.replace(PATH, b"")
    with pytest.raises(UnreadableError):
        read_checked_json(disk, PATH, dict[str, int])


def test_a_file_in_the_place_of_another_is_damaged() -> None:
    disk = SimulatedDisk()
    replace_with_checked_json(disk, PATH, {"a": 1})
    disk.replace("/store/other.json", disk.read(PATH) or b"")
    with pytest.raises(UnreadableError):
        read_checked_json(disk, "/store/other.json", dict[str, int])


def test_a_file_that_the_disk_does_not_give_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_path: str) -> bytes:
        raise OSError(5, "Input/output error")

    disk = SimulatedDisk()
    monkeypatch.setattr(disk, "read", fail)
    with pytest.raises(UnreadableError) as caught:
        read_checked_json(disk, PATH, dict[str, int])
    assert isinstance(caught.value.__cause__, OSError)

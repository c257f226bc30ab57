import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.simulated.disk import SimulatedDisk
from store.delayed.delay_offset_table import UPDATES_PER_VERSION, DelayOffsetTable
from store.machine.errors import TableFileError
from store.machine.table_file import TableFile

PATH = "/store/config/delayOffset.json"

GOLDEN = (
    b'{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n\t\t"timestamp":1700000000000'
    b'\n\t},\n\t"offsetTable":{1:0,3:12,18:1\n\t}\n}'
)
"""As ScheduleMessageService of 5.3.3 writes it."""


def table(disk: SimulatedDisk) -> DelayOffsetTable:
    return DelayOffsetTable(TableFile(disk, PATH), lambda: 1234)


def queues(bounds: dict[int, tuple[int, int]]) -> Callable[[int], tuple[int, int] | None]:
    return bounds.get


def test_the_file_of_rocketmq_is_read_and_written_byte_for_byte() -> None:
    disk = SimulatedDisk()
    disk.replace(PATH, GOLDEN)
    offsets = table(disk)
    assert [offsets.query(level) for level in (1, 2, 3, 18)] == [0, 0, 12, 1]
    offsets.update(3, 13)
    offsets.update(3, 12)
    offsets.save()
    assert disk.read(PATH) == GOLDEN
    assert disk.read(f"{PATH}.bak") == GOLDEN


@pytest.mark.parametrize(
    "text",
    [
        b'{"offsetTable":{"3":12}}',
        b'{ "offsetTable" : {\r\n 3 : 12 } , "other":{"a":[1]}}',
        b'{"dataVersion":{"counter":7},"offsetTable":{3:12,\t4:0}}',
    ],
    ids=["quoted", "spaced", "without a time"],
)
def test_every_spelling_is_read(text: bytes) -> None:
    disk = SimulatedDisk()
    disk.replace(PATH, text)
    assert table(disk).query(3) == 12


def test_an_offset_comes_back_after_a_restart() -> None:
    disk = SimulatedDisk()
    offsets = table(disk)
    offsets.update(5, 42)
    offsets.save()
    assert table(disk).query(5) == 42


def test_nothing_is_written_when_nothing_changed() -> None:
    disk = SimulatedDisk()
    offsets = table(disk)
    offsets.save()
    assert disk.read(PATH) is None
    offsets.update(1, 1)
    offsets.save()
    disk.remove(PATH)
    offsets.update(1, 1)
    offsets.save()
    assert disk.read(PATH) is None


def test_offsets_outside_their_queue_are_moved_to_its_nearer_end() -> None:
    """ScheduleMessageService.correctDelayOffset."""
    offsets = table(SimulatedDisk())
    for level, offset in ((1, 3), (2, 30), (3, 15), (4, 99)):
        offsets.update(level, offset)
    moved = offsets.correct(queues({1: (10, 20), 2: (10, 20), 3: (10, 20)}))
    assert moved == {1: 10, 2: 20}
    assert [offsets.query(level) for level in (1, 2, 3, 4)] == [10, 20, 15, 99]


def test_a_corrected_offset_is_saved() -> None:
    disk = SimulatedDisk()
    disk.replace(PATH, GOLDEN)
    offsets = table(disk)
    assert offsets.correct(queues({3: (0, 5)})) == {3: 5}
    offsets.save()
    assert table(disk).query(3) == 5


def test_the_version_moves_once_in_many_updates() -> None:
    disk = SimulatedDisk()
    offsets = table(disk)
    for offset in range(UPDATES_PER_VERSION - 1):
        offsets.update(1, offset)
    offsets.save()
    assert b'"counter":0' in (disk.read(PATH) or b"")
    offsets.update(1, UPDATES_PER_VERSION - 2)
    offsets.save()
    version = json.loads(quoted(disk.read(PATH) or b""))["dataVersion"]
    assert version == {"counter": 1, "stateVersion": 0, "timestamp": 1234}


def quoted(text: bytes) -> bytes:
    return re.sub(rb"([{,])(\d+):", rb'\1"\2":', text)


@pytest.mark.parametrize(
    "text",
    [b"{", b'{"offsetTable":{x:1}}', b'{"offsetTable":{1:9223372036854775808}}', b"[]"],
)
def test_a_file_that_is_no_table_is_an_error_with_a_remedy(text: bytes) -> None:
    disk = SimulatedDisk()
    disk.replace(PATH, text)
    with pytest.raises(TableFileError) as caught:
        table(disk)
    assert caught.value.path == PATH


@given(st.binary() | st.text(alphabet='{}[]":,\\ \n0123456789-offsetTable').map(str.encode))
def test_any_file_is_a_table_or_the_error(text: bytes) -> None:
    disk = SimulatedDisk()
    disk.replace(PATH, text)
    try:
        offsets = table(disk)
    except TableFileError:
        return
    offsets.query(1)

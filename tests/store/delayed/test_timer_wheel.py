import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.simulated.disk import SimulatedDisk
from store.delayed.timer_wheel import SLOT_BYTES, SLOTS, Slot, TimerWheel
from store.machine.errors import CorruptLogError, LogFault

PATH = "/store/timerwheel"
T0 = 1_700_000_000_000


def a_wheel(disk: SimulatedDisk | None = None, slots: int = 10) -> TimerWheel:
    return TimerWheel(PATH, 1000, disk or SimulatedDisk(), slots=slots)


def test_the_file_has_the_size_of_rocketmqs() -> None:
    assert SLOTS * SLOT_BYTES == 38_707_200


def test_a_slot_is_stored_as_rocketmq_stores_it() -> None:
    """TimerWheel.putSlot."""
    disk = SimulatedDisk()
    a_wheel(disk).put_slot(T0 + 3999, Slot(52, 104, 2))
    data = disk.read(PATH) or b""
    assert len(data) == 320
    index = (T0 // 1000 + 3) % 10
    assert data[index * 32 : index * 32 + 32] == (
        (T0 // 1000 + 3).to_bytes(8, "big")
        + (52).to_bytes(8, "big")
        + (104).to_bytes(8, "big")
        + (2).to_bytes(4, "big")
        + bytes(4)
    )


def test_a_slot_speaks_for_all_of_its_tick_and_for_no_other() -> None:
    wheel = a_wheel()
    wheel.put_slot(T0, Slot(0, 52, 2))
    assert wheel.slot(T0 + 999) == Slot(0, 52, 2)
    for other in (T0 - 1, T0 + 1000, T0 + 10_000, T0 - 10_000):
        assert wheel.slot(other) == Slot()


def test_a_later_time_takes_the_slot_over() -> None:
    wheel = a_wheel()
    wheel.put_slot(T0, Slot(0, 52, 2))
    wheel.put_slot(T0 + 10_000, Slot(104, 104, 1))
    assert wheel.slot(T0) == Slot()
    assert wheel.slot(T0 + 10_000) == Slot(104, 104, 1)


def test_the_wheel_is_there_after_a_restart_and_can_be_cleared() -> None:
    disk = SimulatedDisk()
    a_wheel(disk).put_slot(T0, Slot(0, 52, 2))
    again = a_wheel(disk)
    assert again.slot(T0) == Slot(0, 52, 2)
    again.clear()
    assert again.slot(T0) == Slot()


def test_a_wheel_of_another_length_is_an_error_with_a_remedy() -> None:
    """TimerWheel's constructor."""
    disk = SimulatedDisk()
    a_wheel(disk)
    with pytest.raises(CorruptLogError) as caught:
        a_wheel(disk, slots=11)
    assert caught.value.fault is LogFault.LENGTH
    assert caught.value.path == PATH


@given(st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 1 << 40)), max_size=30))
def test_the_wheel_knows_the_last_slot_of_each_index(puts: list[tuple[int, int]]) -> None:
    wheel = a_wheel()
    model: dict[int, tuple[int, int]] = {}
    for after_ms, position in puts:
        tick = (T0 + after_ms) // 1000
        wheel.put_slot(T0 + after_ms, Slot(position, position, 1))
        model[tick % 10] = (tick, position)
    for tick in range(T0 // 1000, T0 // 1000 + 41):
        found, position = model.get(tick % 10, (-1, -1))
        expected = Slot(position, position, 1) if found == tick else Slot()
        assert wheel.slot(tick * 1000) == expected

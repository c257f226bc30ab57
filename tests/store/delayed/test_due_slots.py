"""The slots with units come in the order of their times, built at once or one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from node.simulated.disk import SimulatedDisk
from store.delayed.due_slots import DueSlots
from store.delayed.timer_log import RecoveredUnits
from store.delayed.timer_wheel import Slot, TimerWheel

T0 = 1_700_000_000_000
SLOTS = 10
UNIT_BYTES = 52


def a_wheel() -> TimerWheel:
    return TimerWheel("/store/timerwheel", 1000, SimulatedDisk(), slots=SLOTS)


def drained(due: DueSlots) -> list[int]:
    times = []
    while due.first_ms is not None:
        times.append(due.first_ms)
        due.drop_first()
    return times


def test_slots_come_in_the_order_of_their_times_and_once() -> None:
    due = DueSlots(a_wheel(), 1000)
    assert due.first_ms is None
    for position, second in enumerate((5, 2, 5, 7, 2)):
        due.enter(T0 + second * 1000, position * UNIT_BYTES, is_delete=False)
    assert drained(due) == [T0 + 2000, T0 + 5000, T0 + 7000]


def test_a_slot_knows_its_first_and_last_unit_and_counts_deletes_down() -> None:
    wheel = a_wheel()
    due = DueSlots(wheel, 1000)
    due.enter(T0, 0, is_delete=False)
    due.enter(T0, 52, is_delete=False)
    due.enter(T0, 104, is_delete=True)
    assert wheel.slot(T0) == Slot(0, 104, 1)


def test_a_slot_is_taken_while_that_of_another_turn_has_units() -> None:
    due = DueSlots(a_wheel(), 1000)
    due.enter(T0, 0, is_delete=False)
    assert not due.is_taken(T0)
    assert due.is_taken(T0 + SLOTS * 1000)
    due.drop_first()
    assert not due.is_taken(T0 + SLOTS * 1000)


@given(
    seconds=st.lists(st.integers(0, SLOTS - 1), max_size=30),
    deletes=st.sets(st.integers(0, 29)),
    from_second=st.integers(0, SLOTS),
)
def test_building_at_once_is_the_same_as_entering_one_by_one(
    seconds: list[int], deletes: set[int], from_second: int
) -> None:
    """Units that are due before `from_ms` were done, and what the file held is forgotten."""
    one_wheel, all_wheel = a_wheel(), a_wheel()
    all_wheel.put_slot(T0, Slot(7, 7, 7))
    one, all_at_once = DueSlots(one_wheel, 1000), DueSlots(all_wheel, 1000)
    from_ms = T0 + from_second * 1000
    units = RecoveredUnits(
        positions=np.arange(len(seconds), dtype=np.int64) * UNIT_BYTES,
        due_ms=T0 + np.array(seconds, np.int64) * 1000 + 999,
        offsets=np.zeros(len(seconds), np.int64),
        is_delete=np.array([n in deletes for n in range(len(seconds))], np.bool_),
        topic_hashes=np.zeros(len(seconds), np.int64),
    )
    all_at_once.build(units, from_ms)
    for number, second in enumerate(seconds):
        if T0 + second * 1000 >= from_ms:
            one.enter(T0 + second * 1000, number * UNIT_BYTES, is_delete=number in deletes)
    slots = [T0 + second * 1000 for second in range(SLOTS)]
    assert list(map(all_wheel.slot, slots)) == list(map(one_wheel.slot, slots))
    assert drained(all_at_once) == drained(one)

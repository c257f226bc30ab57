"""DueSlots: the slots of a wheel that have units, the one that is due next first.

The wheel knows what is in a slot, but not which slots have anything; and what a file holds of it
may be from another time. Both are built again from the units of the timer log at a start.
"""

from __future__ import annotations

import heapq

import numpy as np

from store.delayed.timer_log import RecoveredUnits
from store.delayed.timer_wheel import Slot, TimerWheel


class DueSlots:
    """The slots of one wheel, by the time at which their tick begins."""

    def __init__(self, wheel: TimerWheel, precision_ms: int) -> None:
        self._wheel = wheel
        self._precision_ms = precision_ms
        self._heap: list[int] = []
        self._times: set[int] = set()

    def build(self, units: RecoveredUnits, from_ms: int) -> None:
        """Enter the units that are due at `from_ms` or later, in a wheel with nothing else."""
        self._wheel.clear()
        slots_ms = units.due_ms // self._precision_ms * self._precision_ms
        kept = slots_ms >= from_ms
        times, first, which, counts = np.unique(
            slots_ms[kept], return_index=True, return_inverse=True, return_counts=True
        )
        positions = units.positions[kept]
        last = np.zeros(len(times), np.int64)
        np.maximum.at(last, which, positions)
        cancelling = np.bincount(which, units.is_delete[kept], len(times)).astype(np.int64)
        columns = (times, positions[first], last, counts - 2 * cancelling)
        for time_ms, first_position, last_position, num in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            self._wheel.put_slot(time_ms, Slot(first_position, last_position, num))
        self._heap = times.tolist()
        self._times = set(self._heap)

    @property
    def first_ms(self) -> int | None:
        """The slot that is due next, None if there is none."""
        return self._heap[0] if self._heap else None

    def is_taken(self, slot_ms: int) -> bool:
        """True if the wheel has no place for this slot: one of another turn still has units."""
        taken_ms = self._wheel.time_of_slot(slot_ms)
        return taken_ms != slot_ms and taken_ms in self._times

    def enter(self, slot_ms: int, position: int, *, is_delete: bool) -> None:
        """Add the unit at `position` of the timer log to its slot."""
        slot = self._wheel.slot(slot_ms)
        first = position if slot.first_position < 0 else slot.first_position
        num = slot.num - 1 if is_delete else slot.num + 1
        self._wheel.put_slot(slot_ms, Slot(first, position, num))
        if slot_ms not in self._times:
            self._times.add(slot_ms)
            heapq.heappush(self._heap, slot_ms)

    def drop_first(self) -> None:
        """Take out the slot that is due next: it was emptied."""
        self._times.discard(heapq.heappop(self._heap))

"""Timers that wait, and how far they have got: what the journal of a fenced group says of them.

    first_waiting      looked_at
         |                |
    -----+-x--x-xx-x--x---+-------------> queue 0 of rmq_sys_wheel_timer, by queue offset
    done   some wait       not looked at

Each message of the queue has one slot, and which one follows from its record alone. So these four
numbers say of every message whether it is done, on every node that has the log:

    before `first_waiting`                                             done
    before `looked_at`, and its slot is before `slot_ms`               done
    before `looked_at`, its slot is `slot_ms`, and the message is
    before `done_in_slot`, and cancels no other                        done
    anything else                                                      waits

A master writes them into the log after the messages that it delivered. So a log with the numbers
has those messages. A later master finds in the log what was delivered after the numbers were last
written (`earlier_deliveries`).
"""

from __future__ import annotations

import heapq
from array import array

import msgspec

from tandem.wire.remoting_command import Int64


class TimerPlace(msgspec.Struct, frozen=True):
    """How far the timers of a group have got: queue offsets, and the time of a slot in ms."""

    first_waiting: Int64 = 0
    looked_at: Int64 = 0
    slot_ms: Int64 = 0
    done_in_slot: Int64 = 0


class WaitingTimers:
    """Messages by their slots. 8 bytes for each: its queue offset.

    Attributes:
        looked_at: The queue offset of the first message that was not looked at.
        slot_ms: Every message whose slot is before this one is done.
    """

    def __init__(self, place: TimerPlace) -> None:
        """Begin where `place` is, with nothing that waits: look at the queue from there on."""
        self._start = place
        self.looked_at = place.first_waiting
        self.slot_ms = place.slot_ms
        self._done_in_slot = place.done_in_slot
        self._messages: dict[int, array[int]] = {}
        self._cancelling: dict[int, array[int]] = {}
        self._due: list[int] = []
        self._firsts: list[tuple[int, int]] = []
        """The first offset of each slot, and its time; of slots that are gone as well."""
        self._next_in_slot = 0

    @property
    def place(self) -> TimerPlace:
        """What the journal has to say once all that `start` speaks of was looked at again."""
        while self._firsts and self._firsts[0][1] not in self._messages:
            heapq.heappop(self._firsts)
        first = self._firsts[0][0] if self._firsts else self.looked_at
        return TimerPlace(
            min(first, self.looked_at), self.looked_at, self.slot_ms, self._done_in_slot
        )

    def was_done(self, queue_offset: int, slot_ms: int, *, cancels: bool) -> bool:
        """True if a message was done before this node began."""
        start = self._start
        if queue_offset >= start.looked_at:
            return False
        if slot_ms == start.slot_ms:
            return queue_offset < start.done_in_slot and not cancels
        return slot_ms < start.slot_ms

    def enter(self, queue_offset: int, slot_ms: int, *, cancels: bool) -> None:
        """Let a message wait. Its slot is not before `slot_ms`; offsets only grow."""
        messages = self._messages.get(slot_ms)
        if messages is None:
            messages = self._messages[slot_ms] = array("q")
            heapq.heappush(self._due, slot_ms)
            heapq.heappush(self._firsts, (queue_offset, slot_ms))
        if cancels:
            self._cancelling.setdefault(slot_ms, array("q")).append(queue_offset)
        else:
            messages.append(queue_offset)

    def count_at(self, slot_ms: int) -> int:
        """Return how many messages wait in a slot."""
        return len(self._messages.get(slot_ms, ()))

    @property
    def first_ms(self) -> int | None:
        """The slot that is due next, None if nothing waits."""
        return self._due[0] if self._due else None

    def begin_slot(self) -> list[int]:
        """Begin to empty the first slot; return the offsets of those in it that cancel others."""
        slot_ms = self._due[0]
        if slot_ms != self.slot_ms:
            self.slot_ms, self._done_in_slot = slot_ms, 0
        self._next_in_slot = 0
        return self._cancelling.get(slot_ms, array("q")).tolist()

    def next_in_slot(self) -> int | None:
        """Return the next message of the slot that was begun, None if there is no other."""
        messages = self._messages[self.slot_ms]
        at = self._next_in_slot
        return messages[at] if at < len(messages) else None

    def message_done(self, queue_offset: int) -> None:
        """Note that this message, the next one of the slot, is done."""
        self._next_in_slot += 1
        self._done_in_slot = queue_offset + 1

    def end_slot(self, precision_ms: int) -> None:
        """Note that the slot that was begun is empty."""
        heapq.heappop(self._due)
        del self._messages[self.slot_ms]
        self._cancelling.pop(self.slot_ms, None)
        self.slot_ms += precision_ms
        self._done_in_slot = 0

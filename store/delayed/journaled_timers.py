"""Timers of a fenced group: nothing of them is on disk but the log that every replica has.

    put with TIMER_DELAY_SEC, _MS or TIMER_DELIVER_MS --rewritten--> rmq_sys_wheel_timer, queue 0
      --looked at--> waits in memory, in the slot of its time
        --its time has come--> real topic; or back into the timer topic, if it has to wait longer
          --now and then--> `TimerPlace` in the group's journal

What clients see is what `TimerMessageStore` does: slots, rolls and cancelling are the same. What
differs is what survives. A new master reads the queue again, from the first message that its
journal does not call done, and so has every message that waits. Until it is through nothing is
delivered: a message that cancels another may be the last of the queue.

The invariant: **a message is done only if what came of it is before that in the log.** A place is
written after the messages that it speaks of, and the log of a new master holds a beginning of what
the last one wrote. So it cannot have the place without the messages, and

- nothing is lost: what the place does not call done is delivered;
- nothing is delivered twice: not what is before the last confirmed place, and what came after it is
  found in the log (`earlier_deliveries`);
- a message is never early, whichever clock is behind: one whose slot was emptied already by a clock
  that was ahead waits for its time by this node's clock, and later ones with it;
- what was cancelled in time is not delivered: a slot is emptied after all was looked at that the
  queue held when the tick was over, and that includes what earlier slots put back.

The slot of a message follows from its record alone: TIMER_OUT_MS, or, if that is later than the
window, a roll that is counted from its store timestamp. So all masters agree on it.

Source: RocketMQ 5.3.3, TimerMessageStore, for what a message goes through; the rest is ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

import msgspec
import trio

from store.delayed.earlier_deliveries import EarlierDeliveries, SearchGoesOnError
from store.delayed.timed_message import (
    NEVER_STORED,
    RETRY_MS,
    delivered_message,
    is_cancelled,
    read_timed_message,
    roll_time_ms,
    rolled_message,
)
from store.delayed.timer_message_store import TimerQueue
from store.delayed.timer_metrics import TimerMetrics, TimerMetricsSerializeWrapper
from store.delayed.timer_place import TimerPlace, WaitingTimers
from store.delayed.timer_request import Refusal, TimerSettings, timer_rewrite
from store.machine.errors import RecordDamagedError
from store.machine.signal import Signal
from store.machine.tell_once import TellOnce
from store.results import PutMessage, PutMessageResult
from tandem.wire.message import MessageExt
from tandem.wire.message_properties import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_OUT_MS,
)
from tandem.wire.store_layout import FILLER_SIZE

_log = logging.getLogger(__name__)

_LOOK_AT: Final = 256
_DELIVER: Final = 50
"""In one go: clients are served in between."""

_CLOCK_CHECK_SECONDS: Final = 30.0
"""A clock that was put forward is noticed within this time."""


class _Timer(msgspec.Struct, frozen=True):
    """What a record of the timer topic asks for."""

    message: MessageExt
    slot_ms: int
    written_ms: int
    is_roll: bool
    cancels: bool

    @property
    def topic(self) -> str:
        """The topic it is for."""
        return self.message.properties[PROPERTY_REAL_TOPIC]

    @property
    def cancels_in_the_end(self) -> bool:
        """True if it cancels another one, be it after a roll."""
        return PROPERTY_TIMER_DEL_UNIQKEY in self.message.properties


class JournaledTimers:
    """The timers of one mastership."""

    def __init__(
        self,
        place: TimerPlace,
        settings: TimerSettings,
        *,
        was_classic: bool,
        note: Callable[[TimerPlace], None],
        find_queue: Callable[[], TimerQueue | None],
        message: Callable[[int, int], memoryview | None],
        put: Callable[[PutMessage], PutMessageResult],
        wall_clock_ms: Callable[[], int],
        chance: Random,
        earlier: EarlierDeliveries,
    ) -> None:
        """Begin where the group's journal says.

        Args:
            place: What the journal says.
            settings: See there.
            was_classic: `place` is from a `TimerMessageStore`, which counts rolls from another
                time: what may still be on its way through a roll is not done.
            note: Called with what the journal is to say from now on; not before the queue was read
                as far as the last master had looked at it.
            find_queue: Queue 0 of the timer topic, None if there is none.
            message: The record at a physical offset, of that size; None if it is not held.
            put: Puts a message as it is, without hooks.
            wall_clock_ms: The wall clock.
            chance: Decides who is refused when a slot is nearly full.
            earlier: What was delivered although the journal does not say so.
        """
        self._settings = settings
        self._precision_ms = settings.timer_precision_ms
        self._window_ms = settings.timer_roll_window_slots * self._precision_ms
        self._was_classic = was_classic
        self._find_queue = find_queue
        self._message = message
        self._put_message = put
        self._wall_clock_ms = wall_clock_ms
        self._chance = chance
        self._earlier = earlier
        self._arrived = Signal()
        self._told: TellOnce[int] = TellOnce()
        queue = find_queue()
        self._opened_at = self._known_until = queue.next_offset if queue is not None else 0
        """Look at all that is before this in the queue, before anything is delivered."""
        self._is_taken = False
        """Whether nothing waits any more that an earlier master may have delivered."""
        self._due_ms = -1
        """The slot that `_known_until` was set for, none at first."""
        self._start = msgspec.structs.replace(
            place, looked_at=min(place.looked_at, self._known_until)
        )
        self._waiting = WaitingTimers(self._start)
        self._metrics = TimerMetrics(wall_clock_ms)
        self._slot: set[str] | None = None
        """Keys that are cancelled in the slot that is being emptied; None if none is."""
        self._cancelling: list[_Timer] = []
        """Those of that slot which cancel others."""
        self._seen_until = 0
        self._seen: dict[int, set[str]] = {}
        """Keys that messages cancel which were not looked at yet, by slot: before `_seen_until`."""
        self._retry_ms = 0
        self._puts = 0
        self._has_rolled = False
        self._note = note

    # -- put -------------------------------------------------------------------------------------

    def rewrite(self, message: PutMessage, now_ms: int) -> PutMessage | Refusal:
        """Return what is put instead of a timer request, or why nothing is."""
        return timer_rewrite(message, now_ms, self._settings, self._waiting.count_at, self._chance)

    @property
    def metrics(self) -> TimerMetricsSerializeWrapper:
        """How many wait for each topic, of those that this master has looked at."""
        return self._metrics.shown

    # -- delivery --------------------------------------------------------------------------------

    def message_arrived(self) -> None:
        """Look again: the timer topic has a new message."""
        self._arrived.notify()

    def deliver_due(self, now_ms: int) -> tuple[int, int | None]:
        """Look at and deliver some messages; return how many were put and when to come back.

        The time is now or earlier if there is more to do, None if nothing waits.
        """
        if now_ms < self._retry_ms <= now_ms + RETRY_MS:
            return 0, self._retry_ms
        before = self._puts
        try:
            next_ms = self._look_at_some(now_ms)
            if self._waiting.looked_at >= self._known_until or (next_ms or 0) > now_ms:
                next_ms = _earlier(next_ms, self._deliver_some(now_ms))
            if self._has_rolled and (next_ms is None or next_ms > now_ms):
                next_ms = now_ms  # nobody else says that the queue has grown by it
            self._has_rolled = False
        except (_PutLaterError, RecordDamagedError):
            next_ms = self._retry_ms = now_ms + RETRY_MS
        except SearchGoesOnError:
            next_ms = now_ms
        self._is_taken = self._is_taken or self._takes_no_more()
        if self._is_taken:
            self._note(self._waiting.place)
        return self._puts - before, next_ms

    def _takes_no_more(self) -> bool:
        waiting = self._waiting
        if waiting.looked_at < self._opened_at:
            return False
        return waiting.first_ms is None or self._earlier.is_past(0, waiting.first_ms)

    def _look_at_some(self, now_ms: int) -> int | None:
        """Let messages of the queue wait; return when to go on, None if there are no more."""
        queue, waiting = self._find_queue(), self._waiting
        if queue is None:
            return None
        waiting.looked_at = min(max(waiting.looked_at, queue.min_offset), queue.next_offset)
        for timer in self._some_from(queue, waiting.looked_at):
            wait_until_ms = self._look_at(timer, now_ms) if timer is not None else None
            if wait_until_ms is not None:
                return wait_until_ms
            waiting.looked_at += 1
        return now_ms if waiting.looked_at < queue.next_offset else None

    def _look_at(self, timer: _Timer, now_ms: int) -> int | None:
        """Take in one message; return when to look at it again, None if that is not needed."""
        waiting = self._waiting
        offset, slot_ms = waiting.looked_at, timer.slot_ms
        if self._was_done(offset, timer):
            return None
        if slot_ms >= waiting.slot_ms:
            waiting.enter(offset, slot_ms, cancels=timer.cancels)
            self._metrics.enter(timer.topic, timer.topic, cancels=timer.cancels_in_the_end)
            return None
        # Its slot was emptied before it came.
        if slot_ms + self._precision_ms > now_ms:
            if self._told.is_news(offset):
                _log.warning(
                    "timed messages wait for %d ms more: the clock of an earlier master was ahead,"
                    " or this node's was put back",
                    slot_ms + self._precision_ms - now_ms,
                )
            return slot_ms + self._precision_ms
        if timer.is_roll or timer.cancels:
            self._put_what_is_due(timer, now_ms)
        elif not self._look_ahead(slot_ms):
            return now_ms
        elif not is_cancelled(timer.message, self._seen.get(slot_ms, set())):
            self._put_what_is_due(timer, now_ms)
        return None

    def _look_ahead(self, slot_ms: int) -> bool:
        """Find out what some later messages cancel; return True if those of this slot are known."""
        queue, looked_at = self._find_queue(), self._waiting.looked_at
        if queue is None:
            return True
        if self._seen_until <= looked_at:
            self._seen_until, self._seen = looked_at, {}
        for timer in self._some_from(queue, self._seen_until):
            if timer is not None and timer.cancels:
                key = timer.message.properties[PROPERTY_TIMER_DEL_UNIQKEY]
                self._seen.setdefault(timer.slot_ms, set()).add(key)
            self._seen_until += 1
        return self._seen_until >= self._end_when_due(slot_ms)

    def _end_when_due(self, slot_ms: int) -> int:
        """Return where the queue ended when this slot was first found to be due."""
        if slot_ms != self._due_ms:
            queue = self._find_queue()
            self._due_ms = slot_ms
            self._known_until = queue.next_offset if queue is not None else 0
        return self._known_until

    def _was_done(self, offset: int, timer: _Timer) -> bool:
        slot_ms = timer.slot_ms
        if self._was_classic and timer.is_roll:
            slot_ms = self._tick(int(timer.message.properties[PROPERTY_TIMER_OUT_MS]))
        return self._waiting.was_done(offset, slot_ms, cancels=timer.cancels)

    def _deliver_some(self, now_ms: int) -> int | None:
        """Empty slots whose tick is over; return when to go on, None if nothing waits."""
        waiting = self._waiting
        for _ in range(_DELIVER):
            first_ms = waiting.first_ms
            if first_ms is None or first_ms + self._precision_ms > now_ms:
                return None if first_ms is None else first_ms + self._precision_ms
            if self._slot is None:
                if waiting.looked_at < self._end_when_due(first_ms):
                    return now_ms
                self._slot = self._begin_slot()
            offset = waiting.next_in_slot()
            if offset is None:
                self._end_slot()
                continue
            timer = self._find(offset)
            if timer is not None:
                self._empty(timer, self._slot, now_ms)
            waiting.message_done(offset)
        return now_ms

    def _begin_slot(self) -> set[str]:
        found = map(self._find, self._waiting.begin_slot())
        self._cancelling = [timer for timer in found if timer is not None]
        return {timer.message.properties[PROPERTY_TIMER_DEL_UNIQKEY] for timer in self._cancelling}

    def _empty(self, timer: _Timer, cancelled: set[str], now_ms: int) -> None:
        if timer.is_roll or not is_cancelled(timer.message, cancelled):
            self._put_what_is_due(timer, now_ms)
        self._metrics.leave(timer.topic, cancels=timer.cancels_in_the_end)

    def _end_slot(self) -> None:
        self._waiting.end_slot(self._precision_ms)
        self._slot = None
        for timer in self._cancelling:
            self._metrics.leave(timer.topic, cancels=True)
        self._cancelling = []
        if self._waiting.first_ms is None:
            self._metrics.clear()

    def _put_what_is_due(self, timer: _Timer, now_ms: int) -> None:
        if timer.is_roll:
            self._put(rolled_message(timer.message, timer.written_ms, now_ms), timer)
            self._has_rolled = True
        elif not timer.cancels:
            self._put(delivered_message(timer.message, timer.written_ms, now_ms), timer)

    def _put(self, message: PutMessage, timer: _Timer) -> None:
        if self._earlier.take(message, timer.message.physical_offset, timer.slot_ms):
            return
        result = self._put_message(message)
        if result.status.is_stored:
            self._puts += 1
        elif result.status in NEVER_STORED:
            _log.error("a timed message for %s is passed over: %s", message.topic, result.reason)
        else:
            raise _PutLaterError

    # -- records ---------------------------------------------------------------------------------

    def _find(self, queue_offset: int) -> _Timer | None:
        """Return what waits at an offset of the queue, None if it is not held any more."""
        queue = self._find_queue()
        units = queue.units(queue_offset, 1) if queue is not None else iter(())
        for offset, size, _ in units:
            return self._read(offset, size)
        return None

    def _some_from(self, queue: TimerQueue, begin: int) -> Iterator[_Timer | None]:
        """Read some messages of the queue; those that say nothing are None."""
        at, end = begin, min(queue.next_offset, begin + _LOOK_AT)
        while at < end:
            before = at
            # Of one file of the queue, so maybe fewer; there may be others in the next.
            for offset, size, _ in queue.units(at, end - at):
                yield self._read(offset, size)
                at += 1
            if at == before:
                return

    def _read(self, offset: int, size: int) -> _Timer | None:
        if size == FILLER_SIZE:
            return None
        message = read_timed_message(self._message(offset, size), offset)
        if message is None:
            return None
        out_ms = int(message.properties[PROPERTY_TIMER_OUT_MS])
        written_ms = self._tick(message.store_timestamp_ms)
        roll_ms = roll_time_ms(out_ms, written_ms, self._window_ms)
        slot_ms = self._tick(out_ms if roll_ms is None else roll_ms)
        cancels = roll_ms is None and PROPERTY_TIMER_DEL_UNIQKEY in message.properties
        return _Timer(message, slot_ms, written_ms, roll_ms is not None, cancels)

    def _tick(self, time_ms: int) -> int:
        return time_ms // self._precision_ms * self._precision_ms

    # -- running ---------------------------------------------------------------------------------

    async def run(self, after_delivery: Callable[[], None]) -> None:
        """Deliver until cancelled; call `after_delivery` after each round of puts."""
        while True:
            now_ms = self._wall_clock_ms()
            delivered, next_ms = self.deliver_due(now_ms)
            if delivered:
                after_delivery()
            if next_ms is not None and next_ms <= now_ms:
                await trio.lowlevel.checkpoint()
                continue
            wait_seconds = _CLOCK_CHECK_SECONDS
            if next_ms is not None:
                wait_seconds = min(wait_seconds, (next_ms - now_ms) / 1000)
            with trio.move_on_after(wait_seconds):
                await self._arrived.wait()


def _earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    times = [each for each in (one_ms, other_ms) if each is not None]
    return min(times) if times else None


class _PutLaterError(Exception):
    """A put was refused that may succeed later. Never leaves this module."""

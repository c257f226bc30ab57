"""What a master delivers later: messages with a delay level, and those with a time of their own.

The services themselves are the store's; here they are put together, woken, and stopped so that what
was delivered before a clean stop is not delivered again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Final

import msgspec
import trio

from store import MessageStore, PutMessage, PutMessageResult
from store.delayed.delay_offset_table import DelayOffsetTable
from store.delayed.earlier_deliveries import EarlierDeliveries
from store.delayed.journaled_timers import JournaledTimers
from store.delayed.schedule_message_service import ScheduleMessageService
from store.delayed.timer_checkpoint import checkpoint_of, classic_place
from store.delayed.timer_message_store import TimerMessageStore
from store.delayed.timer_metrics import TimerMetricsSerializeWrapper
from store.delayed.timer_place import TimerPlace
from store.delayed.timer_request import TimerSettings
from store.machine.disk import Disk
from store.machine.errors import StoreError
from store.machine.table_file import TableFile
from tandem.wire.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC

_log = logging.getLogger(__name__)

DELAYING_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC)
"""Where messages wait for their time."""


class JournaledProgress(msgspec.Struct):
    """How far the delivery of a fenced group has got: taken from its journal, and for it.

    `timers` is None if the journal says nothing of them. `delay_at` and `timers_at` are where the
    log ended when the journal was written of either.
    """

    delay: DelayOffsetTable
    timers: TimerPlace | None = None
    delay_at: int = 0
    timers_at: int = 0


class DelayedDelivery:
    """The two services of one master. `close` it before its store.

    Without the setting `timer_wheel_enable` there are no timers: the store refuses their messages.

    Raises:
        StoreError: files of a service are damaged, or cannot be created.
    """

    def __init__(
        self,
        store: MessageStore,
        disk: Disk,
        *,
        wall_clock_ms: Callable[[], int],
        random: Random,
        journaled: JournaledProgress | None = None,
    ) -> None:
        """Take up the delivery where its files say, or where `journaled` does.

        There, progress is what was put, durable or not: it is written into the log after the
        messages, so a later master that knows of it has them, too.
        """
        self._store = store
        self._disk = disk
        self._wall_clock_ms = wall_clock_ms
        self._random = random
        self._journaled = journaled
        directory = store.config.directory
        self._offsets = (
            delay_offset_table(disk, directory, wall_clock_ms)
            if journaled is None
            else journaled.delay
        )
        self._schedule = ScheduleMessageService(
            store.delay_levels,
            self._offsets,
            find_queue=lambda queue_id: store.queues.find(SCHEDULE_TOPIC, queue_id),
            message=store.record_check.by_place(SCHEDULE_TOPIC),
            put=self._put,
            flushed_where=lambda: (
                store.max_physical_offset if journaled is not None else store.flushed_where
            ),
            wall_clock_ms=wall_clock_ms,
            earlier=(
                self._since(journaled.delay_at, is_first=not self.delay_progress())
                if journaled is not None
                else None
            ),
        )
        self._files: TimerMessageStore | None = None
        self._timers: TimerMessageStore | JournaledTimers | None = None
        if store.config.timer_wheel_enable and journaled is None:
            self._timers = self._files = self._timers_of_files()
        elif store.config.timer_wheel_enable and journaled is not None:
            self._timers = self._timers_of_journal(journaled)
        if self._timers is not None:
            store.puts.take_timed(self._timers.rewrite)

    def _timers_of_files(self) -> TimerMessageStore:
        store = self._store
        timers = TimerMessageStore(
            store.config.directory,
            TimerSettings(),
            self._disk,
            find_queue=lambda: store.queues.find(TIMER_TOPIC, 0),
            message=store.record_check.by_place(TIMER_TOPIC),
            put=self._put,
            log_end=lambda: store.max_physical_offset,
            flushed_where=lambda: store.flushed_where,
            wall_clock_ms=self._wall_clock_ms,
            chance=self._random,
        )
        timers.recover()
        return timers

    def _timers_of_journal(self, journaled: JournaledProgress) -> JournaledTimers:
        """Begin where the journal says, or where a classic master stopped in this directory."""
        store = self._store

        def note(place: TimerPlace) -> None:
            journaled.timers = place

        place = journaled.timers or classic_place(self._disk, store.config.directory)
        return JournaledTimers(
            place,
            TimerSettings(),
            was_classic=journaled.timers is None,
            note=note,
            find_queue=lambda: store.queues.find(TIMER_TOPIC, 0),
            message=store.record_check.by_place(TIMER_TOPIC),
            put=self._put,
            wall_clock_ms=self._wall_clock_ms,
            chance=self._random,
            earlier=self._since(journaled.timers_at, is_first=place == TimerPlace()),
        )

    def _since(self, begin: int, *, is_first: bool) -> EarlierDeliveries:
        """Look at the log from `begin` on, or all of it if nothing was ever noted.

        Otherwise a `begin` of 0 is not known, and nothing is looked at: an older version or a
        classic master left this progress.
        """
        store = self._store
        return EarlierDeliveries(
            begin or (0 if is_first else store.max_physical_offset),
            store.max_physical_offset,
            opened_ms=self._wall_clock_ms(),
            find_queue=store.queues.find,
            message=store.commit_log.message,
        )

    def _put(self, message: PutMessage) -> PutMessageResult:
        """Put a message whose time has come: whatever it still says, it is not delayed again."""
        return self._store.puts.put_message(message, hooks=False)

    def start(self, services: trio.Nursery, after_delivery: Callable[[], None]) -> None:
        """Deliver until cancelled; `after_delivery` is called after each round of puts."""
        services.start_soon(self._schedule.run, after_delivery)
        if isinstance(self._timers, JournaledTimers):
            services.start_soon(self._timers.run, after_delivery)
        elif self._timers is not None:
            services.start_soon(
                self._timers.run, after_delivery, lambda: self._store.min_physical_offset
            )

    def delay_progress(self) -> dict[int, int]:
        """How far each delay level has got; levels without a delivery are left out."""
        return self._offsets.progress()

    def timer_checkpoint(self) -> bytes | None:
        """How far timers have got, as `config/timercheck` of RocketMQ has it; None: there are none.

        Source: TimerCheckpoint.encode.
        """
        if self._files is not None:
            return self._files.checkpoint
        if self._timers is None or self._journaled is None:
            return None
        return checkpoint_of(self._journaled.timers or TimerPlace())

    def timer_metrics(self) -> TimerMetricsSerializeWrapper | None:
        """How many timers wait for each topic; None: there are none."""
        return None if self._timers is None else self._timers.metrics

    def message_arrived(self, topic: str) -> None:
        """Look again, if the topic is one of those that messages wait in."""
        if topic == SCHEDULE_TOPIC:
            self._schedule.message_arrived()
        elif topic == TIMER_TOPIC and self._timers is not None:
            self._timers.message_arrived()

    def close(self) -> None:
        """Write how far messages were delivered; what is not synced would not count."""
        try:
            if self._store.refusal is None:
                self._store.sync_log()
                self._schedule.save()
                if self._files is not None:
                    self._files.flush_blocking()
        except (OSError, StoreError) as error:
            _log.warning("some delayed messages will be delivered again: %s", error)
        finally:
            if self._files is not None:
                self._files.close()


def delay_offset_table(
    disk: Disk, directory: str, wall_clock_ms: Callable[[], int], *, is_needed: bool = True
) -> DelayOffsetTable:
    """The progress of a store's delayed delivery, as it was saved; see `TableFile`.

    Raises:
        TableFileError: neither the file nor its backup can be read.
    """
    file = TableFile(disk, f"{directory}/config/delayOffset.json", is_needed=is_needed)
    return DelayOffsetTable(file, wall_clock_ms)

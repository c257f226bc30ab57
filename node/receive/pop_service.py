"""PopService: messages for consumers that receive by POP, whatever protocol they speak.

    receive --found--> journal record --confirmed--> answered
       |                                               ^
       +--nothing--> waits --a message, or its time----+
    ack, change, extend --> journal record --confirmed--> answered
    run: what was not done in time is put again, into the retry topic or to the dead letters

Every method is synchronous. An answer comes through a callback, once: before the call returns if
nothing has changed, else at the end of a round of requests at the earliest: in a fenced group
when the change is confirmed, so no change of master takes it back; in a classic one the change
is in the memory of the master (docs/pop.md). Callers own no part of that waiting: they call
`end_round` of the broker after a round, as for puts.

A callback gets a `RequestError` where this node is not the master, where the store takes nothing,
or where it is not known in time whether the change will last.

A message that is put again is in the log before the record that says so (I4), in one step: a log
that was cut in between has the message alone, and its next master puts it once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Final

import trio

from node.errors import RequestError
from node.pop.changes import Cut, Moved, QueueKey, Reset, Revived, runs_of
from node.pop.due_times import Over
from node.receive.put_again import Outcome, PutAgain, check_retry_topic
from node.receive.put_before import put_before
from node.receive.queue_order import HIGHEST_FIRST, PriorityReading
from node.receive.requests import (
    Changed,
    Client,
    Found,
    Handle,
    Receive,
    Received,
    Waiting,
    WhenAcked,
    WhenChanged,
    WhenNoticed,
    WhenReceived,
    check_invisible,
    check_receive,
)
from node.receive.taking import INVISIBLE_PER_QUEUE_MAX, Taking
from node.receive.waiting import Place, WaitingRequest, WaitingRequests
from node.receive.waiting_receive import WaitingReceive
from node.tables.replicated_pop import DeliveriesChanged, DeliveriesTable
from node.tables.tables import Tables
from store import MessageStore
from store.machine.signal import Signal
from store.results import Arrival
from tandem.wire.receipt_handle import TopicMark
from tandem.wire.response_code import ResponseCode

RETRY_SECONDS: Final = 0.5
"""After a message could not be put again, and between two looks while this node takes nothing."""

_PUT_AGAIN: Final = 64
"""In one go: clients are served in between."""


class PopService:
    """POP at one broker, for as long as its store is open."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        *,
        random: Random,
        wall_clock_ms: Callable[[], int],
        timeout_seconds: float,
        retry_mark: TopicMark = TopicMark.RETRY_V1,
        priorities: PriorityReading = HIGHEST_FIRST,
    ) -> None:
        """Serve what `store` has.

        Args:
            store: The messages.
            tables: The state, and offsets.
            random: Chooses where to begin.
            wall_clock_ms: Where pop times are from.
            timeout_seconds: For a change to be confirmed.
            retry_mark: Where messages are put that come again; both kinds are read.
            priorities: How topics with priorities are read.
        """
        self._store = store
        self._tables = tables
        self._table = tables.shown.of(DeliveriesTable)
        self._wall_clock_ms = wall_clock_ms
        self._timeout_seconds = timeout_seconds
        self._retry_mark = retry_mark
        self._taking = Taking(store, tables, self._table, random, priorities)
        self._put_again = PutAgain(store, tables, retry_mark)
        self.receiving = WaitingRequests()
        self.noticing = WaitingRequests()
        self._moved: dict[QueueKey, None] = {}
        """Queues whose group may have another offset."""
        self._wake = Signal()
        self._look_at = math.inf  # when `run` works next, if nothing wakes it before

    # -- receiving -------------------------------------------------------------------------------

    def receive(
        self, request: Receive, done: WhenReceived, client: Client | None = None
    ) -> Waiting | None:
        """Hand out messages; wait for one until `request.deadline` if there is none.

        Nothing is handed out for a client that is closed, or has not read what it was sent.

        Returns what waits for a message: the caller cancels it when its client is gone. None if it
        does not wait, or waits for no more than the confirmation of what was found.
        """
        try:
            self._check_receive(request)
            received = self._take(request)
        except RequestError as error:
            done(error)
            return None
        if received.batches:
            self._answer(request, received, done)
            return None
        if request.deadline <= trio.current_time():
            done(received)
            return None
        waiting = WaitingReceive(self, request, done, client)
        return waiting if waiting.wait(received) else None

    def _check_receive(self, request: Receive) -> None:
        self._tables.check_change()
        check_receive(request)
        check_retry_topic(request.group, request.topic, self._retry_mark)
        self._taking.check_room(request)

    def _take(self, request: Receive) -> Received:
        received = self._taking.take(request, self._wall_clock_ms())
        for batch in received.batches:
            self._moved[QueueKey(request.group, batch.topic, batch.queue_id)] = None
        self._commit_offsets()
        self._look_in_time()
        return received

    def _look_in_time(self) -> None:
        """Have `run` work when the next time is over, of what was just handed out perhaps."""
        # Where `run` is between two looks it is not woken, but reads this before it waits.
        if (due := self._table.due_times.next_due) < self._look_at:
            self._look_at = due
            self._wake.notify()

    def _answer(self, request: Receive, received: Received, done: WhenReceived) -> None:
        def settled(trouble: str | None) -> None:
            done(_unknown(trouble) if trouble else received)
            if trouble:  # if its record could not be written, the messages are there to be had
                for batch in received.batches:
                    self._opened(QueueKey(request.group, batch.topic, batch.queue_id))

        self._when_settled(settled)

    def run_again(self, waiting: WaitingReceive, *, is_expired: bool) -> None:
        """Try once more for a request that was woken, or whose time is up."""
        client, request = waiting.client, waiting.request
        if waiting.is_cancelled:
            return
        if client is not None and (client.is_closed or client.is_congested):
            assert waiting.parked is not None, "it was woken"
            self.receiving.wake_next(waiting.parked)
            self._wake.notify()
            if not client.is_closed:
                client.when_drained(lambda: self.run_again(waiting, is_expired=is_expired))
            return
        try:
            self._tables.check_change()
            received = self._take(request)
        except RequestError as error:
            waiting.done(error)
            return
        if received.batches:
            if received.rest_count:
                self.receiving.wake(*_place(request))
                self._wake.notify()
            self._answer(request, received, waiting.done)
        elif is_expired or trio.current_time() >= request.deadline:
            waiting.done(received)
        else:
            waiting.wait(received)

    def park(self, request: Receive, run: Callable[[bool], None]) -> WaitingRequest | None:
        """Have a request wait for a message; None if there is no room."""
        place = _place(request)
        if not self.receiving.has_room(place):
            return None
        self._wake.notify()
        return self.receiving.park(place, request.deadline, request.tags_codes, run)

    def notify(self, request: Receive, done: WhenNoticed) -> Waiting | None:
        """Say when there is a message to receive, and hand out nothing (NOTIFICATION).

        A filter is not asked. `done` gets FOUND, NOTHING or FULL.
        """
        place = _place(request)
        if self._taking.has_any(request):
            done(Found.FOUND)
            return None
        if request.deadline <= trio.current_time():
            done(Found.NOTHING)
            return None
        if not self.noticing.has_room(place):
            done(Found.FULL)
            return None

        def run(is_expired: bool) -> None:  # noqa: FBT001 - see `WaitingRequest.run`
            done(Found.NOTHING if is_expired else Found.FOUND)

        self._wake.notify()
        return self.noticing.park(place, request.deadline, request.tags_codes, run)

    def waiting_count(self, group: str, topic: str, queue_id: int) -> int:
        """How many requests wait under exactly this queue (POLLING_INFO)."""
        return self.receiving.count_of(Place(group, topic, queue_id))

    # -- handles ---------------------------------------------------------------------------------

    def ack(self, handles: Sequence[Handle], done: WhenAcked) -> None:
        """Messages are done. `done` gets for each whether its handle was good.

        One that is not good changes nothing: the message was done before, was moved (`change`), or
        its time was over and it was put again. RocketMQ answers SUCCESS to all of them.
        """
        try:
            self._tables.check_change()
        except RequestError as error:
            done(error)
            return
        table, live = self._table, self._table.live
        good: list[bool] = []
        for handle in handles:
            key = handle.key
            is_good = live.holds(key, handle.offset, handle.pop_time_ms)
            good.append(is_good)
            if is_good:
                self._acked(key, handle)
        self._commit_offsets()

        def settled(trouble: str | None) -> None:
            done(good if trouble is None else _unknown(trouble))

        if table.gathered is None:
            self._when_settled(settled)
        else:
            table.gathered.when_written(
                lambda trouble: settled(trouble) if trouble else self._when_settled(settled)
            )

    def _acked(self, key: QueueKey, handle: Handle) -> None:
        queue = self._table.live.queues[key]
        is_orderly = bool(queue.counts)
        was_full = len(queue.invisible) >= INVISIBLE_PER_QUEUE_MAX
        self._table.ack(key, handle.pop_time_ms, handle.offset)
        self._moved[key] = None
        if was_full or (is_orderly and not queue.invisible):
            self._opened(key)
        elif self._taking.held_back:
            self._wake.notify()

    def _opened(self, key: QueueKey) -> None:
        """Somebody may have messages of a queue that was full, is read in order, or was reset."""
        for waiting in (self.receiving, self.noticing):
            waiting.opened(*key)
        self._wake.notify()

    def change(self, handle: Handle, invisible_ms: int, done: WhenChanged) -> None:
        """The message comes again this much later than now, and has another handle until then.

        `done` gets None if the handle was not good. In an orderly group the pop time stays.
        """
        self._move(handle, invisible_ms, done, keeps_handle=False)

    def extend(self, handle: Handle, invisible_ms: int, done: WhenChanged) -> None:
        """The same, and the handle stays good: for a server that renews for its client."""
        self._move(handle, invisible_ms, done, keeps_handle=True)

    def _move(
        self, handle: Handle, invisible_ms: int, done: WhenChanged, *, keeps_handle: bool
    ) -> None:
        try:
            self._tables.check_change()
            check_invisible(invisible_ms, 0)
        except RequestError as error:
            done(error)
            return
        key = handle.key
        queue = self._table.live.of(key)
        if queue is None or not queue.holds(handle.offset, handle.pop_time_ms):
            self._when_settled(lambda trouble: done(_unknown(trouble) if trouble else None))
            return
        pop_time_ms = handle.pop_time_ms
        if not keeps_handle and not queue.invisible[handle.offset].is_orderly:
            pop_time_ms = max(self._wall_clock_ms(), pop_time_ms + 1)
        self._table.change(
            Moved(*key, handle.offset, handle.pop_time_ms, pop_time_ms, invisible_ms)
        )
        self._look_in_time()
        changed = Changed(pop_time_ms, invisible_ms)
        self._when_settled(lambda trouble: done(_unknown(trouble) if trouble else changed))

    def is_held(self, handle: Handle) -> bool:
        """Whether the handle is good as far as this node knows. Asks nothing of the group."""
        return self._table.live.holds(handle.key, handle.offset, handle.pop_time_ms)

    def pop_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The first offset that was never handed out; None if the group never had any."""
        queue = self._table.live.of(QueueKey(group, topic, queue_id))
        return None if queue is None else queue.next_offset

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """An operator sets the group's offset. What is with consumers is not put again.

        The caller commits the offset as well, in the same step. Until that is settled, nobody gets
        anything of the queue.
        """
        key = QueueKey(group, topic, queue_id)
        if self._table.live.of(key) is None:
            return
        self._table.change(Reset(*key, offset))
        self._moved.pop(key, None)
        self._taking.resetting.add(key)

        def settled(trouble: str | None) -> None:
            self._taking.resetting.discard(key)
            self._opened(key)

        self._when_settled(settled)

    # -- running ---------------------------------------------------------------------------------

    def opened(self, log_end: int) -> None:
        """This node is the master since the log ended there."""
        self._look_in_time()
        if self._table.gathered is None:
            self._cut_to_log()
            return
        if not self._table.live.invisible_count:
            return  # there is nothing that could have been put, and an hour of records to read
        since = self._tables.last_record(DeliveriesChanged, log_end)
        for change in put_before(self._store, self._table.live, since, log_end):
            self._table.change(change)
            self._moved[QueueKey(change.group, change.topic, change.queue_id)] = None
        self._write()
        self._wake.notify()

    def _cut_to_log(self) -> None:
        """Of a classic group: the file may know of messages that the log has lost since."""
        for key, queue in list(self._table.live.queues.items()):
            end = self._store.reads.max_offset_in_queue(key.topic, key.queue_id)
            if queue.next_offset > end:
                self._table.change(Cut(*key, end))
                self._moved[key] = None
        self._commit_offsets()

    def messages_arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Messages can be read."""
        for waiting in (self.receiving, self.noticing):
            waiting.messages_arrived(arrivals)
            if waiting.ready:
                self._wake.notify()

    async def run(self, end_round: Callable[[], None]) -> None:
        """Put again what was not done in time, and answer those whose time is up; for ever."""
        while True:
            end_round()  # what is gathered is lost where what is put again cannot be written
            self.work(trio.current_time())
            end_round()
            await trio.lowlevel.checkpoint()
            if not (self.receiving.ready or self.noticing.ready):
                deadlines = (self.receiving.next_deadline, self.noticing.next_deadline)
                with trio.move_on_at(min(self._look_at, *deadlines)):
                    await self._wake.wait()

    def work(self, now: float) -> None:
        """Do what there is to do, some of it."""
        self._look_at = self._put_over_again(now)
        self._let_in()
        for waiting in (self.receiving, self.noticing):
            for request in waiting.take_expired(now):
                request.run(True)  # noqa: FBT003 - see `WaitingRequest.run`
            waiting.run_ready()
        self._commit_offsets()
        if self._moved:
            self._look_at = min(self._look_at, now + RETRY_SECONDS)

    def _let_in(self) -> None:
        """Where this broker was full: wake one request for each message that there is room for."""
        held_back = self._taking.held_back
        while held_back and len(self.receiving.ready) < self._taking.room():
            key = next(iter(held_back))
            del held_back[key]
            self._opened(key)

    def _put_over_again(self, now: float) -> float:
        """Put again what is over; return when to look again."""
        due_times = self._table.due_times
        if due_times.next_due > now:
            return due_times.next_due
        try:
            self._tables.check_change()
            if self._table.gathered is not None:
                self._table.gathered.write()  # what is put now has one record, all of its own
        except RequestError:
            return now + RETRY_SECONDS
        for over in due_times.take_over(now, self._table.live, _PUT_AGAIN):
            if over.handout.is_orderly:
                self._opened(over.key)
            elif not self._revive(over):
                due_times.again(over, now + RETRY_SECONDS)
        self._write()
        due_times.drop_done_first(self._table.live)
        return due_times.next_due

    def _revive(self, over: Over) -> bool:
        """Put messages of one handout again; return whether that was possible for all of them."""
        done = []
        with suppress(RequestError):  # of a topic that cannot be created now: it is tried again
            for offset in over.offsets:
                outcome = self._put_again.put(over, offset)
                if outcome is Outcome.LATER:
                    break
                if outcome is not Outcome.DAMAGED:
                    done.append(offset)
        if done:
            change = Revived(*over.key, [(over.handout.pop_time_ms, runs_of(done))])
            self._table.change(change)
            self._moved[over.key] = None
        return len(done) == len(over.offsets)

    def _write(self) -> None:
        """Write what was put again, in the step in which it was put."""
        if self._table.gathered is not None:
            with suppress(RequestError):  # logged there; what was put again is written later
                self._table.gathered.write()

    def _commit_offsets(self) -> None:
        """Have the group's offsets follow what is done."""
        if self._table.gathered is None:
            self._table.may_save = self._put_again.is_flushed
            if not self._table.may_save:
                return
        moved, self._moved = self._moved, {}
        for key in moved:
            queue = self._table.live.of(key)
            if queue is None or key in self._taking.resetting:
                continue
            committed = self._tables.offsets.query(*key)
            end = self._store.reads.max_offset_in_queue(key.topic, key.queue_id)
            # A pull consumer of the group may have got further than ever was handed out.
            if committed is None or not queue.next_offset < committed <= end:
                try:
                    self._tables.commit(key.group, key.topic, key.queue_id, queue.floor)
                except RequestError:
                    continue  # there are too many offsets: this one is in the state of POP alone

    def close(self) -> None:
        """Have a classic group's file say all that was done. For a stop, before it is saved."""
        if self._table.gathered is None:
            self._put_again.sync()
            self._commit_offsets()

    def _when_settled(self, done: Callable[[str | None], None]) -> None:
        self._tables.when_settled(trio.current_time() + self._timeout_seconds, done)


def _place(request: Receive) -> Place:
    return Place(request.group, request.topic, request.queue_id)


def _unknown(trouble: str) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, trouble)

"""Taking messages out of queues for one request: reads the store, and changes the state.

    retry topic first, one time in five
    queues of the topic, from a random one on
    retry topic last, if it was not first and there is room
    of a topic with priorities in their order: see `queue_order`

A queue of an orderly group whose messages are with somebody is passed over. What a filter does not
want is done.

Source: RocketMQ 5.3.3, PopMessageProcessor.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from node.errors import RequestError
from node.pop.changes import Cut, Popped, QueueKey, Revived, runs_of
from node.receive.queue_order import RETRY_PERCENT, queues_from
from node.receive.requests import (
    ALL_QUEUES,
    ORDERLY_REVIVE_QUEUE,
    REVIVE_QUEUES,
    Batch,
    Found,
    Received,
)
from node.receive.retry_topics import retry_topic_of
from store.messages.get_message import MESSAGE_BYTES_MAX
from store.results import GetMessageStatus
from tandem.wire.receipt_handle import TopicMark
from tandem.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from node.pop.deliveries import Handout, QueueDeliveries
    from node.receive.queue_order import PriorityReading
    from node.receive.requests import Receive
    from node.tables.replicated_pop import DeliveriesTable
    from node.tables.tables import Tables
    from store import GetMessageResult, MessageStore

INVISIBLE_PER_QUEUE_MAX: Final = 10_000
"""With consumers of one group out of one queue: nobody gets more until some are done, or their time
is over. Source: BrokerConfig.popInflightMessageThreshold, which is off there."""

INVISIBLE_MAX: Final = 250_000
"""The same of one broker: what a snapshot, a state file and the memory of every node hold."""

QUEUES_MAX: Final = 100_000
"""That a broker keeps the state of: queues times groups."""

YOUNG_LOG_BYTES_MAX: Final = 64 << 20
"""From the first message of a queue to the end of the log: a group that starts at the end starts
at that message. RocketMQ: while it is in memory (initPopOffsetByCheckMsgInMem)."""

_QUEUE_OFFSET: Final = struct.Struct(">q")
_QUEUE_OFFSET_AT: Final = 20
_PHYSICAL_OFFSET_AT: Final = 28
_SIZE: Final = struct.Struct(">i")


class _Source(NamedTuple):
    key: QueueKey
    mark: TopicMark


class Taking:
    """Of one broker."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        table: DeliveriesTable,
        random: Random,
        priorities: PriorityReading,
    ) -> None:
        self._store = store
        self._tables = tables
        self._table = table
        self._random = random
        self._priorities = priorities
        self._requests = 0
        self.resetting: set[QueueKey] = set()
        """Queues whose offset was set, and is not known to be committed yet."""
        self.held_back: dict[QueueKey, None] = {}
        """Queues that had a message which this broker had no room for."""
        self._is_left_off = False
        """See `Received`; of the request that is served now."""
        self._past_end: dict[QueueKey, int] = {}
        """By queue: the offset that its group had committed behind the end of the log."""

    def take(self, request: Receive, now_ms: int) -> Received:
        """Hand out what there is for a request. The state says so at once."""
        self._is_left_off = False
        if request.attempt_id and not request.is_orderly:
            again = self._again(request)
            if again is not None:
                return again
        sources = list(self._sources(request))
        deliveries = self._table.live
        pop_time_ms = now_ms
        for source in sources:
            queue = deliveries.of(source.key)
            if queue is not None:
                # What is handed out in order once more has another handle, whatever the clock says.
                least_ms = queue.last_pop_ms + bool(request.is_orderly and queue.invisible)
                pop_time_ms = max(pop_time_ms, least_ms)
        batches: list[Batch] = []
        count_left, bytes_left, rest = request.count_max, MESSAGE_BYTES_MAX, 0
        for source in sources:
            wanted = count_left if bytes_left > 0 else 0
            batch, more = self._from_queue(request, source, pop_time_ms, wanted)
            rest += more
            if batch is not None:
                batches.append(batch)
                count_left -= len(batch.offsets)
                bytes_left -= len(batch.records)
        return self._received(request, pop_time_ms, rest, batches)

    def _received(
        self, request: Receive, pop_time_ms: int, rest: int, batches: Sequence[Batch]
    ) -> Received:
        revive_queue_id = ORDERLY_REVIVE_QUEUE
        if not request.is_orderly:
            self._requests += 1
            revive_queue_id = self._requests % REVIVE_QUEUES
        return Received(
            Found.FOUND if batches else Found.NOTHING,
            pop_time_ms,
            request.invisible_ms,
            revive_queue_id,
            rest,
            tuple(batches),
            self._is_left_off and not batches,
        )

    def _sources(self, request: Receive) -> Iterator[_Source]:
        """Yield the queues to look at."""
        group, topic = request.group, request.topic
        is_strict = self._priorities.is_strict(self._tables, request, self._random)
        if request.is_orderly:
            retry, retry_first = None, False
        else:
            percent = self._priorities.retry_percent if is_strict else RETRY_PERCENT
            retry = self._retry_source(group, topic)
            retry_first = retry is not None and self._random.randrange(100) < percent
        if retry is not None and retry_first:
            yield retry
        if request.queue_id != ALL_QUEUES:
            yield _Source(QueueKey(group, topic, request.queue_id), TopicMark.NORMAL)
        else:
            for queue_id in self._queues(request.queue_count, is_strict=is_strict):
                yield _Source(QueueKey(group, topic, queue_id), TopicMark.NORMAL)
        if retry is not None and not retry_first:
            yield retry

    def _queues(self, count: int, *, is_strict: bool) -> Sequence[int]:
        if is_strict:
            return self._priorities.queues(count)
        return queues_from(self._random.randrange(count), count) if count else ()

    def _retry_source(self, group: str, topic: str) -> _Source | None:
        """One of the two retry topics: an answer cannot have both. Whichever has messages."""
        found = [
            _Source(QueueKey(group, name, 0), mark)
            for mark in (TopicMark.RETRY_V1, TopicMark.RETRY_V2)
            if (name := retry_topic_of(group, topic, mark)) != topic
            and self._tables.topics.get(name) is not None
        ]
        if len(found) > 1:
            has_some = [each for each in found if self.has_messages(each.key)]
            return self._random.choice(has_some or found)
        return found[0] if found else None

    def has_any(self, request: Receive) -> bool:
        """Whether a request would find something, if no filter is asked."""
        for source in self._sources(request):
            queue = self._table.live.of(source.key)
            if request.is_orderly and queue is not None and queue.invisible:
                if self._table.due_times.is_open(source.key, queue.invisible.values()):
                    return True
            elif self.has_messages(source.key, starts_at_end=request.starts_at_end):
                return True
        return False

    def has_messages(self, key: QueueKey, *, starts_at_end: bool = False) -> bool:
        """Whether a queue has messages that were not handed out."""
        queue = self._table.live.of(key)
        begin = self._begin(key, queue, starts_at_end=starts_at_end)
        return begin < self._store.reads.max_offset_in_queue(key.topic, key.queue_id)

    # -- one queue -------------------------------------------------------------------------------

    def _begin(self, key: QueueKey, queue: QueueDeliveries | None, *, starts_at_end: bool) -> int:
        """Where a group goes on. One that committed further by itself, goes on there."""
        committed = self._tables.offsets.query(key.group, key.topic, key.queue_id)
        if queue is not None:
            end = self._store.reads.max_offset_in_queue(key.topic, key.queue_id)
            if committed is not None and committed > end:
                self._past_end[key] = committed
            if committed is None or committed == self._past_end.get(key):
                return queue.next_offset
            return max(queue.next_offset, committed)
        if committed is not None:
            return committed
        reads = self._store.reads
        first = reads.min_offset_in_queue(key.topic, key.queue_id)
        if not starts_at_end or self._is_young(key, first):
            return first
        return max(first, reads.max_offset_in_queue(key.topic, key.queue_id) - 1)

    def _is_young(self, key: QueueKey, first: int) -> bool:
        if first > 0:
            return False
        result = self._store.reads.get_message(key.topic, key.queue_id, 0, 1)
        if not result.body:
            return False
        (physical_offset,) = _QUEUE_OFFSET.unpack_from(result.body[0], _PHYSICAL_OFFSET_AT)
        return bool(self._store.max_physical_offset - physical_offset <= YOUNG_LOG_BYTES_MAX)

    def _from_queue(
        self, request: Receive, source: _Source, pop_time_ms: int, wanted: int
    ) -> tuple[Batch | None, int]:
        """Return what was handed out of a queue, and how many more there are."""
        key = source.key
        queue = self._table.live.of(key)
        if key in self.resetting:
            return None, 0
        if request.is_orderly and queue is not None and queue.invisible:
            batch = self._in_order_again(request, source, queue, pop_time_ms, wanted)
            queue = self._table.live.of(key)
            if batch is not None or (queue is not None and queue.invisible):
                return batch, 0
            # All of them have left the log: the next ones are there to be had.
        starts_at_end = request.starts_at_end and source.mark is TopicMark.NORMAL
        begin = self._begin(key, queue, starts_at_end=starts_at_end)
        end = self._store.reads.max_offset_in_queue(key.topic, key.queue_id)
        if begin > end:
            self._go_back(request, key, pop_time_ms, begin, end)
            return None, 0
        is_noted = queue is not None or not starts_at_end
        if (begin == end and is_noted) or wanted <= 0 or not self._has_room(queue):
            is_held_back = wanted > 0 and begin < end and self.room() <= 0
            if is_held_back and len(self.held_back) < QUEUES_MAX:
                self.held_back[key] = None
            return None, max(0, end - begin)
        begin, result = self._read(request, key, begin, wanted)
        next_offset = max(begin, result.next_begin_offset)
        records = b"".join(result.body)
        offsets = queue_offsets(records)
        if offsets or next_offset > begin or not is_noted:
            self._popped(request, key, pop_time_ms, next_offset, offsets)
        if not offsets:
            # One read goes so far and no further. Where it has not moved on, another does not.
            self._is_left_off |= begin < next_offset < end
            return None, max(0, end - next_offset)
        counts = (1,) * len(offsets) if request.is_orderly else ()
        batch = Batch(key.topic, source.mark, key.queue_id, begin, tuple(offsets), records, counts)
        return batch, max(0, end - next_offset)

    def _go_back(
        self, request: Receive, key: QueueKey, pop_time_ms: int, begin: int, end: int
    ) -> None:
        """Nobody has read further than the log goes: what comes next is for the group."""
        if self._table.live.of(key) is None:
            if not self._has_room(None):
                return
            self._past_end[key] = begin
            self._popped(request, key, pop_time_ms, end, ())
        else:
            self._table.change(Cut(*key, end))
        floor = self._table.live.queues[key].floor
        with suppress(RequestError):  # there are too many offsets
            self._tables.commit(key.group, key.topic, key.queue_id, floor)

    def _popped(
        self,
        request: Receive,
        key: QueueKey,
        pop_time_ms: int,
        next_offset: int,
        offsets: Sequence[int],
    ) -> None:
        self._table.change(
            Popped(
                *key,
                pop_time_ms,
                request.invisible_ms,
                next_offset,
                runs_of(offsets),
                request.is_orderly,
                request.attempt_id,
            )
        )

    def _read(
        self, request: Receive, key: QueueKey, begin: int, wanted: int
    ) -> tuple[int, GetMessageResult]:
        """Return what is read, and from where on: what is not held any more is passed over."""
        result = self._read_at(request, key, begin, wanted)
        if result.status is not GetMessageStatus.OFFSET_TOO_SMALL:
            return begin, result
        begin = result.next_begin_offset
        return begin, self._read_at(request, key, begin, wanted)

    def _read_at(
        self, request: Receive, key: QueueKey, begin: int, wanted: int
    ) -> GetMessageResult:
        return self._store.reads.get_message(
            key.topic,
            key.queue_id,
            begin,
            wanted,
            tags_codes=request.tags_codes,
            message_filter=request.message_filter,
        )

    def _has_room(self, queue: QueueDeliveries | None) -> bool:
        """Whether one more message may be handed out of a queue."""
        live = self._table.live
        if queue is None:
            return len(live.queues) < QUEUES_MAX and live.invisible_count < INVISIBLE_MAX
        in_queue = len(queue.invisible)
        return in_queue < INVISIBLE_PER_QUEUE_MAX and live.invisible_count < INVISIBLE_MAX

    def room(self) -> int:
        """How many more messages may be handed out of all queues."""
        return INVISIBLE_MAX - self._table.live.invisible_count

    def check_room(self, request: Receive) -> None:
        """Refuse a request that needs the state of one more queue, if there are too many.

        Raises:
            RequestError: SYSTEM_BUSY.
        """
        live = self._table.live
        if len(live.queues) < QUEUES_MAX:
            return
        key = QueueKey(request.group, request.topic, max(0, request.queue_id))
        if live.of(key) is None:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"this broker keeps what is with consumers of {len(live.queues)} queues, and no"
                " more; delete groups that nobody uses (deleteSubGroup)",
            )

    # -- again -----------------------------------------------------------------------------------

    def _in_order_again(
        self,
        request: Receive,
        source: _Source,
        queue: QueueDeliveries,
        pop_time_ms: int,
        wanted: int,
    ) -> Batch | None:
        """Hand out once more what is not done, if its time is over or it is the same attempt."""
        key, handouts = source.key, set(queue.invisible.values())
        is_same = bool(request.attempt_id) and all(
            each.attempt_id == request.attempt_id for each in handouts
        )
        is_open = is_same or self._table.due_times.is_open(key, handouts)
        if wanted <= 0 or not is_open:
            return None
        read = self._records(key, sorted(queue.invisible)[:wanted])
        if not read:
            return None
        self._popped(request, key, pop_time_ms, queue.next_offset, list(read))
        offsets = tuple(read)
        # `queue` may be shared with a copy, as after a switch: then it is as it was before.
        times = self._table.live.queues[key].counts
        counts = tuple(times.get(each, 1) for each in offsets)
        records = b"".join(read.values())
        return Batch(key.topic, source.mark, key.queue_id, offsets[0], offsets, records, counts)

    def _again(self, request: Receive) -> Received | None:
        """Return what the same attempt got, as far as it is not done; None if it got nothing."""
        found: list[tuple[QueueKey, Handout]] = [
            (key, handout)
            for key, handout in self._table.due_times.of_attempt(
                request.group, request.attempt_id, self._table.live
            )
            if not handout.is_orderly and mark_for(request, key) is not None
        ]
        # An answer has one pop time, and a queue once: a message that was moved since has another
        # handle, which its consumer has got.
        held: dict[QueueKey, list[int]] = {}
        for key, handout in found:
            if handout.pop_time_ms == found[0][1].pop_time_ms:
                held.setdefault(key, []).extend(self._table.live.queues[key].held_of(handout))
        batches = []
        for key, offsets in held.items():
            read = self._records(key, sorted(offsets))
            mark = mark_for(request, key)
            if read and mark is not None:
                records = b"".join(read.values())
                start = min(read)
                batches.append(Batch(key.topic, mark, key.queue_id, start, tuple(read), records))
        if not batches:
            return None
        handout = found[0][1]
        received = self._received(request, handout.pop_time_ms, 0, batches)
        return Received(
            received.found,
            handout.pop_time_ms,
            handout.invisible_ms,
            received.revive_queue_id,
            0,
            received.batches,
        )

    def _records(self, key: QueueKey, offsets: Sequence[int]) -> dict[int, bytes]:
        """Return records by offset, up to the first that is damaged.

        What is not held any more is done: nobody can get it.
        """
        found: dict[int, bytes] = {}
        for offset in offsets:
            result = self._store.reads.get_message(key.topic, key.queue_id, offset, 1)
            if result.damaged is not None:
                break
            record = b"".join(result.body)
            if queue_offsets(record) == [offset]:
                found[offset] = record
            else:
                pop_time_ms = self._table.live.queues[key].invisible[offset].pop_time_ms
                self._table.change(Revived(*key, [(pop_time_ms, [offset, 1])]))
        return found


def mark_for(request: Receive, key: QueueKey) -> TopicMark | None:
    """Return of which kind the topic of a key is to a request; None if it is not one of its."""
    for mark in TopicMark:
        if retry_topic_of(request.group, request.topic, mark) == key.topic:
            return mark
    return None


def queue_offsets(records: bytes) -> list[int]:
    """Return the queue offset of each of some records."""
    offsets: list[int] = []
    at, end = 0, len(records)
    unpack_size, unpack_offset = _SIZE.unpack_from, _QUEUE_OFFSET.unpack_from
    while at < end:
        offsets.append(unpack_offset(records, at + _QUEUE_OFFSET_AT)[0])
        at += unpack_size(records, at)[0]
    return offsets

"""A broker's POP on a real store and journal, under the control of a test: no task runs by itself.

What replication would do is `confirm`; what the next master knows is `successor`.
"""

from __future__ import annotations

import random

import trio

from node.errors import RequestError
from node.receive.pop_service import PopService
from node.receive.queue_order import HIGHEST_FIRST, PriorityReading
from node.receive.requests import Changed, Handle, Receive, Received
from node.simulated.disk import SimulatedDisk
from node.tables.journal.journal_tables import JournalTables, SavedTables
from node.tables.plain_tables import PlainFiles, PlainTables
from node.tables.replicated_pop import DeliveriesPart, DeliveriesTable
from node.tables.tables import Tables
from store import PutMessage
from store.results import Arrival
from tandem.wire.message import MessageExt, decode_messages
from tandem.wire.receipt_handle import TopicMark
from tandem.wire.request_headers import TopicConfig
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tests.node.doubles import BROKER, NOW_MS, FakeReplication, open_store
from tests.support.listening import listen

GROUP, TOPIC = "g", "T"
RETRY = f"%RETRY%{GROUP}_{TOPIC}"
DLQ = f"%DLQ%{GROUP}"
TIMEOUT = 3.0


class PopWorld:
    """One broker.

    Attributes:
        skew_ms: How far its wall clock is ahead of trio's.
    """

    tables: Tables

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        *,
        is_fenced: bool = True,
        queues: int = 1,
        retries: int = 16,
        retry_mark: TopicMark = TopicMark.RETRY_V1,
        priorities: PriorityReading = HIGHEST_FIRST,
        begins: bool = True,
        log_file_bytes: int = 1 << 22,
    ) -> None:
        self.skew_ms = 0
        self.disk = disk or SimulatedDisk()
        self.is_fenced = is_fenced
        self.replication = FakeReplication()
        self.retry_mark = retry_mark
        self.log_file_bytes = log_file_bytes
        self.queues = queues
        # Before the store: files of tables are read first.
        saved = SavedTables(self.disk, "s", self.now_ms) if is_fenced else None
        files = None if is_fenced else PlainFiles(self.disk, "s", self.now_ms)
        self.store = open_store(
            self.disk,
            is_slave=is_fenced,
            is_fenced=is_fenced,
            mapped_file_size_commit_log_bytes=log_file_bytes,
        )
        if saved is not None:
            self.tables = self.journal_tables = JournalTables(
                saved,
                self.store,
                self.replication,
                born_host=BROKER.packed,
                wall_clock_ms=self.now_ms,
            )
        elif files is not None:
            self.tables = PlainTables(files)
        self.pop = PopService(
            self.store,
            self.tables,
            random=random.Random(7),
            wall_clock_ms=self.now_ms,
            timeout_seconds=TIMEOUT,
            retry_mark=retry_mark,
            priorities=priorities,
        )
        listen(self.store, self._arrived)
        if begins:
            self.open()
            self.tables.change_topics(TopicConfig(TOPIC, queues, queues))
            self.set_group(retry_max_times=retries)
            self.confirm()

    def now_ms(self) -> int:
        return NOW_MS + round(trio.current_time() * 1000) + self.skew_ms

    def set_group(self, **changes: object) -> None:
        self.tables.change_groups(SubscriptionGroupConfig(GROUP, **changes))  # type: ignore[arg-type]

    def open(self) -> None:
        """Be the master from now on, of what is in the log."""
        if self.is_fenced:
            self.store.become_master()
            self.store.confirm(self.store.max_physical_offset)
        log_end = self.store.max_physical_offset
        self.tables.open([], lambda: self.pop.opened(log_end))
        self.confirm()

    def _arrived(self, arrivals: list[Arrival]) -> None:
        self.tables.arrived(arrivals)
        self.pop.messages_arrived(arrivals)

    # -- what the broker's tasks do --------------------------------------------------------------

    def end_round(self) -> None:
        self.tables.end_round()
        self.store.announce()

    def confirm(self) -> None:
        """Everything written so far is on all replicas, and answered."""
        self.end_round()
        if self.is_fenced:
            self.store.confirm(self.store.max_physical_offset)
            self.journal_tables.journal.catch_up()
            self.end_round()

    def write_gathered(self) -> None:
        """The time of gathering is over."""
        if self.table.gathered is not None:
            self.table.gathered.write()

    def work(self) -> None:
        """What the task of the service does once."""
        self.pop.work(trio.current_time())
        self.end_round()

    async def wait(self, seconds: float) -> None:
        """Time passes, and the service works."""
        await trio.sleep(seconds)
        self.work()
        self.confirm()

    # -- users -----------------------------------------------------------------------------------

    def put(
        self, *bodies: bytes, queue_id: int = 0, topic: str = TOPIC, properties: bytes = b""
    ) -> None:
        for body in bodies:
            message = PutMessage(topic, queue_id, body, properties, NOW_MS, BROKER.packed)
            result = self.store.puts.put_message(message)
            assert result.status.is_stored, result
        self.confirm()

    def place(self, offset: int) -> int:
        """Return where in the log a message of queue 0 is."""
        queue = self.store.queues.find(TOPIC, 0)
        assert queue is not None
        return queue.unit(offset)[0]

    def begin(self, count: int = 32, **changes: object) -> list[Received | RequestError]:
        """Ask for messages; the answer comes into the list."""
        answers: list[Received | RequestError] = []
        self.pop.receive(self.request(count, **changes), answers.append)
        return answers

    def request(self, count: int = 32, **changes: object) -> Receive:
        wanted = {
            "group": GROUP,
            "topic": TOPIC,
            "queue_count": self.queues,
            "count_max": count,
            "invisible_ms": 10_000,
            **changes,
        }
        return Receive(**wanted)  # type: ignore[arg-type]

    def receive(self, count: int = 32, **changes: object) -> Received:
        """Ask for messages, and have the answer confirmed."""
        answers = self.begin(count, **changes)
        self.confirm()
        (answer,) = answers
        assert isinstance(answer, Received), answer
        return answer

    def bodies(self, count: int = 32, **changes: object) -> list[bytes]:
        return [each.body for each in messages(self.receive(count, **changes))]

    def ack(self, *handles: Handle) -> list[bool]:
        """Say that messages are done, and have it confirmed."""
        answers: list[list[bool] | RequestError] = []
        self.pop.ack(handles, answers.append)
        self.write_gathered()
        self.confirm()
        (answer,) = answers
        assert isinstance(answer, list), answer
        return answer

    def change(self, handle: Handle, invisible_ms: int) -> Changed | None:
        answers: list[Changed | RequestError | None] = []
        self.pop.change(handle, invisible_ms, answers.append)
        self.confirm()
        (answer,) = answers
        assert answer is None or isinstance(answer, Changed), answer
        return answer

    def stored(self, topic: str) -> list[MessageExt]:
        """All that is in queue 0 of a topic, confirmed or not."""
        result = self.store.whole_log.get_message(topic, 0, 0, 32)
        return decode_messages(b"".join(result.body))

    # -- state -----------------------------------------------------------------------------------

    @property
    def table(self) -> DeliveriesTable:
        return self.tables.shown.of(DeliveriesTable)

    def state(self) -> list[str]:
        """What this broker says of POP."""
        return sorted(map(repr, self.table.live.rows()))

    def confirmed_state(self) -> list[str]:
        """What its journal says, as far as it is confirmed."""
        tables = self.journal_tables.journal.applier.tables
        return sorted(map(repr, tables.of(DeliveriesPart).deliveries.rows()))

    def offset(self, queue_id: int = 0, topic: str = TOPIC) -> int | None:
        """The group's offset as everybody sees it."""
        return self.tables.offsets.query(GROUP, topic, queue_id)

    def successor(self, end: int | None = None, *, opens: bool = True) -> PopWorld:
        """The next master: it has the log up to `end`, or to the last whole record before it."""
        other = PopWorld(
            begins=False,
            queues=self.queues,
            retry_mark=self.retry_mark,
            log_file_bytes=self.log_file_bytes,
        )
        other.skew_ms = self.skew_ms
        self.copy_to(other, end)
        if opens:
            other.open()
        return other

    def copy_to(self, other: PopWorld, end: int | None = None) -> None:
        """Replicate the log up to `end`, and what is confirmed of it."""
        at = other.store.max_physical_offset
        end = self.store.max_physical_offset if end is None else end
        while at < end:
            data = bytes(self.store.read_log(at, end - at))
            other.store.append_data(at, data)
            at += len(data)
        while other.store.reput_service.is_behind:
            other.store.reput_service.dispatch_some()
        other.store.confirm(min(self.store.confirm_offset, end))
        other.journal_tables.journal.catch_up()


def messages(received: Received) -> list[MessageExt]:
    return [each for batch in received.batches for each in decode_messages(batch.records)]


def handles(received: Received, group: str = GROUP) -> list[Handle]:
    return [
        Handle(group, batch.topic, batch.queue_id, offset, received.pop_time_ms)
        for batch in received.batches
        for offset in batch.offsets
    ]

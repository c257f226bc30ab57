"""One node with a journal, under the control of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.tables.journal.group_journal import GroupJournal
from node.tables.journal.journal_file import JournalFile, group_tables
from node.tables.journal.journal_records import (
    ConsumerOffsets,
    GroupTables,
    decode_journal_record,
)
from tandem.wire.message import decode_messages
from tandem.wire.request_headers import TopicConfig
from tandem.wire.system_topics import JOURNAL_TOPIC
from tests.node.doubles import BROKER, NOW_MS, open_store
from tests.support.simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from node.tables.journal.journal_writer import JournalWriter
    from store.delayed.timer_place import TimerPlace


FOREVER = float("inf")


def topic(name: str, queues: int = 4) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)


class Node:
    """One node's store and journal; `confirm` is what its replication would say."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        *,
        log_file_bytes: int = 1 << 20,
        skips_damaged: bool = False,
    ) -> None:
        self.disk = disk or SimulatedDisk()
        self.store = open_store(
            self.disk,
            is_slave=True,
            is_fenced=True,
            mapped_file_size_commit_log_bytes=log_file_bytes,
            max_message_size_bytes=10_000,
            skip_damaged_records=skips_damaged,
        )
        file = JournalFile(self.disk, "s")
        state = file.load()
        tables, position = GroupTables(), 0
        if state is not None:
            tables, position = group_tables(state), state.position
        self.journal = GroupJournal(
            self.store,
            file,
            tables,
            position,
            listener=self,
            born_host=BROKER.packed,
            wall_clock_ms=lambda: NOW_MS,
        )
        self.store.on_arrival = self._arrived
        self.shown: list[tuple[str, object]] = []
        self.answers: list[str | None] = []
        self.progress: dict[int, int] = {}
        self.timers: TimerPlace | None = None

    @property
    def writer(self) -> JournalWriter:
        assert self.journal.writer is not None
        return self.journal.writer

    def show_topics(self, topics: list[TopicConfig] | None) -> None:
        self.shown.append(("topics", topics))

    def show_groups(self) -> None:
        self.shown.append(("groups", None))

    def show_offsets(self, offsets: ConsumerOffsets | None) -> None:
        self.shown.append(("offsets", offsets))

    def take_up_delay(self) -> None:
        self.progress.update(self.journal.applier.tables.delay)
        self.timers = self.journal.applier.tables.timers

    def delay_progress(self) -> dict[int, int]:
        return self.progress

    def timer_place(self) -> TimerPlace | None:
        return self.timers

    def _arrived(self, topic: str, _queue_id: int, _max_offset: int, _code: int | None) -> None:
        if topic == JOURNAL_TOPIC:
            self.journal.arrived()

    def open_as_master(self, *topics: TopicConfig) -> None:
        self.store.become_master()
        self.store.confirm(self.store.max_physical_offset)
        self.journal.open(list(topics))
        self.confirm()

    def confirm(self) -> None:
        """Everything in the log is on all replicas."""
        self.store.announce()
        self.store.confirm(self.store.max_physical_offset)
        self.journal.catch_up()

    def confirm_before(self, queue_offset: int) -> None:
        """What is before this record of the journal is on all replicas, and nothing else."""
        self.store.announce()
        self.store.confirm(self._place_of(queue_offset)[0])
        self.journal.catch_up()

    def damage(self, queue_offset: int) -> None:
        """This record of the journal turns out to be damaged."""
        self.store.announce()
        at, size = self._place_of(queue_offset)
        self.store.commit_log.damage.note(at, at + size, "a test")

    def _place_of(self, queue_offset: int) -> tuple[int, int]:
        queue = self.store.queues.find(JOURNAL_TOPIC, 0)
        assert queue is not None
        at, size, _ = queue.unit(queue_offset)
        return at, size

    def ask(self) -> None:
        self.journal.when_confirmed(FOREVER, self.answers.append)
        self.journal.end_round()

    def records(self) -> list[object]:
        """Every record that is confirmed and in the log."""
        start = self.store.min_offset_in_queue(JOURNAL_TOPIC, 0)
        result = self.store.get_message(JOURNAL_TOPIC, 0, start, 100)
        messages = decode_messages(b"".join(result.body))
        return [decode_journal_record(message.body) for message in messages]

    def copy_to(self, other: Node, *, catches_up: bool = True) -> None:
        """Replicate the log and what is confirmed of it."""
        at = other.store.max_physical_offset
        while data := bytes(self.store.read_log(at, 1 << 20)):
            other.store.append_data(at, data)
            at += len(data)
        while other.store.reput_service.is_behind:
            other.store.reput_service.dispatch_some()
        other.store.confirm(self.store.confirm_offset)
        if catches_up:
            other.journal.catch_up()

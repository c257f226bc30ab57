"""One node with a journal, under the control of a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from node.simulated.disk import SimulatedDisk
from node.tables.journal.group_journal import GroupJournal
from node.tables.journal.journal_file import JournalFile
from node.tables.journal.journal_records import JOURNAL_FORMAT, GroupTables, SnapshotPart
from node.tables.journal.journal_writer import JournalWriter
from node.tables.node_table import NodeTable, NodeTables, PartTable, RecordWriter, TableFiles
from node.tables.replicated_deliveries import DelayPart, DelayTable, TimersPart, TimersTable
from node.tables.replicated_groups import GroupsPart
from node.tables.replicated_level import LevelPart
from node.tables.replicated_modes import ModesPart, ModesTable
from node.tables.replicated_offsets import GatheredCommits, OffsetsPart
from node.tables.replicated_pop import DeliveriesPart, DeliveriesTable
from node.tables.replicated_quotas import QuotasPart, QuotasTable
from node.tables.replicated_topics import TopicsPart
from node.tables.replicated_users import AclsPart, AclsTable, UsersPart, UsersTable
from node.tables.table_part import TablePart, Written
from store.results import Arrival
from tandem.wire.feature_level import LEVEL_MIN
from tandem.wire.message import decode_messages
from tandem.wire.request_headers import TopicConfig
from tandem.wire.system_topics import JOURNAL_TOPIC
from tests.node.doubles import BROKER, NOW_MS, open_store
from tests.support.listening import listen

FOREVER = float("inf")


def topic(name: str, queues: int = 4) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)


def topics_of(tables: GroupTables) -> dict[str, TopicConfig]:
    return tables.of(TopicsPart).topics


def offsets_of(tables: GroupTables) -> dict[str, dict[int, int]]:
    return tables.of(OffsetsPart).offsets


def delay_of(tables: GroupTables) -> dict[int, int]:
    return tables.of(DelayPart).delay


def tables_of(*parts: TablePart) -> GroupTables:
    return GroupTables(JOURNAL_FORMAT, parts)


def snapshot_part(
    part: int,
    parts: int,
    topics: Sequence[TopicConfig] = (),
    offsets: dict[str, dict[int, int]] | None = None,
    delay: dict[int, int] | None = None,
) -> SnapshotPart:
    form: Any = JOURNAL_FORMAT.snapshot_type
    made: SnapshotPart = form(part, parts, list(topics), offsets or {}, delay or {})
    return made


class Shown(NodeTable[Any]):
    """What a node's own table of this kind is to show."""

    def __init__(self, kind: type[TablePart], shown: list[tuple[str, object]]) -> None:
        self._kind = kind
        self._shown = shown

    def as_part(self) -> TablePart:
        return self._kind()

    def show(self, confirmed: TablePart, records: Sequence[Any] | None) -> None:
        said: object = None
        if records is not None:
            part = self._kind()
            for record in records:
                part.apply(record)
            said = next(iter(part.content().values()))
        self._shown.append((self._kind.tag(), said))

    def take(self, record: msgspec.Struct) -> None:
        self._shown.append((self._kind.tag(), getattr(record, self._kind.tag(), None)))


class ShownOffsets(Shown):
    shows_own_at_once = False
    commits: GatheredCommits

    def gather(self, writer: RecordWriter) -> GatheredCommits:
        self.commits = GatheredCommits(writer)
        return self.commits


class Node:
    """One node's store and journal; `confirm` is what its replication would say."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        *,
        log_file_bytes: int = 1 << 20,
        skips_damaged: bool = False,
    ) -> None:
        self.level = LEVEL_MIN
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
        position, tables = state or (0, GroupTables())
        self.shown: list[tuple[str, object]] = []
        files = TableFiles(self.disk, "s", lambda: NOW_MS, is_copy=True, is_needed=False)
        self.deliveries = files.progress
        self.offsets = ShownOffsets(OffsetsPart, self.shown)
        self.journal = GroupJournal(
            self.store,
            file,
            tables,
            position,
            shown=NodeTables(
                {
                    TopicsPart: Shown(TopicsPart, self.shown),
                    GroupsPart: Shown(GroupsPart, self.shown),
                    OffsetsPart: self.offsets,
                    DelayPart: DelayTable(files),
                    TimersPart: TimersTable(files),
                    UsersPart: UsersTable(files),
                    AclsPart: AclsTable(files),
                    QuotasPart: QuotasTable(files),
                    ModesPart: ModesTable(files),
                    DeliveriesPart: DeliveriesTable(files),
                    LevelPart: PartTable(LevelPart, files),
                }
            ),
            born_host=BROKER.packed,
            level=lambda: self.level,
            wall_clock_ms=lambda: NOW_MS,
        )
        listen(self.store, self._arrived)
        self.answers: list[str | None] = []

    @property
    def writer(self) -> JournalWriter:
        assert self.journal.writer is not None
        return self.journal.writer

    def commit(self, key: str, queue_id: int, offset: int) -> None:
        self.offsets.commits.commit(key, queue_id, offset)

    def _arrived(self, arrivals: list[Arrival]) -> None:
        if any(topic == JOURNAL_TOPIC for _, topic, *_ in arrivals):
            self.journal.arrived()

    def open_as_master(self, *topics: TopicConfig) -> None:
        self.store.become_master()
        self.store.confirm(self.store.max_physical_offset)
        self.open_journal(*topics)
        self.confirm()

    def open_journal(self, *topics: TopicConfig) -> None:
        def opening(written: Written) -> list[msgspec.Struct]:
            return [*written(TopicsPart).missing(list(topics))]

        self.journal.open(opening)

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
        start = self.store.reads.min_offset_in_queue(JOURNAL_TOPIC, 0)
        result = self.store.reads.get_message(JOURNAL_TOPIC, 0, start, 100)
        messages = decode_messages(b"".join(result.body))
        return [JOURNAL_FORMAT.decode_record(message.body) for message in messages]

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

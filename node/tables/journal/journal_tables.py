"""The tables of a broker of a fenced group: what its journal says is confirmed.

`config/topics.json`, `consumerOffset.json` and `delayOffset.json` are copies for other programs,
and what a classic node left. What the journal's own file says was confirmed, and it wins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import trio

from ha.replication import Replication
from node.errors import RequestError
from node.tables.consumer_offset_table import TOPIC_GROUP_SEPARATOR
from node.tables.deleted import Deleted
from node.tables.journal.group_journal import GroupJournal
from node.tables.journal.journal_file import JournalFile
from node.tables.journal.journal_records import (
    JOURNAL_FORMAT,
    GroupTables,
    JournalFormat,
    SnapshotPart,
)
from node.tables.names import check_name
from node.tables.node_table import Replicated, TableFiles, open_tables
from node.tables.replicated_groups import GroupsChanged, GroupsTable
from node.tables.replicated_offsets import OffsetsTable
from node.tables.replicated_tables import REPLICATED_TABLES
from node.tables.replicated_topics import TopicsChanged, TopicsPart, TopicsTable
from node.tables.saving import Saving
from node.tables.table_part import P, Written
from node.tables.tables import Settled
from node.tables.topic_config_table import TopicConfigTable
from store import MessageStore
from store.delayed_delivery import JournaledProgress
from store.machine.disk import Disk
from store.machine.errors import StoreError
from store.results import Arrival
from tandem.wire.errors import MalformedMessageError
from tandem.wire.feature_level import LEVEL_MIN
from tandem.wire.message import decode_message
from tandem.wire.request_headers import TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tandem.wire.system_topics import JOURNAL_TOPIC

_log = logging.getLogger(__name__)

SAVE_COPY_SECONDS: Final = 5.0
"""Between two writes of the copies of topics and offsets that other programs read."""


class SavedTables:
    """What is in the files of one node.

    Attributes:
        file: The journal's own.
        position: The queue offset of the first record that is not in `confirmed`.
        confirmed: The tables as the journal left them.
        shown: The node's own, which show the same.
        progress: How far the deliveries have got.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        wall_clock_ms: Callable[[], int],
        *,
        auto_create_groups: bool = True,
        registered: Sequence[Replicated] = REPLICATED_TABLES,
    ) -> None:
        """Read the files. A group that nobody set up has the defaults if `auto_create_groups`.

        Raises:
            TableFileError: a copy is damaged, and there is no file of the journal's own that
                says the same.
        """
        form = JournalFormat(registered)
        self.disk = disk
        self.file = JournalFile(disk, directory, form)
        saved = self.file.load()
        files = TableFiles(
            disk,
            directory,
            wall_clock_ms,
            is_copy=True,
            is_needed=saved is None,
            auto_create_groups=auto_create_groups,
        )
        self.shown = open_tables(registered, files)
        self.progress = files.progress
        if saved is None:
            parts = [table.as_part() for table in self.shown.by_kind.values()]
            self.position, self.confirmed = 0, GroupTables(form, parts)
            return
        self.position, self.confirmed = saved
        for kind, table in self.shown.by_kind.items():
            table.show(self.confirmed.of(kind), None)

    @property
    def topics(self) -> TopicConfigTable:
        """The node's topics."""
        return self.shown.of(TopicsTable).table

    def fit_to(self, store: MessageStore) -> None:
        """Read the journal anew if the log has lost records of it that were applied.

        Others come in their place. Offsets past the end of the log would pass over messages.
        """
        queue = store.queues.find(JOURNAL_TOPIC, 0)
        end = queue.next_offset if queue is not None else 0
        if self.position <= end:
            return
        _log.warning(
            "the log holds %d records of the journal, %d had been applied: offsets go back to what"
            " it says",
            end,
            self.position,
        )
        self.position = queue.min_offset if queue is not None else 0
        self.confirmed = self.confirmed.without_places()
        for kind, table in self.shown.by_kind.items():
            if kind.has_places_in_log:
                table.show(self.confirmed.of(kind), None)
        try:
            self.file.save(self.position, self.confirmed)
        except StoreError as error:
            _log.warning("the state of the journal could not be saved: %s", error)


class JournalTables:
    """A `Tables` whose changes are written into the log, and are final once they are confirmed."""

    def __init__(
        self,
        saved: SavedTables,
        store: MessageStore,
        replication: Replication,
        *,
        born_host: bytes,
        wall_clock_ms: Callable[[], int],
        level: Callable[[], int] = lambda: LEVEL_MIN,
    ) -> None:
        """`level` is the feature level of the group at the moment."""
        saved.fit_to(store)
        self.shown = saved.shown
        self.topics = saved.topics
        self.groups = saved.shown.of(GroupsTable).table
        self._offsets_table = saved.shown.of(OffsetsTable)
        self.offsets = self._offsets_table.table
        self._closed_by: str | None = None
        """Why nothing is written any more, in words."""
        self._store = store
        self._hide = store.compaction.hide
        self._saved = saved
        self._replication = replication
        self._saving = Saving(saved.disk, *saved.shown.by_kind.values())
        self.journal = GroupJournal(
            store,
            saved.file,
            saved.confirmed,
            saved.position,
            shown=saved.shown,
            born_host=born_host,
            wall_clock_ms=wall_clock_ms,
            level=level,
        )

    def check_change(self) -> None:
        """Refuse a change where a put would be refused, and where it would not be written."""
        if self._closed_by is not None:
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, self._closed_by)
        refusal = self._replication.refusal()
        if refusal is not None:
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, refusal.text)

    def check_commit(self) -> None:
        """Refuse a commit where a put would be refused."""
        self.check_change()

    def check_query(self) -> None:
        """Only the master answers: another node may not know yet what was committed last.

        A master that is short of replicas takes no offsets, and still knows those that it took.
        """
        refusal = self._replication.refusal()
        is_known = refusal is None or refusal.is_short
        if not self._replication.is_master or not is_known:
            reason = refusal.text if refusal is not None else "this node is not the master"
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"only the master knows offsets: {reason}"
            )

    def change_topics(self, *configs: TopicConfig) -> None:
        """See `Tables`. The record of a topic is in the log before its first message."""
        self.topics.check_room(*configs)
        changed = self.topics.changed(*self.topics.as_created(*configs, hide=self._hide))
        if changed:
            self.journal.change(TopicsChanged(changed))

    def change_topics_soon(self, *configs: TopicConfig) -> None:
        """See `Tables`. A record of the journal costs no more than a message."""
        self.change_topics(*configs)

    def delete_topic(self, topic: str) -> None:
        """See `Tables`."""
        self.journal.change(Deleted(topics=[topic]))

    def change_groups(self, *configs: SubscriptionGroupConfig) -> None:
        """See `Tables`."""
        self.groups.check(*configs)
        changed = self.groups.changed(*configs)
        if changed:
            self.journal.change(GroupsChanged(changed))

    def change_groups_soon(self, *configs: SubscriptionGroupConfig) -> None:
        """See `Tables`. A record of the journal costs no more than a message."""
        self.change_groups(*configs)

    def forbid(self, group: str, topic: str, bits: int) -> None:
        """See `Tables`."""
        check_name("consumer group", group)
        topics = self.groups.with_forbidden(group, topic, bits)
        self.journal.change(GroupsChanged([], {group: topics}))

    def delete_group(self, group: str, *, clean_offsets: bool) -> None:
        """See `Tables`."""
        self.journal.change(
            Deleted(groups=[group], offsets_of_groups=[group] if clean_offsets else [])
        )

    def change(self, record: msgspec.Struct) -> None:
        """See `Tables`. What it changes shows at once, or once it is confirmed."""
        self.journal.change(record)

    def as_written(self, kind: type[P]) -> P:
        """See `Tables`."""
        writer = self.journal.writer
        return self.as_confirmed(kind) if writer is None else writer.written(kind)

    def as_confirmed(self, kind: type[P]) -> P:
        """See `Tables`."""
        return self.shown.part_table(kind).part

    def last_record(self, kind: type[msgspec.Struct], end: int) -> int:
        """See `Tables`."""
        queue = self._store.queues.find(JOURNAL_TOPIC, 0)
        if queue is None:
            return 0
        for offset, size, _ in queue.units_below(end):
            view = self._store.commit_log.message(offset, size)
            if view is None:
                continue
            try:
                body = decode_message(view)[0].body
            except MalformedMessageError:
                continue
            if isinstance(JOURNAL_FORMAT.decode_record(body), kind | SnapshotPart):
                return offset
        return 0

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """See `Tables`. Nodes that are not the master ignore it."""
        commits = self._offsets_table.commits if self.journal.writer else None
        if commits is not None:
            check_name("consumer group", group)
            commits.commit(f"{topic}{TOPIC_GROUP_SEPARATOR}{group}", queue_id, offset)

    def when_settled(self, deadline: float, done: Settled) -> None:
        """See `Tables`. At the end of this round at the earliest."""
        self.journal.when_confirmed(deadline, done)

    def open(
        self, own_topics: list[TopicConfig], before_snapshot: Callable[[], None] | None = None
    ) -> JournaledProgress:
        """See `Tables`. Deliveries go on where the journal says."""

        def opening(written: Written) -> list[msgspec.Struct]:
            return [*written(TopicsPart).missing(own_topics)]

        self.journal.open(opening, before_snapshot)
        return self._saved.progress

    def arrived(self, arrivals: list[Arrival]) -> None:
        """See `Tables`."""
        for _, topic, *_ in arrivals:
            if topic == JOURNAL_TOPIC:
                self.journal.arrived()
                return

    def end_round(self) -> None:
        """See `Tables`."""
        self.journal.end_round()

    async def run(self, end_round: Callable[[], None]) -> None:
        """See `Tables`."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.journal.run, end_round)
            while True:
                await trio.sleep(SAVE_COPY_SECONDS)
                await self._saving.save_in_turns()

    def save(self) -> None:
        """See `Tables`. Missing parts of the files are read from the log again."""
        try:
            self.journal.save()
        except StoreError as error:
            _log.warning("the tables could not be saved: %s", error)
        self._saving.save()

    def close(self, reason: str) -> None:
        """See `Tables`."""
        self._closed_by = reason
        self.journal.close(reason)

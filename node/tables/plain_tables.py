"""The tables of a broker of a classic group: files of this node, like RocketMQ's.

A master writes a topic before it shows, and offsets every few seconds. A slave copies both from its
master, and goes on with what it has while the master is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import trio

from node.errors import RequestError
from node.tables.deleted import Deleted
from node.tables.node_table import Replicated, TableFiles, open_tables
from node.tables.replicated_groups import GroupsTable
from node.tables.replicated_offsets import OffsetsTable
from node.tables.replicated_tables import REPLICATED_TABLES
from node.tables.replicated_topics import TopicsTable
from node.tables.saving import Saving
from node.tables.slave_synchronize import SlaveSynchronize
from node.tables.table_part import P
from node.tables.tables import Settled
from store.machine.disk import Disk
from store.machine.errors import TableFileError
from store.queue.consume_queue_store import nothing_hidden
from store.results import Arrival
from tandem.wire.request_headers import TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.subscription_group import SubscriptionGroupConfig

FLUSH_CONSUMER_OFFSET_SECONDS: Final = 5.0
"""Source: BrokerConfig.flushConsumerOffsetInterval."""


class PlainFiles:
    """The tables as their files have them: they are read before the store is opened."""

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
            TableFileError: a file is damaged.
        """
        self.disk = disk
        files = TableFiles(disk, directory, wall_clock_ms, auto_create_groups=auto_create_groups)
        in_files = [each for each in registered if each.part.is_in_plain_files]
        self.shown = open_tables(in_files, files)
        self.topics = self.shown.of(TopicsTable).table
        self.groups = self.shown.of(GroupsTable).table
        self.offsets = self.shown.of(OffsetsTable).table


class PlainTables:
    """A `Tables` on files alone."""

    def __init__(
        self,
        files: PlainFiles,
        *,
        hide: Callable[[str], int] = nothing_hidden,
        synchronize: SlaveSynchronize | None = None,
    ) -> None:
        """Change what `files` have.

        Args:
            files: The tables.
            hide: Passes over what is left of a deleted topic; see `TopicConfigTable.as_created`.
            synchronize: The copying of a slave; None on a master.
        """
        self.shown = files.shown
        self.topics = files.topics
        self.groups = files.groups
        self.offsets = files.offsets
        self._hide = hide
        self._synchronize = synchronize
        self._saving = Saving(files.disk, *self.shown.by_kind.values())

    def check_change(self) -> None:
        """Source: AdminBrokerProcessor.updateAndCreateTopic."""
        if self._synchronize is not None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                "Can't modify topic or subscription group from slave broker,"
                " please execute it from master broker.",
            )

    def check_commit(self) -> None:
        """Every node takes offsets, as in RocketMQ: a slave's are replaced by its master's."""

    def check_query(self) -> None:
        """Every node answers with what it has."""

    def change_topics(self, *configs: TopicConfig) -> None:
        """See `Tables`."""
        self.topics.check_room(*configs)
        self.topics.update(*self.topics.as_created(*configs, hide=self._hide))

    def change_topics_soon(self, *configs: TopicConfig) -> None:
        """See `Tables`. On disk within `FLUSH_CONSUMER_OFFSET_SECONDS`."""
        self.topics.check_room(*configs)
        self.topics.update_soon(*self.topics.as_created(*configs, hide=self._hide))

    def delete_topic(self, topic: str) -> None:
        """See `Tables`."""
        self.change(Deleted(topics=[topic]))

    def change_groups(self, *configs: SubscriptionGroupConfig) -> None:
        """See `Tables`."""
        self.groups.check(*configs)
        self.groups.update(*configs)

    def change_groups_soon(self, *configs: SubscriptionGroupConfig) -> None:
        """See `Tables`. On disk within `FLUSH_CONSUMER_OFFSET_SECONDS`."""
        self.groups.check(*configs)
        self.groups.update_soon(*configs)

    def forbid(self, group: str, topic: str, bits: int) -> None:
        """See `Tables`."""
        self.groups.set_forbidden(group, self.groups.with_forbidden(group, topic, bits))

    def delete_group(self, group: str, *, clean_offsets: bool) -> None:
        """See `Tables`."""
        self.change(Deleted(groups=[group], offsets_of_groups=[group] if clean_offsets else []))

    def change(self, record: msgspec.Struct) -> None:
        """See `Tables`. On disk before it shows."""
        for _, table in self.shown.changed_by(record):
            table.take(record)

    def as_written(self, kind: type[P]) -> P:
        """See `Tables`."""
        return self.shown.part_table(kind).part

    def as_confirmed(self, kind: type[P]) -> P:
        """See `Tables`."""
        return self.shown.part_table(kind).part

    def last_record(self, kind: type[msgspec.Struct], end: int) -> int:
        """See `Tables`."""
        return 0

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """See `Tables`."""
        self.offsets.commit(group, topic, queue_id, offset)

    def when_settled(self, deadline: float, done: Settled) -> None:
        """Call `done` at once: a topic is on disk before it shows, an offset is no promise."""
        done(None)

    def open(
        self, own_topics: list[TopicConfig], before_snapshot: Callable[[], None] | None = None
    ) -> None:
        """See `Tables`. A delayed delivery has its progress in a file of its own."""
        try:
            self.topics.update(*own_topics)
        except RequestError as error:
            raise TableFileError(error.remark) from error
        for table in self.shown.by_kind.values():
            table.take_up(table.as_part())
        if before_snapshot is not None:
            before_snapshot()

    def arrived(self, arrivals: list[Arrival]) -> None:
        """The log is quicker than the tables: a message of a new topic asks for its settings."""
        if self._synchronize is None:
            return
        if any(self.topics.get(topic) is None for _, topic, *_ in arrivals):
            self._synchronize.hurry()

    def end_round(self) -> None:
        """Nothing is gathered."""

    async def run(self, end_round: Callable[[], None]) -> None:
        """Save; copy the master's tables on a slave."""
        async with trio.open_nursery() as nursery:
            if self._synchronize is not None:
                nursery.start_soon(self._synchronize.run)
            while True:
                await trio.sleep(FLUSH_CONSUMER_OFFSET_SECONDS)
                await self._saving.save_in_turns()

    def save(self) -> None:
        """Write what has changed; a full disk costs a few repeated messages, not the node."""
        self._saving.save()

    def close(self, reason: str) -> None:
        """Nobody waits."""

"""What a broker remembers beside its messages, as its handlers see it: one interface, two kinds.

    plain    `PlainTables`     files of this node; a slave copies those of its master
    journal  `JournalTables`   records in the log of a fenced group, which all of its nodes apply

Handlers read `topics`, `groups` and `offsets`, and change them through here alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from node.tables.consumer_offset_table import ConsumerOffsetTable
from node.tables.node_table import NodeTables
from node.tables.subscription_group_table import SubscriptionGroupTable
from node.tables.table_part import P
from node.tables.topic_config_table import TopicConfigTable
from store.delayed_delivery import JournaledProgress
from store.results import Arrival
from tandem.wire.request_headers import TopicConfig
from tandem.wire.subscription_group import SubscriptionGroupConfig

Settled: TypeAlias = Callable[[str | None], None]
"""Called once: with None if a change is final, else with the reason why that is not known."""


class Tables(Protocol):
    """The tables of one broker, for as long as its store is open."""

    @property
    def shown(self) -> NodeTables:
        """All replicated tables of this node. For reading."""

    @property
    def topics(self) -> TopicConfigTable:
        """Which topics there are. For reading."""

    @property
    def groups(self) -> SubscriptionGroupTable:
        """What is set for consumer groups. For reading."""

    @property
    def offsets(self) -> ConsumerOffsetTable:
        """How far each consumer group is. For reading."""

    def check_change(self) -> None:
        """Raise unless this node takes changes of topics and groups.

        Raises:
            RequestError: with the reason.
        """

    def check_commit(self) -> None:
        """Raise unless this node takes consumer offsets from clients that wait for the answer.

        Raises:
            RequestError: with the reason.
        """

    def check_query(self) -> None:
        """Raise unless this node knows which consumer offset was committed last.

        Raises:
            RequestError: with the reason.
        """

    def change_topics(self, *configs: TopicConfig) -> None:
        """Create or change topics; they show at once. Nothing happens if they are like that.

        Raises:
            RequestError: there are too many topics, or the change could not be written; nothing is
                changed.
        """

    def change_topics_soon(self, *configs: TopicConfig) -> None:
        """Create or change topics that come back by themselves if a crash takes them.

        They show at once and are written with others, soon. Nothing is changed if they do not fit.

        Raises:
            RequestError: there are too many topics, or the change could not be written.
        """

    def delete_topic(self, topic: str) -> None:
        """Forget a topic, and how far groups have got in it.

        Raises:
            RequestError: the change could not be written; nothing is changed.
        """

    def change_groups(self, *configs: SubscriptionGroupConfig) -> None:
        """Set up or change consumer groups; they show at once. Nothing happens if they are so.

        Raises:
            RequestError: a configuration is impossible, there are too many groups, or the change
                could not be written; nothing is changed.
        """

    def change_groups_soon(self, *configs: SubscriptionGroupConfig) -> None:
        """Set up groups that come back by themselves if a crash takes them.

        Raises:
            RequestError: as above.
        """

    def forbid(self, group: str, topic: str, bits: int) -> None:
        """Say what a group may not do with a topic: bit 0 is reading, 0 allows everything.

        Raises:
            RequestError: the change could not be written; nothing is changed.
        """

    def delete_group(self, group: str, *, clean_offsets: bool) -> None:
        """Forget what is set for a group, and, if asked for, how far it has got everywhere.

        Raises:
            RequestError: the change could not be written; nothing is changed.
        """

    def change(self, record: msgspec.Struct) -> None:
        """Change tables by a record of theirs, as the journal would have it.

        For tables that have no methods of their own here; `check_change` comes first.

        Raises:
            RequestError: the change could not be written.
        """

    def as_written(self, kind: type[P]) -> P:
        """Return a table of `ConfirmedTable` as it will be once all is confirmed. For reading."""

    def as_confirmed(self, kind: type[P]) -> P:
        """Return such a table as this node knows it. For reading."""

    def last_record(self, kind: type[msgspec.Struct], end: int) -> int:
        """Return where in the log, below `end`, its last record of a kind is, or a later snapshot.

        0 if there is none, as where tables are files.
        """

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Take in an offset. Ignored: negative ones, and all where none may be committed.

        Raises:
            RequestError: the offset is a new one, and there are too many.
        """

    def when_settled(self, deadline: float, done: Settled) -> None:
        """Call `done` when everything changed by now is final, or at `deadline` in trio's time.

        That may be before this returns, or at the end of this round at the earliest.
        """

    def open(
        self, own_topics: list[TopicConfig], before_snapshot: Callable[[], None] | None = None
    ) -> JournaledProgress | None:
        """Begin to take changes: this node is the master from now on.

        Args:
            own_topics: Those that a master creates for itself.
            before_snapshot: Called once changes are taken, and before all tables are written.

        Returns:
            The progress of delayed delivery that counts, None if that is in its own file.

        Raises:
            StoreError: the topics cannot be written.
        """

    def arrived(self, arrivals: list[Arrival]) -> None:
        """Messages can be read. Called for every round of them."""

    def end_round(self) -> None:
        """Write what this round has gathered; the broker announces the log's growth after it."""

    async def run(self, end_round: Callable[[], None]) -> None:
        """Save and follow from time to time, until cancelled; `end_round` is the broker's.

        Raises:
            NodeError: what was written cannot be read by this version.
        """

    def save(self) -> None:
        """Write the files. A failed write is logged; its data is read from elsewhere again."""

    def close(self, reason: str) -> None:
        """Take no more changes, and answer all who wait."""

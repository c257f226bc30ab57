"""Topics as a replicated table.

A master shows a change at once: the record of a topic is before its first message in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from node.tables.deleted import Deleted
from node.tables.node_table import NodeTable, TableFiles
from node.tables.table_part import Content, Field, FieldKind, TablePart
from node.tables.topic_config_table import TopicConfigTable
from tandem.wire.request_headers import TopicConfig


class TopicsChanged(msgspec.Struct, frozen=True, tag="topics"):
    """Topics that are new or different."""

    topics: list[TopicConfig]
    version: int = 1


class TopicsPart(TablePart):
    """The topics by name."""

    record = TopicsChanged
    also = (Deleted,)
    fields: ClassVar = (
        Field("topics", list[TopicConfig], FieldKind.ROWS, msgspec.NODEFAULT, place=0),
    )
    version = 1

    def __init__(self, topics: dict[str, TopicConfig] | None = None) -> None:
        self.topics = topics or {}

    def apply(self, record: TopicsChanged | Deleted) -> None:
        """See `TablePart`."""
        if isinstance(record, TopicsChanged):
            self.topics.update({config.topic_name: config for config in record.topics})
            return
        for topic in record.topics:
            self.topics.pop(topic, None)

    def add(self, content: Mapping[str, Any]) -> None:
        """See `TablePart`."""
        self.topics.update({config.topic_name: config for config in content["topics"]})

    def content(self) -> Content:
        """See `TablePart`."""
        return {"topics": list(self.topics.values())}

    def copy(self) -> TopicsPart:
        """See `TablePart`."""
        return TopicsPart(dict(self.topics))

    def missing(self, own: list[TopicConfig]) -> list[TopicsChanged]:
        """What a master is to write so that all topics are there that it creates for itself."""
        missing = [each for each in own if each.topic_name not in self.topics]
        return [TopicsChanged(missing)] if missing else []


class TopicsTable(NodeTable[TopicsPart]):
    """A node's topics: `topics.json`, as RocketMQ has it."""

    def __init__(self, files: TableFiles) -> None:
        """Read the file.

        Raises:
            TableFileError: it is damaged.
        """
        self.table = TopicConfigTable(
            files.file("topics.json"), files.wall_clock_ms, is_copy=files.is_copy
        )

    def as_part(self) -> TopicsPart:
        """See `NodeTable`."""
        return TopicsPart(dict(self.table.configs.topic_config_table))

    def show(self, confirmed: TopicsPart, records: Sequence[TopicsChanged] | None) -> None:
        """Show all that changed as one change: the table is copied and registered each time."""
        if records is None:
            self.table.replace_topics(confirmed.topics)
            return
        changed = {config.topic_name: config for record in records for config in record.topics}
        self.table.update(*changed.values())

    def take(self, record: TopicsChanged | Deleted) -> None:
        """See `NodeTable`."""
        if isinstance(record, TopicsChanged):
            self.table.update(*record.topics)
            return
        for topic in record.topics:
            self.table.delete(topic)

    def save_in_steps(self) -> Iterator[None]:
        """See `NodeTable`."""
        return self.table.save_in_steps()

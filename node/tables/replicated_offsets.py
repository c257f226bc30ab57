"""How far consumer groups have got, as a replicated table.

An offset that a consumer can ask for was confirmed: it never goes back. A master gathers commits
for a moment and writes them together.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import msgspec
import trio

from node.errors import RequestError
from node.tables.consumer_offset_table import ConsumerOffsetTable
from node.tables.deleted import Deleted
from node.tables.node_table import Gathering, NodeTable, RecordWriter, TableFiles
from node.tables.offset_room import OffsetRoom
from node.tables.table_part import Content, Field, FieldKind, TablePart, split_change
from tandem.wire.remoting_command import Int32, Int64

_log = logging.getLogger(__name__)

COMMIT_DELAY_SECONDS: Final = 0.1
"""Commits without a waiting client are gathered for this long."""

ConsumerOffsets: TypeAlias = dict[str, dict[Int32, Int64]]
"""`topic@group` to queue id to the next offset to consume."""


class OffsetsCommitted(msgspec.Struct, frozen=True, tag="offsets"):
    """How far consumer groups have got."""

    offsets: ConsumerOffsets
    version: int = 1


class OffsetsPart(TablePart):
    """The offsets by `topic@group` and queue id."""

    record = OffsetsCommitted
    also = (Deleted,)
    fields: ClassVar = (
        Field("offsets", ConsumerOffsets, FieldKind.MAP, msgspec.NODEFAULT, place=1),
    )
    version = 1
    has_places_in_log = True

    def __init__(self, offsets: ConsumerOffsets | None = None) -> None:
        self.offsets = offsets or {}

    def apply(self, record: OffsetsCommitted | Deleted) -> None:
        """See `TablePart`."""
        if isinstance(record, OffsetsCommitted):
            _take_in(self.offsets, record.offsets)
            return
        self.offsets = {
            key: queues for key, queues in self.offsets.items() if not record.is_gone(key)
        }

    def add(self, content: Mapping[str, Any]) -> None:
        """See `TablePart`."""
        _take_in(self.offsets, content["offsets"])

    def content(self) -> Content:
        """See `TablePart`."""
        return {"offsets": self.offsets}

    def copy(self) -> OffsetsPart:
        """See `TablePart`."""
        return OffsetsPart({key: dict(queues) for key, queues in self.offsets.items()})


def _take_in(offsets: ConsumerOffsets, more: ConsumerOffsets) -> None:
    for key, queues in more.items():
        offsets.setdefault(key, {}).update(queues)


class OffsetsTable(NodeTable[OffsetsPart]):
    """A node's offsets: `consumerOffset.json`, as RocketMQ has it.

    Attributes:
        commits: What a master has gathered; None on every other node, and in a classic group.
    """

    shows_own_at_once = False

    def __init__(self, files: TableFiles) -> None:
        """Read the file.

        Raises:
            TableFileError: it is damaged.
        """
        self.table = ConsumerOffsetTable(files.file("consumerOffset.json"), files.wall_clock_ms)
        self.commits: GatheredCommits | None = None
        self._is_copy = files.is_copy

    def as_part(self) -> OffsetsPart:
        """See `NodeTable`."""
        return OffsetsPart(self.table.offsets())

    def show(self, confirmed: OffsetsPart, records: Sequence[OffsetsCommitted] | None) -> None:
        """See `NodeTable`."""
        if records is None:
            self.table.replace(confirmed.offsets)
            return
        changed: ConsumerOffsets = {}
        for record in records:
            _take_in(changed, record.offsets)
        self.table.adopt(changed)

    def take(self, record: OffsetsCommitted | Deleted) -> None:
        """See `NodeTable`. Where there is a journal, it shows once it is confirmed."""
        if self._is_copy:
            return
        if isinstance(record, OffsetsCommitted):
            self.table.adopt(record.offsets)
            return
        for topic in record.topics:
            self.table.forget(topic=topic)
        for group in record.offsets_of_groups:
            self.table.forget(group=group)

    def gather(self, writer: RecordWriter) -> GatheredCommits:
        """See `NodeTable`."""
        self.commits = GatheredCommits(writer)
        return self.commits

    def save_in_steps(self) -> Iterator[None]:
        """See `NodeTable`."""
        return self.table.save_in_steps()


class GatheredCommits(Gathering):
    """The commits of one mastership that are not written yet."""

    def __init__(self, writer: RecordWriter) -> None:
        self._writer = writer
        self._latest = writer.written(OffsetsPart).offsets
        self._room = OffsetRoom(self._latest)
        self._batch: ConsumerOffsets = {}
        self.deadline = math.inf

    def commit(self, key: str, queue_id: int, offset: int) -> None:
        """Take in a consumer's offset; it is written soon, together with others.

        Args:
            key: `topic@group`.
            queue_id: The queue.
            offset: The next one to consume; a negative one says nothing.

        Raises:
            RequestError: the group keeps no more offsets; nothing is changed.
        """
        queues = self._latest.get(key, {})
        known = queues.get(queue_id)
        if offset < 0 or known == offset:
            return
        if known is None:
            self._room.take(key, is_new_key=key not in self._latest)
            self._latest[key] = queues
        queues[queue_id] = offset
        self._batch.setdefault(key, {})[queue_id] = offset
        if self.deadline == math.inf:
            self.deadline = trio.current_time() + COMMIT_DELAY_SECONDS
            self._writer.wake()

    def write(self) -> None:
        """See `Gathering`."""
        if not self._batch:
            return
        batch, self._batch = self._batch, {}
        self.deadline = math.inf
        bytes_max = self._writer.record_bytes_max
        try:
            for record in split_change(OffsetsPart, OffsetsCommitted(batch), bytes_max):
                self._writer.write(record)
        except RequestError as error:
            _log.warning("consumer offsets were not committed: %s", error.remark)
            self._latest = self._writer.written(OffsetsPart).offsets
            self._room = OffsetRoom(self._latest)
            raise

    def wrote(self, record: msgspec.Struct) -> None:
        """Commits that were gathered before a deletion do not bring back what is deleted."""
        if not isinstance(record, Deleted):
            return
        self._batch = {key: each for key, each in self._batch.items() if not record.is_gone(key)}
        self._latest = {key: each for key, each in self._latest.items() if not record.is_gone(key)}
        self._room = OffsetRoom(self._latest)

"""What the journal of a fenced group says, and the tables that come of it. No I/O.

Each record is the JSON body of one message of `rmq_sys_TANDEM_JOURNAL`. All but the parts of a
snapshot set what they name and leave the rest. The parts of a snapshot follow one another; the
last one replaces everything by what they hold together. A row of parts that is not finished (its
master died) means nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from node.errors import NodeError
from tandem.wire.remoting_command import Int32, Int64
from tandem.wire.request_headers import TopicConfig
from tandem.wire.untrusted import UnreadableError, json_decoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMAT_VERSION: Final = 1

ConsumerOffsets: TypeAlias = dict[str, dict[Int32, Int64]]
"""`topic@group` to queue id to the next offset to consume."""

DelayOffsets: TypeAlias = dict[Int32, Int64]
"""Delay level to the next offset to deliver."""


class JournalFormatError(NodeError):
    """A record of the journal, or its state file, cannot be read by this version."""


class TopicsChanged(msgspec.Struct, frozen=True, tag="topics"):
    """Topics that are new or different."""

    topics: list[TopicConfig]
    version: int = FORMAT_VERSION


class OffsetsCommitted(msgspec.Struct, frozen=True, tag="offsets"):
    """How far consumer groups have got."""

    offsets: ConsumerOffsets
    version: int = FORMAT_VERSION


class DelayProgress(msgspec.Struct, frozen=True, tag="delay"):
    """How far the delivery of delay levels has got."""

    offsets: DelayOffsets
    version: int = FORMAT_VERSION


class SnapshotPart(msgspec.Struct, frozen=True, tag="snapshot"):
    """Part `part` (from 0) of `parts` of all tables."""

    part: int
    parts: int
    topics: list[TopicConfig]
    offsets: ConsumerOffsets
    delay: DelayOffsets
    version: int = FORMAT_VERSION


JournalRecord: TypeAlias = TopicsChanged | OffsetsCommitted | DelayProgress | SnapshotPart

_decode: Final = json_decoder(JournalRecord)


def encode_journal_record(record: JournalRecord) -> bytes:
    """Return the body of the record's message."""
    return msgspec.json.encode(record)


def decode_journal_record(body: bytes) -> JournalRecord:
    """Read the body of a message of the journal.

    Raises:
        JournalFormatError: another version wrote it.
    """
    try:
        record: JournalRecord = _decode(body)
    except UnreadableError as error:
        raise _unreadable(body, str(error)) from error
    if record.version > FORMAT_VERSION:
        raise _unreadable(body, f"version {record.version}")
    return record


def _unreadable(body: bytes, why: str) -> JournalFormatError:
    return JournalFormatError(
        f"the group's journal holds {body[:80]!r}, which this version cannot read ({why});"
        " run the version of the other nodes"
    )


class GroupTables:
    """Topics, consumer offsets and delay progress as far as the journal was applied."""

    def __init__(
        self,
        topics: dict[str, TopicConfig] | None = None,
        offsets: ConsumerOffsets | None = None,
        delay: dict[int, int] | None = None,
    ) -> None:
        self.topics = topics or {}
        self.offsets = offsets or {}
        self.delay = delay or {}
        self._parts: list[SnapshotPart] = []

    @property
    def is_inside_snapshot(self) -> bool:
        """Whether the last record was a part of a snapshot that goes on."""
        return bool(self._parts)

    def copy(self) -> GroupTables:
        """Return tables of the same content that change on their own."""
        offsets = {key: dict(queues) for key, queues in self.offsets.items()}
        return GroupTables(dict(self.topics), offsets, dict(self.delay))

    def apply(self, record: JournalRecord) -> bool:
        """Take in one record; return whether it completed a snapshot."""
        if isinstance(record, SnapshotPart):
            return self._take_part(record)
        self._parts = []
        if isinstance(record, TopicsChanged):
            self.topics.update({config.topic_name: config for config in record.topics})
        elif isinstance(record, OffsetsCommitted):
            for key, queues in record.offsets.items():
                self.offsets.setdefault(key, {}).update(queues)
        else:
            self.delay.update(record.offsets)
        return False

    def _take_part(self, part: SnapshotPart) -> bool:
        if part.part == 0:
            self._parts = []
        if part.part != len(self._parts):
            self._parts = []  # its beginning was in files that are gone
            return False
        self._parts.append(part)
        if len(self._parts) < part.parts:
            return False
        parts, self._parts = self._parts, []
        self.topics = {config.topic_name: config for each in parts for config in each.topics}
        self.offsets, self.delay = {}, {}
        for each in parts:
            self.delay.update(each.delay)
            for key, queues in each.offsets.items():
                self.offsets.setdefault(key, {}).update(queues)
        return True

    def snapshot(self, body_bytes_max: int) -> list[SnapshotPart]:
        """Return everything as parts whose bodies are not larger than asked for."""
        room = body_bytes_max - len(encode_journal_record(SnapshotPart(10**9, 10**9, [], {}, {})))
        rooms = list(_split(self._entries(), room - len(msgspec.json.encode(self.delay))))
        return [
            SnapshotPart(
                at,
                len(rooms),
                [entry for entry in entries if isinstance(entry, TopicConfig)],
                dict(entry for entry in entries if isinstance(entry, tuple)),
                self.delay if at == 0 else {},
            )
            for at, entries in enumerate(rooms)
        ]

    def _entries(self) -> Iterator[TopicConfig | tuple[str, dict[int, int]]]:
        yield from self.topics.values()
        yield from self.offsets.items()


def split_commits(offsets: ConsumerOffsets, body_bytes_max: int) -> list[OffsetsCommitted]:
    """Return offsets as records whose bodies are not larger than asked for."""
    room = body_bytes_max - len(encode_journal_record(OffsetsCommitted({})))
    return [
        OffsetsCommitted(dict(entry for entry in entries if isinstance(entry, tuple)))
        for entries in _split(offsets.items(), room)
    ]


def split_topics(topics: list[TopicConfig], body_bytes_max: int) -> list[TopicsChanged]:
    """Return topics as records whose bodies are not larger than asked for."""
    room = body_bytes_max - len(encode_journal_record(TopicsChanged([])))
    return [
        TopicsChanged([entry for entry in entries if isinstance(entry, TopicConfig)])
        for entries in _split(topics, room)
    ]


_Entry: TypeAlias = "TopicConfig | tuple[str, dict[int, int]]"


def _split(entries: Iterable[_Entry], bytes_max: int) -> Iterator[list[_Entry]]:
    """Cut a row of entries into pieces; there is always at least one, even if it is empty."""
    piece: list[_Entry] = []
    size = 0
    for entry in entries:
        entry_bytes = len(msgspec.json.encode(entry)) + 1
        if piece and size + entry_bytes > bytes_max:
            yield piece
            piece, size = [], 0
        piece.append(entry)
        size += entry_bytes
    yield piece

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
from node.tables.consumer_offset_table import is_offset_of
from store.delayed.timer_place import TimerPlace
from tandem.wire.remoting_command import Int32, Int64
from tandem.wire.request_headers import TopicConfig
from tandem.wire.subscription_group import ForbiddenTable, SubscriptionGroupConfig
from tandem.wire.untrusted import UnreadableError, json_decoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMAT_VERSION: Final = 2
"""Of the records that an older version, which knew only topics and offsets, must not pass over."""

FIRST_FORMAT_VERSION: Final = 1

ConsumerOffsets: TypeAlias = dict[str, dict[Int32, Int64]]
"""`topic@group` to queue id to the next offset to consume."""

DelayOffsets: TypeAlias = dict[Int32, Int64]
"""Delay level to the next offset to deliver."""


class JournalFormatError(NodeError):
    """A record of the journal, or its state file, cannot be read by this version."""


class TopicsChanged(msgspec.Struct, frozen=True, tag="topics"):
    """Topics that are new or different."""

    topics: list[TopicConfig]
    version: int = FIRST_FORMAT_VERSION


class GroupsChanged(msgspec.Struct, frozen=True, tag="groups"):
    """Consumer groups that are new or different, and what groups may not do from now on."""

    groups: list[SubscriptionGroupConfig]
    forbidden: ForbiddenTable = {}
    version: int = FORMAT_VERSION


class Deleted(msgspec.Struct, frozen=True, tag="deleted"):
    """Topics, with the offsets of all groups in them, and groups that are no more."""

    topics: list[str] = []
    groups: list[str] = []
    offsets_of_groups: list[str] = []
    version: int = FORMAT_VERSION

    def is_gone(self, key: str) -> bool:
        """Whether the offset of this `topic@group` is no more."""
        return any(is_offset_of(key, topic=topic) for topic in self.topics) or any(
            is_offset_of(key, group=group) for group in self.offsets_of_groups
        )


class OffsetsCommitted(msgspec.Struct, frozen=True, tag="offsets"):
    """How far consumer groups have got."""

    offsets: ConsumerOffsets
    version: int = FIRST_FORMAT_VERSION


class DelayProgress(msgspec.Struct, frozen=True, tag="delay"):
    """How far the delivery of delay levels had got when the log ended at `at`."""

    offsets: DelayOffsets
    at: Int64 = 0
    version: int = FIRST_FORMAT_VERSION


class TimerProgress(msgspec.Struct, frozen=True, tag="timers"):
    """How far the messages with a time of their own had got when the log ended at `at`."""

    place: TimerPlace
    at: Int64 = 0
    version: int = FORMAT_VERSION


class SnapshotPart(msgspec.Struct, frozen=True, tag="snapshot"):
    """Part `part` (from 0) of `parts` of all tables."""

    part: int
    parts: int
    topics: list[TopicConfig]
    offsets: ConsumerOffsets
    delay: DelayOffsets
    groups: list[SubscriptionGroupConfig] = []
    forbidden: ForbiddenTable = {}
    timers: TimerPlace | None = None
    delay_at: Int64 = 0
    timers_at: Int64 = 0
    version: int = FORMAT_VERSION


JournalRecord: TypeAlias = (
    TopicsChanged
    | GroupsChanged
    | Deleted
    | OffsetsCommitted
    | DelayProgress
    | TimerProgress
    | SnapshotPart
)

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


_LARGEST_HEAD: Final = SnapshotPart(
    10**9, 10**9, [], {}, {}, delay_at=2**63 - 1, timers_at=2**63 - 1
)


class GroupTables:
    """Topics, groups, consumer offsets and delay progress as far as the journal was applied."""

    def __init__(
        self,
        topics: dict[str, TopicConfig] | None = None,
        offsets: ConsumerOffsets | None = None,
        delay: dict[int, int] | None = None,
        groups: dict[str, SubscriptionGroupConfig] | None = None,
        forbidden: ForbiddenTable | None = None,
        timers: TimerPlace | None = None,
        delay_at: int = 0,
        timers_at: int = 0,
    ) -> None:
        self.topics = topics or {}
        self.offsets = offsets or {}
        self.delay = delay or {}
        self.groups = groups or {}
        self.forbidden = forbidden or {}
        self.timers = timers
        self.delay_at = delay_at
        self.timers_at = timers_at
        self._parts: list[SnapshotPart] = []

    @property
    def is_inside_snapshot(self) -> bool:
        """Whether the last record was a part of a snapshot that goes on."""
        return bool(self._parts)

    def copy(self) -> GroupTables:
        """Return tables of the same content that change on their own."""
        offsets = {key: dict(queues) for key, queues in self.offsets.items()}
        return GroupTables(
            dict(self.topics),
            offsets,
            dict(self.delay),
            dict(self.groups),
            dict(self.forbidden),
            self.timers,
            self.delay_at,
            self.timers_at,
        )

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
        elif isinstance(record, GroupsChanged):
            self.groups.update({config.group_name: config for config in record.groups})
            self.forbidden.update(record.forbidden)
            self.forbidden = {group: each for group, each in self.forbidden.items() if each}
        elif isinstance(record, Deleted):
            self._delete(record)
        elif isinstance(record, TimerProgress):
            self.timers, self.timers_at = record.place, record.at
        else:
            self.delay.update(record.offsets)
            self.delay_at = record.at
        return False

    def _delete(self, record: Deleted) -> None:
        for topic in record.topics:
            self.topics.pop(topic, None)
        for group in record.groups:
            self.groups.pop(group, None)
            self.forbidden.pop(group, None)
        self.offsets = {
            key: queues for key, queues in self.offsets.items() if not record.is_gone(key)
        }

    def interrupt_snapshot(self) -> None:
        """Records are missing from here on: what follows may be parts of another snapshot."""
        self._parts = []

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
        self.groups = {config.group_name: config for each in parts for config in each.groups}
        self.offsets, self.delay, self.forbidden = {}, {}, {}
        self.timers = parts[0].timers
        self.delay_at, self.timers_at = parts[0].delay_at, parts[0].timers_at
        for each in parts:
            self.delay.update(each.delay)
            self.forbidden.update(each.forbidden)
            for key, queues in each.offsets.items():
                self.offsets.setdefault(key, {}).update(queues)
        return True

    def snapshot(self, body_bytes_max: int) -> list[SnapshotPart]:
        """Return everything as parts whose bodies are not larger than asked for."""
        room = body_bytes_max - len(encode_journal_record(_LARGEST_HEAD))
        rooms = list(_split(self._entries(), room - len(self._in_first_part)))
        return [
            SnapshotPart(
                at,
                len(rooms),
                [entry for entry in entries if isinstance(entry, TopicConfig)],
                dict(entry for entry in entries if isinstance(entry, tuple)),
                self.delay if at == 0 else {},
                [entry for entry in entries if isinstance(entry, SubscriptionGroupConfig)],
                dict(_forbidden(entry) for entry in entries if isinstance(entry, GroupsChanged)),
                self.timers if at == 0 else None,
                self.delay_at if at == 0 else 0,
                self.timers_at if at == 0 else 0,
            )
            for at, entries in enumerate(rooms)
        ]

    @property
    def _in_first_part(self) -> bytes:
        return msgspec.json.encode((self.delay, self.timers))

    def _entries(self) -> Iterator[_Entry]:
        yield from self.topics.values()
        yield from self.groups.values()
        for group, topics in self.forbidden.items():
            yield GroupsChanged([], {group: topics})
        yield from self.offsets.items()


def _forbidden(entry: GroupsChanged) -> tuple[str, dict[str, int]]:
    """What the only group in it may not do."""
    return next(iter(entry.forbidden.items()))


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


def split_groups(groups: list[SubscriptionGroupConfig], body_bytes_max: int) -> list[GroupsChanged]:
    """Return groups as records whose bodies are not larger than asked for."""
    room = body_bytes_max - len(encode_journal_record(GroupsChanged([])))
    return [
        GroupsChanged([entry for entry in entries if isinstance(entry, SubscriptionGroupConfig)])
        for entries in _split(groups, room)
    ]


_Entry: TypeAlias = (
    "TopicConfig | SubscriptionGroupConfig | GroupsChanged | tuple[str, dict[int, int]]"
)


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

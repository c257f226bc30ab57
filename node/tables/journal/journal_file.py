"""The state file of the journal: position and tables in one, so that they cannot disagree."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from node.tables.journal.journal_records import (
    ConsumerOffsets,
    DelayOffsets,
    GroupTables,
)
from store.delayed.timer_place import TimerPlace
from store.machine.checked_file import read_checked_json
from store.machine.kept_files import keep
from tandem.wire.checksum_line import checksum_line, checksum_of
from tandem.wire.crc import raw_crc32
from tandem.wire.remoting_command import Int64
from tandem.wire.request_headers import TopicConfig
from tandem.wire.subscription_group import ForbiddenTable, SubscriptionGroupConfig
from tandem.wire.untrusted import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.machine.disk import Disk

_log = logging.getLogger(__name__)


NAME: Final = "groupJournal.json"

ENTRIES_PER_STEP: Final = 1_024
"""Topics, groups, or offsets of a group in a topic: a millisecond."""


class JournalState(msgspec.Struct, frozen=True):
    """The state file. `position` is the queue offset of the first record not applied."""

    position: Int64
    topics: list[TopicConfig]
    offsets: ConsumerOffsets
    delay: DelayOffsets
    groups: list[SubscriptionGroupConfig] = []
    forbidden: ForbiddenTable = {}
    timers: TimerPlace | None = None
    delay_at: Int64 = 0
    timers_at: Int64 = 0


def journal_state(position: int, tables: GroupTables) -> JournalState:
    """What the file says of these tables."""
    return JournalState(
        position,
        list(tables.topics.values()),
        tables.offsets,
        tables.delay,
        list(tables.groups.values()),
        tables.forbidden,
        tables.timers,
        tables.delay_at,
        tables.timers_at,
    )


def group_tables(state: JournalState) -> GroupTables:
    """The tables of which the file says this."""
    return GroupTables(
        {topic.topic_name: topic for topic in state.topics},
        state.offsets,
        state.delay,
        {config.group_name: config for config in state.groups},
        state.forbidden,
        state.timers,
        state.delay_at,
        state.timers_at,
    )


class JournalFile:
    """`config/groupJournal.json` of one node."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/config/{NAME}"

    def load(self) -> JournalState | None:
        """Return what was saved last, None on a node that never saved anything.

        None as well if the file is damaged: all that it says is in the log, and is read from there.
        """
        try:
            return read_checked_json(self._disk, self._path, JournalState)
        except UnreadableError as error:
            _log.warning(
                "%s: %s; the journal in the log is read from the beginning", self._path, error
            )
            return None

    def save(self, state: JournalState) -> None:
        """Replace the file, synced.

        Raises:
            StoreError: no room, or the disk failed; the old file still stands.
        """
        for _ in self.save_in_steps(state):
            pass

    def save_in_steps(self, state: JournalState) -> Iterator[None]:
        """Do the same, in steps between which others may have their turn.

        What `state` holds must not change meanwhile. Nothing is changed before the last step.

        Raises:
            StoreError: as above.
        """
        pieces: list[bytes] = []
        checksum = checksum_of(NAME, b"")
        for piece in _in_pieces(state):
            pieces.append(piece)
            checksum = raw_crc32(piece, checksum)
            yield
        content = b"".join([*pieces, checksum_line(checksum)])
        yield
        self._disk.replace(self._path, content)
        keep(self._disk, self._path, content)


def _in_pieces(state: JournalState) -> Iterator[bytes]:
    """Yield the JSON of a state in pieces, none of which takes long."""
    start = b"{"
    for name in state.__struct_fields__:
        value = getattr(state, name)
        yield b"%b%b:" % (start, msgspec.json.encode(name))
        start = b","
        if not value or not isinstance(value, dict | list):
            yield msgspec.json.encode(value)
            continue
        is_map = isinstance(value, dict)
        between = b"{" if is_map else b"["
        for some in _some_at_a_time(value):
            yield between + msgspec.json.encode(some)[1:-1]
            between = b","
        yield b"}" if is_map else b"]"
    yield b"}\n"


def _some_at_a_time(entries: dict[Any, Any] | list[Any]) -> Iterator[dict[Any, Any] | list[Any]]:
    if isinstance(entries, dict):
        for some in _some_at_a_time(list(entries.items())):
            yield dict(some)
        return
    for at in range(0, len(entries), ENTRIES_PER_STEP):
        yield entries[at : at + ENTRIES_PER_STEP]

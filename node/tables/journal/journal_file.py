"""The state file of the journal: position and tables in one, so that they cannot disagree."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from node.tables.journal.journal_records import JOURNAL_FORMAT, GroupTables, JournalFormat
from store.machine.checked_file import read_checked_json
from store.machine.disk import Disk
from store.machine.kept_files import keep
from tandem.wire.checksum_line import checksum_line, checksum_of
from tandem.wire.crc import raw_crc32
from tandem.wire.untrusted import UnreadableError

_log = logging.getLogger(__name__)


NAME: Final = "groupJournal.json"

ENTRIES_PER_STEP: Final = 1_024
"""Topics, groups, or offsets of a group in a topic: a millisecond."""


class SavedJournal(NamedTuple):
    """What the state file says: `position` is the queue offset of the first record not applied."""

    position: int
    tables: GroupTables


class JournalFile:
    """`config/groupJournal.json` of one node."""

    def __init__(self, disk: Disk, directory: str, form: JournalFormat = JOURNAL_FORMAT) -> None:
        self._disk = disk
        self._form = form
        self._path = f"{directory}/config/{NAME}"

    def load(self) -> SavedJournal | None:
        """Return what was saved last, None on a node that never saved anything.

        None as well if the file is damaged, or has a table that this version does not know: all
        that it says is in the log, and is read from there.
        """
        try:
            state: Any = read_checked_json(self._disk, self._path, self._form.state_type)
        except UnreadableError as error:
            _log.warning(
                "%s: %s; the journal in the log is read from the beginning", self._path, error
            )
            return None
        if state is None:
            return None
        tables = GroupTables(self._form)
        tables.add(state)
        return SavedJournal(state.position, tables)

    def save(self, position: int, tables: GroupTables) -> None:
        """Replace the file, synced.

        Raises:
            StoreError: no room, or the disk failed; the old file is still there.
        """
        for _ in self.save_in_steps(position, tables):
            pass

    def save_in_steps(self, position: int, tables: GroupTables) -> Iterator[None]:
        """Do the same, in steps between which others may have their turn.

        The tables must not change meanwhile. Nothing is changed before the last step.

        Raises:
            StoreError: as above.
        """
        pieces: list[bytes] = []
        checksum = checksum_of(NAME, b"")
        content = yield from tables.content_in_steps()
        state = self._form.state_type(position, **content)
        for piece in _in_pieces(state):
            pieces.append(piece)
            checksum = raw_crc32(piece, checksum)
            yield
        data = b"".join([*pieces, checksum_line(checksum)])
        self._disk.will_replace(self._path, data)
        yield
        self._disk.replace(self._path, data)
        keep(self._disk, self._path, data)

    async def write_ahead(self) -> None:
        """Write what a save is about to put there, without stopping other tasks."""
        await self._disk.write_ahead()


def _in_pieces(state: msgspec.Struct) -> Iterator[bytes]:
    """Yield the JSON of a state in pieces, none of which takes long."""
    start = b"{"
    for name in state.__struct_fields__:
        value = getattr(state, name)
        if value is msgspec.UNSET:
            continue
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

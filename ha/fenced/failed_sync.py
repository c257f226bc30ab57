"""FailedSyncNotes: that a sync of the store has failed is written down where it can be.

What was only written may be lost then, though the page cache shows it for as long as the machine
does not need the memory. The next process must not count under the name of this one, and has to
know why. There are two places for it:

- the replica's own file, as soon as the disk takes it: a disk that failed once may not;
- the record of this life at the coordinator, as soon as that answers. The session writes it with
  whatever else is new, while there is one; after it has ended, it is written from here.
"""

from __future__ import annotations

from typing import Final

import trio
from msgspec import structs

from ha.fenced.coordinator_session import limited
from ha.fenced.group_view import read_view
from ha.fenced.replica_parts import ReplicaParts
from tandem.coordinator.interface import Compare, Coordinator, CoordinatorError, Put
from tandem.wire.errors import WireError
from tandem.wire.group_state import encode_record

LOOK_AGAIN_SECONDS: Final = 1.0


class FailedSyncNotes:
    """The notes of one round."""

    def __init__(self, parts: ReplicaParts, coordinator: Coordinator) -> None:
        self._replica = parts.replica
        self._flush_service = parts.store.flush_service
        self._name = parts.config.name
        self._keys = parts.session.keys
        self._coordinator = coordinator

    async def on_disk(self) -> None:
        """Wait until a sync has failed and the disk has taken the note of it."""
        while not self._replica.note_failed_sync():
            with trio.move_on_after(LOOK_AGAIN_SECONDS):
                await self._flush_service.flushed.wait()

    async def at_coordinator(self) -> None:
        """Wait until the coordinator has the note of a failed sync, or knows another life.

        For the time after the session: nobody else writes the record of this life then.
        """
        while True:
            if await self._is_told():
                return
            await trio.sleep(LOOK_AGAIN_SECONDS)

    async def _is_told(self) -> bool:
        try:
            view = read_view(await limited(self._coordinator.read(self._keys.prefix)), self._keys)
            record = view.lives.get(self._name)
            if record is None or record.token != self._replica.session_id:
                return True
            failed = self._replica.failed_incarnation
            if not failed:
                return False
            if record.failed == failed:
                return True
            key, revision = self._keys.life(self._name), view.life_revisions[self._name]
            told = Put(key, encode_record(structs.replace(record, failed=failed)))
            await limited(self._coordinator.transact([Compare(key, revision)], [told]))
        except (CoordinatorError, WireError):
            # It is away, or its records cannot be read: the session has said so.
            return False
        return False

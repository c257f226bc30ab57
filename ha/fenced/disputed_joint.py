"""DisputedJoint: what two nodes do whose logs are said to be equal, and whose bytes are not.

    closed files:  ours scrubbed --> the master's, too --> fingerprints of all compared --+
    the open one:  the part before the joint, byte for byte, with all others -------------+
                                                                                          |
        ours are bad, or the master's are, or it is not known yet  <----------------------+

Bytes that changed at rest are no quarrel: once it is known whose, they count no more, and are
healed. So a follower takes its time before it calls for an operator. It calls at once if there is
nothing to go by: no closed file, which alone have fingerprints, and an open one of which it is not
certain that the same masters wrote it (see `history`). That has two writers rather than rot.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

import msgspec
import trio

from ha.errors import PeerSilentError
from ha.fenced.comparing_service import ComparingService
from ha.fenced.peer_logs import PeerLogs
from ha.fenced.replica_parts import ReplicaParts

_log = logging.getLogger(__name__)

DECIDED_SECONDS: Final = 30.0
"""Within this it is found out who is right, or an operator has to: the others may be starting."""


ASK_SECONDS: Final = 1.0
"""Between two looks: a follower dials several times a second."""
FORGOTTEN_SECONDS: Final = 10.0
"""If the follower has not come back by then, it is over."""


class _Dispute(msgspec.Struct):
    """Our bytes differ from those of one master."""

    begun: float
    seen: float
    looked: float = float("-inf")


class DisputedJoint:
    """Lives for one round of a replica."""

    def __init__(self, parts: ReplicaParts, peers: PeerLogs, comparing: ComparingService) -> None:
        self._parts = parts
        self._store = parts.store
        self._peers = peers
        self._comparing = comparing
        self._disputes: dict[str, _Dispute] = {}
        """By master."""

    async def is_open(self, master: str, start: int, end: int) -> bool:
        """Try to find out whose bytes have changed. False if time is up, or nothing can say.

        What turns out to be bad here is noted as damage.
        """
        files, rest = self._closed_files(start, end), self._open_part(start, end)
        now = trio.current_time()
        dispute = self._disputes.get(master)
        if dispute is None or now > dispute.seen + FORGOTTEN_SECONDS:
            dispute = self._disputes[master] = _Dispute(now, now)
        if now > dispute.begun + DECIDED_SECONDS:
            return False
        if now == dispute.begun:
            _log.warning(
                "this log and that of %s differ between %d and %d, under the same epochs:"
                " all nodes are asked who is right",
                *(master, start, end),
            )
        dispute.seen = now
        if now < dispute.looked + ASK_SECONDS:
            return True
        for first in files:
            await self._store.scrub_service.look_at_file(first)
        can_tell = bool(files)
        if self._store.commit_log.damage.within(start, end) is None:
            await self._have_it_looked_at(master, files)
            for first in files:
                await self._comparing.compare_now(first)
            if rest and await self._comparing.compare_open(*rest):
                can_tell = True
        dispute.seen = dispute.looked = trio.current_time()
        return can_tell

    async def look(self, start: int, end: int) -> None:
        """Look at our own log there, and compare it with that of all: a follower doubts it."""
        for first in self._closed_files(start, end):
            await self._store.scrub_service.look_at_file(first)
            await self._comparing.compare_now(first)
        if rest := self._open_part(start, end):
            await self._comparing.compare_open(*rest)

    def _closed_files(self, start: int, end: int) -> list[int]:
        return [
            file.file_from_offset
            for file in self._store.commit_log.files.files
            if file.is_full
            and file.file_from_offset < end
            and start < file.file_from_offset + file.size
        ]

    def _open_part(self, start: int, end: int) -> tuple[int, int] | None:
        """Return what is of the file that is being written; None for nothing."""
        last = self._store.commit_log.files.last
        if last is None or last.is_full:
            return None
        start, end = max(start, last.file_from_offset), min(end, self._store.max_physical_offset)
        return (start, end) if start < end else None

    async def _have_it_looked_at(self, master: str, files: list[int]) -> None:
        """Have the master look at its files, and others at those that they know nothing of.

        A node that was killed may lack a fingerprint yet, and has a vote only with one: then two
        that differ decide nothing. One that has it is not asked: to look costs the whole file.
        """
        size = self._store.config.mapped_file_size_commit_log_bytes

        async def ask(peer: str) -> None:
            async with self._peers.session(peer) as session:
                with suppress(PeerSilentError):  # it is asked again
                    for first in files:
                        known = None
                        if peer != master:
                            known = (await session.part(first, first + size)).fingerprint
                        if known is None:
                            await session.doubt(first, first + size)

        async with trio.open_nursery() as nursery:
            for peer in self._parts.config.peers:
                nursery.start_soon(ask, peer.name)

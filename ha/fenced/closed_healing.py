"""ClosedHealing: heals a log that is too damaged to be opened, from all peers that answer.

    open --+--> the store
      ^    `--> CorruptLogError: from where to where --> bytes of the peers --> put there --+
      +-------------------------------------------------------------------------------------+

Where no file of the log is left, nothing can be put into it: it is copied as a whole, see
`lost_log.py`.

Each turn must get further than the one before. What the peers that answer have not got stays as it
is, and the opening says whether that is whole enough: where several nodes are damaged, each in
another place, one has to begin. Where no peer has the bytes, whole, and confirmed or
surely of the same masters (see `history`), the error remains: the node stops with it, as one
without peers does. Of a part whose end only this node has, from a master that was alone, the peers
give the beginning: the end is cut off when the node follows a master.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final, NamedTuple, TypeVar

import trio

from ha.errors import EpochFileError, NoPart, PeerSilentError
from ha.fenced.comparison import Vote, right_crc, votes_in_words
from ha.fenced.config import FencedConfig
from ha.fenced.epoch_file import EpochFile
from ha.fenced.healed_parts import HealedParts
from ha.fenced.healing import RANGE_BYTES_MAX, Piece, can_give
from ha.fenced.history import epochs_within, shared_end
from ha.fenced.lost_log import begin_anew_if_log_is_lost
from ha.fenced.peer_logs import PeerLogs, all_of
from store.config import StoreConfig
from store.machine.errors import CorruptLogError, StoreError, UnfitBytesError
from store.machine.machine import Machine
from store.recovery.closed_log import blocks_around, heal_closed_log
from tandem.wire.crc import raw_crc32
from tandem.wire.ha_status import HealedPart

_log = logging.getLogger(__name__)

StoreT = TypeVar("StoreT")

TRIES_MAX: Final = 10
TRY_SECONDS: Final = 1.0
"""Peers may be starting, too: after a power cut all do."""


class Unhealed(NamedTuple):
    """Why a piece of the log stays as it is, in words."""

    why: str
    has_answer: bool


class ClosedHealing:
    """The healing of one node's log while nobody has it open."""

    def __init__(
        self, config: FencedConfig, store_config: StoreConfig, machine: Machine, peers: PeerLogs
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._machine = machine
        self._peers = peers

    async def open(self, open_store: Callable[[], StoreT]) -> StoreT:
        """Return what `open_store` returns, once the log is whole enough for it.

        Raises:
            CorruptLogError: it is not, and no peer can help.
            StoreError: whatever else `open_store` raises.
        """
        begin_anew_if_log_is_lost(self._config, self._store_config, self._machine)
        reached = -1
        while True:
            try:
                return open_store()
            except CorruptLogError as error:
                if not reached < error.offset < error.damaged_end:
                    raise
                reached = error.offset
                why_not = await self._heal(error.offset, error.damaged_end, str(error))
                if why_not is not None:
                    _log.error("the log cannot be healed by other nodes: %s", why_not)
                    raise

    async def _heal(self, start: int, end: int, reason: str) -> str | None:
        """Heal a part of the log; return why that cannot be, in words, or None."""
        _log.error("%s. Asking the other nodes for %d to %d", reason, start, end)
        size = self._store_config.mapped_file_size_commit_log_bytes
        at = start
        why_not = None
        tries_max, is_healed = TRIES_MAX, False
        while at < end:
            piece = Piece(at, min(end, at - at % size + size, at + RANGE_BYTES_MAX))
            healed = await self._heal_piece(piece, reason, tries_max)
            at = piece.end
            if isinstance(healed, Unhealed):
                why_not = why_not or healed.why
                if not healed.has_answer:
                    break
                tries_max = 1  # They have been waited for, and there may be many pieces.
                continue
            is_healed = True
            if healed.end < piece.end:
                return None
        if why_not is not None and is_healed:
            _log.error("not all of it could be healed by other nodes: %s", why_not)
        return None if is_healed else why_not

    async def _heal_piece(self, piece: Piece, reason: str, tries_max: int) -> Piece | Unhealed:
        """Heal one piece; return what of it the peers had, or why that cannot be."""
        why_not = Unhealed("", has_answer=False)
        for number in range(tries_max):
            if number:
                await trio.sleep(TRY_SECONDS)
            try:
                source, data = await self._fetch(piece)
                given = Piece(piece.start, piece.start + len(data))
                heal_closed_log(
                    self._store_config,
                    piece.start,
                    data,
                    disk=self._machine.disk,
                    wall_clock_ms=self._machine.wall_clock_ms,
                )
            except UnfitBytesError as error:
                why_not = Unhealed(str(error), has_answer=False)
                around = blocks_around(
                    self._store_config, piece.start, piece.end, disk=self._machine.disk
                )
                piece = Piece(*around)
                continue
            except (PeerSilentError, EpochFileError, StoreError) as error:
                why_not = Unhealed(str(error), has_answer=_is_answer(error))
                continue
            _log.warning(
                "the log is healed from %d to %d with the bytes of %s",
                given.start,
                given.end,
                source,
            )
            healed = HealedParts(self._machine.disk, self._config.directory)
            now_ms = self._machine.wall_clock_ms()
            healed.add(HealedPart(given.start, given.end, source, reason, now_ms))
            healed.save()
            return given
        return why_not

    async def _fetch(self, piece: Piece) -> tuple[str, bytes]:
        """Return the right bytes, and who gave them; fewer, if nobody else can have the end.

        Raises:
            PeerSilentError: nobody has them, or it is not known who is right. Its cause is REFUSED
                where a peer has answered.
            EpochFileError: it is not known of which masters our log is.
        """
        own = EpochFile(self._machine.disk, self._config.directory).entries
        bounds = piece.start, piece.end
        epochs = epochs_within(own, *bounds)
        got: dict[str, bytes] = {}
        troubles: list[str] = []
        has_answer = False
        shared = piece.start
        async with AsyncExitStack() as stack:
            for peer in self._config.peers:
                session = await stack.enter_async_context(self._peers.session(peer.name))
                try:
                    part = await session.part(*bounds)
                    has_answer = True
                    common = shared_end(epochs, part.epochs, *bounds)
                    if common < piece.end:
                        where = f", from {common} on" if common > piece.start else ""
                        troubles.append(f"{peer.name} has it from other masters{where}")
                        shared = max(shared, common)
                    elif not can_give(part, piece, epochs):
                        troubles.append(f"{peer.name} has not confirmed all of it, or is damaged")
                    else:
                        got[peer.name] = await all_of(session, *bounds, epochs)
                except PeerSilentError as error:
                    troubles.append(str(error))
                    has_answer |= _is_answer(error)
        if not got:
            if shared > piece.start:
                return await self._fetch(Piece(piece.start, shared))
            cause = NoPart.REFUSED if has_answer else NoPart.SILENT
            raise PeerSilentError("; ".join(troubles) or "there is no other node", cause)
        votes = [Vote(name, raw_crc32(data), is_written=False) for name, data in got.items()]
        right = right_crc(votes, 1 + len(self._config.peers), memory_decides=False)
        if right is None:
            raise PeerSilentError(f"it is not known who is right: {votes_in_words(votes)}")
        return next((name, data) for name, data in got.items() if raw_crc32(data) == right)


def _is_answer(error: Exception) -> bool:
    return isinstance(error, PeerSilentError) and error.cause is NoPart.REFUSED

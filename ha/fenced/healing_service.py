"""HealingService: heals what is bad in the log from all peers, for as long as something is.

    damage.changed --> settle each piece --> nothing bad left: sleep
          ^                  |
          +---- 1 s to 60 s --+-- something is left: try again

Every peer is asked, not only the master: a master heals from its followers. The engine in `healing`
makes the decisions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final

import trio

from ha.errors import PeerSilentError
from ha.fenced.comparing_service import ComparingService
from ha.fenced.comparison import Vote, right_crc, votes_in_words
from ha.fenced.healed_parts import HealedParts
from ha.fenced.healing import (
    Answer,
    Fetch,
    LogShape,
    Own,
    Piece,
    Stuck,
    Whole,
    files,
    is_past,
    judge,
    pieces,
)
from ha.fenced.history import epochs_within
from ha.fenced.peer_logs import PeerLogs, PeerLogSession, all_of
from ha.fenced.replica_parts import ReplicaParts
from store.log.healing import taken_of_damage
from store.machine.errors import StoreError
from store.machine.tell_once import TellOnce
from tandem.wire.crc import raw_crc32
from tandem.wire.group_state import GroupState
from tandem.wire.ha_status import HealedPart

_log = logging.getLogger(__name__)

PAUSE_SECONDS_MIN: Final = 1.0
PAUSE_SECONDS_MAX: Final = 60.0
"""Between two tries; it doubles while nothing has become better."""


class HealingService:
    """The healing of one replica's log, for one round."""

    def __init__(
        self,
        parts: ReplicaParts,
        peers: PeerLogs,
        comparing: ComparingService,
        healed: HealedParts,
    ) -> None:
        """What is healed is added to `healed`."""
        self._parts = parts
        self._store = parts.store
        self._name = parts.config.name
        self._peers = peers
        self._comparing = comparing
        self._healed = healed
        self.stuck: dict[Piece, Stuck] = {}
        """What could not be healed at the last try, and why."""
        self._told: TellOnce[str] = TellOnce()

    async def run(self) -> None:
        """Heal until cancelled."""
        damage = self._store.commit_log.damage
        pause_seconds = PAUSE_SECONDS_MIN
        while True:
            while not damage:
                self.stuck.clear()
                self._comparing.damage_is_over()
                pause_seconds = PAUSE_SECONDS_MIN
                await damage.changed.wait()
            before = damage.bad_bytes
            await self.heal()
            if damage.bad_bytes < before:
                pause_seconds = PAUSE_SECONDS_MIN
            await trio.sleep(PAUSE_SECONDS_MIN)
            if damage:
                with trio.move_on_after(pause_seconds - PAUSE_SECONDS_MIN):
                    await damage.changed.wait()
                pause_seconds = min(2 * pause_seconds, PAUSE_SECONDS_MAX)

    async def heal(self) -> None:
        """Try once to settle all that is bad."""
        self.stuck.clear()
        # Files are deleted; and what is written after a note is not meant by it.
        self._store.commit_log.damage.keep_within(self._shape().start, self._shape().end)
        async with AsyncExitStack() as stack:
            sessions = {
                peer.name: await stack.enter_async_context(self._peers.session(peer.name))
                for peer in self._parts.config.peers
            }
            for file in files(self._bad, self._shape()):
                await self._heal_file(file, sessions)
        self._healed.save()

    async def _heal_file(
        self, file: tuple[int, int], sessions: Mapping[str, PeerLogSession]
    ) -> None:
        answers = await self._ask_all(sessions, *file)
        have_all_answered = len(answers) == len(sessions) > 0
        if have_all_answered and is_past(file, self._bad, answers, self._shape()):
            self._give_up(file)
            return
        if file[1] <= self._shape().end:
            await self._comparing.take_over(file, [answer.part for answer in answers])
        by_blocks = self._store.fingerprints.of(file[0]) is not None
        whole = Piece(0, 0)
        for piece in pieces(self._bad, file, self._shape(), by_blocks=by_blocks):
            if await self._settle(piece, sessions, answers):
                # One note for many pieces: each is written to the disk.
                if whole.end != piece.start:
                    self._over(whole)
                    whole = piece
                whole = Piece(whole.start, piece.end)
            await trio.lowlevel.checkpoint()
        self._over(whole)

    def _give_up(self, file: tuple[int, int]) -> None:
        """Let our log begin after a file that is lost and that nobody has any more."""
        start, end = file
        try:
            is_gone = self._store.clean_service.commit_log.give_up_before(end)
        except (StoreError, OSError) as error:
            self._note_stuck(Piece(start, end), Stuck(f"it cannot be deleted: {error}"))
            return
        if is_gone:
            _log.warning(
                "the log begins at %d now: all other nodes have deleted what was lost from %d on,"
                " as too old",
                *(self._shape().start, start),
            )

    @property
    def _bad(self) -> list[tuple[int, int]]:
        return [(each.start, each.end) for each in self._store.commit_log.damage.ranges]

    def _over(self, whole: Piece) -> None:
        if whole.start < whole.end:
            self._store.commit_log.damage.healed(whole.start, whole.end)
            _log.warning("the log is whole from %d to %d after all", whole.start, whole.end)

    def _shape(self) -> LogShape:
        store = self._store
        return LogShape(
            store.min_physical_offset,
            store.max_physical_offset,
            store.confirm_offset,
            store.config.mapped_file_size_commit_log_bytes,
        )

    async def _ask_all(
        self, sessions: Mapping[str, PeerLogSession], start: int, end: int
    ) -> list[Answer]:
        answers: list[Answer] = []
        troubles: list[str] = []

        async def ask(name: str, session: PeerLogSession) -> None:
            try:
                answers.append(Answer(await session.part(start, end), self._is_member(name)))
            except PeerSilentError as error:
                troubles.append(str(error))

        async with trio.open_nursery() as nursery:
            for name, session in sessions.items():
                nursery.start_soon(ask, name, session)
        if troubles and self._told.is_news("; ".join(sorted(troubles))):
            _log.info(
                "these nodes were not asked about the damaged log: %s", "; ".join(sorted(troubles))
            )
        return sorted(answers, key=lambda answer: answer.part.node)

    @property
    def _state(self) -> GroupState | None:
        view = self._parts.session.view
        return view.state if view else None

    def _is_member(self, name: str) -> bool:
        return self._state is not None and name in self._state.isr

    @property
    def _members(self) -> int:
        # Before the set is known, all configured nodes have to agree instead.
        return len(self._state.isr) if self._state else 1 + len(self._parts.config.peers)

    def _own(self, piece: Piece) -> Own | None:
        store, (start, end) = self._store, self._shape().file_of(piece.start)
        with store.commit_log.read(piece.start, piece.end - piece.start) as data:
            if len(data) != piece.end - piece.start:
                return None  # deleted meanwhile
            crc = raw_crc32(data)
        found = store.fingerprints.of(start)
        blocks = list(found.blocks(piece.start, piece.end)) if found else []
        is_block = len(blocks) == 1 and blocks[0][1:] == (piece.start, piece.end)
        known = found.crc(blocks[0][0]) if found is not None and is_block else None
        if known == crc and taken_of_damage(store.commit_log, piece.start, piece.end):
            known = None
        return Own(
            self._name,
            crc,
            known,
            found is not None and found.is_written(piece.start),
            self._is_member(self._name),
            epochs_within(self._parts.replica.epochs.entries, start, end),
        )

    async def _settle(
        self, piece: Piece, sessions: Mapping[str, PeerLogSession], answers: list[Answer]
    ) -> bool:
        """Heal one piece if that can be. True if it has turned out to be whole."""
        own = self._own(piece)
        if own is None:
            return False
        voted = [answer for answer in answers if answer.part.fingerprint is not None]
        decides = self._comparing.memory_decides(
            self._shape().file_of(piece.start)[0], have_all_voted=len(voted) == len(sessions)
        )
        judgment = judge(own, answers, piece, self._members, memory_decides=decides)
        outcome = (
            await self._fetch(piece, judgment, own, sessions)
            if isinstance(judgment, Fetch)
            else judgment
        )
        if isinstance(outcome, Stuck):
            self._note_stuck(piece, outcome)
        return isinstance(outcome, Whole)

    async def _fetch(
        self, piece: Piece, order: Fetch, own: Own, sessions: Mapping[str, PeerLogSession]
    ) -> Whole | Stuck | None:
        """Get the bytes and put them in place; None if that has been done."""
        got: dict[str, bytes] = {}
        troubles: list[str] = []
        for node in order.nodes:
            try:
                data = await all_of(sessions[node], piece.start, piece.end, own.epochs)
            except PeerSilentError as error:
                troubles.append(str(error))
                continue
            if order.crc is not None and raw_crc32(data) != order.crc:
                troubles.append(f"what {node} gives does not have the right checksum")
                continue
            got[node] = data
            if order.crc is not None:
                break
        if not got:
            return Stuck("; ".join(troubles))
        node, data = next(iter(got.items()))
        if order.crc is None:
            votes = [
                Vote(name, raw_crc32(each), is_written=False, is_member=self._is_member(name))
                for name, each in got.items()
            ]
            right = right_crc(votes, self._members, memory_decides=False)
            if right is None:
                return Stuck(
                    f"replicas differ, and it is not known who is right: {votes_in_words(votes)}",
                    is_undecided=True,
                )
            if right == own.crc:
                return Whole()
            node, data = next((n, d) for n, d in got.items() if raw_crc32(d) == right)
        return await self._put(piece, data, node)

    async def _put(self, piece: Piece, data: bytes, node: str) -> Stuck | None:
        damage = self._store.commit_log.damage
        bad = damage.within(piece.start, piece.end)
        if bad is None:
            return None  # somebody else was faster
        try:
            await self._store.healing.heal(piece.start, data)
        except (StoreError, OSError) as error:
            return Stuck(f"the bytes of {node} cannot be put in place: {error}")
        _log.warning(
            "the log is healed from %d to %d with the bytes of %s (%s)",
            piece.start,
            piece.end,
            node,
            bad.reason,
        )
        now_ms = self._parts.machine.wall_clock_ms()
        self._healed.add(HealedPart(piece.start, piece.end, node, bad.reason, now_ms))
        return None

    def _note_stuck(self, piece: Piece, stuck: Stuck) -> None:
        self.stuck[piece] = stuck
        if self._told.is_news(stuck.why):
            _log.error(
                "the log cannot be healed yet from %d to %d: %s", piece.start, piece.end, stuck.why
            )

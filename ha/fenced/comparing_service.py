"""ComparingService: compares the fingerprints of closed files with those of all peers.

A file is compared soon after it was closed, and once in each round of a node, until all peers have
said the same. Where one differs, `comparison` says who is right; where it cannot, a node one of
whose records is none by its own checksum gives way to the others. If it is not us, the block is
noted as damage, and our fingerprint says from then on what the block has to be.

The file that is being written has no fingerprint yet. A part of it is compared by its bytes where
somebody asks for that: where a follower and its master turn out to differ.

A node looks after its own log only: the other one finds out the same by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final

import msgspec
import trio

from ha.errors import PeerSilentError
from ha.fenced.comparison import Dispute, FileVote, disputes, have_enough_voted
from ha.fenced.history import are_of_one_history, epochs_within, history_of
from ha.fenced.peer_logs import PeerLogs, PeerLogSession, all_of
from ha.fenced.replica_parts import ReplicaParts
from store.log.healing import unsound_record
from store.machine.tell_once import TellOnce
from tandem.wire.crc import raw_crc32
from tandem.wire.fingerprint import BLOCK_BYTES, Fingerprint, crcs_of
from tandem.wire.peer_log import PeerLogPart

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""Between two looks for files whose turn it is."""
AGAIN_SECONDS_MIN: Final = 5.0
AGAIN_SECONDS_MAX: Final = 600.0
"""Until a file is compared again that not all peers have confirmed; it doubles each time."""
OPEN_BLOCK_BYTES: Final = 512
"""A part of an open file is compared in blocks of this size: a disk writes no less at once."""
AWAY_SECONDS: Final = 15.0
"""Nodes that do not say what they have of a file are waited for so long before memory decides.

A node that is restarted is back by then; one that is gone must not keep damage from being healed.
It is less than `disputed_joint.DECIDED_SECONDS`.
"""
FILE_SECONDS: Final = 0.02
"""Between two files, so that nothing else waits for a store with thousands of them."""


class _Turn(msgspec.Struct):
    """When a file is compared next."""

    at: float
    pause_seconds: float


class ComparingService:
    """The comparing of one replica's log, for one round."""

    def __init__(self, parts: ReplicaParts, peers: PeerLogs) -> None:
        self._parts = parts
        self._store = parts.store
        self._peers = peers
        self._equal: dict[int, int] = {}
        """By the file's start: the checksum of its fingerprint, which all peers have confirmed."""
        self._turns: dict[int, _Turn] = {}
        self.undecided: dict[int, str] = {}
        """By the file's start: what differs, and nobody knows who is right."""
        self._away_since: dict[int, float] = {}
        """By the file's start: since when a node has been missed of which its votes differ."""
        self._told: TellOnce[str] = TellOnce()

    async def run(self) -> None:
        """Compare until cancelled."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            await self.compare()

    async def compare_now(self, start: int) -> None:
        """Compare one file, whenever its turn is."""
        own = self._store.fingerprints.of(start)
        if own is not None:
            async with AsyncExitStack() as stack:
                await self._compare_file(own, await self._sessions(stack))

    async def compare(self) -> None:
        """Compare all files whose turn it is."""
        async with AsyncExitStack() as stack:
            sessions = await self._sessions(stack)
            for start in self._store.fingerprints.starts:
                own = self._store.fingerprints.of(start) if self._is_its_turn(start) else None
                if own is None or self._equal.get(start) == raw_crc32(own.crcs):
                    continue
                if await self._compare_file(own, sessions):
                    self._equal[start] = raw_crc32(own.crcs)
                    self._turns.pop(start, None)
                else:
                    self._wait_for(start)
                await trio.sleep(FILE_SECONDS)

    async def _sessions(self, stack: AsyncExitStack) -> dict[str, PeerLogSession]:
        return {
            peer.name: await stack.enter_async_context(self._peers.session(peer.name))
            for peer in self._parts.config.peers
        }

    def _is_its_turn(self, start: int) -> bool:
        turn = self._turns.get(start)
        return turn is None or turn.at <= trio.current_time()

    def _wait_for(self, start: int) -> None:
        turn = self._turns.get(start)
        pause = (
            AGAIN_SECONDS_MIN if turn is None else min(2 * turn.pause_seconds, AGAIN_SECONDS_MAX)
        )
        self._turns[start] = _Turn(trio.current_time() + pause, pause)

    async def _compare_file(self, own: Fingerprint, sessions: Mapping[str, PeerLogSession]) -> bool:
        """Compare one file. True if every peer has it, and has it as we have it."""
        parts: dict[str, PeerLogPart] = {}

        async def ask(name: str, session: PeerLogSession) -> None:
            with suppress(PeerSilentError):  # its turn comes again
                parts[name] = await session.part(own.start, own.end)

        async def have_it_looked_at(session: PeerLogSession) -> None:
            with suppress(PeerSilentError):
                await session.doubt(own.start, own.end)

        async with trio.open_nursery() as nursery:
            for name, session in sessions.items():
                nursery.start_soon(ask, name, session)
        are_equal = await self._align(own, [*parts.values()]) and len(parts) == len(sessions)
        if own.start in self.undecided:
            # Who has no fingerprint, because its file was lost or could not be written, has no
            # vote. A look takes one, and costs the whole file: only now.
            async with trio.open_nursery() as nursery:
                for name, part in parts.items():
                    if part.fingerprint is None and own.end <= part.log_end:
                        nursery.start_soon(have_it_looked_at, sessions[name])
        return are_equal

    async def take_over(self, file: tuple[int, int], parts: Sequence[PeerLogPart]) -> None:
        """Have a fingerprint of a closed file that is what those of all nodes together say."""
        start, end = file
        own = self._store.fingerprints.of(start)
        if own is not None:
            await self._align(own, parts)
            return
        votes = self._votes(start, end, parts)
        have_all_voted = len(votes) == len(self._parts.config.peers)
        if not (
            self.memory_decides(start, have_all_voted=have_all_voted)
            or have_enough_voted(votes, self._members)
        ):
            return  # one of those who are away may know better than these few
        found = self._disputes(file, votes, have_all_voted=have_all_voted)
        if votes and all(each.right is not None for each in found):
            crcs = bytearray(votes[0].crcs)
            for each in found:
                crcs[4 * each.block : 4 * each.block + 4] = (each.right or 0).to_bytes(4, "big")
            era = self._store.fingerprints.era
            # Not as written: it was not our memory that it was taken from.
            await self._store.fingerprints.save(
                Fingerprint(start, end - start, bytes(crcs), end, era)
            )

    async def compare_open(self, start: int, end: int) -> bool:
        """Compare a part of one file by its bytes, where peers have it surely from our masters.

        What is not right here is noted as damage. False if that cannot be compared.
        """
        epochs = epochs_within(self._parts.replica.epochs.entries, start, end)
        history = history_of(epochs, start, end)
        got: dict[str, bytes] = {}

        async def ask(name: str, session: PeerLogSession) -> None:
            with suppress(PeerSilentError):
                part = await session.part(start, end)
                if history_of(part.epochs, start, end) == history:
                    got[name] = await all_of(session, start, end, epochs)

        if history:
            async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
                for name, session in (await self._sessions(stack)).items():
                    nursery.start_soon(ask, name, session)
            with self._store.commit_log.read(start, end - start) as own:
                got[self._parts.config.name] = bytes(own)
            self._align_open(start, end, got)
        return bool(history)

    def _align_open(self, start: int, end: int, got: Mapping[str, bytes]) -> None:
        """Note where we differ from the nodes that are right; `got` is what each node has."""
        name = self._parts.config.name
        votes = [
            FileVote(node, crcs_of(data, OPEN_BLOCK_BYTES), end, self._is_member(node))
            for node, data in got.items()
            if len(data) == end - start
        ]
        own = next((vote for vote in votes if vote.node == name), None)
        file = start - start % self._store.config.mapped_file_size_commit_log_bytes
        self.undecided.pop(file, None)
        bad: list[tuple[int, int]] = []
        words = ""
        for each in disputes(
            (start, end),
            votes,
            self._members,
            memory_decides=False,
            block_bytes=OPEN_BLOCK_BYTES,
        ):
            if each.right is None:
                self._note_undecided(file, each)
            elif own is not None and each.right != own.of(each.block, each.start).crc:
                words = words or each.words
                # Blocks side by side are one range: a record may go from one into the next.
                before = bad.pop() if bad and bad[-1][1] == each.start else (each.start, 0)
                bad.append((before[0], each.end))
        for first, last in bad:
            reason = f"other replicas have other bytes, and are right: {words}"
            self._store.commit_log.damage.note(first, last, reason)

    def _votes(self, start: int, end: int, parts: Sequence[PeerLogPart]) -> list[FileVote]:
        epochs = epochs_within(self._parts.replica.epochs.entries, start, end)
        blocks = -(-(end - start) // BLOCK_BYTES)
        return [
            FileVote(part.node, found.crcs, found.written_from, self._is_member(part.node))
            for part in parts
            if (found := part.fingerprint) is not None
            and (found.start, len(found.crcs)) == (start, 4 * blocks)
            and are_of_one_history(epochs, part.epochs)
        ]

    async def _align(self, own: Fingerprint, parts: Sequence[PeerLogPart]) -> bool:
        """Take over what others know better of a file. True if all say what we said."""
        store, name = self._store, self._parts.config.name
        votes = self._votes(own.start, own.end, parts)
        votes.append(FileVote(name, own.crcs, own.written_from, self._is_member(name)))
        file = (own.start, own.end)
        have_all_voted = len(votes) == 1 + len(self._parts.config.peers)
        found = self._disputes(file, votes, have_all_voted=have_all_voted)
        self.undecided.pop(own.start, None)
        crcs = bytearray(own.crcs)
        wrong = []
        for each in found:
            right = each.right
            # While a node is away, those who are here are not all others.
            if right is None and self.memory_decides(own.start, have_all_voted=have_all_voted):
                right = self._of_the_others(each, votes)
            if right is None:
                self._note_undecided(own.start, each)
            elif right != own.crc(each.block):
                crcs[4 * each.block : 4 * each.block + 4] = right.to_bytes(4, "big")
                wrong.append(each)
        if wrong and store.fingerprints.of(own.start) == own:
            # First what the blocks have to be: else our own fingerprint would speak for them.
            changed = msgspec.structs.replace(own, crcs=bytes(crcs))
            for each in wrong if await store.fingerprints.save(changed) else ():
                reason = f"other replicas have other bytes, and are right: {each.words}"
                store.commit_log.damage.note(each.start, each.end, reason)
        return not found and len(votes) == 1 + len(parts)

    def _disputes(
        self, file: tuple[int, int], votes: Sequence[FileVote], *, have_all_voted: bool
    ) -> list[Dispute]:
        if len({vote.crcs for vote in votes}) < 2:
            self._away_since.pop(file[0], None)
            return []
        decides = self.memory_decides(file[0], have_all_voted=have_all_voted)
        return list(disputes(file, votes, self._members, memory_decides=decides))

    def memory_decides(self, file: int, *, have_all_voted: bool) -> bool:
        """Whether fingerprints taken from memory are right if votes do not decide; see `right_crc`.

        `file` is the start of a file of which nodes say different things, or which is damaged.
        """
        if have_all_voted:
            self._away_since.pop(file, None)
            return True
        now = trio.current_time()
        return now >= self._away_since.setdefault(file, now) + AWAY_SECONDS

    def damage_is_over(self) -> None:
        """All damage is healed: who is away at the next is waited for anew."""
        self._away_since = {
            file: since for file, since in self._away_since.items() if file in self.undecided
        }

    def _of_the_others(self, dispute: Dispute, votes: Sequence[FileVote]) -> int | None:
        """Return what all others say of a block in which a record of ours is none.

        Its own checksum says that, so ours is a fingerprint of bytes that had changed before it was
        taken, and we have no vote.
        """
        name = self._parts.config.name
        said = {vote.of(dispute.block, dispute.start).crc for vote in votes if vote.node != name}
        file = self._store.commit_log.files.find_by_offset(dispute.start)
        if len(said) != 1 or file is None:
            return None
        return said.pop() if unsound_record(file, dispute.start, dispute.end) else None

    def _is_member(self, name: str) -> bool:
        view = self._parts.session.view
        return view is not None and view.state is not None and name in view.state.isr

    @property
    def _members(self) -> int:
        view = self._parts.session.view
        isr = view.state.isr if view and view.state else {}
        # Before the set is known, all configured nodes have to agree instead.
        return len(isr) or 1 + len(self._parts.config.peers)

    def _note_undecided(self, file: int, dispute: Dispute) -> None:
        words = (
            f"replicas differ from {dispute.start} to {dispute.end}, and it is not known who is"
            f" right: {dispute.words}"
        )
        self.undecided.setdefault(file, words)
        if self._told.is_news(words, about=file):
            _log.error("%s", words)

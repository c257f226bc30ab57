"""One replica's log beside peers that a test makes up: healing and comparing without a group.

The log has files of several blocks, the last one shorter. All nodes are in the in-sync set.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Final, cast

from ha.errors import PeerSilentError
from ha.fenced.closed_healing import ClosedHealing
from ha.fenced.comparing_service import ComparingService
from ha.fenced.config import FencedConfig
from ha.fenced.healed_parts import HealedParts
from ha.fenced.healing_service import HealingService
from ha.fenced.replica_parts import ReplicaParts
from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.machine.machine import Machine
from tandem.wire.fingerprint import BLOCK_BYTES, Fingerprint, crcs_of
from tandem.wire.peer_log import EpochPart, FileFingerprint, PeerLogPart
from tests.store.store_world import BORN_MS, DIRECTORY, a_message, log_messages, open_store, put

FILE_BYTES: Final = 2 * BLOCK_BYTES + 5_000
OWN: Final = "a0"


class Peer:
    """What a peer has of the log, says and gives: as a test sets it.

    Attributes:
        log: Its bytes.
        written_from: From where on its fingerprints are of memory; None: it has none.
        asked: Where the parts began that it was asked about.
    """

    def __init__(self, name: str, log: bytes) -> None:
        self.name = name
        self.log = bytearray(log)
        self.confirm = len(log)
        self.bad: tuple[tuple[int, int], ...] = ()
        self.epochs: tuple[EpochPart, ...] = ()
        self.written_from: int | None = 0
        self.answers = True
        self.asked: list[int] = []

    async def part(self, start: int, end: int) -> PeerLogPart:
        self._expect_answer(start, end)
        self.asked.append(start)
        first = start - start % FILE_BYTES
        found = None
        if self.written_from is not None and first + FILE_BYTES <= len(self.log):
            crcs = crcs_of(bytes(self.log[first : first + FILE_BYTES]))
            found = FileFingerprint(
                start=first, size=FILE_BYTES, crcs=crcs, written_from=self.written_from
            )
        bad = tuple((max(b, start), min(e, end)) for b, e in self.bad if b < end and start < e)
        return PeerLogPart(
            node=self.name,
            log_start=0,
            confirm=self.confirm,
            epochs=self.epochs,
            bad=bad,
            fingerprint=found,
        )

    async def data(self, start: int, end: int, history: str = "") -> bytes:
        self._expect_answer(start, end)
        return bytes(self.log[start:end])

    async def doubt(self, start: int, end: int) -> None:
        """Nobody looks."""

    def _expect_answer(self, start: int, end: int) -> None:
        if not self.answers or start // FILE_BYTES != (end - 1) // FILE_BYTES:
            raise PeerSilentError(f"{self.name} does not answer, or is asked for two files at once")


class Bench:
    """The log of `a0`, of two closed files and a part of the third, and its peers.

    Attributes:
        log: What all of them have.
        healing, comparing: Of a0.
    """

    def __init__(self, *, peer_count: int = 2) -> None:
        self.disk = SimulatedDisk()
        self.store = self.open_store()
        number = 0
        while self.store.max_physical_offset < 2 * FILE_BYTES + 30_000:
            put(self.store, a_message(number, body_bytes=9_000))
            number += 1
        self.records = [message.physical_offset for message in log_messages(self.store)]
        self.end = self.store.max_physical_offset
        self.store.confirm(self.end)
        self.store.sync_log()
        files = [bytes(file.buffer) for file in self.store.commit_log.files.files]
        self.log = b"".join(files)[: self.end]
        self.peers = [Peer(f"a{number + 1}", self.log) for number in range(peer_count)]
        self.view: SimpleNamespace | None = SimpleNamespace(
            state=SimpleNamespace(isr=dict.fromkeys((OWN, *self._names), "incarnation"))
        )
        self.healed = HealedParts(self.disk, DIRECTORY)
        parts = cast(
            "ReplicaParts",
            SimpleNamespace(
                config=self.config,
                store=self.store,
                machine=self.machine,
                session=self,
                replica=SimpleNamespace(epochs=SimpleNamespace(entries=())),
            ),
        )
        self.comparing = ComparingService(parts, self)
        self.healing = HealingService(parts, self, self.comparing, self.healed)

    @property
    def _names(self) -> list[str]:
        return [peer.name for peer in self.peers]

    def open_store(self) -> MessageStore:
        return open_store(
            self.disk,
            commit_log_bytes=FILE_BYTES,
            consume_queue_bytes=20_000,
            confirm_bounds_reads=True,
        )

    @property
    def config(self) -> FencedConfig:
        peers = [SimpleNamespace(name=name) for name in self._names]
        return cast(
            "FencedConfig", SimpleNamespace(name=OWN, directory=DIRECTORY, peers=tuple(peers))
        )

    @property
    def machine(self) -> Machine:
        return cast("Machine", SimpleNamespace(disk=self.disk, wall_clock_ms=lambda: BORN_MS))

    @asynccontextmanager
    async def session(self, peer: str) -> AsyncIterator[Peer]:
        """See `PeerLogs`."""
        yield next(each for each in self.peers if each.name == peer)

    async def take_fingerprints(self, *, written_from: int = 0) -> None:
        """Take ours of all closed files, of the bytes as they are."""
        for file in self.store.commit_log.files.files[:2]:
            crcs = crcs_of(bytes(file.buffer))
            start, era = file.file_from_offset, self.store.fingerprints.era
            assert await self.store.fingerprints.save(
                Fingerprint(start, FILE_BYTES, crcs, written_from, era)
            )

    def flip(self, offset: int) -> None:
        """Change a byte of our log."""
        file = self.store.commit_log.files.find_by_offset(offset)
        assert file is not None
        file.buffer[offset - file.file_from_offset] ^= 1

    def note(self, start: int, end: int) -> None:
        """Have a part of our log known as bad."""
        self.store.commit_log.damage.note(start, end, "a test")

    @property
    def bad(self) -> list[tuple[int, int]]:
        return [(each.start, each.end) for each in self.store.commit_log.damage.ranges]

    @property
    def is_equal(self) -> bool:
        """Whether our log is what all have."""
        files = [bytes(file.buffer) for file in self.store.commit_log.files.files]
        return b"".join(files)[: self.end] == self.log

    def closed_healing(self) -> ClosedHealing:
        """Close our store, and return what heals it."""
        self.store.close()
        return ClosedHealing(self.config, self.store.config, self.machine, self)

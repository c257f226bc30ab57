"""Healing: all that one replica does for the health of its log, and what it says of it.

ComparingService   finds what differs from the logs of others
HealingService     heals what is known to be bad, however it was found
_say_what_is_bad   has a master look at its log that sends what is bad
_look_where_doubted   looks at our own where others say so
DisputedJoint      finds out whose bytes changed where a follower and its master differ
"""

from __future__ import annotations

import logging
from typing import Final

import trio

from ha.errors import PeerSilentError
from ha.fenced.comparing_service import ComparingService
from ha.fenced.disputed_joint import DisputedJoint
from ha.fenced.healed_parts import HealedParts
from ha.fenced.healing_service import HealingService
from ha.fenced.peer_logs import PeerLogs
from ha.fenced.replica_parts import ReplicaParts
from store.machine.tell_once import TellOnce
from tandem.wire.fingerprint import BLOCK_BYTES
from tandem.wire.ha_status import HealedPart

_log = logging.getLogger(__name__)

TELL_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 1.0
"""Between two looks where somebody doubts: a follower that does dials several times a second."""
NOT_HEALED_SHOWN_MAX: Final = 20


class Healing:
    """Lives for one round."""

    def __init__(self, parts: ReplicaParts, peers: PeerLogs | None) -> None:
        """Without `peers` nothing is done."""
        self._parts = parts
        self._peers = peers
        self._healed = HealedParts(parts.machine.disk, parts.config.directory)
        self._service: HealingService | None = None
        self._comparing: ComparingService | None = None
        self._disputed: DisputedJoint | None = None
        if peers is not None:
            self._comparing = ComparingService(parts, peers)
            self._service = HealingService(parts, peers, self._comparing, self._healed)
            self._disputed = DisputedJoint(parts, peers, self._comparing)

    async def run(self) -> None:
        """Look after the log until cancelled."""
        if self._service is None or self._comparing is None or self._peers is None:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._service.run)
            nursery.start_soon(self._comparing.run)
            nursery.start_soon(self._say_what_is_bad, self._peers)
            nursery.start_soon(self._look_where_doubted)

    async def is_in_dispute(self, master: str, start: int, end: int) -> bool:
        """True while it may turn out whose bytes are right: ours, or this master's."""
        return self._disputed is not None and await self._disputed.is_open(master, start, end)

    async def _look_where_doubted(self) -> None:
        standing = self._parts.standing
        while self._disputed is not None:
            while standing.doubted:
                await self._disputed.look(*standing.doubted.pop())
                await trio.sleep(LOOK_SECONDS)
            await standing.doubted_seen.wait()

    async def _say_what_is_bad(self, peers: PeerLogs) -> None:
        """Have a node look at its log that has sent us what is bad."""
        standing, told = self._parts.standing, TellOnce[str]()
        while True:
            await standing.bad_bytes_seen.wait()
            bad = standing.bad_bytes
            if bad is not None:
                end = bad.offset - bad.offset % BLOCK_BYTES + BLOCK_BYTES
                async with peers.session(bad.node) as session:
                    try:
                        await session.doubt(bad.offset, end)
                    except PeerSilentError as error:
                        if told.is_news(str(error)):
                            _log.warning(
                                "this node cannot say to %s that its log is bad: %s",
                                bad.node,
                                error,
                            )
            # It sends the same again until it has looked, several times a second.
            await trio.sleep(TELL_SECONDS)

    @property
    def healed(self) -> list[HealedPart]:
        """What was bad and is whole again, the newest last."""
        return self._healed.parts

    @property
    def not_healed(self) -> list[str]:
        """Why what is bad has not been healed yet, in words, each once."""
        stuck = self._service.stuck.values() if self._service else ()
        words = [each.why for each in stuck if not each.is_undecided]
        return list(dict.fromkeys(words))[:NOT_HEALED_SHOWN_MAX]

    @property
    def undecided(self) -> list[str]:
        """Where replicas differ, and nobody knows who is right, in words."""
        stuck = self._service.stuck.values() if self._service else ()
        words = [each.why for each in stuck if each.is_undecided]
        words += self._comparing.undecided.values() if self._comparing else ()
        return list(dict.fromkeys(words))[:NOT_HEALED_SHOWN_MAX]

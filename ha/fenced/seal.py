"""What shows, after the handshake, that a frame or a report comes from a peer with a proved name.

Each direction of each connection has a key of its own, derived from the group's secret and both
nonces, and counts what is said there. A seal is a keyed BLAKE2b of 16 bytes over that count and the
bytes that it is for. So nothing can be forged, changed, left out, sent again, or brought into
another order, be it of this connection or of another.

Of a frame the seal covers the head, and so all that it says; the head has the SHA-256 of the body.
The bytes of the log are most of what goes over a link, and a digest of them costs more than all
else: see `docs/security.md` for what it costs, and for who may do without.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

import msgspec

SEAL_BYTES: Final = 16
DIGEST_BYTES: Final = 32

NO_DIGEST: Final = bytes(DIGEST_BYTES)
"""In the place of a digest where bodies are left without."""

FRAMES: Final = "frames"
REPORTS: Final = "reports"


class Seal:
    """One direction of one connection. Owned by the side that speaks, or by that which listens."""

    def __init__(self, secret: str, direction: str, *nonces: str) -> None:
        """Begin to count. `nonces`: the master's, then the follower's."""
        said = msgspec.json.encode([direction, nonces])
        key = hmac.digest(secret.encode(), said, hashlib.sha256)
        self._keyed = hashlib.blake2b(key=key, digest_size=SEAL_BYTES)
        self._count = 0

    def next(self, data: bytes | memoryview) -> bytes:
        """Return the seal of what is said next."""
        seal = self._keyed.copy()
        seal.update(self._count.to_bytes(8, "big"))
        seal.update(data)
        self._count += 1
        return seal.digest()

    def fits(self, data: bytes | memoryview, seal: bytes) -> bool:
        """Say whether that is the seal of what was said next, in a time that reveals nothing."""
        return hmac.compare_digest(self.next(data), seal)


def seals(secret: str, *nonces: str) -> tuple[Seal, Seal]:
    """Return those of the frames and those of the reports of a connection."""
    return Seal(secret, FRAMES, *nonces), Seal(secret, REPORTS, *nonces)


def body_digest(body: bytes | memoryview) -> bytes:
    """Return what a head says of its body."""
    return hashlib.sha256(body).digest()


class BodyDigest:
    """The digest of one body after the other, as their pieces come in; of none if not wanted."""

    def __init__(self, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        self._expected = b""
        self._digest = hashlib.sha256()

    def expect(self, digest: bytes) -> None:
        """Begin a body: its head says this of it."""
        self._expected = digest

    def add(self, piece: memoryview) -> None:
        """Take the next piece of the body."""
        if self._is_wanted:
            self._digest.update(piece)

    def fits(self) -> bool:
        """Say, at the end of a body, whether it is the one that its head speaks of."""
        if not self._is_wanted:
            return True
        digest, self._digest = self._digest, hashlib.sha256()
        return hmac.compare_digest(digest.digest(), self._expected)

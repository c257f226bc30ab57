"""The seal with which our own clients sign each request: it is good once, on one connection.

    client                                                  node
      NODE_CHALLENGE ------------------------------------->   makes a number for this connection
                     <------------------ number, address --
      SIGN_IN (who, for which node), sealed -------------->   finds the secret, checks the seal
      each further request, sealed ----------------------->   checks the seal

A sealed frame is any frame with a bit set beside its encoding, and 32 bytes more at its end:

    total 4 | 0x80 + encoding 1 | header length 3 | header | body | seal 32

    seal = HMAC-SHA256(key of the connection, everything before the seal)

    key of the connection = HMAC-SHA256(HMAC-SHA256(secret, label), each with its length before it:
                                        name of the user, number of the connection, target)

So it is over the code, the flags, the names and values of fields with their lengths, and the body,
as they are on the wire, whatever the encoding of the header. The key is of one connection, for
nobody else has its number, and of one node, the target. The opaque of a request is its number: it
has to be above that of every sealed request before it. After 2**31 requests opaques begin again,
and the key is another one.

RocketMQ's signature is in `tandem.wire.acl_signature`, that of nodes in
`tandem.wire.request_signature`.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

SEALED_FLAG: Final = 0x80
"""Beside the encoding, in the fifth byte of a frame."""

SEAL_BYTES: Final = 32

SIGN_IN_BYTES_MAX: Final = 255
"""Of a user and of a target, in SIGN_IN."""

_HEAD: Final = struct.Struct(">II")
_OPAQUE_MASK: Final = 2**31 - 1
AHEAD_MAX: Final = 2**30
"""An opaque that is further ahead than this is one from before."""

_HASHED_BYTES: Final = 64
_INNER_PAD: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD: Final = bytes(byte ^ 0x5C for byte in range(256))
_LABEL: Final = b"TandemMQ sealed requests of a user\x01"


class Signatures(StrEnum):
    """Which signatures are good without TLS. With TLS all of them are: nobody can listen."""

    ANY = "any"
    """Also RocketMQ's, which who has listened can send again."""
    REPLAY_PROOF = "replay_proof"
    """Those alone that are good once."""


class SignInHeader(msgspec.Struct, frozen=True):
    """Fields of SIGN_IN: who seals the requests of this connection, and for which node."""

    access_key: str = msgspec.field(name="AccessKey")
    target: str


def connection_key(secret: str, name: str, challenge: str, target: str) -> bytes:
    """Return the key of one connection.

    Args:
        secret: The user's.
        name: The user's.
        challenge: The number that the node has given for this connection.
        target: The node's `host:port`, as the client means it.
    """
    user_key = hmac.digest(_bytes(secret), _LABEL, hashlib.sha256)
    parts = [_bytes(part) for part in (name, challenge, target)]
    said = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.digest(user_key, said, hashlib.sha256)


class FrameSeal:
    """Seals the frames of one connection, or checks them; numbers only rise.

    Attributes:
        last: The number of the last one that was sealed or taken; -1: there was none.
    """

    def __init__(self, key: bytes) -> None:
        """Use the key of the connection."""
        self.last = -1
        self._key = key
        self._turn_to(0)

    def change_key(self, key: bytes) -> None:
        """Use another key from now on. Numbers go on to rise: the old key may come back."""
        self._key = key
        self._turn_to(self._turn)

    def sealed(self, frame: bytes, opaque: int) -> bytes:
        """Return a frame with its seal. `opaque` is in its header."""
        number = self.number_of(opaque)
        assert number is not None, "a session counts its requests up"
        length, word = _HEAD.unpack_from(frame)
        head = _HEAD.pack(length + SEAL_BYTES, word | SEALED_FLAG << 24)
        said = head + frame[_HEAD.size :]
        self.last = number
        return said + self._seal(number, said)

    def number_of(self, opaque: int) -> int | None:
        """Return the number of a request; None: it is not above the last one."""
        ahead = (opaque - self.last) & _OPAQUE_MASK
        return self.last + ahead if 0 < ahead <= AHEAD_MAX else None

    def key_of(self, first: int, last: int) -> bytes | None:
        """Return the key for numbers from `first` to `last`; None: there is not one for all."""
        turn = first >> 31
        if turn != last >> 31:
            return None
        if turn != self._turn:
            self._turn_to(turn)
        return self._turn_key

    def is_good(self, number: int, said: bytes | memoryview, given: bytes | memoryview) -> bool:
        """Say whether a seal fits, in a time that says nothing about the right one.

        Args:
            number: See `number_of`. It is not taken yet: set `last`.
            said: The frame up to its seal.
            given: The seal.
        """
        return hmac.compare_digest(given, self._seal(number, said))

    def _seal(self, number: int, said: bytes | memoryview) -> bytes:
        turn = number >> 31
        if turn != self._turn:
            self._turn_to(turn)
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(said)
        outer.update(inner.digest())
        return outer.digest()

    def _turn_to(self, turn: int) -> None:
        """Use the key of a turn: that is 2**31 requests."""
        key = self._key
        if turn:
            key = hmac.digest(key, turn.to_bytes(8, "big"), hashlib.sha256)
        self._turn, self._turn_key = turn, key
        self._inner, self._outer = _states(key)


class SealingPeer:
    """What a node knows of who seals the requests of one connection.

    Attributes:
        challenge: The number that was given for this connection.
        name: Who has signed in; "": nobody yet.
        target: The node that they mean.
        complaint: Why nothing that they seal is taken; "": it is, if the seal is good.
    """

    def __init__(self, challenge: str) -> None:
        """Nobody has signed in yet."""
        self.challenge = challenge
        self.name = self.target = self.complaint = ""
        self._seal: FrameSeal | None = None
        self._secret = ""

    @property
    def is_proven(self) -> bool:
        """Whether a good seal has come."""
        return self._seal is not None and self._seal.last >= 0

    def ready_seal(self, secret: str) -> FrameSeal | None:
        """Return what checks seals made with a secret, if it has been made; see `seal_of`."""
        return self._seal if secret == self._secret else None

    def seal_of(self, secret: str, key_of: Callable[[str, str], bytes]) -> FrameSeal:
        """Return what checks seals that are made with a secret.

        Args:
            secret: What the secret is known by. Another one has another key; numbers go on.
            key_of: Returns the key for the number and the target of a connection.
        """
        if self._seal is None:
            self._seal = FrameSeal(key_of(self.challenge, self.target))
        elif secret != self._secret:
            self._seal.change_key(key_of(self.challenge, self.target))
        self._secret = secret
        return self._seal


def _states(key: bytes) -> tuple[hashlib._Hash, hashlib._Hash]:
    """Return the two states of HMAC that a key has been put into."""
    key = key.ljust(_HASHED_BYTES, b"\0")
    inner, outer = (key.translate(pad) for pad in (_INNER_PAD, _OUTER_PAD))
    return hashlib.sha256(inner), hashlib.sha256(outer)


def _bytes(text: str) -> bytes:
    # A stranger may have sent half of a surrogate pair.
    return text.encode("utf-8", "surrogatepass")

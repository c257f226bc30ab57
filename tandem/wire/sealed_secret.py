"""Secrets of users at rest: sealed with a key that is made of the cluster's secret.

A user's signature is an HMAC, so a node needs the secret itself and not a hash of it. Records of
users lie in the log, which followers, learners, backups and disks have. So what is written there is
sealed, and tells nothing to who does not know the cluster's secret.

    sealed = nonce (16) | secret XOR stream | tag (16)

    stream   HMAC-SHA256(key, "stream" | nonce | counter), block after block
    tag      HMAC-SHA256(key, "tag" | nonce | name of the user | cipher text), its first half

The tag is over the name as well: a sealed secret is good for one user. Text is Base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

from tandem.wire.errors import ArgumentError

NONCE_BYTES: Final = 16
TAG_BYTES: Final = 16
_BLOCK_BYTES: Final = 32


class SealError(ValueError):
    """A sealed secret cannot be opened: another key, another user, or changed bytes."""


def seal(key: bytes, name: str, secret: str, nonce: bytes) -> str:
    """Return a user's secret as it may be written.

    Args:
        key: The cluster's for Purpose.USERS.
        name: Of the user.
        secret: The user's.
        nonce: `NONCE_BYTES` that are used once.
    """
    if len(nonce) != NONCE_BYTES:
        raise ArgumentError(f"a nonce of {len(nonce)} bytes; it has {NONCE_BYTES}", "nonce")
    hidden = _mixed(key, nonce, secret.encode("utf-8", "surrogatepass"))
    sealed = nonce + hidden + _tag(key, nonce, name, hidden)
    return base64.b64encode(sealed).decode("ascii")


def unseal(key: bytes, name: str, sealed: str) -> str:
    """Return the secret.

    Raises:
        SealError: it was sealed with another key or for another user, or is damaged.
    """
    try:
        data = base64.b64decode(sealed, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SealError(f"the sealed secret of {name!r} is not Base64: {error}") from error
    if len(data) < NONCE_BYTES + TAG_BYTES:
        raise SealError(f"the sealed secret of {name!r} has only {len(data)} bytes")
    nonce, hidden, tag = data[:NONCE_BYTES], data[NONCE_BYTES:-TAG_BYTES], data[-TAG_BYTES:]
    if not hmac.compare_digest(tag, _tag(key, nonce, name, hidden)):
        raise SealError(
            f"the secret of {name!r} was sealed with another secret of the cluster, or has changed"
        )
    return _mixed(key, nonce, hidden).decode("utf-8", "surrogatepass")


def _mixed(key: bytes, nonce: bytes, data: bytes) -> bytes:
    blocks = (
        hmac.digest(key, b"stream" + nonce + number.to_bytes(4, "big"), hashlib.sha256)
        for number in range(-(-len(data) // _BLOCK_BYTES))
    )
    stream = b"".join(blocks)
    return bytes(one ^ other for one, other in zip(data, stream, strict=False))


def _tag(key: bytes, nonce: bytes, name: str, hidden: bytes) -> bytes:
    label = name.encode("utf-8", "surrogatepass")
    said = b"tag" + nonce + len(label).to_bytes(4, "big") + label + hidden
    return hmac.digest(key, said, hashlib.sha256)[:TAG_BYTES]

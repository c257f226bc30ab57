"""One key for each purpose, out of the one secret of a cluster.

Who learns one of them, from a heap or a log, knows neither the others nor the secret.

Source: RFC 5869, HKDF: one block of its expansion. Extraction is left out: a secret that we make
has 256 random bits.
"""

from __future__ import annotations

import enum
import hashlib
import hmac


class Purpose(enum.Enum):
    """What a key is for."""

    LINK = "replication link"
    COORDINATOR = "coordinator"
    REQUEST = "signed request"
    OPERATOR = "operator with tools of RocketMQ"
    USERS = "secrets of users"


OPERATOR_ACCESS_KEY = "tandem-operator"
"""Who an operator is to say to be, in the credentials of RocketMQ's tools."""


def operator_secret_key(secret: str) -> str:
    """Return the `secretKey` of an operator, in the credentials of RocketMQ's tools."""
    return key_of(secret, Purpose.OPERATOR).hex()


def key_of(secret: str, purpose: Purpose) -> bytes:
    """Return the key of 32 bytes for a purpose."""
    label = f"TandemMQ {purpose.value}".encode() + b"\x01"
    return hmac.digest(secret.encode(), label, hashlib.sha256)

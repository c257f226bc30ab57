"""Sealed secrets: opened by who has the key, for the user they are of, and unchanged."""

import base64

import pytest

from tandem.wire.errors import ArgumentError
from tandem.wire.sealed_secret import NONCE_BYTES, SealError, seal, unseal

KEY, OTHER = b"k" * 32, b"o" * 32
NONCE = bytes(range(NONCE_BYTES))


@pytest.mark.parametrize(
    "secret", ["", "x", "s" * 31, "s" * 32, "s" * 33, "s" * 256, "\u00e9\ud83d"]
)
def test_who_has_the_key_opens_it(secret: str) -> None:
    sealed = seal(KEY, "alice", secret, NONCE)
    assert unseal(KEY, "alice", sealed) == secret
    assert not secret or secret not in sealed
    assert seal(KEY, "alice", secret, NONCE[::-1]) != sealed


def test_nobody_else_does() -> None:
    sealed = seal(KEY, "alice", "a secret", NONCE)
    for key, name in ((OTHER, "alice"), (KEY, "bob")):
        with pytest.raises(SealError):
            unseal(key, name, sealed)


def test_what_has_changed_is_not_opened() -> None:
    data = base64.b64decode(seal(KEY, "alice", "a secret", NONCE))
    for at in range(len(data)):
        for changed in (data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], data[:at]):
            with pytest.raises(SealError):
                unseal(KEY, "alice", base64.b64encode(changed).decode())
    for text in ("", "no Base64!", "\u00e9", "AAAA"):
        with pytest.raises(SealError):
            unseal(KEY, "alice", text)


def test_a_nonce_has_its_size() -> None:
    with pytest.raises(ArgumentError):
        seal(KEY, "alice", "x", NONCE[1:])

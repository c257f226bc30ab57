"""The signature that RocketMQ's clients and tools put on a request, if they have credentials.

    Signature = base64(HMAC-SHA1(secretKey, values of all other ext fields in the order of their
                                             names, and the body))

Nothing in it is good only once: who can listen to the connection can send the request again. Nodes
use `tandem.wire.request_signature` among themselves.

Source: RocketMQ 5.3.3, AclClientRPCHook, AclUtils.combineRequestContent, AclSigner.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from tandem.wire.request_code import UNIQUE_KEY_QUERY

if TYPE_CHECKING:
    from collections.abc import Mapping

ACCESS_KEY_FIELD: Final = "AccessKey"
ACL_SIGNATURE_FIELD: Final = "Signature"

_BLOCK_BYTES: Final = 64
_INNER_PAD: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD: Final = bytes(byte ^ 0x5C for byte in range(256))


class AclKey:
    """The secret of one user, ready to check signatures: the two states of HMAC are kept.

    Args:
        secret_key: The secret.
    """

    def __init__(self, secret_key: str) -> None:
        key = _bytes(secret_key)
        if len(key) > _BLOCK_BYTES:
            key = hashlib.sha1(key).digest()
        key = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha1(key.translate(_INNER_PAD))
        self._outer = hashlib.sha1(key.translate(_OUTER_PAD))

    def signature(self, content: bytes | memoryview, body: bytes | memoryview) -> bytes:
        """Return the signature of the values, joined, and the body."""
        inner = self._inner.copy()
        inner.update(content)
        inner.update(body)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return binascii.b2a_base64(outer.digest(), newline=False)

    def sign(self, fields: Mapping[str, str], body: bytes) -> str:
        """Return the signature of a request; `fields` may hold one already."""
        return str(self.signature(_content(fields), body), "ascii")

    def is_signed(self, fields: Mapping[str, str], body: bytes, *, is_binary: bool = False) -> bool:
        """Say whether a request is signed with this secret, in a time that reveals nothing.

        Servers and clients disagree about two things, and either is taken. An empty value in a
        header of the ROCKETMQ encoding is signed as `null`, for RocketMQ reads it as none. And
        `_UNIQUE_KEY_QUERY` is signed only by clients from 4.9.4 on.

        Args:
            fields: The ext fields, as text.
            body: The body.
            is_binary: Whether they came in the ROCKETMQ encoding.
        """
        given = _bytes(fields.get(ACL_SIGNATURE_FIELD, ""))
        if hmac.compare_digest(given, self.signature(_content(fields), body)):
            return True
        others = []
        if is_binary and "" in fields.values():
            others.append({name: value or "null" for name, value in fields.items()})
        if UNIQUE_KEY_QUERY in fields:
            others += [
                {name: each[name] for name in each if name != UNIQUE_KEY_QUERY}
                for each in (fields, *others)
            ]
        return any(
            hmac.compare_digest(given, self.signature(_content(each), body)) for each in others
        )


_ORDERS_MAX: Final = 1_024

_orders: Final[dict[tuple[str, ...], tuple[str, ...]]] = {}
"""The names that are signed, in their order, by the names as they come: clients send few rows."""


def _content(fields: Mapping[str, str]) -> bytes:
    names = tuple(fields)
    order = _orders.get(names)
    if order is None:
        order = tuple(sorted(name for name in names if name != ACL_SIGNATURE_FIELD))
        if len(_orders) >= _ORDERS_MAX:
            _orders.clear()
        _orders[names] = order
    return _bytes("".join([fields[name] for name in order]))


def acl_signature(secret_key: str, fields: Mapping[str, str], body: bytes) -> str:
    """Return the signature of a request; `fields` may hold one already."""
    return AclKey(secret_key).sign(fields, body)


def with_acl_signature(
    access_key: str, secret_key: str, fields: Mapping[str, str], body: bytes
) -> dict[str, str]:
    """Return the ext fields of a request with its signature and who has signed it."""
    said = {**fields, ACCESS_KEY_FIELD: access_key}
    return {**said, ACL_SIGNATURE_FIELD: acl_signature(secret_key, said, body)}


def _bytes(text: str) -> bytes:
    # A stranger may have sent half of a surrogate pair.
    return text.encode("utf-8", "surrogatepass")

"""The signature that RocketMQ's clients and tools put on a request, if they have credentials.

    Signature = base64(HMAC-SHA1(secretKey, values of all other ext fields in the order of their
                                             names, and the body))

Nothing in it is good only once: who can listen to the connection can send the request again. Nodes
use `tandem.wire.request_signature` among themselves.

Source: RocketMQ 5.3.3, AclClientRPCHook, AclUtils.combineRequestContent, AclSigner.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ACCESS_KEY_FIELD: Final = "AccessKey"
ACL_SIGNATURE_FIELD: Final = "Signature"


def acl_signature(secret_key: str, fields: Mapping[str, str], body: bytes) -> str:
    """Return the signature of a request; `fields` may hold one already."""
    content = "".join(
        value for name, value in sorted(fields.items()) if name != ACL_SIGNATURE_FIELD
    )
    digest = hmac.digest(secret_key.encode(), _bytes(content) + body, hashlib.sha1)
    return base64.b64encode(digest).decode("ascii")


def with_acl_signature(
    access_key: str, secret_key: str, fields: Mapping[str, str], body: bytes
) -> dict[str, str]:
    """Return the ext fields of a request with its signature and who has signed it."""
    said = {**fields, ACCESS_KEY_FIELD: access_key}
    return {**said, ACL_SIGNATURE_FIELD: acl_signature(secret_key, said, body)}


def is_signed_with(secret_key: str, fields: Mapping[str, str], body: bytes) -> bool:
    """Say whether the signature fits, in a time that reveals nothing about the right one."""
    given = fields.get(ACL_SIGNATURE_FIELD, "")
    right = acl_signature(secret_key, fields, body)
    return hmac.compare_digest(_bytes(given), _bytes(right))


def _bytes(text: str) -> bytes:
    # A stranger may have sent half of a surrogate pair.
    return text.encode("utf-8", "surrogatepass")

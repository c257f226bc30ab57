"""How a request shows that its sender knows the secret of the cluster.

The sender first asks for a number, by NODE_CHALLENGE, on the same connection. Then it adds three
ext fields to its request: that number, the client address of the node it means, and an
HMAC-SHA256 over both, the request code, all other ext fields and the body. A number is good once,
on its connection. So a signed request cannot be changed, be sent again, or be sent to another node;
and no clock has to be right for it.

The answers that matter are signed in turn: one ext field, an HMAC-SHA256 over the number of the
request, its code and the body. So an answer is one to this very request. What else is answered is
not signed.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

CHALLENGE_FIELD: Final = "tandemChallenge"
TARGET_FIELD: Final = "tandemTarget"
SIGNATURE_FIELD: Final = "tandemSignature"


class ChallengeBody(msgspec.Struct, frozen=True):
    """Body of the answer to NODE_CHALLENGE.

    Attributes:
        challenge: A number that is good for one signature.
        connection: That of the connection, for seals; see `tandem.wire.frame_seal`. "": a node of
            before has none.
        address: The node's `host:port` for clients.
    """

    challenge: str
    connection: str = ""
    address: str = ""


def signed(
    key: bytes, code: int, fields: Mapping[str, str], body: bytes, *, challenge: str, target: str
) -> dict[str, str]:
    """Return the ext fields of a request with its signature.

    Args:
        key: The cluster's for Purpose.REQUEST.
        code: The request code.
        fields: The ext fields, as text.
        body: The body.
        challenge: The number that the node has given.
        target: The node's `host:port` for clients, as its cluster file has it.
    """
    said = {**fields, CHALLENGE_FIELD: challenge, TARGET_FIELD: target}
    return {**said, SIGNATURE_FIELD: _signature(key, code, said, body)}


def is_rightly_signed(key: bytes, code: int, fields: Mapping[str, str], body: bytes) -> bool:
    """Say whether the signature fits, in a time that reveals nothing about the right one."""
    said = {name: value for name, value in fields.items() if name != SIGNATURE_FIELD}
    given = fields.get(SIGNATURE_FIELD, "")
    return hmac.compare_digest(given.encode(), _signature(key, code, said, body).encode())


def answer_signature(key: bytes, code: int, challenge: str, body: bytes) -> str:
    """Return the signature of the answer to a signed request.

    Args:
        key: As for the request.
        code: Of the request.
        challenge: The number that the request was signed with.
        body: Of the answer.
    """
    said = msgspec.json.encode(["answer", code, challenge, hashlib.sha256(body).hexdigest()])
    return hmac.new(key, said, hashlib.sha256).hexdigest()


def is_rightly_answered(
    key: bytes, code: int, challenge: str, fields: Mapping[str, str], body: bytes
) -> bool:
    """Say whether an answer is signed, for this request; see `answer_signature`."""
    given = fields.get(SIGNATURE_FIELD, "")
    return hmac.compare_digest(
        given.encode(), answer_signature(key, code, challenge, body).encode()
    )


def _signature(key: bytes, code: int, fields: Mapping[str, str], body: bytes) -> str:
    # JSON keeps the parts apart: no two requests have the same text.
    said = msgspec.json.encode([code, sorted(fields.items()), hashlib.sha256(body).hexdigest()])
    return hmac.new(key, said, hashlib.sha256).hexdigest()

"""The signature that RocketMQ's gRPC clients put on a call, if they have credentials.

    authorization: MQv2-HMAC-SHA1 Credential=USER[/...], SignedHeaders=x-mq-date-time, Signature=HEX
    x-mq-date-time: 20261125T183838Z

    Signature = HMAC-SHA1(secret, value of x-mq-date-time)

It is over the time alone, and the time is not looked at: clients write their local time with a Z.
So who has heard one call can make any other with it, for ever; see `Signatures` in `frame_seal`.

Source: RocketMQ 5.3.3, DefaultAuthenticationContextBuilder; org.apache.rocketmq.client.java.rpc,
Signature.
"""

from __future__ import annotations

from typing import Final

import msgspec

_NAME: Final = "Credential="
_SIGNATURE: Final = "Signature="
_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_SIGNATURE_CHARACTERS: Final = 40


class CallSignature(msgspec.Struct, frozen=True, gc=False):
    """What a call says of who makes it; empty where it says nothing."""

    authorization: str = ""
    date_time: str = ""

    def read(self) -> SignedCall:
        """Take it apart.

        Raises:
            CallSignatureError: a part is missing.
        """
        if not self.authorization:
            raise CallSignatureError("username cannot be null.")
        if not self.date_time:
            raise CallSignatureError("datetime is null.")
        _, blank, rest = self.authorization.partition(" ")
        if not blank:
            raise CallSignatureError("authentication header is incorrect.")
        name = given = ""
        for part in rest.split(","):
            word = part.strip()
            if word.startswith(_NAME):
                name = word[len(_NAME) :].partition("/")[0]
            elif word.startswith(_SIGNATURE):
                given = word[len(_SIGNATURE) :]
        if not name:
            raise CallSignatureError("username cannot be null.")
        is_hex = len(given) == _SIGNATURE_CHARACTERS and _DIGITS.issuperset(given)
        signature = bytes.fromhex(given) if is_hex else b""
        return SignedCall(name, self.date_time.encode("utf-8", "replace"), signature)


class CallSignatureError(ValueError):
    """A signature that cannot be looked at; the words are RocketMQ's."""


class SignedCall(msgspec.Struct, frozen=True, gc=False):
    """A signature that can be looked at.

    Attributes:
        name: Who says to have signed.
        content: What is signed.
        signature: Its bytes; empty if it is none.
    """

    name: str
    content: bytes
    signature: bytes

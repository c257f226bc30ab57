"""Bodies as the producer wrote them: decompressed, and inner batches taken apart.

A record whose body cannot be decoded is shown as it is stored, with a word on why.
"""

import msgspec

from tandem.wire.compression import CompressionError, decompressed
from tandem.wire.errors import MalformedMessageError
from tandem.wire.message import MessageExt, is_inner_batch, unwrap_inner_batch


class DecodedBody(msgspec.Struct, frozen=True):
    """A body as its producer wrote it.

    `inner` are the messages of an inner batch. `problem` says why `body` is still as stored, or
    why a batch was not taken apart.
    """

    body: bytes
    inner: tuple[MessageExt, ...] = ()
    problem: str = ""


def decode_body(message: MessageExt) -> DecodedBody:
    """Return the body of a stored message, decompressed and unwrapped if the record says so."""
    try:
        plain = decompressed(message)
        inner = unwrap_inner_batch(plain) if is_inner_batch(plain.sys_flag) else []
    except (CompressionError, MalformedMessageError) as error:
        return DecodedBody(message.body, problem=str(error))
    return DecodedBody(plain.body, tuple(inner))

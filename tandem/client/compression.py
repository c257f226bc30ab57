"""Compressed bodies in the client: `tandem.wire.compression` under the client's own error."""

from tandem.client.errors import CompressedBodyError
from tandem.wire import compression
from tandem.wire.message import MessageExt


def decompressed(message: MessageExt) -> MessageExt:
    """Return `message` with its body as the producer wrote it, and without COMPRESSED_FLAG.

    Raises:
        CompressedBodyError: the codec is unknown or not installed, or the body is damaged or has
            more than 64 MiB.
    """
    try:
        return compression.decompressed(message)
    except compression.CompressionError as error:
        raise CompressedBodyError(message, error.fault, str(error)) from error

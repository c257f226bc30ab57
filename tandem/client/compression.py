"""Bodies that a producer compressed. RocketMQ's clients do so from 4,096 bytes on.

The kind is in bits 8 to 10 of SYSFLAG; producers before RocketMQ 5 leave them 0 and mean zlib.

Source: RocketMQ 5.3.3, MessageSysFlag, CompressionType, MessageDecoder.decode.
"""

import zlib
from typing import Final

import msgspec

from tandem.client.errors import CompressedBodyError
from tandem.wire.message import COMPRESSED_FLAG, COMPRESSION_TYPE_MASK, MessageExt

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""A few bytes of zlib can stand for gigabytes. RocketMQ takes 4 MiB before compression."""

_ZLIB: Final = (0x000, 0x300)
_NAMES: Final = {0x100: "LZ4", 0x200: "zstd"}


def decompressed(message: MessageExt) -> MessageExt:
    """Return `message` with its body as the producer wrote it. `sys_flag` is kept, as Java does.

    Raises:
        CompressedBodyError: the codec is not built in, or the body is damaged or too large.
    """
    if not message.sys_flag & COMPRESSED_FLAG:
        return message
    kind = message.sys_flag & COMPRESSION_TYPE_MASK
    if kind not in _ZLIB:
        name = _NAMES.get(kind, f"0x{kind:03X}")
        raise CompressedBodyError(
            message,
            f"the body is compressed with {name}, and TandemMQ has no {name} codec;"
            " let the producer use zlib",
        )
    codec = zlib.decompressobj()
    try:
        body = codec.decompress(message.body, BODY_BYTES_MAX)
    except zlib.error as error:
        raise CompressedBodyError(message, f"the body is not zlib: {error}") from error
    if not codec.eof:
        raise CompressedBodyError(
            message, f"the body is cut, or larger than {BODY_BYTES_MAX} bytes"
        )
    return msgspec.structs.replace(message, body=body)

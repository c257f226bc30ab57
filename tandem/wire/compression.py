"""Compressed bodies. RocketMQ's producers compress from 4,096 bytes on; the store never does.

SYSFLAG says whether (bit 0) and how (bits 8 to 10):

    0, 3   zlib stream; producers before RocketMQ 5 leave the bits 0
    1      LZ4, frame format             package lz4
    2      ZSTD                          package zstandard
    4 to 7 nothing: refused

The two packages are optional and imported at first use. However a body was made, decompressing it
takes a bounded amount of memory: a few bytes can stand for gigabytes.

Source: RocketMQ 5.3.3, MessageSysFlag, CompressionType, MessageDecoder.decode; ZlibCompressor,
Lz4Compressor, ZstdCompressor.
"""

import enum
import importlib
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Final, Literal, assert_never

import msgspec

from tandem.wire.errors import ArgumentError, WireError
from tandem.wire.message import COMPRESSED_FLAG, COMPRESSION_TYPE_MASK, MessageExt

Codec = Literal["zlib", "lz4", "zstd"]

COMPRESSION_TYPES: Final[dict[Codec, int]] = {"lz4": 0x100, "zstd": 0x200, "zlib": 0x300}
"""What SYSFLAG says beside COMPRESSED_FLAG."""

_LEVEL: Final = 5
"""RocketMQ's msgCompressLevel, of every codec."""

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest body given out. RocketMQ takes 4 MiB before compression."""

_ZSTD_STEP_BYTES: Final = 512
"""Its decoder knows no bound of output; this much input makes 16 MiB at most."""


class CompressionFault(enum.Enum):
    """Why a body cannot be decompressed, or compressed."""

    UNKNOWN_CODEC = enum.auto()
    """SYSFLAG names none that RocketMQ has."""
    NO_LIBRARY = enum.auto()
    """The package of its codec is not installed."""
    DAMAGED = enum.auto()
    """It is not what its codec makes, or only the beginning of it."""
    TOO_LARGE = enum.auto()
    """It would be larger than is given out."""


class CompressionError(WireError):
    """A body cannot be decompressed; `fault` says why."""

    def __init__(self, text: str, fault: CompressionFault) -> None:
        super().__init__(text, fault)
        self.fault = fault

    def __str__(self) -> str:
        return str(self.args[0])


def checked_codec(codec: Codec) -> Codec:
    """Return `codec` if it can be used here.

    Raises:
        ArgumentError: there is no such codec, or its package is not installed (then `__cause__`
            is a CompressionError).
    """
    if codec not in COMPRESSION_TYPES:
        names = ", ".join(sorted(COMPRESSION_TYPES))
        raise ArgumentError(f"compression is {codec!r}; it is one of {names}", "compression")
    try:
        compress(b"", codec)
    except CompressionError as error:
        raise ArgumentError(f"compression is {codec!r}: {error}", "compression") from error
    return codec


def compress(body: bytes, codec: Codec) -> bytes:
    """Return `body` as RocketMQ's producers compress it, at RocketMQ's default level.

    Raises:
        CompressionError: the package for this codec is not installed.

    Source: MessageSysFlag, CompressionType, DefaultMQProducer (compressLevel 5).
    """
    match codec:
        case "lz4":
            lz4: bytes = _package("lz4.frame", "LZ4").compress(body, compression_level=_LEVEL)
            return lz4
        case "zstd":
            compressor = _package("zstandard", "ZSTD").ZstdCompressor(level=_LEVEL)
            zstd: bytes = compressor.compress(body)
            return zstd
        case "zlib":
            return zlib.compress(body, _LEVEL)
        case _:
            assert_never(codec)


def decompressed(message: MessageExt, body_bytes_max: int = BODY_BYTES_MAX) -> MessageExt:
    """Return `message` with its body as the producer wrote it, and without COMPRESSED_FLAG.

    Raises:
        CompressionError: see `decompress`.

    Source: MessageDecoder.decode with deCompressBody.
    """
    if not message.sys_flag & COMPRESSED_FLAG:
        return message
    return msgspec.structs.replace(
        message,
        body=decompress(message.body, message.sys_flag, body_bytes_max),
        sys_flag=message.sys_flag & ~COMPRESSED_FLAG,
    )


def decompress(body: bytes, sys_flag: int, body_bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Undo the compression that `sys_flag` names, whether or not it says COMPRESSED.

    Raises:
        CompressionError: the body is damaged or cut, has more than `body_bytes_max` bytes, or its
            codec is unknown or not installed. The text says which, and what to install.
    """
    kind = (sys_flag & COMPRESSION_TYPE_MASK) >> 8
    codec = _CODECS.get(kind)
    if codec is None:
        raise CompressionError(
            f"compression type {kind} in SYSFLAG is unknown (1 LZ4, 2 ZSTD, 3 zlib)",
            CompressionFault.UNKNOWN_CODEC,
        )
    return codec(body, body_bytes_max)


def _zlib(body: bytes, body_bytes_max: int) -> bytes:
    codec = zlib.decompressobj()
    try:
        plain = codec.decompress(body, body_bytes_max + 1)
    except zlib.error as error:
        text = f"the body is not zlib: {error}"
        raise CompressionError(text, CompressionFault.DAMAGED) from error
    return _whole(plain, body_bytes_max, is_whole=codec.eof)


def _lz4(body: bytes, body_bytes_max: int) -> bytes:
    frame = _package("lz4.frame", "LZ4")
    codec = frame.LZ4FrameDecompressor()
    try:
        plain: bytes = codec.decompress(body, body_bytes_max + 1)
    except (RuntimeError, ValueError) as error:
        text = f"the body is not LZ4: {error}"
        raise CompressionError(text, CompressionFault.DAMAGED) from error
    return _whole(plain, body_bytes_max, is_whole=codec.eof)


def _zstd(body: bytes, body_bytes_max: int) -> bytes:
    package = _package("zstandard", "ZSTD")
    codec = package.ZstdDecompressor(max_window_size=BODY_BYTES_MAX).decompressobj()
    parts: list[bytes] = []
    size = 0
    try:
        for start in range(0, len(body), _ZSTD_STEP_BYTES):
            part: bytes = codec.decompress(body[start : start + _ZSTD_STEP_BYTES])
            parts.append(part)
            size += len(part)
            if size > body_bytes_max:
                raise _too_large(body_bytes_max)
            if codec.eof:
                break
    except package.ZstdError as error:
        text = f"the body is not ZSTD: {error}"
        raise CompressionError(text, CompressionFault.DAMAGED) from error
    return _whole(b"".join(parts), body_bytes_max, is_whole=codec.eof)


_CODECS: Final[dict[int, Callable[[bytes, int], bytes]]] = {0: _zlib, 1: _lz4, 2: _zstd, 3: _zlib}


def _package(name: str, codec: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise CompressionError(
            f"the Python package for {codec} is missing: pip install 'tandem-mq[compression]'",
            CompressionFault.NO_LIBRARY,
        ) from error


def _whole(plain: bytes, body_bytes_max: int, *, is_whole: bool) -> bytes:
    if len(plain) > body_bytes_max:
        raise _too_large(body_bytes_max)
    if not is_whole:
        raise CompressionError("the body is cut", CompressionFault.DAMAGED)
    return plain


def _too_large(body_bytes_max: int) -> CompressionError:
    text = f"the body has more than {body_bytes_max} bytes"
    return CompressionError(text, CompressionFault.TOO_LARGE)

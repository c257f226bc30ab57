"""Bodies as RocketMQ's producers compress them, cut, damaged, and made to swell."""

import importlib
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.compression import (
    COMPRESSION_TYPES,
    Codec,
    CompressionError,
    CompressionFault,
    checked_codec,
    compress,
    decompress,
    decompressed,
)
from tandem.wire.errors import ArgumentError
from tandem.wire.message import COMPRESSED_FLAG
from tests.tandem.client.fake_broker import message_ext

lz4 = pytest.importorskip("lz4.frame")
zstandard = pytest.importorskip("zstandard")

TEXT = b"a body of some length, " * 300


def zstd(body: bytes) -> bytes:
    return bytes(zstandard.ZstdCompressor(write_content_size=False).compress(body))


def lz4_frame(body: bytes) -> bytes:
    return bytes(lz4.compress(body, store_size=False))


CODECS: list[tuple[int, Callable[[bytes], bytes]]] = [
    (0x001, zlib.compress),
    (0x101, lz4_frame),
    (0x201, zstd),
    (0x301, zlib.compress),
]


@pytest.mark.parametrize(("sys_flag", "compress"), CODECS)
def test_every_kind_is_undone_and_the_flag_is_taken_away(
    sys_flag: int, compress: Callable[[bytes], bytes]
) -> None:
    """MessageDecoder.decode; the kind stays in the flags."""
    message = decompressed(message_ext(compress(TEXT), sys_flag=sys_flag | 0x42))
    assert message.body == TEXT
    assert message.sys_flag == sys_flag & ~1 | 0x42
    assert decompressed(message) is message


@pytest.mark.parametrize(
    ("sys_flag", "frame"),
    [
        (0x101, "04224d186440a70500008068656c6c6f00000000f97700fb"),
        (0x201, "28b52ffd045829000068656c6c6fa36d9f88"),
    ],
)
def test_frames_of_other_writers_are_read(sys_flag: int, frame: str) -> None:
    """`printf hello | lz4 -c` (1.9.4), `printf hello | zstd -c` (1.5.4)."""
    assert decompress(bytes.fromhex(frame), sys_flag) == b"hello"


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
def test_unknown_kinds_are_refused(kind: int) -> None:
    """CompressionType.findByValue raises."""
    with pytest.raises(CompressionError) as caught:
        decompressed(message_ext(b"x", sys_flag=kind << 8 | 1))
    assert caught.value.fault is CompressionFault.UNKNOWN_CODEC
    plain = message_ext(b"x", sys_flag=kind << 8)
    assert decompressed(plain) is plain


@pytest.mark.parametrize(("sys_flag", "compress"), CODECS)
def test_a_cut_body_is_refused_wherever_it_is_cut(
    sys_flag: int, compress: Callable[[bytes], bytes]
) -> None:
    whole = compress(TEXT)
    for size in range(len(whole)):
        with pytest.raises(CompressionError) as caught:
            decompress(whole[:size], sys_flag)
        assert caught.value.fault is CompressionFault.DAMAGED


@pytest.mark.parametrize(("sys_flag", "compress"), CODECS)
@given(at=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_a_damaged_body_is_read_or_refused_and_nothing_else(
    sys_flag: int, compress: Callable[[bytes], bytes], at: int, byte: int
) -> None:
    damaged = bytearray(compress(TEXT))
    damaged[at % len(damaged)] = byte
    try:
        decompress(bytes(damaged), sys_flag, 10_000)
    except CompressionError:
        return


@pytest.mark.parametrize("sys_flag", [flag for flag, _ in CODECS])
@given(body=st.binary(max_size=100))
def test_random_bytes_are_refused(sys_flag: int, body: bytes) -> None:
    with pytest.raises(CompressionError):
        decompress(body, sys_flag)


@pytest.mark.parametrize(("sys_flag", "compress"), CODECS)
def test_the_largest_body_passes_and_one_byte_more_does_not(
    sys_flag: int, compress: Callable[[bytes], bytes]
) -> None:
    assert decompress(compress(bytes(1000)), sys_flag, 1000) == bytes(1000)
    with pytest.raises(CompressionError) as caught:
        decompress(compress(bytes(1001)), sys_flag, 1000)
    assert caught.value.fault is CompressionFault.TOO_LARGE


@pytest.mark.parametrize(("sys_flag", "compress"), CODECS)
def test_a_bomb_takes_bounded_memory(sys_flag: int, compress: Callable[[bytes], bytes]) -> None:
    bomb = compress(bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError) as caught:
            decompress(bomb, sys_flag, 1 << 20)
        assert caught.value.fault is CompressionFault.TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("sys_flag", "name"), [(0x101, "LZ4"), (0x201, "ZSTD")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    sys_flag: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_missing(package: str) -> None:
        raise ModuleNotFoundError(package)

    monkeypatch.setattr(importlib, "import_module", is_missing)
    with pytest.raises(
        CompressionError, match=rf"{name}.* pip install 'tandem-mq\[compression\]'"
    ) as caught:
        decompressed(message_ext(b"x", sys_flag=sys_flag))
    assert caught.value.fault is CompressionFault.NO_LIBRARY


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
def test_what_is_compressed_here_is_undone_by_its_flag(codec: Codec) -> None:
    small = compress(TEXT, checked_codec(codec))
    assert len(small) < len(TEXT) / 10
    assert decompress(small, COMPRESSED_FLAG | COMPRESSION_TYPES[codec]) == TEXT


def test_a_codec_that_cannot_be_used_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError) as unknown:
        checked_codec("gzip")  # type: ignore[arg-type]
    assert (unknown.value.names, unknown.value.__cause__) == (("compression",), None)

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ArgumentError) as no_library:
        checked_codec("zstd")
    assert isinstance(no_library.value.__cause__, CompressionError)
    assert no_library.value.__cause__.fault is CompressionFault.NO_LIBRARY

"""The checksum of the log, computed three ways."""

import importlib.util
import random
import sys
import zlib
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire import crc
from tests.support.judges import crc32_of


@given(st.binary(max_size=4096))
def test_zlib_crcmod_and_ours_agree(data: bytes) -> None:
    """UtilAll.crc32: the value without its top bit, so that it is no negative Java int."""
    assert crc.raw_crc32(data) == zlib.crc32(data) == crc32_of(data)
    assert crc.crc32(data) == crc32_of(data) & 0x7FFFFFFF


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_parts_one_after_the_other_give_the_value_of_the_whole(parts: list[bytes]) -> None:
    """As the frames of a fenced group and the CRC property are checked."""
    value = 0
    for part in parts:
        value = crc.raw_crc32(part, value)
    assert value == crc32_of(b"".join(parts))


@pytest.mark.parametrize(
    "size", [0, 1, 15, 16, 63, 64, 65, 255, 256, 1023, 4097, 70_001, 1_000_003]
)
def test_every_size_and_alignment_has_crcmods_value(size: int) -> None:
    """Where there are vector instructions, each kind of length takes another path."""
    data = random.Random(size).randbytes(size + 17)
    for start in range(17):
        part = memoryview(data)[start : start + size]
        assert crc.raw_crc32(part) == crc32_of(part)


@given(st.binary(max_size=4096))
def test_isal_agrees_with_zlib(data: bytes) -> None:
    isal_zlib = pytest.importorskip("isal.isal_zlib", reason="no wheel for this platform")
    assert isal_zlib.crc32(data) == zlib.crc32(data)


def test_the_top_bit_is_cleared() -> None:
    data = next(b"%d" % n for n in range(100) if zlib.crc32(b"%d" % n) > 0x7FFFFFFF)
    assert crc.crc32(data) == zlib.crc32(data) - 0x80000000


def test_nothing_has_the_checksum_zero() -> None:
    assert crc.crc32(b"") == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_buffer_will_do(kind: type) -> None:
    assert crc.crc32(kind(b"hello0")) == 0x7036E992


def test_without_isal_the_value_is_zlibs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal", None)
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    without = _fresh()
    assert without.raw_crc32 is zlib.crc32
    assert without.crc32(b"hello0") == 0x7036E992


def _fresh() -> ModuleType:
    """Load the module once more, beside the one everybody uses."""
    spec = importlib.util.spec_from_file_location("crc_again", crc.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

import zlib

import pytest

from tandem.client.compression import decompressed
from tandem.client.errors import CompressedBodyError
from tests.tandem.client.fake_broker import message_ext


@pytest.mark.parametrize("sys_flag", [0x001, 0x301])
def test_zlib_is_undone_whether_named_or_not(sys_flag: int) -> None:
    message = message_ext(zlib.compress(b"text" * 1000), sys_flag=sys_flag)
    assert decompressed(message).body == b"text" * 1000


def test_a_plain_body_is_left_alone() -> None:
    message = message_ext(b"plain", sys_flag=0x300)
    assert decompressed(message) is message


@pytest.mark.parametrize(("sys_flag", "name"), [(0x101, "LZ4"), (0x201, "zstd"), (0x701, "0x700")])
def test_a_codec_that_is_not_built_in_is_named(sys_flag: int, name: str) -> None:
    message = message_ext(b"?", sys_flag=sys_flag, queue_offset=7)
    with pytest.raises(CompressedBodyError, match=f"no {name} codec") as caught:
        decompressed(message)
    assert caught.value.compressed_message is message


@pytest.mark.parametrize("body", [b"not zlib", zlib.compress(b"text" * 1000)[:-5], b""])
def test_a_damaged_body_is_refused(body: bytes) -> None:
    with pytest.raises(CompressedBodyError):
        decompressed(message_ext(body, sys_flag=1))


def test_a_body_that_swells_beyond_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandem.client.compression.BODY_BYTES_MAX", 1000)
    with pytest.raises(CompressedBodyError, match="larger than 1000 bytes"):
        decompressed(message_ext(zlib.compress(b"x" * 1001), sys_flag=1))

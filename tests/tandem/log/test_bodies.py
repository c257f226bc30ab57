import zlib

import msgspec
import pytest

from tandem.log.bodies import decode_body
from tandem.wire.message import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAG,
    NEED_UNWRAP_FLAG,
    Message,
    MessageExt,
    encode_batch_body,
)
from tests.support.log_builder import LogBuilder

BATCH = NEED_UNWRAP_FLAG | INNER_BATCH_FLAG


def stored(body: bytes, sys_flag: int) -> MessageExt:
    return msgspec.structs.replace(LogBuilder().put(body=body), sys_flag=sys_flag, queue_offset=7)


def test_a_plain_body_is_itself() -> None:
    assert decode_body(stored(b"hello", 0)).body == b"hello"


def test_a_compressed_body_is_decompressed() -> None:
    assert decode_body(stored(zlib.compress(b"hello"), COMPRESSED_FLAG)).body == b"hello"


@pytest.mark.parametrize("is_compressed", [False, True])
def test_an_inner_batch_is_taken_apart(is_compressed: bool) -> None:  # noqa: FBT001
    body = encode_batch_body([Message("T", b"a", keys="k"), Message("T", b"b")])
    flags = BATCH | (COMPRESSED_FLAG if is_compressed else 0)
    decoded = decode_body(stored(zlib.compress(body) if is_compressed else body, flags))
    assert [(m.queue_offset, m.body, m.keys) for m in decoded.inner] == [
        (7, b"a", "k"),
        (8, b"b", ""),
    ]


@pytest.mark.parametrize("sys_flag", [COMPRESSED_FLAG, COMPRESSED_FLAG | 0x700, BATCH])
def test_a_body_that_cannot_be_decoded_is_shown_as_stored_and_why(sys_flag: int) -> None:
    decoded = decode_body(stored(b"garbage", sys_flag))
    assert decoded.body == b"garbage"
    assert decoded.problem

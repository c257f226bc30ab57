import zlib

import pytest

from tandem.client.compression import decompressed
from tandem.client.errors import CompressedBodyError
from tandem.wire.compression import CompressionError, CompressionFault
from tests.tandem.client.fake_broker import message_ext


def test_a_compressed_body_is_undone() -> None:
    message = decompressed(message_ext(zlib.compress(b"text" * 1000), sys_flag=0x301))
    assert (message.body, message.sys_flag) == (b"text" * 1000, 0x300)


def test_a_plain_body_is_left_alone() -> None:
    message = message_ext(b"plain", sys_flag=0x300)
    assert decompressed(message) is message


def test_a_body_that_cannot_be_read_comes_with_its_message() -> None:
    message = message_ext(b"not zlib", sys_flag=1, queue_offset=7)
    with pytest.raises(CompressedBodyError) as caught:
        decompressed(message)
    assert caught.value.fault is CompressionFault.DAMAGED
    assert caught.value.compressed_message is message
    assert isinstance(caught.value.__cause__, CompressionError)

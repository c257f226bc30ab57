from __future__ import annotations

import pytest
from hpack import Decoder, Encoder

from node.grpc.header_blocks import (
    BEGIN,
    HEADER_LIST_BYTES_MAX,
    HeaderBlockError,
    HeaderBlocks,
    end_block,
    only_end_block,
)

REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/x"),
    (":authority", "a"),
    ("x-mq-client-id", "me"),
]


def read(block: bytes) -> dict[str, str]:
    return {str(name): str(value) for name, value in Decoder().decode(block)}


def test_our_blocks_say_what_they_are_to_say() -> None:
    assert read(BEGIN) == {":status": "200", "content-type": "application/grpc"}
    assert read(end_block()) == {"grpc-status": "0"}
    assert read(end_block(13, "a % b")) == {"grpc-status": "13", "grpc-message": "a %25 b"}
    assert read(only_end_block(12, "")) == read(BEGIN) | {"grpc-status": "12", "grpc-message": ""}


@pytest.mark.parametrize("size", [1, 126, 127, 128, 300, 900])
def test_texts_of_every_length_are_written(size: int) -> None:
    assert read(end_block(2, "x" * size))["grpc-message"] == "x" * size


def test_blocks_of_one_connection_share_a_table() -> None:
    encoder, blocks = Encoder(), HeaderBlocks()
    first, second = encoder.encode(REQUEST), encoder.encode(REQUEST)
    assert len(second) < len(first) / 2
    assert blocks.read(first) == blocks.read(second) == dict(REQUEST)


@pytest.mark.parametrize(
    "pairs",
    [
        [*REQUEST, ("X", "y")],
        [("a", "b"), *REQUEST],
        [*REQUEST[:1], *REQUEST],
        [(":status", "200"), *REQUEST],
    ],
)
def test_what_is_no_request_is_read_as_none_and_the_table_lives(
    pairs: list[tuple[str, str]],
) -> None:
    encoder, blocks = Encoder(), HeaderBlocks()
    assert blocks.read(encoder.encode(pairs)) is None
    assert blocks.read(encoder.encode(REQUEST)) == dict(REQUEST)


@pytest.mark.parametrize("block", [b"\xff\xff\xff\xff", b"\x80", b"\x00\x05a", b"\x40\x81\xff\x00"])
def test_what_cannot_be_read_is_one_error(block: bytes) -> None:
    with pytest.raises(HeaderBlockError):
        HeaderBlocks().read(block)


def test_more_than_the_bound_is_refused_however_short_it_is_written() -> None:
    many = Encoder().encode([*REQUEST, *[("x-a", "v" * 100)] * (HEADER_LIST_BYTES_MAX // 100)])
    assert len(many) < HEADER_LIST_BYTES_MAX / 10
    with pytest.raises(HeaderBlockError):
        HeaderBlocks().read(many)

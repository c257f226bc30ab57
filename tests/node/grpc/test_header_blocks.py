import random

import pytest
from hpack import Decoder, Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from node.grpc import header_blocks
from node.grpc.header_blocks import (
    BEGIN,
    HEADER_LIST_BYTES_MAX,
    HeaderBlockError,
    HeaderBlocks,
    end_block,
    only_end_block,
)
from tandem.wire import native

pytestmark = pytest.mark.usefixtures("_in_c_and_python")

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


@pytest.mark.parametrize("field", [("a", "b\0c"), ("a", "b\n"), ("a\r", "b"), ("a\0b", "c")])
def test_a_field_with_a_zero_or_the_end_of_a_line_makes_no_request(field: tuple[str, str]) -> None:
    encoder, blocks = Encoder(), HeaderBlocks()
    assert blocks.read(encoder.encode([*REQUEST, field])) is None
    assert blocks.read(encoder.encode(REQUEST)) == dict(REQUEST)


@pytest.mark.parametrize(
    ("text", "is_good"),
    [
        (b"\x1f", True),  # a, and ones
        (b"\x1f\xff", False),  # a whole byte of ones
        (b"\x18", False),  # what is left is not ones
        (b"\xff\xff\xff\xff", False),  # the end of a string is in it
        (b"\xff", False),
        (b"", True),
    ],
)
def test_what_is_left_of_a_short_text_is_ones_and_less_than_a_byte(
    text: bytes, *, is_good: bool
) -> None:
    block = b"\0\x01x" + bytes([0x80 | len(text)]) + text
    if is_good:
        assert HeaderBlocks().read(block) == {"x": "a" if text else ""}
    else:
        with pytest.raises(HeaderBlockError):
            HeaderBlocks().read(block)


@pytest.mark.parametrize(
    ("update", "is_good"),
    [
        (b"\x20", True),  # 0
        (b"\x20\x3f\xe1\x1f", True),  # 0 and 4,096
        (b"\x3f\xe2\x1f", False),  # 4,097
        (b"\x3f\x80\x80\x80\x80\x80\x00", False),  # a number without end
    ],
)
def test_the_table_has_the_size_that_a_client_says_up_to_the_bound(
    update: bytes, *, is_good: bool
) -> None:
    encoder, blocks = Encoder(), HeaderBlocks()
    blocks.read(encoder.encode([("a", "b")]))
    if not is_good:
        with pytest.raises(HeaderBlockError):
            blocks.read(update)
        return
    assert blocks.read(update) == {}
    with pytest.raises(HeaderBlockError):
        blocks.read(b"\xbe")  # what was in the table is not there any more


def test_the_size_of_the_table_changes_before_all_fields() -> None:
    with pytest.raises(HeaderBlockError):
        HeaderBlocks().read(b"\x83\x20")


def test_a_field_larger_than_the_table_empties_it() -> None:
    encoder, blocks = Encoder(), HeaderBlocks()
    blocks.read(encoder.encode([("a", "b")]))
    assert blocks.read(encoder.encode([("c", "d" * 5000)])) == {"c": "d" * 5000}
    with pytest.raises(HeaderBlockError):
        blocks.read(b"\xbe")


def test_the_table_forgets_the_oldest_and_knows_the_others_by_any_number_of_blocks() -> None:
    encoder, blocks = Encoder(), HeaderBlocks()
    for number in range(2000):
        pairs = [("name", "value"), ("x-id", f"{number:0{number % 90 + 4}}"), ("x", "y" * 20)]
        assert blocks.read(encoder.encode(pairs)) == dict(pairs)


def _said(blocks: HeaderBlocks, block: bytes) -> dict[str, str] | str | None:
    try:
        return blocks.read(block)
    except HeaderBlockError:
        return "error"


@pytest.mark.slow
@settings(max_examples=4 * settings().max_examples)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.sampled_from([0, 31, 64, 1000, 4096, 5000]), max_size=3),
)
def test_c_and_hpack_read_the_same_of_any_blocks(seed: int, sizes: list[int]) -> None:
    if native.loops is None:
        pytest.skip("in Python alone")
    chance, encoder = random.Random(seed), Encoder()
    ours, theirs = HeaderBlocks(), HeaderBlocks()
    theirs._read = header_blocks._InPython().read
    for at in range(chance.randrange(1, 12)):
        if at < len(sizes):
            encoder.header_table_size = sizes[at]
        block = _damaged(encoder.encode(_pairs(chance), huffman=chance.random() < 0.7), chance)
        said = _said(ours, block)
        assert said == _said(theirs, block)
        if said == "error":
            return


_NAMES = (
    *(b":method", b":path", b":scheme", b":authority", b"te", b"content-type", b"x-mq-client-id"),
    *(b"user-agent", b"authorization", b"a" * 300, b"", b":status", b"X-Up", b"b\0c"),
)


def _pairs(chance: random.Random) -> list[tuple[bytes, bytes]]:
    found: dict[bytes, bytes] = {}
    for _ in range(chance.randrange(20)):
        name = chance.choice(_NAMES[:10] if chance.random() < 0.95 else _NAMES)
        size = chance.choice([0, 1, 3, 10, 40, 200, 4000 if chance.random() < 0.1 else 5])
        plain = bytes(chance.choices(b"abcdef0123456789-_/%", k=size))
        found[name] = plain if chance.random() < 0.95 else chance.randbytes(size)
    pairs = list(found.items())
    if chance.random() < 0.8:
        pairs.sort(key=lambda pair: not pair[0].startswith(b":"))
    return pairs


def _damaged(block: bytes, chance: random.Random) -> bytes:
    if chance.random() > 0.2 or not block:
        return block
    if chance.random() < 0.3:
        return chance.randbytes(chance.randrange(60))
    at = chance.randrange(len(block))
    return chance.choice(
        [
            block[:at] + chance.randbytes(1) + block[at + 1 :],
            block[:at] + block[at + 1 :],
            block[:at] + chance.randbytes(1) + block[at:],
            block[:at],
        ]
    )

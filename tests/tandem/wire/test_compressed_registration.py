import contextlib
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.compressed_registration import (
    INFLATED_BYTES_MAX,
    TOPICS_IN_A_PIECE,
    decode_compressed_registration,
)
from tandem.wire.errors import MalformedFrameError
from tandem.wire.request_headers import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tests.support.registration_body import block, compressed_registration


def decoded(body: bytes) -> tuple[RegisterBrokerBody, int]:
    """What is in a body, and in how many pieces it was read."""
    work, pieces = decode_compressed_registration(body), 1
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, pieces
        pieces += 1


def test_topics_their_version_and_filter_servers_are_read() -> None:
    topics = ["T 4 8 6 SINGLE_TAG {}", 'U 1 2 -3 MULTI_TAG {"message.type":"FIFO 1"}']
    body = compressed_registration(topics, filter_servers='["127.0.0.1:1"]')
    table = {
        "T": TopicConfig("T", 4, 8, 6),
        "U": TopicConfig("U", 1, 2, -3, "MULTI_TAG", attributes={"message.type": "FIFO 1"}),
    }
    version = DataVersion(state_version=1, timestamp=5, counter=3)
    topics_of = TopicConfigSerializeWrapper(table, version)
    assert decoded(body) == (RegisterBrokerBody(topics_of, ["127.0.0.1:1"]), 1)


@pytest.mark.parametrize("topic", ["T 4 8 6 SINGLE_TAG", "T 4 8 6 SINGLE_TAG "])
def test_a_topic_may_have_no_attributes(topic: str) -> None:
    body, _ = decoded(compressed_registration([topic]))
    assert body.topic_config_serialize_wrapper.topic_config_table == {"T": TopicConfig("T", 4)}


@pytest.mark.parametrize("end", [b"", struct.pack(">i", 1) + block("{}")])
def test_static_topics_may_be_there_or_not(end: bytes) -> None:
    body, _ = decoded(compressed_registration([], end=end))
    assert not body.topic_config_serialize_wrapper.topic_config_table


def test_others_have_their_turn_after_many_topics() -> None:
    topics = [f"T{number} 8 8 6 SINGLE_TAG {{}}" for number in range(2 * TOPICS_IN_A_PIECE)]
    body, pieces = decoded(compressed_registration(topics))
    assert len(body.topic_config_serialize_wrapper.topic_config_table) == len(topics)
    assert pieces == 3


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "T 4 8 6",
        "T four 8 6 SINGLE_TAG",
        "T 1_0 8 6 SINGLE_TAG",
        "T \N{FULLWIDTH DIGIT FOUR} 8 6 SINGLE_TAG",
        "T 4 2147483648 6 SINGLE_TAG",
        "T 4 8 99999999999999999999 SINGLE_TAG",
        "T 4 8 6 SINGLE_TAG {",
        'T 4 8 6 SINGLE_TAG {"a":1}',
        "T 4 8 6 SINGLE_TAG []",
    ],
)
def test_a_topic_that_is_none_is_refused(topic: str) -> None:
    with pytest.raises(MalformedFrameError):
        decoded(compressed_registration([topic]))


@pytest.mark.parametrize(
    "inflated",
    [
        b"",
        bytes(3),
        struct.pack(">i", -1),
        struct.pack(">i", 5) + b"{}",
        block("{}"),
        block("{}") + struct.pack(">i", -1),
        block("{}") + struct.pack(">i", 2**31 - 1),
        block("{}") + struct.pack(">i", 0),
        block("{}") + struct.pack(">ii", 1, 1) + b"\xff" + block("[]"),
        block("{}") + struct.pack(">i", 0) + block("{}"),
        block("no version") + struct.pack(">i", 0) + block("[]"),
    ],
)
def test_a_body_that_is_none_is_refused(inflated: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        decoded(zlib.compress(inflated))


@pytest.mark.parametrize("body", [b"", b"{}", b"\x78\x9c", compressed_registration([])[:-1]])
def test_what_is_no_whole_zlib_stream_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        decoded(body)


def test_a_small_body_does_not_fill_the_memory() -> None:
    bomb = zlib.compress(bytes(INFLATED_BYTES_MAX + 1))
    assert len(bomb) < 100_000
    with pytest.raises(MalformedFrameError, match=str(INFLATED_BYTES_MAX)):
        decoded(bomb)


@given(st.binary(max_size=200), st.integers(0, 120), st.integers(0, 255))
def test_hostile_bytes_are_refused_or_read(noise: bytes, at: int, value: int) -> None:
    good = zlib.decompress(compressed_registration(['T 4 8 6 SINGLE_TAG {"a":"b"}']))
    changed = bytearray(good)
    changed[at % len(good)] = value
    for inflated in (noise, bytes(changed)):
        for body in (inflated, zlib.compress(inflated)):
            with contextlib.suppress(MalformedFrameError):
                decoded(body)


def test_more_topics_than_there_may_be_are_refused_before_any_is_read() -> None:
    with pytest.raises(MalformedFrameError, match="99999"):
        decoded(zlib.compress(block("{}") + struct.pack(">i", 99_999)))

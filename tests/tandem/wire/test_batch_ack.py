"""BATCH_ACK_MESSAGE, against what RocketMQ makes of it."""

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.batch_ack import (
    BITS_BYTES_MAX,
    BatchAck,
    BatchAckMessageRequestBody,
    decode_batch_ack,
    decode_bits,
    encode_bits,
)
from tandem.wire.errors import MalformedFrameError
from tandem.wire.route import encode_json_body
from tandem.wire.untrusted import UnreadableError

DATA = Path(__file__).parents[2] / "data/rocketmq-5.3.3/requests/batch-ack.json"
VECTORS: dict[str, dict[str, Any]] = {each["what"]: each for each in json.loads(DATA.read_text())}
BODY = VECTORS["BATCH_ACK body"]
ACK = BatchAck("IwI=", "CG", 60_000, 1_700_000_000_000, 2, "0", 3, 100, "T1")


def test_a_body_is_that_of_rocketmq_to_the_byte() -> None:
    body = BatchAckMessageRequestBody([ACK], "broker-a")
    assert encode_json_body(body) == BODY["json"].encode()
    assert decode_batch_ack(BODY["json"].encode()) == body


def test_the_bits_are_those_of_a_java_bit_set() -> None:
    assert decode_bits("IwI=") == BODY["bits"]
    assert base64.b64decode(encode_bits(BODY["bits"])).hex() == BODY["bitSetBytesHex"]
    assert ACK.offsets() == [100, 101, 105, 109]


def test_long_names_are_read_as_well() -> None:
    body = json.dumps(
        {
            "acks": [
                {
                    "bitSet": "IwI=",
                    "consumerGroup": "CG",
                    "invisibleTime": 60_000,
                    "popTime": 1,
                    "queueId": 2,
                    "retry": "0",
                    "reviveQueueId": 3,
                    "startOffset": 100,
                    "topic": "T1",
                }
            ]
        }
    )
    assert decode_batch_ack(body.encode()) == BatchAckMessageRequestBody(
        [msgspec.structs.replace(ACK, pop_time_ms=1)]
    )


@pytest.mark.parametrize(
    ("mark", "topic"), [("0", "T1"), ("1", "%RETRY%CG_T1"), ("2", "%RETRY%CG+T1")]
)
def test_the_mark_says_in_which_topic_the_messages_are(mark: str, topic: str) -> None:
    assert msgspec.structs.replace(ACK, mark=mark).real_topic == topic


def test_an_unknown_mark_is_unreadable() -> None:
    with pytest.raises(UnreadableError):
        _ = msgspec.structs.replace(ACK, mark="3").real_topic


def test_messages_in_order_are_known_by_their_revive_queue() -> None:
    assert msgspec.structs.replace(ACK, revive_queue_id=999).is_ordered
    assert not ACK.is_ordered


@pytest.mark.parametrize("name", ["b", "bitSet"])
def test_an_entry_without_bits_acknowledges_nothing_and_is_none_the_less_one(name: str) -> None:
    body = json.dumps({"acks": [{name: "", "c": "CG", "t": "T1"}]})
    (ack,) = decode_batch_ack(body.encode()).acks
    assert (ack.offsets(), ack.count) == ([], 0)


@pytest.mark.parametrize("text", ['{"acks":[]}', "{}", '{"acks":null}'])
def test_no_entries_are_an_empty_body(text: str) -> None:
    assert decode_batch_ack(text.encode()).acks == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"acks":[{}]}',
        '{"acks":[{"b":"AQ==","c":"CG"}]}',
        '{"acks":[{"b":"AQ==","c":"","t":"T1"}]}',
        '{"acks":[{"c":"CG","t":"T1"}]}',
        '{"acks":[{"b":"AQ==","c":"CG","t":"T1","so":9223372036854775808}]}',
        '{"acks":[{"b":"AQ==","c":"CG","t":"T1","q":1.5}]}',
        '{"acks":[{"b":7,"c":"CG","t":"T1"}]}',
    ],
)
def test_what_is_no_body_is_an_error_of_the_request(text: str) -> None:
    with pytest.raises(MalformedFrameError):
        decode_batch_ack(text.encode())


@pytest.mark.parametrize("at", range(len(BODY["json"])))
def test_a_cut_body_is_an_error_of_the_request(at: int) -> None:
    with pytest.raises(MalformedFrameError):
        decode_batch_ack(BODY["json"][:at].encode())


@pytest.mark.parametrize(
    "text",
    ["*", "A", "AQ", "ä", base64.b64encode(b"\1" * (BITS_BYTES_MAX + 1)).decode(), "A" * 100_000],
)
def test_what_are_no_bits_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError):
        decode_bits(text)


@given(st.sets(st.integers(0, BITS_BYTES_MAX * 8 - 1), max_size=40))
def test_bits_are_read_as_they_were_written(bits: set[int]) -> None:
    assert decode_bits(encode_bits(bits)) == sorted(bits)


@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
def test_any_bytes_are_a_body_or_an_error_of_the_request(body: bytes) -> None:
    with contextlib.suppress(MalformedFrameError):
        decode_batch_ack(body)


@given(st.text(max_size=40))
def test_any_text_is_bits_or_unreadable(text: str) -> None:
    with contextlib.suppress(UnreadableError):
        decode_bits(text)

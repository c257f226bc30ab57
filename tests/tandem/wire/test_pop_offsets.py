"""What an answer to a pop says of its offsets, against what RocketMQ makes of it."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.pop_offsets import (
    PoppedOffset,
    PoppedQueue,
    decode_message_offsets,
    decode_order_counts,
    decode_start_offsets,
    encode_message_offsets,
    encode_order_counts,
    encode_start_offsets,
)
from tandem.wire.receipt_handle import TopicMark
from tandem.wire.untrusted import UnreadableError

DATA = Path(__file__).parents[2] / "data/rocketmq-5.3.3/requests"
VECTORS: list[dict[str, Any]] = json.loads((DATA / "extra-info.json").read_text())
BY_NAME = {each["fn"]: each for each in VECTORS}

OFFSETS = st.integers(0, (1 << 63) - 1)
QUEUES = st.builds(PoppedQueue, st.sampled_from(TopicMark), st.integers(0, 1000))
PLACES = st.builds(
    PoppedOffset, st.sampled_from(TopicMark), st.integers(0, 1000), OFFSETS | st.none()
)


def test_the_starts_are_those_of_rocketmq() -> None:
    vector = BY_NAME["startOffsetInfo"]
    starts = decode_start_offsets(vector["out"])
    assert {f"{key.mark.value}@{key.queue_id}": each for key, each in starts.items()} == (
        vector["parsed"]
    )
    assert encode_start_offsets(starts) == vector["out"]


def test_the_offsets_of_messages_are_those_of_rocketmq() -> None:
    vector = BY_NAME["msgOffsetInfo"]
    offsets = decode_message_offsets(vector["out"])
    assert {f"{key.mark.value}@{key.queue_id}": each for key, each in offsets.items()} == (
        vector["parsed"]
    )
    assert encode_message_offsets(offsets) == vector["out"]


def test_the_counts_of_messages_in_order_are_those_of_rocketmq() -> None:
    vector = BY_NAME["orderCountInfo"]
    counts = decode_order_counts(vector["out"])
    assert counts == {
        PoppedOffset(TopicMark.NORMAL, 2, 100): 1,
        PoppedOffset(TopicMark.NORMAL, 2, None): 0,
    }
    assert encode_order_counts(counts) == vector["out"]


@pytest.mark.parametrize(
    "vector", [each for each in VECTORS if each["fn"] == "parseStartOffsetInfo" and each["in"]]
)
def test_what_rocketmq_does_not_read_is_unreadable(vector: dict[str, str]) -> None:
    with pytest.raises(UnreadableError):
        decode_start_offsets(vector["in"])


def test_an_empty_text_says_nothing() -> None:
    assert decode_start_offsets("") == {}
    assert decode_message_offsets("") == {}
    assert decode_order_counts("") == {}
    assert encode_start_offsets({}) == ""


@pytest.mark.parametrize(
    "text",
    [
        ";",
        "0 2 100;",
        "0,2,100",
        "0  2 100",
        "3 2 100",
        "x 2 100",
        f"0 {1 << 31} 1",
        f"0 1 {1 << 63}",
        "0 1 " + "9" * 5000,
        "0 1 5,",
        "0 1 5,,6",
        "0 qo1 5",
        "0 qo%1 5",
        "0 qo1% 5",
    ],
)
def test_what_is_no_list_of_offsets_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError):
        decode_message_offsets(text)


@pytest.mark.parametrize("text", ["0 qo1 5", "0 qo%1 5", "0 qo1% 5", "0 qo1%2 x", "0 1 5,6", "0 1"])
def test_what_is_no_list_of_counts_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError):
        decode_order_counts(text)


@given(st.dictionaries(QUEUES, OFFSETS, max_size=8))
def test_starts_are_read_as_they_were_written(starts: dict[PoppedQueue, int]) -> None:
    assert decode_start_offsets(encode_start_offsets(starts)) == starts


@given(st.dictionaries(QUEUES, st.lists(OFFSETS, min_size=1, max_size=5), max_size=8))
def test_offsets_are_read_as_they_were_written(offsets: dict[PoppedQueue, list[int]]) -> None:
    assert decode_message_offsets(encode_message_offsets(offsets)) == offsets


@given(st.dictionaries(PLACES, st.integers(0, 1000), max_size=8))
def test_counts_are_read_as_they_were_written(counts: dict[PoppedOffset, int]) -> None:
    assert decode_order_counts(encode_order_counts(counts)) == counts


@given(st.text(max_size=60) | st.text(alphabet="012 qo%;,-+", max_size=30))
def test_any_text_is_read_or_unreadable(text: str) -> None:
    for decode in (decode_start_offsets, decode_message_offsets, decode_order_counts):
        with contextlib.suppress(UnreadableError):
            decode(text)

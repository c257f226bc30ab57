"""Receipt handles, against what RocketMQ makes of them."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.receipt_handle import (
    RECEIPT_CHARACTERS_MAX,
    ReceiptHandle,
    TopicMark,
    decode_receipt,
    decode_receipt_handle,
    encode_receipt_handle,
    mark_of,
    normal_topic,
    pop_retry_topic,
)
from tandem.wire.untrusted import UnreadableError

DATA = Path(__file__).parents[2] / "data/rocketmq-5.3.3/requests"
EXTRA_INFO: list[dict[str, Any]] = json.loads((DATA / "extra-info.json").read_text())
HANDLES: list[dict[str, str]] = json.loads((DATA / "receipt-handle.json").read_text())

HANDLE = "100 1700000000000 60000 3 0 broker-a 2 105"

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
INTS = st.integers(-(1 << 31), (1 << 31) - 1)


@pytest.mark.parametrize(
    "vector", [each for each in EXTRA_INFO if each["fn"].startswith("buildExtraInfo")]
)
def test_a_handle_is_made_as_rocketmq_makes_it(vector: dict[str, Any]) -> None:
    handle = ReceiptHandle(
        vector["startOffset"],
        vector["popTime"],
        vector["invisibleTime"],
        vector["reviveQid"],
        mark_of(vector["topic"]),
        vector["brokerName"],
        vector["queueId"],
        vector.get("msgQueueOffset", 0),
    )
    text = encode_receipt_handle(handle)
    if "msgQueueOffset" in vector:
        assert text == vector["out"]
        assert decode_receipt_handle(text) == handle
    else:
        assert text.rpartition(" ")[0] == vector["out"]


@pytest.mark.parametrize("vector", HANDLES[1:])
def test_a_handle_is_read_as_rocketmq_reads_it(vector: dict[str, str]) -> None:
    if not vector["out"].startswith("ok:"):
        with pytest.raises(UnreadableError):
            decode_receipt_handle(vector["in"])
        return
    expected, _, encoded = vector["out"].removeprefix("ok:").partition(" encode=")
    handle = decode_receipt_handle(vector["in"])
    text = (
        f"commitLogOffset={handle.physical_offset} nextVisible={handle.visible_ms}"
        f" realTopic={handle.mark.topic('T1', 'CG')}"
    )
    assert text == expected
    # A proxy writes the ninth part also where there is none.
    assert f"{encode_receipt_handle(handle)} -1".startswith(encoded)


def test_a_handle_of_a_proxy_is_made_as_rocketmq_makes_it() -> None:
    vector = HANDLES[0]
    assert encode_receipt_handle(decode_receipt_handle(vector["out"])) == vector["out"]


@pytest.mark.parametrize(
    ("vector"), [each for each in EXTRA_INFO if each["fn"] == "getRealTopic(extraInfo[],topic,cid)"]
)
def test_a_mark_says_which_topic_and_an_unknown_one_says_nothing(vector: dict[str, str]) -> None:
    receipt = decode_receipt(f"100 1700000000000 60000 3 {vector['retry']} broker-a")
    assert receipt.mark.topic("T1", "CG") == vector["out"].removeprefix("ok:")


@pytest.mark.parametrize("mark", [TopicMark.RETRY_V1, TopicMark.RETRY_V2])
def test_a_retry_topic_belongs_to_a_topic_of_its_group_alone(mark: TopicMark) -> None:
    topic = pop_retry_topic("T1", "CG", mark)
    assert mark_of(topic) is mark
    assert normal_topic(topic, "CG") == "T1"
    assert normal_topic(topic, "OTHER") == topic
    assert normal_topic("T1", "CG") == "T1"


@pytest.mark.parametrize("missing", range(1, 6))
def test_a_broker_needs_six_parts(missing: int) -> None:
    parts = HANDLE.split(" ")[:6]
    assert decode_receipt(" ".join(parts)).broker_name == "broker-a"
    with pytest.raises(UnreadableError):
        decode_receipt(" ".join(parts[:-missing]))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "7" * (RECEIPT_CHARACTERS_MAX + 1),
        HANDLE.replace(" ", ","),
        HANDLE.replace(" ", "  "),
        HANDLE.replace(" ", "\t"),
        HANDLE.replace("100", str(1 << 63)),
        HANDLE.replace(" 3 ", f" {1 << 31} "),
        HANDLE.replace(" 2 ", " 1e3 "),
        HANDLE.replace("105", "1" * 4000),
        f"{HANDLE} x",
    ],
)
def test_what_is_no_handle_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError):
        decode_receipt_handle(text)


@pytest.mark.parametrize("at", range(len(HANDLE)))
def test_a_cut_handle_is_unreadable_or_another_one(at: int) -> None:
    with contextlib.suppress(UnreadableError):
        assert encode_receipt_handle(decode_receipt_handle(HANDLE[:at])) == HANDLE[:at]


@given(LONGS, LONGS, LONGS, INTS, st.sampled_from(TopicMark), INTS, LONGS, st.integers(0, 1 << 40))
def test_what_was_made_is_read(
    start: int,
    pop_time: int,
    invisible: int,
    revive: int,
    mark: TopicMark,
    queue: int,
    offset: int,
    physical: int,
) -> None:
    handle = ReceiptHandle(
        start, pop_time, invisible, revive, mark, "broker-a", queue, offset, physical
    )
    assert decode_receipt_handle(encode_receipt_handle(handle)) == handle


@given(st.text(max_size=80) | st.lists(st.text(max_size=8), max_size=10).map(" ".join))
def test_any_text_is_a_handle_or_unreadable(text: str) -> None:
    with contextlib.suppress(UnreadableError):
        handle = decode_receipt_handle(text)
        assert decode_receipt_handle(encode_receipt_handle(handle)) == handle
    with contextlib.suppress(UnreadableError):
        decode_receipt(text)

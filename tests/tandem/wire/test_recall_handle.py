"""Recall handles, against what RocketMQ makes of them."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.recall_handle import RecallHandle, decode_recall_handle, encode_recall_handle
from tandem.wire.untrusted import UnreadableError

VECTORS = json.loads(
    (Path(__file__).parents[2] / "data/rocketmq-5.3.3/requests/recall-handle.json").read_text()
)


@pytest.mark.parametrize("vector", [each for each in VECTORS if each["fn"] == "buildHandle"])
def test_a_handle_is_made_as_rocketmq_makes_it(vector: dict[str, str]) -> None:
    handle = RecallHandle(
        vector["topic"], vector["brokerName"], int(vector["timestampStr"]), vector["messageId"]
    )
    assert encode_recall_handle(handle) == vector["out"]


@pytest.mark.parametrize("vector", [each for each in VECTORS if each["fn"] == "decodeHandle"])
def test_a_handle_is_read_as_rocketmq_reads_it(vector: dict[str, str]) -> None:
    parts = vector["out"].removeprefix("ok:").split("|")
    if vector["out"].startswith("ok:") and parts[2].isdecimal():
        handle = decode_recall_handle(vector["in"])
        assert [handle.topic, handle.broker_name, str(handle.deliver_ms), handle.unique_key] == (
            parts
        )
    else:
        # RocketMQ finds a time that is no number when it uses it, and refuses it then.
        with pytest.raises(UnreadableError):
            decode_recall_handle(vector["in"])


@given(st.text(max_size=60))
def test_any_text_is_a_handle_or_unreadable(text: str) -> None:
    with contextlib.suppress(UnreadableError):
        handle = decode_recall_handle(text)
        assert decode_recall_handle(encode_recall_handle(handle)) == handle


def test_a_very_long_text_is_not_looked_at() -> None:
    with pytest.raises(UnreadableError):
        decode_recall_handle("A" * 5000)

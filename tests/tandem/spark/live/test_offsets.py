import json

import pytest

from tandem.client.results import MessageQueue
from tandem.spark.errors import SparkSourceError
from tandem.spark.live.offsets import (
    StreamOffset,
    names,
    nested,
    offsets_of_option,
    stream_offset,
)
from tandem.wire.untrusted import UnreadableError

A0, A10, B0 = (MessageQueue("t", "a", 0), MessageQueue("t", "a", 10), MessageQueue("t", "b", 0))


def test_an_option_names_offsets_by_topic_broker_and_queue() -> None:
    text = '{"t": {"a": {"0": 23, "10": -2}, "b": {"0": -1}}}'
    assert offsets_of_option(text) == {A0: 23, A10: -2, B0: -1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"t": 1}',
        '{"t": {"a": 1}}',
        '{"t": {"a": {"x": 1}}}',
        '{"t": {"a": {"-1": 1}}}',
        '{"t": {"a": {"0": -3}}}',
        '{"t": {"a": {"0": "1"}}}',
        '{"t": {"a": {"0": 9223372036854775808}}}',
        '{"t": {"a": {"0": 1.5}}}',
        "[" * 10_000,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UnreadableError):
        offsets_of_option(text)


def test_the_same_places_are_always_the_same_text() -> None:
    one = StreamOffset({B0: 1, A0: 2, A10: 3}).as_json()
    other = StreamOffset({A10: 3, B0: 1, A0: 2}).as_json()
    assert json.dumps(one) == json.dumps(other)
    assert json.dumps(one) == '{"t": {"a": {"0": 2, "10": 3}, "b": {"0": 1}}}'


@pytest.mark.parametrize(
    "offset",
    [
        StreamOffset({}),
        StreamOffset({A0: 5}),
        StreamOffset({A0: 5}, is_initial=True),
        StreamOffset({}, is_initial=True),
        StreamOffset({A0: 9, B0: 0}, started_at={A0: 5}),
    ],
)
def test_what_a_checkpoint_keeps_comes_back(offset: StreamOffset) -> None:
    assert stream_offset(json.loads(json.dumps(offset.as_json()))) == offset


@pytest.mark.parametrize(
    "value", [{"t": 1}, {"t": {"a": {"0": -1}}}, {"index": 3}, {"started at": {"t": 3}}]
)
def test_the_checkpoint_of_another_source_is_refused_in_words(value: dict[str, object]) -> None:
    with pytest.raises(SparkSourceError) as caught:
        stream_offset(value)
    assert caught.value.__cause__.__class__ is UnreadableError


def test_queues_are_nested_by_number() -> None:
    assert list(nested({A10: 1, A0: 1})["t"]["a"]) == ["0", "10"]


def test_names_are_cut_short() -> None:
    queues = [MessageQueue("t", "a", number) for number in range(7)]
    assert names(queues, shown=2) == "t a 0, t a 1 and 5 more"
    assert names(queues[:1]) == "t a 0"

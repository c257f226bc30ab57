import pytest

from tandem.cli.produce_input import (
    TEXT_BYTES_MAX,
    BadRecordError,
    Fields,
    LineReader,
    record_message,
)

FIELDS = Fields(topic="orders", keys=("k",), tags="t", properties={"a": "1"})


def lines_of(*chunks: bytes) -> list[tuple[int, bytes]]:
    reader = LineReader()
    return [line for chunk in chunks for line in reader.lines(chunk)] + reader.last()


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([], []),
        ([b"one\ntwo\n"], [(1, b"one"), (2, b"two")]),
        ([b"one\r\ntwo"], [(1, b"one"), (2, b"two")]),
        ([b"\n\none\n\n"], [(3, b"one")]),
        ([b"o", b"n", b"e", b"\n", b"t", b"wo"], [(1, b"one"), (2, b"two")]),
        ([b"\xff\x00\n"], [(1, b"\xff\x00")]),
    ],
)
def test_lines_are_found_however_the_bytes_arrive(
    chunks: list[bytes], lines: list[tuple[int, bytes]]
) -> None:
    assert lines_of(*chunks) == lines


@pytest.mark.parametrize("chunk_bytes", [262_144, 1_000_000, 30_000_000])
@pytest.mark.parametrize("end", [b"", b"\nafter", b"\r\nafter\n"])
def test_a_line_that_is_too_long_is_counted_and_not_kept(chunk_bytes: int, end: bytes) -> None:
    data = b"before\n" + b"x" * 9_000_000 + end
    reader = LineReader()
    found = []
    for at in range(0, len(data), chunk_bytes):
        found += reader.lines(data[at : at + chunk_bytes])
    found += reader.last()
    assert found == ([(1, b"before"), (3, b"after")] if end else [(1, b"before")])
    assert reader.too_long_count == 1


def test_the_longest_line_is_a_message() -> None:
    longest = b"x" * TEXT_BYTES_MAX
    assert lines_of(longest + b"\n") == [(1, longest)]
    assert lines_of(longest, b"y\nz") == [(2, b"z")]
    assert FIELDS.message(longest).body == longest


def test_a_record_says_what_is_different() -> None:
    message = record_message(FIELDS, b'{"body": "x"}')
    assert (message.topic, message.body, message.keys, message.tags) == ("orders", b"x", "k", "t")
    assert message.properties == {"a": "1"}
    line = (
        b'{"keys": ["x", "y"], "tags": "u", "properties": {"b": "2"},'
        b' "sharding_key": "s", "body": ""}'
    )
    message = record_message(FIELDS, line)
    assert (message.keys, message.tags, message.sharding_key) == ("x y", "u", "s")
    assert message.properties == {"a": "1", "b": "2"}


def test_the_topic_of_the_command_wins() -> None:
    line = b'{"topic": "theirs", "body": "x"}'
    assert record_message(FIELDS, line).topic == "orders"
    assert record_message(Fields(topic=""), line).topic == "theirs"


@pytest.mark.parametrize(
    ("line", "body"),
    [
        (b'{"body": "\xc3\xa9"}', "é".encode()),
        (b'{"body_base64": "//4="}', b"\xff\xfe"),
        (b'{"body_hex": "fffe"}', b"\xff\xfe"),
    ],
)
def test_a_body_is_text_or_bytes_in_text(line: bytes, body: bytes) -> None:
    assert record_message(FIELDS, line).body == body


def test_a_delay_is_a_duration_or_a_level() -> None:
    delayed = Fields(topic="orders", delay_ms=1_000)
    assert record_message(delayed, b'{"body": "x"}').delay_ms == 1_000
    assert record_message(delayed, b'{"body": "x", "delay": "5s"}').delay_ms == 5_000
    message = record_message(delayed, b'{"body": "x", "delay_level": 3}')
    assert (message.delay_ms, message.delay_time_level) == (0, 3)


def test_a_priority_is_the_records_own_before_that_of_all() -> None:
    urgent = Fields(topic="orders", priority=2)
    assert record_message(FIELDS, b'{"body": "x"}').priority is None
    assert record_message(FIELDS, b'{"body": "x", "priority": 1}').priority == 1
    assert record_message(urgent, b'{"body": "x"}').priority == 2
    assert record_message(urgent, b'{"body": "x", "priority": 0}').priority == 0
    read = record_message(urgent, b'{"body": "x", "properties": {"_SYS_MSG_PRIORITY_": "3"}}')
    assert read.property_map()["_SYS_MSG_PRIORITY_"] == "3"


def test_what_client_and_broker_added_in_its_first_life_is_left_out() -> None:
    line = (
        b'{"broker": "broker-a", "queue_id": 3, "queue_offset": 9, "physical_offset": 1,'
        b'"msg_id": "A", "born_timestamp_ms": 1, "store_timestamp_ms": 2, "keys": ["k"],'
        b'"properties": {"UNIQ_KEY": "A", "DELAY": "3", "REAL_TOPIC": "x", "WAIT": "1", "c": "3"},'
        b'"topic": "x", "body": "y"}'
    )
    message = record_message(FIELDS, line)
    assert message.properties == {"a": "1", "c": "3"}
    assert not message.is_delayed


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (b"no json", []),
        (b"[]", []),
        (b'{"body": 5}', []),
        (b'{"kee": "x", "body": "x"}', []),
        (b'{"key": "x"}', ["body", "body_base64", "body_hex"]),
        (b'{"body": "x", "body_hex": "ff"}', ["body", "body_hex"]),
        (b'{"body_hex": "f"}', ["body_hex"]),
        (b'{"body_base64": "!"}', ["body_base64"]),
        (b'{"key": "x", "keys": ["y"], "body": "x"}', ["key", "keys"]),
        (b'{"keys": ["a b"], "body": "x"}', ["keys"]),
        (b'{"delay": "soon", "body": "x"}', ["delay"]),
        (b'{"delay": "5s", "delay_level": 3, "body": "x"}', ["delay_time_level", "delay_ms"]),
        (b'{"delay_level": 19, "body": "x"}', ["delay_level"]),
        (b'{"priority": -1, "body": "x"}', ["priority"]),
        (b'{"priority": 2147483648, "body": "x"}', []),
        (b'{"priority": 1, "sharding_key": "k", "body": "x"}', ["priority", "sharding_key"]),
        (b'{"properties": {"": "x"}, "body": "x"}', [""]),
        (
            b'{"properties": {"a": "%s"}, "body": "x"}' % (b"x" * 40_000),
            ["keys", "tags", "properties"],
        ),
        (b'{"body": "%s"}' % (b"x" * (TEXT_BYTES_MAX + 1)), ["body"]),
        (b"{" * 5_000, []),
    ],
)
def test_a_record_that_cannot_be_sent_is_refused_with_what_is_wrong(
    line: bytes, names: list[str]
) -> None:
    with pytest.raises(BadRecordError) as refused:
        record_message(FIELDS, line)
    assert list(refused.value.names) == names


def test_a_record_without_a_topic_needs_one() -> None:
    with pytest.raises(BadRecordError) as refused:
        record_message(Fields(topic=""), b'{"body": "x"}')
    assert refused.value.names == ("topic",)

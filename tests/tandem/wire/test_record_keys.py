from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tandem.wire import record_keys
from tandem.wire.message import Host, encode_record
from tandem.wire.message_properties import decode_properties
from tandem.wire.record_keys import (
    hash_keys,
    hash_tags,
    key_hash,
    key_values,
    record_texts,
    tag_key,
)
from tandem.wire.record_scan import read_columns, scan_records, walk_records
from tandem.wire.store_layout import index_key, index_key_hash
from tests.support.log_builder import LogBuilder

pytestmark = pytest.mark.usefixtures("_in_c_and_python")

VECTORS = Path("tests/data/rocketmq-5.3.3")
V6 = Host("2001:db8::1", 4321)

texts = st.text(max_size=40)
awkward = st.text("AB \x01\x02#KEYSUNIQ_é中😀", max_size=30)
property_strings = st.one_of(
    st.binary(max_size=80),
    st.lists(
        st.sampled_from(
            [
                *(b"KEYS\x01", b"UNIQ_KEY\x01", b"TAGS\x01", b"XKEYS\x01", b"\x02", b"\x01", b" "),
                *(b"a", b"U0", b"k1 k2", "中".encode(), "😀 é".encode(), b"\xff", b"KEYS", b""),
            ]
        ),
        max_size=14,
    ).map(b"".join),
)


def keys_as_rocketmq_finds_them(properties: bytes) -> list[str]:
    """IndexService.buildIndex over MessageDecoder.string2messageProperties."""
    found = decode_properties(properties)
    unique = [found["UNIQ_KEY"]] if "UNIQ_KEY" in found else []
    return unique + [key for key in found.get("KEYS", "").split(" ") if key]


def record(topic: str, properties: bytes, **fields: object) -> bytes:
    """Return a record with this raw property string."""
    message = LogBuilder().put(topic=topic, body=b"body")
    raw = encode_record(msgspec.structs.replace(message, **fields))
    raw = raw[:-2] + len(properties).to_bytes(2, "big") + properties
    return len(raw).to_bytes(4, "big") + raw[4:]


def hashes_of(records: list[bytes]) -> list[list[int]]:
    """Return what `hash_keys` says of each record."""
    log = b"".join(records)
    columns = read_columns(log, walk_records(log).starts)
    assert len(columns) == len(records)
    assert columns.sound.all()
    found = hash_keys(log, columns)
    assert found.row.tolist() == sorted(found.row.tolist())
    return [found.key_hash[found.row == row].tolist() for row in range(len(records))]


def stored(record: bytes) -> tuple[str, list[str]]:
    """Return topic and keys of a record."""
    topic, properties = record_texts(record)
    return topic.decode(), [key.decode("utf-8", "replace") for key in key_values(properties)]


def test_the_unique_key_comes_first_then_the_keys_between_spaces() -> None:
    properties = b"KEYS\x01 a  b \x02TAGS\x01t\x02UNIQ_KEY\x01U 0\x02"
    assert key_values(properties) == [b"U 0", b"a", b"b"]


@given(property_strings)
def test_keys_are_found_as_rocketmq_finds_them(properties: bytes) -> None:
    found = [key.decode("utf-8", "replace") for key in key_values(properties)]
    assert found == keys_as_rocketmq_finds_them(properties)


@given(st.one_of(texts, awkward), st.one_of(texts, awkward, texts.map(lambda text: text * 20)))
@example("", "polygenelubricants"[1:])
@example("T", "")
def test_the_hash_is_that_of_java(topic: str, key: str) -> None:
    encoded = key.encode("utf-8", "replace")
    text = index_key(topic, encoded.decode())
    assert key_hash(topic, encoded) == index_key_hash(text)


@given(st.lists(st.tuples(st.text(max_size=20), property_strings), min_size=1, max_size=8))
@example([("KEYS\x01x\x02", b"KEYS\x01k"), ("\x02KEYS\x01x", b""), ("t", b"UNIQ_KEY\x01\x02")])
@example([("t", b"KEYS\x01a\x02KEYS\x01b\x02KEYS\x01\x02"), ("", b"KEYS\x01a b")])
def test_many_records_at_once_have_the_same_hashes_as_each_alone(
    given_records: list[tuple[str, bytes]],
) -> None:
    records = [record(topic, properties) for topic, properties in given_records]
    expected = [
        [index_key_hash(index_key(topic, key)) for key in keys_as_rocketmq_finds_them(properties)]
        for topic, properties in given_records
    ]
    assert hashes_of(records) == expected
    for raw, (topic, properties) in zip(records, given_records, strict=True):
        assert stored(raw) == (topic, keys_as_rocketmq_finds_them(properties))


def test_records_that_take_more_than_one_round_are_hashed_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = [record(f"T{n % 3}", b"KEYS\x01k%d a\x02" % n) for n in range(500)]
    whole = hashes_of(records)
    monkeypatch.setattr(record_keys, "CHUNK_BYTES", 100)
    assert hashes_of(records) == whole
    assert whole[7] == [index_key_hash("T1#k7"), index_key_hash("T1#a")]


def test_the_longest_record_fits_into_a_round() -> None:
    key = "k" * 32_761
    raw = record("L" * 32_767, b"KEYS\x01%s\x02" % key.encode())
    assert hashes_of([raw, raw]) == [[index_key_hash(index_key("L" * 32_767, key))]] * 2


@given(st.lists(st.tuples(st.text(max_size=20), property_strings), min_size=1, max_size=8))
@example([("t", b"TAGS\x01a b\x02KEYS\x01k"), ("TAGS\x01x", b""), ("t", b"TAGS\x01\x02")])
def test_tags_are_hashed_as_newer_rocketmq_does(given_records: list[tuple[str, bytes]]) -> None:
    """RocketMQ 5.4.0, IndexService.buildKey: `topic#T#tags`."""
    records = [record(topic, properties) for topic, properties in given_records]
    log = b"".join(records)
    found = hash_tags(log, read_columns(log, walk_records(log).starts))
    tags = [
        (row, decode_properties(properties).get("TAGS", ""))
        for row, (_, properties) in enumerate(given_records)
    ]
    expected = [
        (row, index_key_hash(f"{given_records[row][0]}#T#{text}")) for row, text in tags if text
    ]
    assert list(zip(found.row.tolist(), found.key_hash.tolist(), strict=True)) == expected
    for row, text in tags:
        key = tag_key(given_records[row][1])
        assert (key or b"").decode("utf-8", "replace") == (f"T#{text}" if text else "")


def test_no_records_have_no_keys() -> None:
    columns = read_columns(b"", walk_records(b"").starts)
    assert len(hash_keys(b"", columns)) == 0


@pytest.mark.parametrize("name", ["basic", "batch", "crc", "idx", "sch", "tran", "v6"])
def test_the_two_ways_agree_on_records_of_rocketmq(name: str) -> None:
    log = (VECTORS / name / "commitlog" / f"{0:020d}").read_bytes()
    columns = scan_records(log, 0).columns
    found = hash_keys(log, columns)
    expected = []
    for row, (start, size) in enumerate(zip(columns.start, columns.size, strict=True)):
        topic, keys = stored(log[start : start + size])
        expected += [(row, key_hash(topic, key.encode())) for key in keys]
    assert list(zip(found.row.tolist(), found.key_hash.tolist(), strict=True)) == expected


@pytest.mark.parametrize("born", [Host("10.1.2.3", 1), V6])
@pytest.mark.parametrize("store", [Host("127.0.0.1", 2), V6])
@pytest.mark.parametrize("topic", ["T", "L" * 130])
def test_every_shape_of_record_is_read(born: Host, store: Host, topic: str) -> None:
    raw = record(topic, b"KEYS\x01k\x02", born_host=born, store_host=store)
    assert stored(raw) == (topic, ["k"])


def test_what_is_written_by_a_message_is_found() -> None:
    log = LogBuilder()
    log.put(properties={"UNIQ_KEY": "U1", "KEYS": "a b"})
    assert stored(bytes(log.log)) == ("TopicA", ["U1", "a", "b"])

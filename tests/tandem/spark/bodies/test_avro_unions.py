import io
import random
from typing import Any

import pytest

from tandem.spark.bodies.avro_unions import union_check
from tandem.spark.bodies.avro_values import avro_decoder
from tandem.wire.untrusted import UnreadableError

fastavro = pytest.importorskip("fastavro")

INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [
        {"name": "maybe", "type": ["null", "string"]},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
    ],
}
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "price", "type": "double"},
        {"name": "share", "type": "float"},
        {"name": "raw", "type": "bytes"},
        {"name": "n", "type": ["null", "int", "long"]},
        {"name": "inner", "type": INNER},
        {"name": "more", "type": {"type": "array", "items": ["null", "Inner"]}},
        {"name": "by", "type": {"type": "map", "values": ["null", "Four"]}},
    ],
}


def a_row(chance: random.Random) -> dict[str, Any]:
    def inner() -> dict[str, Any]:
        return {"maybe": chance.choice([None, "x" * 70]), "four": chance.randbytes(4)}

    return {
        "flag": chance.random() < 0.5,
        "price": chance.random(),
        "share": 0.5,
        "raw": chance.randbytes(chance.randrange(200)),
        "n": chance.choice([None, -1, 1 << 40]),
        "inner": inner(),
        "more": [chance.choice([None, inner()]) for _ in range(chance.randrange(4))],
        "by": {key: chance.choice([None, b"4444"]) for key in "abc"[: chance.randrange(4)]},
    }


def encoded(row: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(SCHEMA), row)
    return target.getvalue()


def test_whatever_is_written_is_read() -> None:
    decode = avro_decoder(SCHEMA)[1]
    chance = random.Random(1)
    for _ in range(500):
        row = a_row(chance)
        assert decode(encoded(row)) == row


def of_one_field(kind: object) -> dict[str, Any]:
    return {"type": "record", "name": "N", "fields": [{"name": "a", "type": kind}]}


@pytest.mark.parametrize(
    "body",
    [
        b"\x01\x02x",  # -1, which is a text from the end
        b"\x81\x00\x02x",  # the same in two bytes
        b"\x03",  # -2, null from the end
        b"\x83\x80\x00",
        b"\x04",  # 2
        b"\x05",  # -3
    ],
)
def test_a_branch_that_a_union_has_not_is_unreadable(body: bytes) -> None:
    decode = avro_decoder(of_one_field(["null", "string"]))[1]
    assert decode(b"\x02\x02x") == {"a": "x"}
    assert decode(b"\x00") == {"a": None}
    with pytest.raises(UnreadableError):
        decode(body)


def test_a_block_with_its_size_is_walked_too() -> None:
    items = {"type": "array", "items": ["null", "string"]}
    decode = avro_decoder(
        {"type": "record", "name": "N", "fields": [{"name": "a", "type": items}]}
    )[1]
    assert decode(b"\x01\x06\x02\x02\x01\x00") == {"a": ["\x01"]}
    with pytest.raises(UnreadableError):
        decode(b"\x01\x06\x01\x02\x01\x00")


def test_a_schema_without_a_union_has_nothing_to_check() -> None:
    assert (
        union_check({"type": "record", "name": "N", "fields": [{"name": "a", "type": "int"}]})
        is None
    )


@pytest.mark.parametrize(
    "body",
    [
        b"\x02" + b"\xff" * 100_000 + b"\x01\x00",  # minutes, if it were read as a number
        b"\x00\x82" + b"\x80" * 8 + b"\x02" + b"\x01\x00\x00\x00" + b"\x00",  # 1 to fastavro
    ],
)
def test_a_number_of_more_than_64_bits_is_unreadable(body: bytes) -> None:
    many = {"name": "b", "type": {"type": "array", "items": "float"}}
    of_two = of_one_field(["null", "long"])
    of_two["fields"].append(many)
    with pytest.raises(UnreadableError, match="64 bits"):
        avro_decoder(of_two)[1](body)

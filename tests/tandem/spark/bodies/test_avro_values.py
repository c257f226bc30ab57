import datetime as dt
import decimal
import io
import random
import sys
import uuid
from typing import Any

import pyarrow as pa
import pytest

from tandem.spark.bodies.avro_values import avro_decoder
from tandem.spark.bodies.schema_error import BodySchemaError
from tandem.wire.untrusted import UnreadableError

fastavro = pytest.importorskip("fastavro")


def record(*fields: tuple[str, Any], **more: str) -> dict[str, Any]:
    named = [{"name": name, "type": kind} for name, kind in fields]
    return {"type": "record", "name": "Order", "fields": named, **more}


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


WHO = {"type": "record", "name": "Who", "fields": [{"name": "name", "type": "string"}]}
SCHEMA = record(
    ("n", "long"),
    ("maybe", ["null", "string"]),
    ("wide", ["int", "long"]),
    ("price", logical("bytes", "decimal", precision=10, scale=2)),
    ("day", logical("int", "date")),
    ("at", ["null", logical("long", "timestamp-millis")]),
    ("local", logical("long", "local-timestamp-micros")),
    ("id", logical("string", "uuid")),
    ("time", logical("int", "time-millis")),
    ("tags", {"type": "array", "items": "string"}),
    ("more", {"type": "map", "values": "double"}),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    ("four", {"type": "fixed", "name": "Four", "size": 4}),
    ("who", WHO),
    ("whom", ["null", "Who"]),
    namespace="shop",
)
ROW = {
    "n": -5,
    "maybe": "x",
    "wide": 1 << 40,
    "price": decimal.Decimal("12.50"),
    "day": dt.date(2026, 1, 31),
    "at": dt.datetime(2026, 1, 31, 11, tzinfo=dt.UTC),
    "local": dt.datetime(2026, 1, 31, 12),  # noqa: DTZ001 - it has none
    "id": str(uuid.UUID(int=7)),
    "time": 1000,
    "tags": ["a"],
    "more": {"k": 1.5},
    "kind": "B",
    "four": b"1234",
    "who": {"name": "n"},
    "whom": None,
}


def encoded(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    given = dict(row)
    if "id" in given:
        given["id"] = uuid.UUID(given["id"])
    if "time" in given:
        given["time"] = dt.time(0, 0, 1)
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), given)
    return target.getvalue()


def test_a_body_has_the_values_of_its_record() -> None:
    fields, decode = avro_decoder(SCHEMA)
    (row,) = pa.array([decode(encoded(SCHEMA, ROW))], fields).to_pylist()
    assert {**row, "more": dict(row["more"])} == ROW


@pytest.mark.parametrize("at", range(len(encoded(SCHEMA, ROW))))
def test_a_body_that_was_cut_is_unreadable(at: int) -> None:
    with pytest.raises(UnreadableError):
        avro_decoder(SCHEMA)[1](encoded(SCHEMA, ROW)[:at])


def test_a_body_with_more_after_its_record_is_unreadable() -> None:
    with pytest.raises(UnreadableError):
        avro_decoder(SCHEMA)[1](encoded(SCHEMA, ROW) + b"\0")


def test_any_bytes_are_a_record_or_unreadable() -> None:
    fields, decode = avro_decoder(SCHEMA)
    chance = random.Random(1)
    whole = encoded(SCHEMA, ROW)
    for number in range(3000):
        body = bytearray(whole if number % 2 else chance.randbytes(len(whole)))
        for _ in range(chance.randrange(4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        try:
            value = decode(bytes(body))
        except UnreadableError:
            continue
        try:
            pa.array([value], fields)
        except (pa.ArrowException, ArithmeticError, ValueError):
            continue


def test_a_decimal_of_many_bytes_is_unreadable_at_once() -> None:
    _, decode = avro_decoder(record(("a", logical("bytes", "decimal", precision=10, scale=2))))
    size = 4_000_000
    with pytest.raises(UnreadableError):  # converted, it would take half an hour
        decode(encoded(record(("a", "bytes")), {"a": b"\x01" * size}))


def test_a_schema_of_fixed_of_a_text_or_too_deep_is_refused() -> None:
    deep: Any = "long"
    for _ in range(900):
        deep = {"type": "array", "items": deep}
    for kind in ({"type": "fixed", "name": "F", "size": "x"}, deep):
        with pytest.raises(BodySchemaError):
            avro_decoder(record(("a", kind)))


def test_a_name_of_no_namespace_within_one_is_found_again() -> None:
    inner = {"type": "record", "name": "I", "namespace": "", "fields": WHO["fields"]}
    outer = {"type": "record", "name": "other.C", "fields": [{"name": "i", "type": inner}]}
    schema = record(("c", outer), ("i", "I"))
    row = {"c": {"i": {"name": "x"}}, "i": {"name": "y"}}
    assert avro_decoder(schema)[1](encoded(schema, row)) == row


def test_a_count_without_items_ends_with_the_bytes() -> None:
    _, decode = avro_decoder(record(("tags", {"type": "array", "items": "string"})))
    with pytest.raises(UnreadableError):
        decode(b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f")


def test_an_enum_of_an_index_that_it_has_not_is_unreadable() -> None:
    kind = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    decode = avro_decoder(record(("kind", kind), ("again", ["null", "Kind"])))[1]
    assert decode(b"\x02\x02\x00") == {"kind": "B", "again": "A"}
    for index in (b"\x01", b"\x03", b"\x04"):  # -1, -2 and 2
        for body in (index + b"\x00", b"\x00\x02" + index):
            with pytest.raises(UnreadableError):
                decode(body)


def chained(count: int, *, uses: int) -> dict[str, Any]:
    """Return a record of `count` records, each with some fields of the one before it."""
    kind: Any = record(("n", "long"), name="R0")
    made = [("r0", kind)]
    for number in range(1, count):
        fields = [(f"f{use}", f"R{number - 1}") for use in range(uses)]
        made.append((f"r{number}", record(*fields, name=f"R{number}")))
    return record(*made)


@pytest.mark.parametrize(
    ("count", "uses"),
    [(28, 2), (100, 1)],  # 2^28 fields; a hundred types, each in the one before
)
def test_names_that_stand_for_more_and_more_are_refused_at_once(count: int, uses: int) -> None:
    with pytest.raises(BodySchemaError) as caught:
        avro_decoder(chained(count, uses=uses))
    assert caught.value.field
    avro_decoder(chained(10, uses=uses))


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        (record(("a", ["string", "long"])), "a"),
        (record(("a", {"type": "array", "items": "null"})), "a"),
        (record(("a", record(name="Empty"))), "a"),
        (record(("a", {"type": "fixed", "name": "F", "size": 0})), "a"),
        (record(("a", ["null", "Order"])), "a"),
        (record(("a", "unheard-of")), ""),
        (record(("a", "int"), ("A", "int")), "A"),
        (record(("a", logical("bytes", "decimal", precision=50))), "a"),
        ({"type": "record"}, ""),
        ({"type": "string"}, ""),
    ],
)
def test_a_schema_that_spark_has_no_types_for_is_refused(
    schema: dict[str, Any], field: str
) -> None:
    with pytest.raises(BodySchemaError) as caught:
        avro_decoder(schema)
    assert caught.value.field == field


def test_without_its_package_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(BodySchemaError, match=r"tandem-mq\[avro\]"):
        avro_decoder(SCHEMA)


def test_a_boolean_is_a_byte_0_or_1_and_any_other_is_unreadable() -> None:
    inner = {"type": "record", "name": "In", "fields": [{"name": "c", "type": "boolean"}]}
    fields = [
        {"name": "a", "type": "boolean"},
        {"name": "b", "type": ["null", "boolean"]},
        {"name": "of", "type": inner},
        {"name": "again", "type": "In"},
        {"name": "all", "type": {"type": "array", "items": "boolean"}},
    ]
    kinds, decode = avro_decoder({"type": "record", "name": "R", "fields": fields})
    assert kinds.field("a").type == pa.bool_()
    assert kinds.field("all").type == pa.list_(pa.bool_())
    body = bytes([1, 2, 0, 1, 0, 4, 0, 1, 0])
    expected = {"a": True, "b": False, "of": {"c": True}, "again": {"c": False}}
    assert decode(body) == expected | {"all": [False, True]}
    for place in (0, 2, 3, 4, 6, 7):
        for byte in (2, 3, 0x7F, 0x80, 0xFF):
            with pytest.raises(UnreadableError):
                decode(body[:place] + bytes([byte]) + body[place + 1 :])

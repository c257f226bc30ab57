import pyarrow as pa
import pytest

from tandem.spark.bodies.ddl import DEPTH_MAX, parse_ddl
from tandem.spark.bodies.schema_error import BodySchemaError


def test_fields_have_the_types_that_spark_gives_them() -> None:
    text = (
        "order LONG, `the ``region``` string, price decimal(10, 2), whole: decimal, at timestamp,"
        " local timestamp_ntz, day date, raw binary, tags array<string>,"
        " more map<string, array<int>>, who struct<name: string, age tinyint>"
    )
    assert list(parse_ddl(text)) == [
        pa.field("order", pa.int64()),
        pa.field("the `region`", pa.string()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("whole", pa.decimal128(10, 0)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("day", pa.date32()),
        pa.field("raw", pa.binary()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("more", pa.map_(pa.string(), pa.list_(pa.int32()))),
        pa.field("who", pa.struct([("name", pa.string()), ("age", pa.int8())])),
    ]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("order lnog", "order"),
        ("a int, A int", "A"),
        ("m map<int, int>", "m"),
        ("d decimal(39)", "d"),
        ("d decimal(2, 3)", "d"),
        ("v variant", "v"),
        ("", ""),
        ("order", ""),
        ("order long,", ""),
        ("order long string", ""),
        ("order long NOT NULL", ""),
        ("a array<int", ""),
        ("a struct<>", ""),
        ("a int; b int", ""),
        ("d decimal(\u0661)", ""),
        ("long", ""),
        ("a " + "array<" * (DEPTH_MAX + 1), "a"),
    ],
)
def test_what_is_no_list_of_fields_is_refused(text: str, field: str) -> None:
    with pytest.raises(BodySchemaError) as caught:
        parse_ddl(text)
    assert caught.value.field == field


@pytest.mark.parametrize("at", range(len("a map<string, array<int>>")))
def test_a_schema_that_was_cut_is_refused(at: int) -> None:
    with pytest.raises(BodySchemaError):
        parse_ddl("a map<string, array<int>>"[:at])

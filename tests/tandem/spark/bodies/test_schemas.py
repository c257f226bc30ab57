import json

import pyarrow as pa
import pytest

from tandem.spark.bodies.schema_error import BodySchemaError
from tandem.spark.bodies.schemas import AVRO, JSON, bodies_of, chosen_by, read_bodies
from tandem.spark.errors import OptionError
from tandem.spark.option_reader import OptionReader

AN_AVRO = {"type": "record", "name": "Paid", "fields": [{"name": "sum", "type": "long"}]}


def test_one_schema_is_that_of_all_topics() -> None:
    for text, form in (("order long", JSON), (json.dumps(AN_AVRO), AVRO)):
        bodies = bodies_of(text)
        of_topic = bodies.of("any")
        assert of_topic is not None
        assert (of_topic.form, of_topic.fields) == (form, bodies.fields)


def test_topics_have_schemas_of_their_own_and_the_table_has_all_fields() -> None:
    pytest.importorskip("fastavro")
    bodies = bodies_of(json.dumps({"orders": "order long, region string", "paid": AN_AVRO}))
    assert [field.name for field in bodies.fields] == ["order", "region", "sum"]
    orders, paid = bodies.of("orders"), bodies.of("paid")
    assert orders is not None
    assert paid is not None
    assert (orders.form, paid.form) == (JSON, AVRO)
    assert bodies.of("other") is None
    shared = bodies_of('{"a": "order long, x int", "b": "order long, y int"}')
    assert [(field.name, field.type) for field in shared.fields] == [
        ("order", pa.int64()),
        ("x", pa.int32()),
        ("y", pa.int32()),
    ]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"a": "order long", "b": "order string"}', "order"),
        ('{"a": "order long", "b": "ORDER long"}', "ORDER"),
        ('{"a": "order lnog"}', "order"),
        ('{"a": 7}', ""),
        ("{}", ""),
        ('{"a": "order long", "a": "order long"}', ""),
        ('{"a": {"type": "record", "name": "A", "name": "B", "fields": []}}', ""),
        ('{"a"', ""),
        ("[]", ""),
        (" ", ""),
    ],
)
def test_what_is_no_schema_is_refused(text: str, field: str) -> None:
    with pytest.raises(BodySchemaError) as caught:
        bodies_of(text)
    assert caught.value.field == field


def test_the_option_is_checked_with_all_others() -> None:
    given = OptionReader("source", ["bodySchema"], {"bodyschema": "order lnog"})
    assert read_bodies(given, chosen_by(None, None)) is None
    with pytest.raises(OptionError) as caught:
        given.finish()
    assert caught.value.names == ("bodySchema",)
    assert read_bodies(OptionReader("source", ["bodySchema"], {}), chosen_by(None, None)) is None


@pytest.mark.parametrize(
    ("topics", "pattern", "is_good"),
    [
        (None, None, True),
        (["orders", "paid"], None, True),
        (["orders", "piad"], None, False),
        (None, "orders|p.*", True),
        (None, "order", False),  # the whole name has to match
    ],
)
def test_a_schema_of_a_topic_that_is_not_read_is_refused(
    topics: list[str] | None, pattern: str | None, *, is_good: bool
) -> None:
    text = '{"orders": "n long", "paid": "n long"}'
    given = OptionReader("source", ["bodySchema"], {"bodyschema": text})
    assert read_bodies(given, chosen_by(topics, pattern)) == text
    if is_good:
        given.finish()
        return
    with pytest.raises(OptionError) as caught:
        given.finish()
    assert caught.value.names == ("bodySchema",)

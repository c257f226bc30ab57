import pyarrow as pa
import pytest

from tandem.spark.archive.columns import FILE_SCHEMA
from tandem.spark.archive.derived import DERIVED_SCHEMA, with_derived

DEAD = {"DLQ_ORIGIN_TOPIC": "orders", "DLQ_ORIGIN_MESSAGE_ID": "AC1", "RETRY_TOPIC": "%RETRY%shop"}
TRIED = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "AC2"}


@pytest.mark.parametrize(
    ("topic", "properties", "wanted"),
    [
        ("orders", {}, (None, "message", None, None, None)),
        ("orders", {"UNIQ_KEY": "7F"} | TRIED, ("7F", "message", None, None, None)),
        ("%RETRY%shop", TRIED, (None, "retry", "shop", "orders", "AC2")),
        ("%RETRY%shop", {"UNIQ_KEY": "7F"}, ("7F", "retry", "shop", None, None)),
        ("%DLQ%shop", DEAD, (None, "deadLetter", "shop", "orders", "AC1")),
        ("%DLQ%shop", TRIED, (None, "deadLetter", "shop", "orders", "AC2")),
    ],
)
def test_a_message_says_what_it_is(
    topic: str, properties: dict[str, str], wanted: tuple[str | None, ...]
) -> None:
    row = {"properties": list(properties.items())}
    batch = pa.RecordBatch.from_pylist([row], FILE_SCHEMA)
    found = with_derived(batch, topic)
    assert tuple(found.column(name)[0].as_py() for name in DERIVED_SCHEMA.names) == (topic, *wanted)
    assert found.select(FILE_SCHEMA.names).equals(batch)


def test_no_rows_are_no_rows() -> None:
    empty = pa.RecordBatch.from_pylist([], FILE_SCHEMA)
    assert len(with_derived(empty, "%DLQ%g")) == 0

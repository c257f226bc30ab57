import pyarrow as pa

from tandem.spark.live.columns import SCHEMA, TYPES, schema_of
from tandem.spark.record_batches import COLUMNS


def test_the_columns_of_a_record_and_where_it_was_read() -> None:
    assert list(TYPES)[:3] == ["topic", "brokerName", "clusterName"]
    assert set(TYPES) == set(COLUMNS) - {"store", "error"} | {"brokerName", "clusterName"}
    assert TYPES["brokerName"] == pa.string()
    assert list(TYPES) == SCHEMA.names


def test_a_selection_is_in_the_order_asked_for() -> None:
    assert schema_of(["body", "topic"], {}).names == ["body", "topic"]

import json

import pytest
from pyspark.sql import SparkSession

from tandem.spark.errors import OptionError
from tandem.spark.jobs.json_bodies import with_json_bodies

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

SCHEMA = "order long, tags array<string>"


def test_what_is_wrong_with_a_body_is_in_a_column(spark: SparkSession) -> None:
    bodies = [
        (b'{"order": 7, "tags": ["a"], "more": 1}', 0),
        (b"{}", 0),
        (b'{"order": "seven"}', 0),
        (b'{"order": 7', 0),
        (b'["order"]', 0),
        (b"\xff\xfe", 0),
        (b"", 0),
        (None, 0),
        (b'{"order": 8}', 1),
    ]
    table = spark.createDataFrame(bodies, "body binary, sysFlag int")
    found = with_json_bodies(table, SCHEMA).collect()
    good = [row.json.asDict() if row.bodyError is None else None for row in found]
    assert good == [{"order": 7, "tags": ["a"]}, {"order": None, "tags": None}] + [None] * 7
    assert all(row.json is None for row in found[2:])
    why = [row.bodyError for row in found[2:]]
    assert len(set(why)) == 4
    assert why[0] == why[1] == why[2]
    assert why[4] == why[5]


def test_names_that_are_taken_or_missing_are_an_error(spark: SparkSession) -> None:
    table = spark.createDataFrame(
        [(json.dumps({}).encode(), 0, "")], "body binary, sysFlag int, json string"
    )
    with pytest.raises(OptionError) as caught:
        with_json_bodies(table, SCHEMA)
    assert caught.value.names == ("json",)
    with pytest.raises(OptionError) as caught:
        with_json_bodies(table.select("body"), SCHEMA)
    assert caught.value.names == ("sysFlag",)
    assert with_json_bodies(table, SCHEMA, column="order").columns[-2:] == ["order", "bodyError"]

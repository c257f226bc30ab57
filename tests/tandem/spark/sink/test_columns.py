import pytest

from tandem.spark.sink.columns import COLUMNS, SinkColumns, read_columns


def problems(*fields: tuple[str, str], topic: bool = True) -> str:
    found: list[str] = []
    read_columns(fields, lambda text, *_: found.append(text), topic_given=topic)
    return "; ".join(found)


BODY = ("body", "binary")


@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_has_its_types_and_no_other(column: str) -> None:
    rest = () if column in {"body", "value"} else (BODY,)
    for kind in COLUMNS[column]:
        assert not problems((column, kind), *rest)
    assert f"column {column} is double: cast it to" in problems((column, "double"), *rest)


def test_the_body_may_be_called_as_in_kafka() -> None:
    assert read_columns([("value", "string")], pytest.fail, topic_given=True) == SinkColumns(
        ("value",), "value"
    )
    assert "drop one" in problems(BODY, ("value", "string"))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([("tags", "string")], "no column body"),
        ([BODY, ("queueOffset", "bigint")], "unknown column 'queueOffset'"),
        ([BODY, ("Keys", "string")], "did you mean keys"),
        ([BODY, ("key", "binary")], "Kafka's key chooses a partition"),
        ([BODY, ("headers", "array<struct<key:string,value:binary>>")], "properties"),
        ([BODY, BODY], "twice"),
        ([BODY, ("queueId", "int"), ("shardingKey", "string")], "both choose the queue"),
    ],
)
def test_what_is_wrong_is_said(fields: list[tuple[str, str]], said: str) -> None:
    assert said in problems(*fields)


def test_a_topic_is_an_option_or_a_column() -> None:
    assert "no topic" in problems(BODY, topic=False)
    assert not problems(BODY, ("topic", "string"), topic=False)

from tandem.spark.source import TandemDataSource


def test_the_format_has_the_name_of_the_project() -> None:
    assert TandemDataSource.name() == "tandem"


def test_the_schema_is_that_of_the_live_source() -> None:
    names = TandemDataSource({"nameservers": "h:1", "topic": "t"}).schema().names
    assert {"topic", "brokerName", "queueId", "queueOffset", "body", "properties"} <= set(names)

from tandem.spark.errors import SparkSourceError
from tandem.spark.sink.errors import RowError, SendFailedError


def test_whoever_catches_errors_of_sources_has_those_of_the_sink_too() -> None:
    assert issubclass(RowError, SparkSourceError)
    assert issubclass(SendFailedError, SparkSourceError)

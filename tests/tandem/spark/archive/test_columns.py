from tandem.spark.archive.columns import ALL_COLUMNS, FILE_COLUMNS
from tandem.spark.record_batches import COLUMNS


def test_an_archive_has_the_columns_of_the_log_by_broker() -> None:
    assert set(COLUMNS) - set(ALL_COLUMNS) == {"crcOk", "store", "error"}
    assert set(ALL_COLUMNS) - set(COLUMNS) == {"brokerName"}
    assert "topic" not in FILE_COLUMNS

from tandem.data_file import DataFile
from tandem.spark.commitlog.split import LogSplit, QueueRange, QueueSplit, UnitPiece


def a_scan(offset: int, start: int, end: int) -> LogSplit:
    return LogSplit(
        "store", DataFile(f"{offset:020d}", offset, 100), start, end, 100, is_last_file=False
    )


def test_a_split_over_several_files_is_one_range_of_the_log() -> None:
    queue = QueueRange("Topic", 1, 7, (UnitPiece("a", 20, 3), UnitPiece("b", 0, 2)))
    split = QueueSplit((a_scan(100, 40, 100), a_scan(200, 0, 30)), (queue,))
    assert (split.store, split.start, split.end) == ("store", 140, 230)
    assert queue.count == 5

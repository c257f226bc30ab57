from pathlib import Path

from tandem.spark.commitlog.queue_starts import QueueStarts
from tests.support.log_builder import LogBuilder

VECTORS = Path("tests/data/rocketmq-5.3.3")


def log_with_two_queues() -> LogBuilder:
    log = LogBuilder()
    for number in range(30):
        log.put(queue_id=number % 2, body=b"x" * number)
    return log


def test_neighbours_are_found_over_several_files(tmp_path: Path) -> None:
    log = log_with_two_queues()
    starts = QueueStarts(log.write(tmp_path, queue_file_bytes=80) / "consumequeue")
    offsets = [message.physical_offset for message in log.messages]
    for wanted in range(log.end_offset + 2):
        assert starts.first_at(wanted) == min((o for o in offsets if o >= wanted), default=None)
        assert starts.last_before(wanted) == max((o for o in offsets if o < wanted), default=None)


def test_a_store_without_queues_knows_nothing(tmp_path: Path) -> None:
    starts = QueueStarts(tmp_path / "consumequeue")
    assert starts.first_at(0) is None
    assert starts.last_before(1000) is None


def test_golden_queues_are_read() -> None:
    starts = QueueStarts(VECTORS / "basic" / "consumequeue")
    assert starts.first_at(1) == 0x88
    assert starts.last_before(10_000) == 0x110

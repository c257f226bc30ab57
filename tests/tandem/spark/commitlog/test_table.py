import json
from pathlib import Path
from typing import Any

import pytest

from tandem.spark.commitlog.options import parse_options
from tandem.spark.commitlog.parts import read_part
from tandem.spark.commitlog.table import plan_table
from tandem.spark.errors import DataLossError, LossCause, OptionError, UnknownTopicError
from tests.support.fenced_store import note_confirmed
from tests.support.log_builder import LogBuilder

FILE_BYTES = 8192


def a_log(start_offset: int = 0) -> LogBuilder:
    log = LogBuilder(file_bytes=FILE_BYTES, start_offset=start_offset)
    for _ in range(100):
        log.put(body=bytes(200))
    return log


def rows(root: Path, **given: str) -> list[dict[str, Any]]:
    options = parse_options({"path": str(root), **given})
    return [
        row
        for part in plan_table(options)
        for batch in read_part(part, options, ("physicalOffset", "error"))
        for row in batch.to_pylist()
    ]


def offsets(found: list[dict[str, Any]]) -> list[int]:
    return [row["physicalOffset"] for row in found]


def test_offsets_choose_records_that_start_between(tmp_path: Path) -> None:
    log = a_log()
    root = log.write(tmp_path, consume_queues=False)
    starts = [message.physical_offset for message in log.messages]
    bounds = [0, 1, starts[1], starts[30], starts[30] + 5, FILE_BYTES, FILE_BYTES - 1, starts[-1]]
    for first in bounds:
        for last in (*bounds, log.end_offset):
            found = rows(
                root,
                startingOffsets=json.dumps({str(root): first}),
                endingOffsets=json.dumps({str(root): last}),
            )
            assert offsets(found) == [start for start in starts if first <= start < last]
    assert rows(root, startingOffsets="latest") == []
    assert (
        len(rows(root, startingOffsets=json.dumps({str(root): -2}), endingOffsets="latest")) == 100
    )


@pytest.mark.parametrize(
    ("given", "cause", "words"),
    [
        ({"startingOffsets": 0}, LossCause.DELETED, "0 to 16384"),
        ({"startingOffsets": 1 << 40}, LossCause.BEYOND, "1099511627776"),
        ({"endingOffsets": 1 << 40}, LossCause.BEYOND, "1099511627776"),
    ],
)
def test_offsets_that_are_not_there_are_data_loss(
    tmp_path: Path, given: dict[str, int], cause: LossCause, words: str
) -> None:
    root = a_log(start_offset=2 * FILE_BYTES).write(tmp_path)
    asked = {name: json.dumps({str(root): offset}) for name, offset in given.items()}
    with pytest.raises(DataLossError) as caught:
        rows(root, **asked)
    assert caught.value.cause is cause
    found = rows(root, failOnDataLoss="false", onError="row", **asked)
    assert found[0]["error"].startswith("lost: ")
    assert words in found[0]["error"]


def test_a_head_that_was_cleaned_away_is_no_loss_unless_it_is_asked_for(tmp_path: Path) -> None:
    root = a_log(start_offset=2 * FILE_BYTES).write(tmp_path)
    assert len(rows(root)) == len(rows(root, startingOffsets="earliest")) == 100


def test_an_unknown_topic_is_an_error_or_no_rows(tmp_path: Path) -> None:
    root = a_log().write(tmp_path)
    with pytest.raises(UnknownTopicError) as caught:
        rows(root, topic="TopicA,TopicB")
    assert caught.value.topics == ("TopicB",)
    assert len(rows(root, topic="TopicA,TopicB", ignoreMissingTopics="true")) == 100


def test_offsets_of_other_stores_are_refused(tmp_path: Path) -> None:
    root = a_log().write(tmp_path)
    with pytest.raises(OptionError) as caught:
        rows(root, startingOffsets='{"elsewhere": 5}')
    assert caught.value.names == ("startingOffsets",)


def test_a_table_ends_where_the_log_is_confirmed(tmp_path: Path) -> None:
    log = a_log()
    root = log.write(tmp_path)
    for count in (0, 1, 27, 28, 60, 99, 100):  # a file has 27 of them
        last = log.messages[count - 1]
        note_confirmed(root, last.physical_offset + last.store_size if count else 0)
        assert len(rows(root)) == len(rows(root, splitSizeBytes="4096")) == count
        assert len(rows(root, consumeQueues="always", topic="TopicA")) == count
        assert len(rows(root, includeUnconfirmed="true")) == 100
        assert rows(root, startingOffsets="latest") == []


def test_no_record_is_read_that_is_confirmed_in_part(tmp_path: Path) -> None:
    """No node says so. If a byte of the file has changed, it is said, and not read."""
    log = a_log()
    root = log.write(tmp_path)
    note_confirmed(root, log.messages[50].physical_offset + 10)
    found = rows(root, onError="row")
    assert offsets(found) == [m.physical_offset for m in log.messages[:51]]
    assert [row["error"] is None for row in found] == [True] * 50 + [False]


def test_an_offset_past_what_is_confirmed_is_not_there_yet(tmp_path: Path) -> None:
    log = a_log()
    root = log.write(tmp_path)
    confirmed, wanted = (log.messages[number].physical_offset for number in (50, 70))
    note_confirmed(root, confirmed)
    ending = json.dumps({str(root): wanted})
    with pytest.raises(
        DataLossError, match=f"confirmed up to physical offset {confirmed}"
    ) as caught:
        rows(root, endingOffsets=ending)
    assert caught.value.cause is LossCause.BEYOND
    assert "includeUnconfirmed" in str(caught.value)
    assert len(rows(root, endingOffsets=ending, includeUnconfirmed="true")) == 70


def test_a_file_of_the_log_that_is_past_what_is_confirmed_is_not_missed(tmp_path: Path) -> None:
    log = a_log()
    root = log.write(tmp_path)
    note_confirmed(root, FILE_BYTES)
    (root / "commitlog" / f"{FILE_BYTES:020d}").unlink()
    assert len(rows(root)) == 27


def test_a_window_of_time_ends_there_too(tmp_path: Path) -> None:
    log = a_log()
    root = log.write(tmp_path)
    note_confirmed(root, log.messages[50].physical_offset)
    last_ms = log.messages[-1].store_timestamp_ms
    for until in (log.messages[20].store_timestamp_ms, last_ms + 1):
        found = rows(root, endingTimestamp=str(until), timestampMargin="0")
        assert len(found) == min(until - log.messages[0].store_timestamp_ms, 50)

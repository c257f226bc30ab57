from typing import Any

import pyarrow as pa
import pytest

from tandem.cluster_file.errors import ClusterConfigError
from tandem.spark.archive.log_piece import pieces_to_archive, rows_of
from tandem.spark.jobs.windows import Window, numbers, numbers_by_queue, time_ms
from tests.support.small_archive import SmallArchive


def chosen(small: SmallArchive, **wanted: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    window = Window("orders", **wanted)
    pieces = pieces_to_archive("b", str(small.store), [], take_open_file=True)
    return [
        row
        for piece in pieces
        for batch in rows_of(piece)
        for row in window.chosen(batch).to_pylist()
    ]


def test_a_window_chooses_rows(small: SmallArchive) -> None:
    everything = chosen(small)
    assert {row["topic"] for row in everything} == {"orders"}
    assert len(everything) == 180
    assert {row["queueId"] for row in chosen(small, queues=frozenset({1}))} == {1}
    some = chosen(small, start_offsets={0: 10}, end_offsets={0: 12, 1: 1})
    assert [(row["queueId"], row["queueOffset"]) for row in some] == [(1, 0), (0, 10), (0, 11)]
    stamp = small.log.messages[100].store_timestamp_ms
    assert len(chosen(small, start_ms=stamp, end_ms=stamp + 4)) == 2
    assert {row["tags"] for row in chosen(small, tags=frozenset({"even"}))} == {"even"}
    assert {row["keys"] for row in chosen(small, keys=frozenset({"key-4"}))} == {"key-4"}


def test_one_of_several_keys_is_enough() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"keys": ["a b", None, "ab"], "queueId": [0, 0, 0], "queueOffset": [0, 1, 2]}
    )
    rows = Window("t", keys=frozenset({"b"})).chosen(batch)
    assert rows.column("queueOffset").to_pylist() == [0]


def test_times_are_milliseconds_or_words() -> None:
    assert time_ms("", "k") is None
    assert time_ms("1700000000000", "k") == 1_700_000_000_000
    assert time_ms("2023-11-14T22:13:20Z", "k") == 1_700_000_000_000
    assert time_ms("2023-11-14T22:13:20", "k") == 1_700_000_000_000
    with pytest.raises(ClusterConfigError, match="k: 'soon' is no time"):
        time_ms("soon", "k")


def test_numbers_are_told_apart_from_words() -> None:
    assert numbers(["1", "2"], "queues") == {1, 2}
    assert numbers_by_queue({"0": "17"}, "k") == {0: 17}
    with pytest.raises(ClusterConfigError, match="queues: 'x' is no whole number"):
        numbers(["x"], "queues")

import json
from types import SimpleNamespace
from typing import Any

from tandem.spark.stream_metrics import SourceMetrics, StreamMetrics, source_metrics

AT = "2026-01-31T12:00:00.000Z"
AT_MS = 1_769_860_800_000
ODD = '{"t": {"0": 1}}'


def offsets(*queues: int, **beside: object) -> str:
    numbers = {str(number): offset for number, offset in enumerate(queues)}
    return json.dumps({"Orders": {"broker-a": numbers}} | beside)


def progress(*sources: dict[str, object], duration_ms: int = 0) -> dict[str, Any]:
    return {"timestamp": AT, "batchDuration": duration_ms, "sources": list(sources)}


def source(start: object, end: object, latest: object, rows: int = 0) -> dict[str, object]:
    places = {"startOffset": start, "endOffset": end, "latestOffset": latest}
    return places | {"numInputRows": rows}


def metrics(*args: Any, **given: Any) -> SourceMetrics:  # noqa: ANN401
    (found,) = source_metrics(progress(source(*args), **given))
    assert found is not None
    return found


def test_messages_behind_by_queue_as_kafkas_source_says_them() -> None:
    found = metrics(offsets(0, 0), offsets(10, 10), offsets(14, 30), 20)
    assert found.behind == {"Orders broker-a 0": 4, "Orders broker-a 1": 20}
    assert (found.total, found.rows) == (24, 24)
    assert found.as_kafka() == {
        "minOffsetsBehindLatest": "4",
        "maxOffsetsBehindLatest": "20",
        "avgOffsetsBehindLatest": "12.0",
        "estimatedTotalRowsBehindLatest": "24",
    }


def test_rows_are_estimated_by_how_many_the_batch_had() -> None:
    assert metrics(offsets(0), offsets(100), offsets(300), 25).rows == 50
    assert metrics(offsets(100), offsets(100), offsets(300), 0).rows is None
    assert metrics(offsets(300), offsets(300), offsets(300), 0).rows == 0


def test_the_age_of_the_oldest_message_that_is_not_read() -> None:
    late = {"oldest unread": AT_MS - 5000}
    assert metrics(offsets(0), offsets(1), offsets(2, **late), 1).lag_ms == 5000
    assert metrics(offsets(0), offsets(1), offsets(2, **late), 1, duration_ms=70).lag_ms == 5070
    assert metrics(offsets(0), offsets(2), offsets(2, **late), 2).lag_ms == 0
    assert metrics(offsets(0), offsets(1), offsets(2), 1).lag_ms is None
    future = {"oldest unread": AT_MS + 5000}
    assert metrics(offsets(0), offsets(1), offsets(2, **future), 1).lag_ms == 0


def test_the_first_batch_of_a_stream_and_new_queues() -> None:
    end = offsets(3, **{"started at": {"Orders": {"broker-a": {"0": 1}}}})
    found = metrics(None, end, offsets(5, 7), 2)
    assert found.behind == {"Orders broker-a 0": 2, "Orders broker-a 1": 0}
    assert found.rows is None


def test_bytes_behind_by_store() -> None:
    def mark(offset: int) -> str:
        return json.dumps({"data/broker-a-0": {"offset": offset, "tail": 7}})

    found = metrics(mark(0), mark(1000), mark(3000), 10)
    assert found.behind == {"data/broker-a-0": 2000}
    assert found.rows == 20


def test_other_sources_are_passed_over() -> None:
    others = [
        source("5", "6", "7"),
        source(None, None, None),
        source("{}", "{}", None),
        source("x", "[1]", "{"),
        source(ODD, ODD, ODD),
    ]
    assert source_metrics(progress(*others)) == [None] * len(others)


def test_a_listener_keeps_what_each_query_said_last() -> None:
    watched = StreamMetrics()
    assert list(watched.of("a")) == []
    for end in (1, 2):
        said = progress(source(offsets(0), offsets(end), offsets(5), end))

        class Progress(dict[str, object]):
            id = "a"

        watched.onQueryProgress(SimpleNamespace(progress=Progress(said)))  # type: ignore[arg-type]
    (found,) = watched.of("a")
    assert found is not None
    assert found.total == 3

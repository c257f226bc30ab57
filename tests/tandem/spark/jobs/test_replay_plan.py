import zlib
from pathlib import Path
from typing import Any

import pytest

from tandem.cluster_file.errors import ClusterConfigError
from tandem.spark.archive.disk import LocalDisk
from tandem.spark.archive.errors import (
    ArchiveDamagedError,
    ArchiveError,
    ArchiveFault,
    OtherReplayError,
)
from tandem.spark.jobs.replay_plan import (
    Lane,
    Pace,
    Position,
    ReplayFacts,
    ReplayFile,
    begin,
    files_left,
    lanes_of,
    read_position,
    replayed,
    unique_key_of,
    window_of,
    write_position,
)
from tandem.spark.jobs.settings import StatsSettings, UniqueKeys
from tandem.spark.jobs.stats_job import times_of
from tandem.spark.jobs.windows import Window
from tandem.wire.message import COMPRESSED_FLAG
from tests.support.small_archive import SmallArchive

DISK = LocalDisk()
FACTS = ReplayFacts(Window("orders"), "archive", "again", "k")


def a_row(**changes: Any) -> dict[str, Any]:  # noqa: ANN401
    properties = [
        ("KEYS", "k1 k2"),
        ("TAGS", "t"),
        ("UNIQ_KEY", "OLD"),
        ("DELAY", "3"),
        ("mine", "x"),
        ("__SHARDINGKEY", "s"),
    ]
    row = {"brokerName": "b", "topic": "orders", "queueId": 2, "queueOffset": 7, "sysFlag": 0}
    row |= {"physicalOffset": 900}
    return row | {"flag": 5, "body": b"body", "properties": properties} | changes


def test_lanes_are_brokers_in_the_order_of_their_logs(small: SmallArchive) -> None:
    settings = small.replay()
    (lane,) = lanes_of(settings, window_of(settings))
    from_archive = [
        row for file in lane.files for batch in file.rows("b") for row in batch.to_pylist()
    ]
    assert lane.broker == "broker-a"
    assert {row["topic"] for row in from_archive} == {"orders"}
    settings = small.replay(archive="", stores={"broker-a": str(small.store)})
    (lane,) = lanes_of(settings, window_of(settings))
    from_log = [
        row for file in lane.files for batch in file.rows("broker-a") for row in batch.to_pylist()
    ]
    assert {row["brokerName"] for row in from_log} == {"broker-a"}
    offsets = [row["physicalOffset"] for row in from_log if row["topic"] == "orders"]
    assert offsets[: len(from_archive)] == [row["physicalOffset"] for row in from_archive]
    assert offsets == sorted(offsets)


def test_a_window_that_ends_before_it_begins_is_refused(small: SmallArchive) -> None:
    start, end = "2026-01-31T12:00:00Z", "2026-01-30"
    with pytest.raises(ClusterConfigError, match="is before starting_timestamp"):
        window_of(small.replay(starting_timestamp=start, ending_timestamp=end))
    settings = StatsSettings("archive", starting_timestamp=start, ending_timestamp=end)
    with pytest.raises(ClusterConfigError, match="is before starting_timestamp"):
        times_of(settings)


def test_a_window_of_time_leaves_files_out(small: SmallArchive) -> None:
    stamp = small.log.messages[0].store_timestamp_ms
    settings = small.replay(ending_timestamp=str(stamp + 3))
    (lane,) = lanes_of(settings, window_of(settings))
    assert len(lane.files) == 1


def test_it_goes_on_at_its_position() -> None:
    files = tuple(ReplayFile(name) for name in "abc")
    lane = Lane("b", files)
    assert files_left(lane, Position()) == [(file, 0) for file in files]
    assert files_left(lane, Position("b", 5)) == [(files[1], 5), (files[2], 0)]
    with pytest.raises(ArchiveError, match="another state"):
        files_left(lane, Position("x", 5))


def test_what_came_in_before_its_position_is_told() -> None:
    """A hole of the archive was filled."""
    lane = Lane("b", tuple(ReplayFile(name) for name in "abc"))
    assert len(files_left(lane, Position("b", 5, 0, 1))) == 2
    # A store has deleted a log file that was done.
    assert len(files_left(lane, Position("b", 5, 0, 2))) == 2
    with pytest.raises(ArchiveError, match="has not been sent"):
        files_left(lane, Position("b", 5, 0, 0))


def test_a_topic_that_is_not_in_the_archive_is_told(small: SmallArchive) -> None:
    settings = small.replay(source_topic="ordres")
    with pytest.raises(ArchiveError, match="no topic ordres; there are events, orders"):
        lanes_of(settings, window_of(settings))


def test_the_state_belongs_to_one_replay(small: SmallArchive) -> None:
    settings = small.replay()
    facts = begin(settings, window_of(settings), DISK)
    assert begin(settings, window_of(settings), DISK) == facts
    other = small.replay(topic="elsewhere")
    with pytest.raises(OtherReplayError):
        begin(other, window_of(other), DISK)


def test_positions_are_written_and_read(tmp_path: Path) -> None:
    assert read_position(tmp_path, "b") == Position()
    write_position(tmp_path, "b", Position("f", 3, 2), DISK)
    assert read_position(tmp_path, "b") == Position("f", 3, 2)
    (tmp_path / "lane-b.json").write_bytes(b"[")
    with pytest.raises(ArchiveDamagedError) as caught:
        read_position(tmp_path, "b")
    assert caught.value.fault is ArchiveFault.UNREADABLE


def test_what_is_sent_for_a_row() -> None:
    message = replayed(a_row(), FACTS, UniqueKeys.NEW)
    assert (message.topic, message.body, message.flag) == ("again", b"body", 5)
    assert (message.keys, message.tags, message.sharding_key) == ("k1 k2", "t", "s")
    assert message.properties == {
        "mine": "x",
        "REPLAYED_FROM": "b/orders/2/7",
        "UNIQ_KEY": unique_key_of("k", "b/orders/2/7/900"),
    }
    assert replayed(a_row(), FACTS, UniqueKeys.OLD).properties["UNIQ_KEY"] == "OLD"
    without = a_row(properties=[])
    key = replayed(without, FACTS, UniqueKeys.OLD).properties["UNIQ_KEY"]
    assert key == unique_key_of("k", "b/orders/2/7/900")


def test_a_topic_that_was_made_anew_has_other_unique_keys() -> None:
    keys = {
        replayed(a_row(physicalOffset=at), FACTS, UniqueKeys.NEW).properties["UNIQ_KEY"]
        for at in (900, 1000)
    }
    assert len(keys) == 2


def test_unique_keys_tell_replays_and_places_apart() -> None:
    keys = {unique_key_of(replay, place) for replay in "ab" for place in ("x/1", "x/2")}
    assert len(keys) == 4
    assert all(len(key) == 32 and key == key.upper() for key in keys)


def test_a_compressed_body_is_sent_as_it_was_meant() -> None:
    row = a_row(body=zlib.compress(b"body"), sysFlag=COMPRESSED_FLAG)
    assert replayed(row, FACTS, UniqueKeys.NEW).body == b"body"
    with pytest.raises(ValueError, match="a batch"):
        replayed(a_row(sysFlag=0x80), FACTS, UniqueKeys.NEW)


def test_a_pace_holds_back() -> None:
    now = [0.0]
    pace = Pace(100, 0, lambda: now[0])
    waits = []
    for _ in range(20):
        wait = pace.wait_seconds(10, 10**9)
        waits.append(wait)
        now[0] += wait
    assert sum(waits) == pytest.approx(1.9)
    assert Pace(0, 0, lambda: 0.0).wait_seconds(10**9, 10**9) == 0
    slow = Pace(0, 1_000, lambda: 0.0)
    slow.wait_seconds(1, 500)
    assert slow.wait_seconds(1, 500) == pytest.approx(0.5)


def test_after_a_pause_a_pace_does_not_rush() -> None:
    now = [0.0]
    pace = Pace(10, 0, lambda: now[0])
    now[0] = 1000.0
    sent = 0
    while not pace.wait_seconds(1, 0):
        sent += 1
    assert sent <= 11

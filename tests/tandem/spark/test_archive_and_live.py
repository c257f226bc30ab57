"""One table across an archive and the brokers: every message once, whichever of them has it."""

import json
import logging
import zlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from tandem.client.results import MessageQueue
from tandem.spark.archive.errors import ArchiveDamagedError, ArchiveFault
from tandem.spark.archive.manifest import unit_file
from tandem.spark.archive_and_live import ArchiveAndLiveReader, plan_batch, read_archived
from tandem.spark.errors import DataLossError, LossCause, OptionError
from tandem.spark.live.columns import TYPES
from tandem.wire.batch_body import encode_batch_entry
from tandem.wire.crc import crc32
from tandem.wire.message import COMPRESSED_FLAG, INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from tests.support.small_archive import SmallArchive
from tests.tandem.spark.live.live_world import Asked, assigned, options, queue

Places = list[tuple[int, int]]


class World:
    """An archive of the topic `orders`, and brokers that have it and more."""

    def __init__(self, root: Path) -> None:
        self.small = SmallArchive(root).archive()
        self.boundary = self.small.manifest.boundaries()["orders"]["broker-a"]
        self.all = {queue_id: end + 10 for queue_id, end in self.boundary.items()}
        self.cluster = Asked(**{f"q{queue_id}": end for queue_id, end in self.all.items()})

    def read(self, **given: str) -> tuple[Places, Places]:
        """Return queue ids and offsets that come from the archive, and from the brokers."""
        chosen = options(**given)
        archived, live = plan_batch(chosen, self.small.manifest, self.cluster)
        rows = [
            row
            for each in archived
            for batch in read_archived(each, chosen, list(TYPES))
            for row in batch.to_pylist()
        ]
        places = [(row["queueId"], row["queueOffset"]) for row in rows]
        ranges = [(each.queue.queue_id, at) for each in live for at in range(each.start, each.end)]
        return sorted(places), sorted(ranges)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def offsets(places: dict[int, int]) -> str:
    return json.dumps({"orders": {"broker-a": {str(at): each for at, each in places.items()}}})


def everything(ends: dict[int, int]) -> Places:
    return sorted((queue_id, at) for queue_id, end in ends.items() for at in range(end))


def test_every_message_comes_once(world: World) -> None:
    archived, live = world.read()
    assert archived == everything(world.boundary)
    assert sorted(archived + live) == everything(world.all)
    assert not set(archived) & set(live)


def test_what_the_brokers_have_deleted_comes_from_the_archive(world: World) -> None:
    world.cluster.firsts = {queue(at): end for at, end in world.boundary.items()}
    archived, live = world.read()
    assert sorted(archived + live) == everything(world.all)


def test_what_neither_of_them_has_is_data_loss(world: World) -> None:
    world.cluster.firsts = {queue(at): end + 1 for at, end in world.boundary.items()}
    with pytest.raises(DataLossError) as caught:
        world.read()
    assert caught.value.cause is LossCause.DELETED
    archived, live = world.read(failOnDataLoss="false")
    assert len(archived + live) == len(everything(world.all)) - 2


def test_a_hole_of_the_archive_is_data_loss(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The brokers are not asked for what is below the boundary, so nobody would give it."""
    small = world.small
    gone = small.unit(1)
    (orders,) = [file for file in gone.files if file.topic == "orders"]
    lost = {(each.queue_id, at) for each in orders.queues for at in range(each.first, each.end)}
    unit_file(small.archive_path, gone.group, gone.first).unlink()
    with pytest.raises(DataLossError, match="_tandem/units") as caught:
        world.read()
    assert caught.value.cause is LossCause.DELETED
    with caplog.at_level(logging.WARNING):
        archived, live = world.read(failOnDataLoss="false")
    assert len(caplog.messages) == len(orders.queues)
    assert sorted(archived + live) == sorted({*everything(world.all)} - lost)


def test_a_hole_that_is_not_asked_for_is_none(world: World) -> None:
    small = world.small
    gone = small.unit(1)
    (orders,) = [file for file in gone.files if file.topic == "orders"]
    unit_file(small.archive_path, gone.group, gone.first).unlink()

    def given(places: dict[int, int]) -> str:
        return json.dumps({"orders": {"broker-a": {str(at): each for at, each in places.items()}}})

    assert world.read(endingOffsets=given({each.queue_id: each.first for each in orders.queues}))[0]
    assert world.read(startingOffsets=given({each.queue_id: each.end for each in orders.queues}))[0]
    world.cluster.offsets_at = lambda queues, time_ms: dict.fromkeys(  # type: ignore[method-assign]
        queues, 1000
    )
    (before,) = [file for file in small.unit(0).files if file.topic == "orders"]
    assert world.read(endingTimestamp=str(before.last_store_ms))[0]
    assert world.read(startingTimestamp=str(orders.last_store_ms + 20))[0]


def test_a_queue_that_was_made_anew_is_data_loss_and_both_are_read(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither does its end cut off what is archived, nor is it read from the archive's end on."""
    world.cluster.ends[queue(0)] = 3
    for given in ({}, {"endingTimestamp": "1000"}, {"endingOffsets": offsets({0: -1, 1: -1})}):
        with pytest.raises(DataLossError) as caught:
            world.read(**given)
        assert caught.value.cause is LossCause.CUT
    with caplog.at_level(logging.WARNING):
        archived, live = world.read(failOnDataLoss="false")
    assert len(caplog.messages) == 1
    assert archived == everything(world.boundary)
    assert live == [*everything({0: 3}), *((1, world.boundary[1] + at) for at in range(10))]


def test_a_queue_that_is_empty_does_not_cut_off_what_is_archived(world: World) -> None:
    """By time, too: of a queue without messages a broker says 0."""
    world.cluster.ends = {queue(at): end for at, end in world.boundary.items()}
    world.cluster.offsets_at = lambda queues, time_ms: dict.fromkeys(  # type: ignore[method-assign]
        queues, 0
    )
    late = str(world.small.log.messages[-1].store_timestamp_ms + 1)
    assert world.read(endingTimestamp=late) == (everything(world.boundary), [])


def test_what_is_before_the_archive_comes_from_the_brokers(tmp_path: Path) -> None:
    """Its first unit was removed, or `exclude_topics` named the topic at first."""
    world = World(tmp_path)
    gone = world.small.unit(0)
    unit_file(world.small.archive_path, gone.group, gone.first).unlink()
    (orders,) = [file for file in gone.files if file.topic == "orders"]
    firsts = {each.queue_id: each.end for each in orders.queues}
    archived, live = world.read()
    assert sorted(archived + live) == everything(world.all)
    assert [place for place in live if place[1] < firsts[place[0]]] == everything(firsts)
    archived, live = world.read(endingOffsets=offsets({0: 4, 1: 5}))
    assert (archived, live) == ([], everything({0: 4, 1: 5}))
    world.cluster.firsts = {queue(0): 3, queue(1): firsts[1] + 5}
    archived, live = world.read()
    lost = {*everything({0: 3}), *((1, at) for at in range(firsts[1]))}
    assert sorted(archived + live) == sorted({*everything(world.all)} - lost)


def test_with_a_starting_time_what_neither_of_them_has_is_data_loss(world: World) -> None:
    """A broker says its oldest message, which is late enough: so were those before it, maybe."""
    world.cluster.firsts = {queue(at): end + 2 for at, end in world.boundary.items()}
    at = world.cluster.firsts
    world.cluster.offsets_at = lambda queues, time_ms: at  # type: ignore[method-assign]
    with pytest.raises(DataLossError):
        world.read(startingTimestamp="1")
    at = {each: first + 1 for each, first in at.items()}
    _, live = world.read(startingTimestamp="1")
    assert len(live) == 2 * 7


def test_what_is_lost_after_the_end_that_was_asked_for_is_no_loss(world: World) -> None:
    world.cluster.firsts = {queue(at): end + 2 for at, end in world.boundary.items()}
    assert world.read(endingOffsets=offsets(dict.fromkeys(world.boundary, 5)))[1] == []
    world.cluster.offsets_at = (  # type: ignore[method-assign]
        lambda queues, time_ms: world.cluster.min_offsets(queues)
    )
    stamp = world.small.log.messages[100].store_timestamp_ms
    archived, live = world.read(endingTimestamp=str(stamp))
    assert (len(archived), live) == (50, [])
    late = str(world.small.log.messages[-1].store_timestamp_ms + 1000)
    with pytest.raises(DataLossError):
        world.read(endingTimestamp=late)


@pytest.mark.parametrize("start", [0, 5, 80])
@pytest.mark.parametrize("end", [5, 20, -1])
def test_offsets_on_either_side_of_the_seam(world: World, start: int, end: int) -> None:
    def given(offset: int) -> str:
        return json.dumps({"orders": {"broker-a": {"0": offset, "1": offset}}})

    archived, live = world.read(startingOffsets=given(start), endingOffsets=given(end))
    last = {at: total if end < 0 else min(end, total) for at, total in world.all.items()}
    wanted = [place for place in everything(last) if place[1] >= start]
    assert sorted(archived + live) == wanted


def test_by_time(world: World) -> None:
    stamp = world.small.log.messages[100].store_timestamp_ms
    world.cluster.offsets_at = lambda queues, time_ms: {  # type: ignore[method-assign]
        each: world.all[each.queue_id] - 2 for each in queues
    }
    archived, live = world.read(startingTimestamp=str(stamp))
    late = [m for m in world.small.log.messages[100:] if m.topic == "orders"]
    end = world.small.manifest.end_of("broker-a") or 0
    assert archived == sorted((m.queue_id, m.queue_offset) for m in late if m.physical_offset < end)
    assert len(live) == 4


def test_a_topic_that_the_brokers_have_no_more(world: World) -> None:
    world.cluster.ends = {}
    archived, live = world.read()
    assert (archived, live) == (everything(world.boundary), [])


def test_every_queue_needs_an_offset(world: World) -> None:
    with pytest.raises(OptionError, match="orders broker-a 1"):
        world.read(startingOffsets=json.dumps({"orders": {"broker-a": {"0": 1}}}))
    with pytest.raises(OptionError, match="orders broker-a 7"):
        world.read(startingOffsets=offsets({0: 1, 1: 1, 7: 1}))
    with pytest.raises(OptionError, match="would read nothing"):
        world.read(startingOffsets=json.dumps({"orders": {"broker-a": {"0": -1, "1": 0}}}))


def test_queues_that_are_assigned_are_in_the_archive_or_at_a_broker(world: World) -> None:
    given = assigned('{"orders": [0, 1, 7]}')
    with pytest.raises(OptionError, match="not there: 7"):
        plan_batch(given, world.small.manifest, world.cluster)
    world.cluster.ends = {queue(7): 4}
    assert plan_batch(given, world.small.manifest, world.cluster)[0]


def test_columns_are_those_of_live_messages(world: World) -> None:
    chosen = options()
    archived, _ = plan_batch(chosen, world.small.manifest, world.cluster)
    batch = next(read_archived(archived[0], chosen, list(TYPES)))
    assert {field.name: field.type for field in batch.schema} == TYPES
    assert list(batch.schema.names) == list(TYPES)
    row = batch.to_pylist()[0]
    assert (row["brokerName"], row["clusterName"], row["crcOk"]) == ("broker-a", "cluster-a", True)
    (one,) = next(read_archived(archived[0], chosen, ["queueOffset"])).schema.names
    assert one == "queueOffset"


def rows_of(small: SmallArchive, **given: str) -> list[dict[str, Any]]:
    chosen = options(**given)
    archived, _ = plan_batch(chosen, small.manifest, Asked(q0=10))
    return [
        row
        for each in archived
        for batch in read_archived(each, chosen, list(TYPES))
        for row in batch.to_pylist()
    ]


def test_columns_of_bodies_are_made_of_archived_messages(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path, messages=0)
    for body in (b'{"order": 7}', b"seven"):
        small.log.put("orders", body)
    small.log.roll()
    small.put(1)
    small.archive()
    chosen = options(bodySchema="order long")
    archived, _ = plan_batch(chosen, small.manifest, Asked(q0=10))
    reader = ArchiveAndLiveReader(str(tmp_path), chosen, ["bodyError", "value"])
    (batch,) = reader.read(InputPartition(archived[0]))
    assert batch.schema.names == ["bodyError", "value"]
    assert batch.column("value").to_pylist() == [{"order": 7}, None]
    assert [each is None for each in batch.column("bodyError").to_pylist()] == [True, False]


def test_bodies_come_plain_and_batches_apart(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path, messages=0)
    small.log.put("orders", b"plain")
    small.log.put("orders", zlib.compress(b"compressed"), sys_flag=COMPRESSED_FLAG | 0x300)
    entries = [encode_batch_entry(0, b"one", b""), encode_batch_entry(0, b"two", b"")]
    small.log.put(
        "orders",
        b"".join(entries),
        sys_flag=INNER_BATCH_FLAG | NEED_UNWRAP_FLAG,
        properties={"INNER_NUM": "2"},
    )
    small.log.roll()
    small.put(1)
    small.archive()
    assert small.manifest.boundaries()["orders"]["broker-a"] == {0: 4}
    rows = rows_of(small)
    assert [row["body"] for row in rows] == [b"plain", b"compressed", b"one", b"two"]
    assert [row["queueOffset"] for row in rows] == [0, 1, 2, 3]
    assert all(row["bodyCrc"] == crc32(row["body"]) for row in rows)
    assert len(rows_of(small, decompress="false")) == 3


def test_a_body_that_has_changed_is_told(world: World) -> None:
    def change(rows: list[dict[str, Any]]) -> None:
        rows[2]["body"] = b"other"

    path = world.small.archive_path / next(
        file.path for file in world.small.unit().files if file.topic == "orders"
    )
    world.small.change_rows(path, change)
    with pytest.raises(ArchiveDamagedError) as caught:
        world.read()
    assert caught.value.fault is ArchiveFault.CRC
    assert world.read(checkCrc="false")


def test_queues_are_told_by_topic_and_broker(world: World) -> None:
    world.cluster.ends = {MessageQueue("orders", "broker-b", 0): 4}
    archived, live = world.read()
    assert archived == everything(world.boundary)
    assert live == [(0, at) for at in range(4)]

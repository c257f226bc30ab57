from pathlib import Path

import pytest

from tandem.spark.archive.errors import ArchiveDamagedError, ArchiveFault
from tandem.spark.archive.manifest import Manifest
from tandem.spark.archive.read import ArchivePiece, plan_archive, read_piece
from tests.support.small_archive import SmallArchive, places


def rows(pieces: list[ArchivePiece]) -> list[tuple[str, int, int]]:
    return places(
        row for piece in pieces for batch in read_piece(piece) for row in batch.to_pylist()
    )


def archived(small: SmallArchive) -> list[tuple[str, int, int]]:
    end = small.manifest.end_of("broker-a")
    assert end is not None
    return sorted(
        (message.topic, message.queue_id, message.queue_offset)
        for message in small.log.messages
        if message.physical_offset < end
    )


def test_everything(small: SmallArchive) -> None:
    assert rows(plan_archive(small.manifest)) == archived(small)


def test_by_topic(small: SmallArchive) -> None:
    wanted = [place for place in archived(small) if place[0] == "orders"]
    assert rows(plan_archive(small.manifest, topics=frozenset({"orders"}))) == wanted
    assert rows(plan_archive(small.manifest, topic_pattern="or.*")) == wanted
    assert plan_archive(small.manifest, topics=frozenset({"order"})) == []


def test_by_queue(small: SmallArchive) -> None:
    wanted = [place for place in archived(small) if place[1] == 1]
    assert rows(plan_archive(small.manifest, queues=frozenset({1}))) == wanted


def test_by_range_of_queue_offsets(small: SmallArchive) -> None:
    pieces = plan_archive(small.manifest, ranges={("orders", "broker-a", 1): (3, 30)})
    assert rows(pieces) == [("orders", 1, offset) for offset in range(3, 30)]
    assert len(pieces) < len(plan_archive(small.manifest, topics=frozenset({"orders"})))


def test_by_time(small: SmallArchive) -> None:
    first = small.log.messages[40].store_timestamp_ms
    pieces = plan_archive(small.manifest, start_ms=first, end_ms=first + 5)
    assert len(pieces) == 2
    assert rows(pieces) == sorted(
        (message.topic, message.queue_id, message.queue_offset)
        for message in small.log.messages[40:45]
    )


def test_columns_in_any_order(small: SmallArchive) -> None:
    piece = plan_archive(small.manifest, queues=frozenset({0}))[0]
    batch = next(read_piece(piece, ["body", "topic"]))
    assert batch.schema.names == ["body", "topic"]
    assert set(batch.column("topic").to_pylist()) == {piece.topic}
    assert next(read_piece(piece, [])).num_columns == 0


def test_a_missing_file_is_told(small: SmallArchive) -> None:
    pieces = plan_archive(small.manifest)
    Path(pieces[0].path).unlink()
    with pytest.raises(ArchiveDamagedError, match="archive --verify") as caught:
        rows(pieces)
    assert caught.value.fault is ArchiveFault.MISSING
    Path(pieces[0].path).write_bytes(b"PAR1 or so")
    with pytest.raises(ArchiveDamagedError) as caught:
        rows(pieces)
    assert caught.value.fault is ArchiveFault.UNREADABLE


def test_what_no_unit_names_does_not_exist(small: SmallArchive) -> None:
    hidden = Manifest(small.archive_path, small.manifest.units[1:])
    seen = rows(plan_archive(hidden))
    assert len(seen) == len(archived(small)) - small.unit().rows

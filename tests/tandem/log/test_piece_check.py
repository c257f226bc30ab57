from pathlib import Path

import pytest

from tandem.log.piece_check import PieceCheck, PieceChecker, PieceTask, StoreFacts
from tandem.log.pieces import PieceMap, cut_log
from tandem.log.queue_check import check_queue
from tandem.log.queue_match import QueueFacts
from tandem.log.store_directory import open_store_directory
from tandem.wire.delay_level import MESSAGE_DELAY_LEVEL
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import copy_of, log_file, overwrite


def check_whole(root: Path, *, is_settled: bool = True) -> PieceCheck:
    store = open_store_directory(root)
    (piece,) = cut_log(store.commit_log)
    checks = [
        check_queue(queue, number, PieceMap([piece]), 200)
        for number, queue in enumerate(store.queues)
    ]
    queues = [
        QueueFacts(
            topic=q.topic,
            queue_id=q.queue_id,
            is_batch=q.is_batch,
            path=q.path,
            ext_files=q.ext_files,
            first_offset=c.first_offset,
            next_offset=c.next_offset,
            first_physical_offset=c.first_physical_offset,
        )
        for q, c in zip(store.queues, checks, strict=True)
    ]
    facts = StoreFacts(store.path, is_settled, None, 0, queues, None, MESSAGE_DELAY_LEVEL)
    segments = [segment for check in checks for _, segment in check.segments]
    return PieceChecker(facts).check(PieceTask(piece, segments, []))


def test_a_sound_piece_says_what_is_in_it() -> None:
    found = check_whole(GOLDEN / "basic")
    assert found.findings == []
    assert (found.record_count, found.unit_count) == (3, 3)
    assert found.last_offset == 272
    assert found.first is not None
    assert found.first.has_unit


@pytest.mark.parametrize("is_settled", [True, False])
def test_messages_without_a_unit_are_damage_or_only_late(
    tmp_path: Path,
    is_settled: bool,  # noqa: FBT001
) -> None:
    root = copy_of("basic", tmp_path)
    path = root / "consumequeue" / "TopicA" / "1" / f"{0:020d}"
    overwrite(path, 40, bytes(20))
    found = check_whole(root, is_settled=is_settled)
    kind = "unit-missing" if is_settled else "dispatch-behind"
    assert [finding.kind for finding in found.findings] == [kind]


def test_a_damaged_body_is_a_break_that_knows_its_unit(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(log_file(root), 136 + 88, b"X")
    found = check_whole(root)
    place = found.breaks[0]
    assert (place.kind, place.offset, place.unit_count) == ("record-crc", 136, 1)
    assert place.after is not None
    assert place.after.offset == 272
    assert place.last_offset == 0

from pathlib import Path

import numpy as np

from tandem.log.pieces import PieceMap, cut_log
from tandem.log.store_directory import open_store_directory
from tests.support.log_builder import LogBuilder


def a_log(tmp_path: Path, count: int = 90) -> tuple[LogBuilder, Path]:
    log = LogBuilder(file_bytes=8192)
    for _ in range(count):
        log.put(body=b"x" * 100)
    return log, log.write(tmp_path)


def test_pieces_begin_where_records_start_and_cover_every_file(tmp_path: Path) -> None:
    log, root = a_log(tmp_path)
    files = open_store_directory(root).commit_log
    pieces = cut_log(files, 2000)
    starts = {m.physical_offset for m in log.messages}
    assert all(piece.offset in starts for piece in pieces)
    for file in files:
        own = [piece for piece in pieces if piece.file == file]
        assert own[0].start == 0
        assert own[-1].stop == file.size
        assert [a.stop for a in own[:-1]] == [b.start for b in own[1:]]
        assert all(piece.stop - piece.start < 3400 for piece in own[:-1])
    assert len(cut_log(files)) == len(files)


def test_the_unused_end_of_a_file_is_not_cut(tmp_path: Path) -> None:
    _, root = a_log(tmp_path, 3)
    (piece,) = cut_log(open_store_directory(root).commit_log, 2000)
    assert (piece.start, piece.stop) == (0, 8192)


def test_units_go_to_the_piece_that_they_lead_into(tmp_path: Path) -> None:
    _, root = a_log(tmp_path)
    files = open_store_directory(root).commit_log[1:]
    pieces = cut_log(files, 2000)
    places = PieceMap(pieces)
    offsets = np.array([0, 8192, 8300, pieces[1].offset, 8200, places.end, places.end + 5])
    assert places.pieces_of(offsets).tolist() == [-1, 0, 0, 1, 0, len(pieces), len(pieces)]
    segments = list(places.segments(offsets, 7, "path", 100, 50, 20))
    assert [(piece, s.position, s.number, s.count) for piece, s in segments] == [
        (-1, 100, 50, 1),
        (0, 120, 51, 2),
        (1, 160, 53, 1),
        (0, 180, 54, 1),
        (len(pieces), 200, 55, 2),
    ]
    assert list(places.segments(np.empty(0, np.int64), 7, "path", 0, 0, 20)) == []


def test_a_store_without_a_log_has_no_pieces() -> None:
    places = PieceMap(cut_log(()))
    assert (places.start, places.end) == (0, 0)
    assert places.pieces_of(np.array([5])).tolist() == [0]

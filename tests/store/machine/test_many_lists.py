import errno
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from store.machine import many_lists
from store.machine.disk import FoundFile
from store.machine.many_lists import LISTED_AT_ONCE, PIECE, list_trees
from tests.support.patience import PATIENCE_SECONDS

TOPICS = 2 * PIECE


def _tree(root: Path, topics: int = TOPICS, queues: int = 2) -> list[tuple[str, str, list[str]]]:
    """Make topics, with one to three files in each queue."""
    made = []
    for number in range(topics):
        for queue in range(queues):
            directory = root / f"T{number:04d}" / str(queue)
            directory.mkdir(parents=True)
            names = [f"{i:020d}" for i in range(queue % 3 + 1)]
            for name in names:
                (directory / name).write_bytes(bytes(queue))
            made.append((f"T{number:04d}", str(queue), names))
    return made


def _names(found: Iterator[tuple[str, str, list[Any]]]) -> list[tuple[str, str, list[str]]]:
    return [(topic, queue, [name for name, *_ in files]) for topic, queue, files in found]


@pytest.mark.parametrize("topics", [0, 1, PIECE, PIECE + 1, TOPICS])
def test_all_are_found_in_order(tmp_path: Path, topics: int) -> None:
    made = _tree(tmp_path, topics)
    assert _names(list_trees(str(tmp_path))) == made


@pytest.mark.slow
def test_more_than_are_under_way_are_found_in_order(tmp_path: Path) -> None:
    made = _tree(tmp_path, 2, PIECE * (2 * LISTED_AT_ONCE + 3))
    assert _names(list_trees(str(tmp_path))) == sorted(made)


def test_each_directory_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tree(tmp_path)
    looked: list[str] = []
    real = os.scandir

    def look(directory: str) -> Any:  # noqa: ANN401
        looked.append(directory)
        return real(directory)

    monkeypatch.setattr(os, "scandir", look)
    list(list_trees(str(tmp_path)))
    assert len(looked) == len(set(looked)) == 1 + TOPICS + 2 * TOPICS


def test_some_are_read_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look ends when another one has begun."""
    _tree(tmp_path, TOPICS, 1)
    began: list[str] = []
    real = many_lists.list_files

    def look(directory: str) -> list[FoundFile]:
        began.append(directory)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(began) < 2 and time.monotonic() < deadline:
            os.sched_yield()
        assert len(began) > 1
        return real(directory)

    monkeypatch.setattr(many_lists, "list_files", look)
    assert len(list(list_trees(str(tmp_path)))) == TOPICS


def test_few_are_read_without_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tree(tmp_path, PIECE // 2)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", lambda *_: pytest.fail("asked"))
    assert len(list(list_trees(str(tmp_path)))) == PIECE


def test_an_error_is_raised_where_the_directory_has_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _tree(tmp_path, TOPICS, 1)
    real = many_lists.list_files

    def look(directory: str) -> list[FoundFile]:
        if directory.endswith(f"T{PIECE:04d}/0"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), directory)
        return real(directory)

    monkeypatch.setattr(many_lists, "list_files", look)
    found = list_trees(str(tmp_path))
    assert [next(found)[0] for _ in range(PIECE)] == [topic for topic, *_ in made[:PIECE]]
    with pytest.raises(PermissionError) as caught:
        next(found)
    assert caught.value.filename == f"{tmp_path}/T{PIECE:04d}/0"


def test_one_that_is_not_read_to_its_end_leaves_nothing_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _tree(tmp_path)
    began: list[str] = []
    ended: list[str] = []
    real = many_lists.list_files

    def look(directory: str) -> list[FoundFile]:
        began.append(directory)
        files = real(directory)
        ended.append(directory)
        return files

    monkeypatch.setattr(many_lists, "list_files", look)
    found = list_trees(str(tmp_path))
    next(found)
    found.close()
    assert began
    assert sorted(began) == sorted(ended)

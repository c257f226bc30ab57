import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.cluster.log_following import LogFollower, ProcessFile, _Follower
from tandem.cluster_file.settings import LoggingSettings
from tandem.process_log import RotatedFile, TextFormatter


class Process:
    """A process that logs to a file which it rotates after 1,000 bytes; each message takes 100."""

    def __init__(self, directory: Path, name: str, *, rotate_count: int = 3) -> None:
        self.file = directory / f"{name}.log"
        self.source = ProcessFile(name, self.file)
        settings = LoggingSettings(rotate_bytes=1_000, rotate_count=rotate_count)
        self._output = RotatedFile(self.file, settings)
        self._output.setFormatter(TextFormatter(name))

    def log(self, at: float, *words: str) -> None:
        for word in words:
            record = logging.LogRecord("x", logging.INFO, "", 0, word.ljust(60, "."), (), None)
            record.created, record.msecs = at, at % 1 * 1000
            self._output.emit(record)

    def close(self) -> None:
        self._output.close()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Process, Process]]:
    one, other = Process(tmp_path, "a"), Process(tmp_path, "b")
    yield one, other
    one.close()
    other.close()


def words(follower: LogFollower) -> list[str]:
    return [record.message.rstrip(".") for record in follower.records()]


def test_the_records_of_all_processes_come_in_the_order_of_time(
    two: tuple[Process, Process],
) -> None:
    one, other = two
    one.log(1.0, "1")
    other.log(2.5, "2.5")
    one.log(3.0, "3")
    other.log(4.0, "4")
    with LogFollower([one.source, other.source]) as follower:
        assert words(follower) == ["1", "2.5", "3", "4"]
        assert words(follower) == []
        other.log(6.0, "6")
        one.log(5.0, "5")
        assert words(follower) == ["5", "6"]


def test_a_rotation_loses_nothing_and_repeats_nothing(two: tuple[Process, Process]) -> None:
    one, _ = two
    expected = [str(number) for number in range(60)]
    with LogFollower([one.source]) as follower:
        seen = []
        for number in range(0, 60, 15):
            one.log(float(number), *expected[number : number + 15])
            seen += words(follower)
    assert seen == expected


def test_a_rotation_while_a_part_is_read_loses_nothing(two: tuple[Process, Process]) -> None:
    one, _ = two
    one.log(1.0, "1", "2", "3")
    with LogFollower([one.source]) as follower:
        records = follower.records()
        seen = [next(records).message.rstrip(".")]
        one.log(2.0, *(str(number) for number in range(4, 25)))
        seen += [record.message.rstrip(".") for record in records]
    assert seen == [str(number) for number in range(1, 25)]


def test_what_comes_between_the_last_read_and_a_rotation_is_read(
    two: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = two
    one.log(1.0, "1")
    look = _Follower._find_newer
    late = iter([[str(number) for number in range(2, 25)]])

    def log_and_look(follower: _Follower) -> None:
        one.log(2.0, *next(late, []))
        look(follower)

    monkeypatch.setattr(_Follower, "_find_newer", log_and_look)
    with LogFollower([one.source]) as follower:
        seen = words(follower)
    assert seen == [str(number) for number in range(1, 25)]


def test_when_a_part_was_deleted_meanwhile_reading_goes_on_with_what_is_left(
    two: tuple[Process, Process],
) -> None:
    one, _ = two
    one.log(1.0, "first")
    with LogFollower([one.source]) as follower:
        assert words(follower) == ["first"]
        one.log(2.0, *(str(number) for number in range(100)))
        seen = words(follower)
    # It was still open, so its own end was read as well.
    assert seen[0] == "0"
    assert seen[-1] == "99"
    assert seen == sorted(seen, key=int)


def test_parts_that_ended_before_the_time_that_is_wanted_are_not_read(
    two: tuple[Process, Process],
) -> None:
    one, _ = two
    one.log(1000.0, *(f"old {number}" for number in range(30)))
    for part in one.file.parent.glob("a.log.*"):
        # What nobody can have written before that time shows whether it was read.
        part.write_text("2026-11-22 14:09:29,104 INFO a read\n")
        os.utime(part, (1000.0, 1000.0))
    one.log(5000.0, "new")
    with LogFollower([one.source], since_seconds=4000.0) as follower:
        assert words(follower) == ["new"]
        one.log(5001.0, "newer")
        assert words(follower) == ["newer"]


def test_a_log_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    with LogFollower([ProcessFile("late", tmp_path / "late.log")]) as follower:
        assert words(follower) == []
        process = Process(tmp_path, "late")
        process.log(1.0, "here")
        assert words(follower) == ["here"]
        process.close()


def test_a_log_that_somebody_emptied_is_read_from_its_beginning(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text("2026-11-22 14:09:29,104 INFO x one and some more\n")
    with LogFollower([ProcessFile("x", file)]) as follower:
        assert words(follower) == ["one and some more"]
        file.write_text("2026-11-22 14:09:30,104 INFO x two\n")
        assert words(follower) == ["two"]


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    with file.open("w") as log, LogFollower([ProcessFile("x", file)]) as follower:
        print("2026-11-22 14:09:29,104 INFO x on", end="", file=log, flush=True)
        assert words(follower) == []
        print("e", file=log, flush=True)
        assert words(follower) == ["one"]

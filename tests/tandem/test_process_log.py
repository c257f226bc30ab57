import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.cluster_file.choices import LogFormat, LogLevel
from tandem.cluster_file.settings import LoggingSettings
from tandem.process_log import (
    KEYS_MAX,
    REPEATS_MAX,
    REPEATS_SECONDS,
    JsonFormatter,
    LogPlace,
    ProcessLog,
    RepeatLimit,
    RotatedFile,
    TextFormatter,
    last_line,
    parts_of,
    start_log,
)

SMALL = LoggingSettings(rotate_bytes=2_000, rotate_count=2)


class Lines(logging.Handler):
    """Keeps what would be written."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def record_of(template: str, *values: object, name: str = "node.x") -> logging.LogRecord:
    return logging.LogRecord(name, logging.INFO, "", 0, template, values, None)


def test_of_lines_from_one_template_the_first_are_written_and_the_rest_counted() -> None:
    output, clock = Lines(), Clock()
    log = ProcessLog(output, clock)
    for number in range(5_000):
        log.handle(record_of("broker %s registered", f"b{number}"))
    log.handle(record_of("another line"))
    assert output.lines == [
        *(f"broker b{number} registered" for number in range(REPEATS_MAX)),
        "another line",
    ]
    clock.now += REPEATS_SECONDS
    log.say_left_out()
    assert output.lines[-1] == "4,980 more like this in 10 s: broker %s registered"
    log.handle(record_of("broker %s registered", "late"))
    assert output.lines[-1] == "broker late registered"


def test_the_next_line_says_what_was_left_out_before_it() -> None:
    output, clock = Lines(), Clock()
    log = ProcessLog(output, clock)
    for _ in range(REPEATS_MAX + 1):
        log.handle(record_of("again"))
    clock.now += REPEATS_SECONDS
    log.handle(record_of("something else"))
    assert output.lines[-2:] == ["1 more like this in 10 s: again", "something else"]


def test_what_was_left_out_is_said_at_the_end_too() -> None:
    output = Lines()
    log = ProcessLog(output, Clock())
    for _ in range(REPEATS_MAX + 3):
        log.handle(record_of("again"))
    log.close()
    assert output.lines[-1] == "3 more like this in 10 s: again"


def test_lines_of_two_loggers_are_counted_apart() -> None:
    limit = RepeatLimit()
    for _ in range(REPEATS_MAX):
        assert limit.admits("a", 0.0)
    assert not limit.admits("a", 0.0)
    assert limit.admits("b", 1.0)
    assert limit.ended(REPEATS_SECONDS - 0.1) == []
    assert limit.ended(REPEATS_SECONDS) == [("a", 1)]
    assert limit.ended(REPEATS_SECONDS + 1) == []


def test_an_error_is_not_left_out_for_the_sake_of_what_only_informs() -> None:
    output = Lines()
    log = ProcessLog(output, Clock())
    for _ in range(REPEATS_MAX + 1):
        log.emit(record_of("the disk"))
    error = record_of("the disk")
    error.levelno = logging.ERROR
    log.emit(error)
    assert len(output.lines) == REPEATS_MAX + 1


def test_keys_without_end_take_no_memory() -> None:
    limit = RepeatLimit()
    admitted = sum(limit.admits(key, 0.0) for key in range(10 * KEYS_MAX))
    assert admitted == KEYS_MAX + REPEATS_MAX
    assert len(limit._windows) == KEYS_MAX + 1


def test_a_hostile_name_makes_neither_a_line_nor_a_colour_nor_a_megabyte() -> None:
    name = "x\n2026-01-01 00:00:00,000 ERROR n the disk is lost\x1b[2J" + "y" * 5_000_000
    for formatter in (TextFormatter("n"), JsonFormatter("n")):
        line = formatter.format(record_of("broker %s registered", name))
        assert "\n" not in line
        assert "\x1b" not in line
        assert len(line) < 3_000
        assert "characters)" in line


def test_a_line_has_time_level_process_and_words() -> None:
    line = TextFormatter("broker-a-0").format(record_of("serving at %s", "127.0.0.1:10911"))
    assert line.endswith(" INFO broker-a-0 serving at 127.0.0.1:10911")
    assert len(line.split(" ")[0]) == len("2026-01-01")


def test_a_line_of_json_has_the_same() -> None:
    fields = json.loads(JsonFormatter("broker-a-0").format(record_of("serving at %s", "x")))
    assert fields.pop("time").endswith("+00:00")
    assert fields == {
        "level": "INFO",
        "process": "broker-a-0",
        "logger": "node.x",
        "message": "serving at x",
    }


def failed(words: str) -> logging.LogRecord:
    record = record_of("failed")
    record.exc_info = (ValueError, ValueError(words), None)
    return record


def test_no_line_of_a_traceback_looks_like_a_record() -> None:
    record = failed("x\n2026-01-01 00:00:00,000 INFO n all is well\x1b[1m")
    first, *rest = TextFormatter("n").format(record).split("\n")
    assert first.endswith("INFO n failed")
    assert all(line.startswith("  | ") for line in rest)
    assert rest[-1] == "  | 2026-01-01 00:00:00,000 INFO n all is well\\x1b[1m"
    lines = json.loads(JsonFormatter("n").format(record))["traceback"]
    assert lines[-1] == "2026-01-01 00:00:00,000 INFO n all is well\\x1b[1m"


def test_a_traceback_without_end_is_cut() -> None:
    lines = TextFormatter("n").format(failed("\n" * 100_000)).split("\n")
    assert len(lines) < 310
    assert any("lines ..." in line for line in lines)


def rotated(file: Path, settings: LoggingSettings = SMALL) -> RotatedFile:
    output = RotatedFile(file, settings)
    output.setFormatter(TextFormatter("n"))
    return output


def test_a_file_is_rotated_and_so_many_older_ones_kept(tmp_path: Path) -> None:
    file = tmp_path / "n.log"
    output = rotated(file)
    for number in range(500):
        output.handle(record_of("line %04d", number))
    output.close()
    assert parts_of(file) == [tmp_path / "n.log.2", tmp_path / "n.log.1", file]
    assert all(part.stat().st_size <= SMALL.rotate_bytes for part in parts_of(file))
    text = "".join(part.read_text() for part in parts_of(file))
    numbers = [int(line.split()[-1]) for line in text.splitlines()]
    assert numbers == list(range(numbers[0], 500))


def test_standard_error_moves_along_with_the_file_that_it_is(tmp_path: Path) -> None:
    file = tmp_path / "n.log"
    saved = os.dup(2)
    stderr = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.dup2(stderr, 2)
        output = rotated(file)
        while not (tmp_path / "n.log.1").exists():
            output.handle(record_of("line"))
        os.write(2, b"the traceback of its end\n")
        output.close()
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(stderr)
    assert file.read_text().endswith("the traceback of its end\n")


def test_standard_error_that_is_something_else_stays_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = rotated(tmp_path / "n.log")
    for _ in range(100):
        output.handle(record_of("line"))
    os.write(2, b"for the terminal\n")
    output.close()
    assert capfd.readouterr().err == "for the terminal\n"


def test_a_file_that_cannot_be_rotated_grows_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "n.log"
    (tmp_path / "n.log.2").mkdir()  # in the way of the second rotation
    output = rotated(file)
    for _ in range(300):
        output.handle(record_of("line"))
    output.close()
    text = (tmp_path / "n.log.1").read_text() + file.read_text()
    assert text.count(" line\n") == 300
    assert 1 <= text.count("the log cannot be rotated") <= 5


def test_a_log_that_cannot_be_written_ends_nobody(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "n.log"
    file.symlink_to("/dev/full")
    output = rotated(file)
    output.handle(record_of("line"))
    assert capfd.readouterr().err == ""
    assert output.stream is not None
    # What is in its buffer goes there, or closing would raise.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, output.stream.fileno())
    os.close(null)
    output.close()


def test_the_last_line_is_found_before_and_after_a_rotation(tmp_path: Path) -> None:
    file = tmp_path / "n.log"
    file.write_text("of an earlier life\n")
    place = LogPlace(file.stat().st_ino, file.stat().st_size)
    assert last_line(file, place) == ""
    with file.open("a") as log:
        log.write("a warning\nthe end\x1b[2J\n\n")
    assert last_line(file, place) == "the end\\x1b[2J"
    file.rename(tmp_path / "n.log.1")
    file.write_text("short\n")
    assert last_line(file, place) == "short"


def test_the_last_line_of_json_and_of_a_traceback_are_their_words(tmp_path: Path) -> None:
    file = tmp_path / "n.log"
    for formatter in (TextFormatter("n"), JsonFormatter("n")):
        file.write_text(formatter.format(failed("no room")) + "\n")
        assert last_line(file, LogPlace(0, 0)) == "ValueError: no room"
    file.write_text(JsonFormatter("n").format(record_of("port %d is taken", 1)) + "\n")
    assert last_line(file, LogPlace(0, 0)) == "port 1 is taken"


@pytest.fixture
def bare_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logging as in a process that has just begun."""
    root = logging.root
    handlers, level = list(root.handlers), root.level
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("bare_logging")
def test_level_format_and_what_nobody_catches(tmp_path: Path) -> None:
    file = tmp_path / "n.log"
    settings = LoggingSettings(level=LogLevel.WARNING, format=LogFormat.JSON)
    log = start_log("broker-a-0", settings, file)
    logging.getLogger("node.x").info("not this")
    logging.getLogger("node.x").warning("but this")
    sys.excepthook(ValueError, ValueError("a bug"), None)
    log._output.close()
    first, second = map(json.loads, file.read_text().splitlines())
    assert (first["message"], first["process"]) == ("but this", "broker-a-0")
    assert second["level"] == "CRITICAL"
    assert second["traceback"][-1] == "ValueError: a bug"


@pytest.mark.usefixtures("bare_logging")
def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        start_log("n", LoggingSettings(), tmp_path / "none/n.log")

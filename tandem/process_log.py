"""The log of a process of a cluster: a node, or a supervisor in the background.

    record -> RepeatLimit -> one line, safe and not too long -> standard error, or a file

Much of what is logged was chosen by clients that reach a port. So no line has a character that a
terminal acts on, none is longer than anybody reads, and of the lines made from one template only
the first `REPEATS_MAX` in `REPEATS_SECONDS` are written; then one line says how many more there
were.

A file is rotated by the process that writes it. What else a process writes on standard error, such
as the traceback of its end, belongs to the same file: if standard error is that file, it moves to
each new one.
"""

from __future__ import annotations

import datetime as dt
import logging
import logging.handlers
import math
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from tandem.cluster_file.choices import LogFormat
from tandem.plain_text import one_line
from tandem.wire.untrusted import UnreadableError, decode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from pathlib import Path

    from tandem.cluster_file.settings import LoggingSettings

REPEATS_MAX: Final = 20
REPEATS_SECONDS: Final = 10.0

KEYS_MAX: Final = 1_000
"""Templates are in the code, so there are never as many. Beyond it, all others count as one."""

TRACEBACK_LINES_MAX: Final = 300

TAIL_BYTES: Final = 65_536
"""Where the last line is looked for. A line of ours is shorter."""

_OTHERS: Final = "others"


class RepeatLimit:
    """Which of many lines to write, and how many were left out. The time goes in.

    A line belongs to a key. The first line of a key opens a window of `REPEATS_SECONDS`, in which
    `REPEATS_MAX` lines of it are written.
    """

    def __init__(self) -> None:
        self._windows: dict[Hashable, tuple[float, int]] = {}
        """By key: when its window ends, and how many lines have come in it. Oldest first."""

    def admits(self, key: Hashable, now: float) -> bool:
        """Count a line of `key`; return whether to write it. `ended` comes first."""
        if key not in self._windows and len(self._windows) >= KEYS_MAX:
            key = _OTHERS
        end, count = self._windows.get(key, (now + REPEATS_SECONDS, 0))
        self._windows[key] = end, count + 1
        return count < REPEATS_MAX

    def ended(self, now: float) -> list[tuple[Hashable, int]]:
        """Close the windows that are over; return the keys of which lines were left out."""
        over: list[tuple[Hashable, int]] = []
        while self._windows:
            key, (end, count) = next(iter(self._windows.items()))
            if end > now:
                break
            del self._windows[key]
            if count > REPEATS_MAX:
                over.append((key, count - REPEATS_MAX))
        return over


class ProcessLog(logging.Handler):
    """Passes to `output` what a `RepeatLimit` admits."""

    def __init__(
        self, output: logging.Handler, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._output = output
        self._clock = clock
        self._limit = RepeatLimit()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it."""
        now = self._clock()
        self.say_left_out(now)
        if self._limit.admits((record.name, record.levelno, str(record.msg)), now):
            self._output.handle(record)

    def say_left_out(self, now: float | None = None) -> None:
        """Say what was left out in windows that are over. To be called now and then."""
        for key, count in self._limit.ended(self._clock() if now is None else now):
            name, level, template = key if isinstance(key, tuple) else ("", logging.WARNING, key)
            words = "%s more like this in %.0f s: %s"
            values = (f"{count:,}", REPEATS_SECONDS, template)
            self._output.handle(logging.LogRecord(name, level, "", 0, words, values, None))

    def close(self) -> None:
        """Say what was left out and is not said yet."""
        self.say_left_out(math.inf)
        super().close()


class TextFormatter(logging.Formatter):
    """A line a record: time of the machine, level, name of the process, message.

    The lines of a traceback follow, each set off with `  | `, so that none looks like a record.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return what is written for a record."""
        time_text = self.formatTime(record)
        line = f"{time_text} {record.levelname} {self._process} {one_line(record.getMessage())}"
        return "\n  | ".join([line, *_traceback(self, record)])


class JsonFormatter(logging.Formatter):
    """A JSON object a line, with the time in UTC."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return what is written for a record."""
        at = dt.datetime.fromtimestamp(record.created, dt.UTC)
        fields: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "process": self._process,
            "logger": record.name,
            "message": one_line(record.getMessage()),
        }
        if traceback := _traceback(self, record):
            fields["traceback"] = traceback
        return msgspec.json.encode(fields).decode()


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    if not record.exc_info:
        return []
    lines = formatter.formatException(record.exc_info).split("\n")
    if (left_out := len(lines) - TRACEBACK_LINES_MAX) > 0:
        lines[TRACEBACK_LINES_MAX // 2 : -TRACEBACK_LINES_MAX // 2] = [f"... {left_out} lines ..."]
    return [one_line(line) for line in lines]


class _Quiet(logging.StreamHandler[TextIO]):
    """A log that cannot be written, on a full disk say, ends nobody: its lines are lost."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


class RotatedFile(logging.handlers.RotatingFileHandler, _Quiet):
    """A file of at most `rotate_bytes`, and `rotate_count` older ones: `.1` is the youngest.

    Source of the names: `logging.handlers.RotatingFileHandler`.
    """

    def __init__(self, file: Path, settings: LoggingSettings) -> None:
        """Open `file` to append to.

        Raises:
            OSError: It cannot be opened.
        """
        super().__init__(
            file,
            maxBytes=settings.rotate_bytes,
            backupCount=settings.rotate_count,
            encoding="utf-8",
            errors="backslashreplace",
        )
        self._settings = settings

    def doRollover(self) -> None:  # noqa: N802 - logging's name
        """Begin a new file. If the system refuses, go on in the old one for as long again."""
        stream = self.stream
        assert stream is not None
        ours = [number for number in (1, 2) if _is_same_file(number, stream.fileno())]
        try:
            super().doRollover()
        except OSError as error:
            self.stream = self.stream or self._open()
            self.maxBytes += self._settings.rotate_bytes
            words, values = "the log cannot be rotated: %s; it grows", (error,)
            record = logging.LogRecord(__name__, logging.ERROR, "", 0, words, values, None)
            logging.StreamHandler.emit(self, record)
        else:
            self.maxBytes = self._settings.rotate_bytes
        fresh = self.stream
        assert fresh is not None
        for number in ours:
            os.dup2(fresh.fileno(), number)


def _is_same_file(one: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(one, other)
    except OSError:  # it is closed
        return False


class LogPlace(msgspec.Struct, frozen=True):
    """A place in a log that may be rotated meanwhile: which file it was, and the byte in it."""

    inode: int
    position: int


def last_line(file: Path, since: LogPlace) -> str:
    """Return the words of the last line that was logged after `since`; empty if there is none.

    Of JSON that is the message; of a traceback its last line.
    """
    with file.open("rb") as log:
        end = log.seek(0, os.SEEK_END)
        start = since.position if os.fstat(log.fileno()).st_ino == since.inode else 0
        log.seek(max(start, end - TAIL_BYTES))
        lines = [line.strip() for line in log.read().split(b"\n")]
    line = next((line for line in reversed(lines) if line), b"")
    if line.startswith(b"{"):
        with suppress(UnreadableError):
            words = decode_json(line, _JsonLine)
            line = (words.traceback or [words.message])[-1].encode()
    return one_line(line.removeprefix(b"| ").decode(errors="replace"))


class _JsonLine(msgspec.Struct):
    """What is read of a line that `JsonFormatter` has written."""

    message: str
    traceback: list[str] = []


def parts_of(file: Path) -> list[Path]:
    """The files of a rotated log that are there, oldest first."""
    older = (part for part in file.parent.glob(f"{file.name}.*") if part.suffix[1:].isdecimal())
    ordered = sorted(older, key=lambda part: -int(part.suffix[1:]))
    return [*ordered, *([file] if file.exists() else [])]


def start_log(process: str, settings: LoggingSettings, file: Path | None = None) -> ProcessLog:
    """Log what this process logs to standard error, or to `file`. To be called once.

    An error that nothing catches is logged, too.

    Raises:
        OSError: `file` cannot be opened.
    """
    output = _Quiet(sys.stderr) if file is None else RotatedFile(file, settings)
    is_json = settings.format is LogFormat.JSON
    output.setFormatter(JsonFormatter(process) if is_json else TextFormatter(process))
    log = ProcessLog(output)
    logging.root.addHandler(log)
    logging.root.setLevel(settings.level.value.upper())
    sys.excepthook = _log_uncaught
    return log


def start_audit_log(logger: str, file: Path, settings: LoggingSettings) -> logging.Handler:
    """Have what this logger logs written as `open_audit_log` does.

    Raises:
        OSError: `file` cannot be opened.
    """
    output = open_audit_log(file, settings)
    found = logging.getLogger(logger)
    found.addHandler(output)
    found.setLevel(logging.INFO)
    return output


def open_audit_log(file: Path, settings: LoggingSettings) -> logging.Handler:
    """Return what writes each record as it comes to `file`, which only its owner reads.

    Raises:
        OSError: `file` cannot be opened.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    output = RotatedFile(file, settings)
    output.setFormatter(logging.Formatter("%(message)s"))
    return output


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:  # noqa: ANN401
    logging.getLogger(__name__).critical(
        "ended by an error that nobody expected: a bug", exc_info=(kind, error, trace)
    )

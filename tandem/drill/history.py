"""Runs of many drills in one directory: `history.jsonl`, one line a run, the oldest first.

A line is added by one write, under a lock, and never changed. What a crash or a full disk left of a
line is passed over and counted: the next one begins a line of its own.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

import msgspec

from tandem.drill.errors import BadOptionsError, ReportError
from tandem.drill.run_record import NotASummaryError, RunRecord, record_of
from tandem.views.drill_reports import SUMMARY_NAME
from tandem.wire.untrusted import UnreadableError, json_decoder

HISTORY_NAME: Final = "history.jsonl"
TRENDS_NAME: Final = "trends.html"

RUN_BYTES_MAX: Final = 1 << 20
"""A run of the whole catalogue takes 20 KiB: a longer line is none of ours."""

SUMMARY_BYTES_MAX: Final = 64 << 20
"""A drill of a week with its faults and expectations takes some MiB."""

LAST: Final = "last"
PREVIOUS: Final = "previous"


class History(msgspec.Struct, frozen=True):
    """What a history holds: its runs, oldest first, and how many lines nobody can read."""

    runs: list[RunRecord]
    unreadable: int = 0


class HistoryError(ReportError):
    """A history cannot be read or written; the text says which and why."""


class NoRunError(BadOptionsError):
    """There is no run of that name: neither a report nor a line of the history. `name` is it."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text, name)
        self.name = name


def add_run(directory: Path, record: RunRecord) -> None:
    """Add a run to the history of a directory, which is made if it is missing.

    Raises:
        HistoryError: it cannot be written.
    """
    path = directory / HISTORY_NAME
    line = msgspec.json.encode(record) + b"\n"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with path.open("ab+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = file.seek(0, os.SEEK_END)
            if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                line = b"\n" + line  # what is torn stays a line of its own
            written = file.write(line)
            os.fsync(file.fileno())
    except OSError as error:
        raise HistoryError(f"cannot add to the history {path}: {error.strerror}") from error
    if written != len(line):
        raise HistoryError(f"cannot add to the history {path}: the disk is full")


def read_history(directory: Path) -> History:
    """Return all runs of a directory; of one without a history there are none.

    Raises:
        HistoryError: it cannot be read.
    """
    path = directory / HISTORY_NAME
    runs: list[RunRecord] = []
    unreadable = 0
    decode = json_decoder(RunRecord)
    try:
        with path.open("rb") as file:
            while line := file.readline(RUN_BYTES_MAX):
                if not line.strip():
                    continue
                try:
                    runs.append(decode(line))
                except UnreadableError:
                    unreadable += 1
    except FileNotFoundError:
        return History([])
    except OSError as error:
        raise HistoryError(f"cannot read the history {path}: {error.strerror}") from error
    return History(runs, unreadable)


def check_history(history: Path) -> None:
    """Make the directory of a history, before a drill that is to be added to it.

    Raises:
        HistoryError: it cannot be made, or what is there cannot be read.
    """
    try:
        history.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HistoryError(
            f"--history {history}: {error.strerror}; give a directory that can be written"
        ) from error
    read_history(history)


def find_run(name: str, history: Path) -> RunRecord:
    """Return a run by what a person calls it.

    That is the directory of a report, its `summary.json`, or a run of the history in `history`: its
    number, the first is 1, `last` or `previous`.

    Raises:
        NoRunError: there is none.
        HistoryError: the history cannot be read.
    """
    if name.isdecimal() or name in (LAST, PREVIOUS):
        return _of_history(name, history)
    path = Path(name)
    if path.is_dir():
        path /= SUMMARY_NAME
    return read_run(path)


def read_run(path: Path, label: str = "") -> RunRecord:
    """Return the run of a `summary.json`.

    Raises:
        NoRunError: it cannot be read, or is something else.
    """
    try:
        with path.open("rb") as file:
            return record_of(file.read(SUMMARY_BYTES_MAX), label)
    except OSError as error:
        raise NoRunError(
            f"{path}: {error.strerror}; a run is the directory of a report, its {SUMMARY_NAME}, or"
            f" a number of the history, {LAST} or {PREVIOUS}",
            str(path),
        ) from error
    except NotASummaryError as error:
        raise NoRunError(f"{path}: is no {SUMMARY_NAME} of a drill: {error}", str(path)) from error


def _of_history(name: str, directory: Path) -> RunRecord:
    runs = read_history(directory).runs
    number = {LAST: len(runs), PREVIOUS: len(runs) - 1}.get(name)
    place = int(name[:9]) if number is None else number
    if not 1 <= place <= len(runs):
        had = f"{len(runs)} runs" if runs else "no run"
        raise NoRunError(
            f"there is no run {name}: {directory / HISTORY_NAME} has {had};"
            " `tandem drill history` lists them, and --history names another directory",
            name,
        )
    return runs[place - 1]

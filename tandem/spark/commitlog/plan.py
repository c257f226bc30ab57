"""Cuts the logs of stores into pieces, on the driver: where each begins, where each log ends.

A split owns the records that start in it. Cuts are at record starts (`log_files.cut_file`).
"""

from collections.abc import Iterator

from tandem.data_file import DataFile, opened
from tandem.spark.commitlog.log_files import (
    commit_log_folder,
    cut_file,
    is_record,
    list_log_files,
    local_path,
    log_tail,
)
from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.queue_starts import QueueStarts
from tandem.spark.commitlog.split import LogSplit


def plan_splits(options: ScanOptions) -> list[LogSplit]:
    """Look at the stores and cut their logs into pieces.

    Raises:
        NotAStoreError: a path is something else.
    """
    return [split for path in options.paths for split in _plan_store(path, options.split_bytes)]


def _plan_store(store: str, split_bytes: int) -> Iterator[LogSplit]:
    folder = commit_log_folder(local_path(store))
    files = list_log_files(folder)
    starts = QueueStarts(folder.parent / "consumequeue")
    for number, file in enumerate(files):
        is_last = number == len(files) - 1
        if number and files[number - 1].end_offset != file.offset:
            yield _missing_file(store, files[number - 1], file)
        end = _log_end(file, starts) if is_last else file.size
        cuts = cut_file(file, end, split_bytes, starts)
        for start, stop in zip(cuts, [*cuts[1:], end], strict=True):
            yield LogSplit(store, file, start, stop, end, is_last)


def _missing_file(store: str, before: DataFile, after: DataFile) -> LogSplit:
    fault = f"the log goes on at {after.offset}: the file between is missing"
    hole = DataFile(before.path, before.end_offset, 0)
    return LogSplit(store, hole, 0, 0, 0, is_last_file=False, fault=fault)


def _log_end(file: DataFile, starts: QueueStarts) -> int:
    known = starts.last_before(file.end_offset)
    start = max((known or 0) - file.offset, 0)
    if start:
        with opened(file.path) as descriptor:
            start = start if is_record(descriptor, file, start) else 0
    tail = log_tail(file, start)
    return tail.end if tail.clean else file.size

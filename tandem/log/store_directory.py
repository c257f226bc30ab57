"""What a store directory holds, found out from the files themselves.

    commitlog/<20 digits>                       the log; every file of one size
    consumequeue/<topic>/<queueId>/<20 digits>  and batchconsumequeue, consumequeue_ext alike
    index/<yyyyMMddHHmmssSSS>
    checkpoint, abort, lock

The sizes of a store's files are written nowhere: the size of a log or queue file is the
length that most of its files have. Whether a node has the store open is asked of the system without
touching the lock: POSIX record locks vanish when any descriptor of the file is closed by the
process that holds them, so a lock of our own process is looked up before the file is opened.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tandem.data_file import (
    TOPIC_TABLE_BYTES_MAX,
    DataFile,
    data_files,
    entries_in,
    is_locked,
    topics_in_table,
)
from tandem.log.errors import NoStore, NotAStoreError, UnreadableFileError
from tandem.wire.store_layout import (
    CHECKPOINT,
    FILE_NAME_DIGITS,
    OFFSET_MAX,
    QUEUE_KINDS,
    UNIT_BYTES,
    QueueKind,
    offset_named,
)

_EXPECTED_BESIDE: Final = (".tmp",)


class StrayFile(msgspec.Struct, frozen=True):
    """A file or directory that no store would have there."""

    path: str
    reason: str


class QueueFiles(msgspec.Struct, frozen=True):
    """The files of one queue of one topic; `ext_files` are those of its ConsumeQueueExt."""

    topic: str
    queue_id: int
    kind: QueueKind
    path: str
    files: tuple[DataFile, ...]
    ext_files: tuple[DataFile, ...] = ()

    @property
    def unit_bytes(self) -> int:
        """How long one unit is."""
        return UNIT_BYTES[self.kind]

    @property
    def is_batch(self) -> bool:
        """Whether this is a BatchConsumeQueue."""
        return self.kind == "batchconsumequeue"


class Checkpoint(msgspec.Struct, frozen=True):
    """The five fields of a checkpoint; times in ms, offsets in bytes of log."""

    physic_msg_timestamp_ms: int
    logics_msg_timestamp_ms: int
    index_msg_timestamp_ms: int
    master_flushed_offset: int
    confirm_physical_offset: int


class StoreDirectory(msgspec.Struct, frozen=True):
    """The files of a store at one moment. A running node goes on; see `is_live`.

    `checkpoint` is None if there is none that can be read; `checkpoint_bytes` is then its length,
    -1 if it does not exist. `topics` are those of config/topics.json, None without a readable one.
    """

    path: str
    commit_log: tuple[DataFile, ...]
    queues: tuple[QueueFiles, ...]
    index_files: tuple[DataFile, ...]
    checkpoint: Checkpoint | None
    checkpoint_bytes: int
    has_abort: bool
    is_live: bool
    strays: tuple[StrayFile, ...]
    topics: frozenset[str] | None = None

    @property
    def log_file_bytes(self) -> int:
        """The size of a commit log file: the most frequent length; 0 if there is no file."""
        return usual_size(self.commit_log)

    @property
    def log_start(self) -> int:
        """The first physical offset that is held; 0 if there is no file."""
        return self.commit_log[0].offset if self.commit_log else 0

    @property
    def is_settled(self) -> bool:
        """Whether the store was closed cleanly and nobody has it open: everything must agree."""
        return not self.has_abort and not self.is_live

    def queue_file_bytes(self, kind: QueueKind) -> int:
        """The size of a queue file of this kind; 0 if there is none."""
        files = (file for queue in self.queues if queue.kind == kind for file in queue.files)
        return usual_size(files, UNIT_BYTES[kind])

    @property
    def checkpoint_path(self) -> str:
        """Where the checkpoint is."""
        return f"{self.path}/checkpoint"


def usual_size(files: Iterable[DataFile], unit_bytes: int = 1) -> int:
    """Return the length that most of `files` have, out of whole units; 0 if none has one."""
    counts = Counter(file.size for file in files if file.size and not file.size % unit_bytes)
    return max(counts, key=lambda size: (counts[size], size), default=0)


def open_store_directory(
    path: str | Path, *, commit_log_directories: Sequence[str | Path] = ()
) -> StoreDirectory:
    """Look at the store in `path`: a store root, or only a directory with commit log files.

    `commit_log_directories` are those of a log that is spread over several
    (`storePathCommitLog`); empty: `commitlog` of the root.

    Raises:
        NotAStoreError: it is neither.
        UnreadableFileError: the system refuses a directory or file.
    """
    root = Path(path)
    try:
        return _open(root, [Path(directory) for directory in commit_log_directories])
    except OSError as error:
        raise UnreadableFileError(error.filename or str(root), error) from error


def _check_directory(path: Path, name: str, remedy: str) -> None:
    if path.is_dir():
        return
    if path.exists():
        text = f"{name} is not a directory; give {remedy}"
        raise NotAStoreError(text, str(path), NoStore.NO_DIRECTORY)
    raise NotAStoreError(f"{name} does not exist; give {remedy}", str(path), NoStore.NOT_THERE)


def _open(root: Path, log_directories: list[Path]) -> StoreDirectory:
    _check_directory(root, str(root), "a store root, or its commitlog")
    for directory in log_directories:
        _check_directory(directory, f"--commit-log {directory}", "one with files of the log")
    strays: list[StrayFile] = []
    only_log = not _looks_like_root(root, log_directories)
    if only_log:
        log_directories = [root]
    elif not log_directories:
        log_directories = [root / "commitlog"]
    log = [file for directory in log_directories for file in _numbered(directory, strays)]
    if only_log:
        if not log:
            raise NotAStoreError(
                f"{root} has neither a directory `commitlog` nor files named by 20 digits in it;"
                " give a store root, or its commitlog",
                str(root),
                NoStore.NO_LOG,
            )
        return _directory(root, log, strays)
    checkpoint, checkpoint_bytes = _read_checkpoint(root / "checkpoint")
    return StoreDirectory(
        path=str(root),
        commit_log=_in_order(log),
        queues=tuple(queue for kind in QUEUE_KINDS for queue in _queues(root, kind, strays)),
        index_files=_index_files(root / "index", strays),
        checkpoint=checkpoint,
        checkpoint_bytes=checkpoint_bytes,
        has_abort=(root / "abort").exists(),
        is_live=is_locked(root / "lock"),
        strays=tuple(strays),
        topics=_read_topics(root / "config" / "topics.json"),
    )


def _directory(root: Path, log: Iterable[DataFile], strays: Iterable[StrayFile]) -> StoreDirectory:
    """A log without anything beside it. Whether the stop was clean nobody says."""
    return StoreDirectory(
        path=str(root),
        commit_log=_in_order(log),
        queues=(),
        index_files=(),
        checkpoint=None,
        checkpoint_bytes=-1,
        has_abort=root.name == "commitlog" and (root.parent / "abort").exists(),
        is_live=root.name == "commitlog" and is_locked(root.parent / "lock"),
        strays=tuple(strays),
    )


def _looks_like_root(root: Path, log_directories: list[Path]) -> bool:
    if log_directories or (root / "commitlog").is_dir():
        return True
    if any((root / kind).is_dir() for kind in QUEUE_KINDS):
        return True  # a store that has lost its log, or has not written yet
    return (root / "checkpoint").is_file()


def _in_order(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    return tuple(sorted(files, key=lambda file: (file.offset, file.path)))


def _numbered(directory: Path, strays: list[StrayFile]) -> list[DataFile]:
    """The files of `directory` that are named by an offset; others go to `strays`."""
    if not directory.is_dir():
        return []
    entries = entries_in(str(directory))
    for name in sorted(entry.name for entry in entries if not entry.is_directory):
        offset = offset_named(name)
        if offset is None and not name.endswith(_EXPECTED_BESIDE):
            what = f"its name is not an offset of {FILE_NAME_DIGITS} digits"
            strays.append(StrayFile(f"{directory}/{name}", what))
        elif offset is not None and offset > OFFSET_MAX:
            what = f"its name is an offset past {OFFSET_MAX}"
            strays.append(StrayFile(f"{directory}/{name}", what))
    return data_files(str(directory), entries)


def _is_time(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) < FILE_NAME_DIGITS


def _queues(root: Path, kind: QueueKind, strays: list[StrayFile]) -> Iterator[QueueFiles]:
    for topic in _folders(root / kind):
        for queue in _folders(topic):
            if not (queue.name.isascii() and queue.name.isdecimal()) or len(queue.name) > 10:
                strays.append(StrayFile(str(queue), "its name is not a queue id"))
                continue
            ext = root / "consumequeue_ext" / topic.name / queue.name
            yield QueueFiles(
                topic=topic.name,
                queue_id=int(queue.name),
                kind=kind,
                path=str(queue),
                files=tuple(_numbered(queue, strays)),
                ext_files=tuple(_numbered(ext, strays)) if kind == "consumequeue" else (),
            )


def _folders(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(
        directory / entry.name for entry in entries_in(str(directory)) if entry.is_directory
    )


def _index_files(directory: Path, strays: list[StrayFile]) -> tuple[DataFile, ...]:
    if not directory.is_dir():
        return ()
    files = []
    for entry in sorted(entries_in(str(directory)), key=lambda entry: entry.name):
        path = f"{directory}/{entry.name}"
        if not entry.is_directory and _is_time(entry.name):
            files.append(DataFile(path, int(entry.name), entry.size))
        elif not entry.is_directory and not entry.name.endswith(_EXPECTED_BESIDE):
            strays.append(StrayFile(path, "its name is not a time of 17 digits"))
    return tuple(files)


def _read_checkpoint(path: Path) -> tuple[Checkpoint | None, int]:
    if not path.is_file():
        return None, -1
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(CHECKPOINT.size)
    if len(head) < CHECKPOINT.size:
        return None, size
    return Checkpoint(*CHECKPOINT.unpack(head)), size


def _read_topics(path: Path) -> frozenset[str] | None:
    """The topics of a broker's table; None if there is none, or it could not be read."""
    if not path.is_file() or path.stat().st_size > TOPIC_TABLE_BYTES_MAX:
        return None
    return topics_in_table(path.read_bytes())

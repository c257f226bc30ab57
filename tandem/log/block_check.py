"""Compares closed files of the log with their fingerprints: each block of 64 KiB with its CRC-32.

They cover what no checksum of RocketMQ does: headers, topics, properties. Of a fingerprint of an
earlier era (`store.log.log_start`) it may be that another program has cut the file and filled it
again; then everything from the first block that differs up to the end of the records differs, and
is made of sound records.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tandem.data_file import DataFile, read_at
from tandem.log.errors import UnreadableFileError
from tandem.log.files import open_file
from tandem.log.findings import FINDINGS_KEPT_MAX, Finding, FindingList
from tandem.log.log_scan import FileScan
from tandem.log.small_files import StartNote, noted
from tandem.log.store_directory import StoreDirectory
from tandem.log.workers import Workers
from tandem.wire.checksum_line import decode_checked_json
from tandem.wire.fingerprint import BLOCK_BYTES, DIRECTORY, Fingerprint
from tandem.wire.untrusted import UnreadableError

READ_BYTES = 64 * BLOCK_BYTES


class BlockTask(msgspec.Struct, frozen=True):
    """A file of the log, what it has to be, and whether nobody else had the store since."""

    file: DataFile
    fingerprint: Fingerprint
    is_of_this_era: bool


def check_closed_files(store: StoreDirectory, found: FindingList, workers: Workers) -> None:
    """Note where closed files of the log are not what their fingerprints say.

    Raises:
        UnreadableFileError: a file cannot be read, or was removed meanwhile.
        WorkerError: a worker process died.
    """
    tasks = block_tasks(store, found)
    for findings in workers.map(check_blocks, tasks, lambda _task: None):
        found.extend(findings)


def block_tasks(store: StoreDirectory, found: FindingList) -> list[BlockTask]:
    """Read the fingerprints of a store; note which of them cannot be read.

    Raises:
        UnreadableFileError: the system refuses one.
    """
    root = Path(store.path)
    note = noted(root)
    files = {file.offset: file for file in store.commit_log}
    tasks = []
    for path in sorted((root / DIRECTORY).glob("[0-9]" * 20)):
        fingerprint = _read(path, found)
        file = files.get(int(path.name))
        if fingerprint is not None and file is not None:
            tasks.append(BlockTask(file, fingerprint, _is_of_this_era(note, fingerprint)))
    return tasks


def fingerprints_of(store: StoreDirectory) -> dict[int, Fingerprint]:
    """Return those that can be read and are up to date, by the offset of their file."""
    tasks = block_tasks(store, FindingList())
    return {task.file.offset: task.fingerprint for task in tasks if task.is_of_this_era}


def check_blocks(task: BlockTask) -> list[Finding]:
    """Return where a file is not what its fingerprint says.

    Raises:
        UnreadableFileError: it cannot be read, or was removed meanwhile.
    """
    file = task.file
    with open_file(file.path) as descriptor:
        differing = list(_differing(descriptor, task))
        if differing and not task.is_of_this_era and _is_written_anew(descriptor, task, differing):
            what = "somebody else had the store open, and has cut the file and filled it again"
            return [Finding("fingerprint-outdated", file.path, -1, what, file.offset)]
    return [
        Finding(
            kind="block-changed",
            file=file.path,
            position=start - file.offset,
            what=f"offsets {start} to {end} do not fit their fingerprint",
            offset=start,
            count=1 if number < FINDINGS_KEPT_MAX - 1 else len(differing) - number,
        )
        for number, (start, end) in enumerate(differing[:FINDINGS_KEPT_MAX])
    ]


def _differing(descriptor: int, task: BlockTask) -> Iterator[tuple[int, int]]:
    """Yield from where to where each block is that differs; what is not there is another finding.

    A block is read twice before it differs: a running node may be healing it.
    """
    file, known = task.file, task.fingerprint
    for position in range(0, min(file.size, known.size), READ_BYTES):
        size = min(READ_BYTES, known.size - position)
        data = read_at(descriptor, position, size)
        if len(data) < size:
            data = data[: len(data) // BLOCK_BYTES * BLOCK_BYTES]
        for start, end in known.differing(file.offset + position, data) if data else ():
            again = read_at(descriptor, start - file.offset, end - start)
            if known.differing(start, again):
                yield start, end


def _is_written_anew(descriptor: int, task: BlockTask, differing: list[tuple[int, int]]) -> bool:
    file, known = task.file, task.fingerprint
    scan = FileScan(descriptor, file)
    last = differing[0][0]
    for window in scan.windows():
        if window.breaks:
            return False
        if len(window.columns):
            last = max(last, int(window.columns.physical_offset[-1]))
    return len(differing) == len(list(known.blocks(differing[0][0], last + 1)))


def _is_of_this_era(note: StartNote | None, fingerprint: Fingerprint) -> bool:
    return note is not None and note.era == fingerprint.era


def _read(path: Path, found: FindingList) -> Fingerprint | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableFileError(str(path), error) from error
    try:
        fingerprint = decode_checked_json(path.name, data, Fingerprint)
        if fingerprint.start == int(path.name) and fingerprint.is_consistent:
            return fingerprint
        trouble = "its numbers do not belong together"
    except UnreadableError as error:
        trouble = str(error)
    # A stop while it was written leaves zeros, and JSON has none.
    is_torn = not data or b"\0" in data
    found.add("fingerprint-torn" if is_torn else "fingerprint-file", str(path), -1, trouble)
    return None

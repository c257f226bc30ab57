"""Checks what the nodes of one machine share: the coordinator's journal, the cluster's secret.

    data/secret                  of a cluster file that names no other
    data/coordinator/journal     where the coordinator is the embedded one
    data/broker-a-0/             the store of a node: `tandem log verify` looks beside it as well

Each is read as its own program reads it. The journal of a coordinator that runs may change while it
is read: what is wrong with it counts if it stays.
"""

from pathlib import Path
from typing import Final

from tandem.cluster_file.coordinator_settings import COORDINATOR
from tandem.cluster_file.secret_file import SECRET_NAME, secret_in
from tandem.coordinator.interface import CoordinatorError
from tandem.coordinator.journal import JournalError, replay
from tandem.coordinator.journal_records import split
from tandem.coordinator.kv import KeyValueStore
from tandem.log.errors import UnreadableFileError
from tandem.log.findings import FindingList, FindingReport
from tandem.wire.untrusted import UnreadableError

JOURNAL_NAME: Final = "journal"

_SECRET_BYTES_MAX: Final = 65_536
_LOOKS_MAX: Final = 10


class CoordinatorReport(FindingReport, frozen=True, kw_only=True):
    """What was checked of a coordinator's journal, and what was found."""

    path: str
    record_count: int
    bytes_read: int


def verify_coordinator(directory: Path) -> CoordinatorReport:
    """Check the journal in the directory of an embedded coordinator.

    Raises:
        UnreadableFileError: the system refuses the file.
    """
    found = FindingList()
    count, size = check_coordinator(directory, found)
    return CoordinatorReport(
        path=str(directory), record_count=count, bytes_read=size, findings=found.in_order()
    )


def is_coordinator(directory: Path) -> bool:
    """Say whether this is where an embedded coordinator keeps its journal."""
    return (directory / JOURNAL_NAME).is_file() and not (directory / "commitlog").exists()


def check_cluster_files(data_directory: Path, found: FindingList) -> None:
    """Note what is wrong in the directory of a cluster with what its nodes share.

    Raises:
        UnreadableFileError: the system refuses a file.
    """
    if is_coordinator(data_directory / COORDINATOR):
        check_coordinator(data_directory / COORDINATOR, found)
    path = data_directory / SECRET_NAME
    data = _read(path)
    # A longer one is not ours: any program may call a file so.
    if data and len(data) <= _SECRET_BYTES_MAX:
        try:
            secret_in(data)
        except UnreadableError as error:
            found.add("secret-file", str(path), -1, str(error))


def check_coordinator(directory: Path, found: FindingList) -> tuple[int, int]:
    """Note what is wrong with a coordinator's journal; return its records, and their bytes.

    Raises:
        UnreadableFileError: the system refuses the file.
    """
    path = directory / JOURNAL_NAME
    data = _settled(path)
    records = split(data)
    try:
        replay(data, KeyValueStore(), 0.0)
    except JournalError as error:
        found.add("coordinator-journal", str(path), error.position, str(error))
        return len(records.payloads), records.end
    for start, end in records.changed:
        is_last = end == len(data.rstrip(b"\0")) and end > records.end
        what = f"a record, or its copy, of {end - start} bytes is not whole; the other one is"
        found.add("coordinator-torn" if is_last else "coordinator-copy", str(path), start, what)
    if not records.changed and data[records.end :].strip(b"\0"):
        what = "a record was begun that is not whole"
        found.add("coordinator-torn", str(path), records.end, what)
    return len(records.payloads), records.end


def _settled(path: Path) -> bytes:
    """Return the content of a journal; if something is wrong with it, one that stays."""
    data = _read(path) or b""
    for _ in range(_LOOKS_MAX):
        if _is_sound(data):
            break
        before, data = data, _read(path) or b""
        if data == before:
            break
    return data


def _is_sound(data: bytes) -> bool:
    try:
        records = replay(data, KeyValueStore(), 0.0)
    except CoordinatorError:
        return False
    return not records.changed and not data[records.end :].strip(b"\0")


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableFileError(str(path), error) from error

"""What can be wrong with a row of files, as errors that name the file and the remedy."""

from __future__ import annotations

from store.machine.errors import BrokenRowError, CorruptLogError, LogFault


def name_fault(path: str, file_size: int) -> CorruptLogError:
    """Return that the name of a file is not one of the row."""
    return CorruptLogError(
        f"{path}: not a store file (its name must be 20 digits, a multiple of {file_size});"
        " move it out of this directory",
        path=path,
        fault=LogFault.NAME,
    )


def length_fault(path: str, found_bytes: int, file_size: int, remedy: str) -> BrokenRowError:
    """Return that a file has another length than all have."""
    return BrokenRowError(
        f"{path}: the file has {found_bytes} bytes, but every file here must have {file_size};"
        f" it was truncated or written with another file size: {remedy}, or start with the size it"
        " was written with",
        path=path,
        fault=LogFault.LENGTH,
    )


def same_name_fault(path: str, other_path: str) -> CorruptLogError:
    """Return that two files have one name, in two directories."""
    why = f"{other_path} has the same name; move the one away that is wrong"
    return CorruptLogError(f"{path}: {why}", path=path, fault=LogFault.SAME_NAME)


def missing_file_fault(path: str, expected: int, remedy: str) -> BrokenRowError:
    """Return that the file before `path` is missing."""
    why = f"the file before it is missing (expected {expected:020d}); {remedy}"
    return BrokenRowError(f"{path}: {why}", path=path, fault=LogFault.MISSING_FILE)


def read_only_fault(path: str, offset: int) -> CorruptLogError:
    """Return that a log which ends at `offset` would have to go on in a file that is read-only."""
    return CorruptLogError(
        f"{path}: the log ends at {offset}, in or before this file of a read-only directory, and"
        " cannot go on from there; make the directory writable for one start, or move this file"
        " and later ones away",
        path=path,
        fault=LogFault.READ_ONLY,
        offset=offset,
    )

"""What the paths of `load` name: stores, each with the directories of its log.

    data/broker-a-0             a store root: `commitlog` in it, queues beside that
    data/broker-a-0/commitlog   a directory with the files of a log, and nothing else
    data/broker-*               every directory that fits; also {a,b}, ?, [0-9]

A log can be spread over several directories (`storePathCommitLog` of RocketMQ with commas,
`store_path_commit_log` of a node). No file of a store says so: what a broker was started with is
in its configuration alone. The option `commitLogDirectories` names them.

Source: RocketMQ 5.3.3, MultiPathMappedFileQueue: file k of a log is in directory k modulo n of
those that are not full. Where a file is says nothing; its name does.
"""

import fnmatch
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from tandem.data_file import DataFile, data_files
from tandem.spark.commitlog.storage import (
    Storage,
    is_remote,
    local_part,
    root_of,
    shown,
    storage_at,
)
from tandem.spark.errors import NotAStoreError, StoreFault

_GLOB: Final = re.compile(r"[*?\[{]")
_BRACES: Final = re.compile(r"\{([^{}]*)\}")


class StorePlace(msgspec.Struct, frozen=True):
    """A store, or only its log.

    `name` is what the column `store` says, `address` what its storage is found by; `directories`
    hold files of the log. `root` is "" if only a log was given.
    """

    name: str
    address: str
    directories: tuple[str, ...]
    root: str = ""

    @property
    def storage(self) -> Storage:
        """Where it is."""
        return storage_at(self.address)

    def beside(self, name: str) -> str:
        """Return the path of something in the root, such as `consumequeue`; "" without a root."""
        return f"{self.root}/{name}" if self.root else ""


def find_places(paths: Sequence[str], directories: Sequence[str] = ()) -> list[StorePlace]:
    """Return the stores that `paths` name. `directories` are those of the log of the only one.

    Raises:
        NotAStoreError: a path is something else, or matches nothing.
    """
    if directories:
        return [_spread_place(paths, directories)]
    return [place_of(found) for path in paths for found in expand(path)]


def place_of(path: str) -> StorePlace:
    """Return the store that one path names, without a look at its files.

    Raises:
        NotAStoreError: it is neither a store root nor a commitlog directory.
    """
    storage = storage_at(path)
    place = _path_of(path)
    if not _is_directory(storage, place, path):
        raise NotAStoreError(
            f"{shown(path)} is not a directory; give a store root, or its commitlog",
            StoreFault.NO_DIRECTORY,
        )
    if storage.is_directory(f"{place}/commitlog"):
        return StorePlace(shown(path), path, (f"{place}/commitlog",), place)
    entries = storage.entries(place)
    named = place.rsplit("/", 1)[-1] == "commitlog"
    if named or data_files(place, entries):
        # What is beside a directory of another name may belong to anybody.
        return StorePlace(shown(path), path, (place,), place.rpartition("/")[0] if named else "")
    if any(entry.is_directory and entry.name == "consumequeue" for entry in entries):
        raise NotAStoreError(
            f"{shown(path)} has queues and no directory `commitlog`: its log is elsewhere; name the"
            " directories with the option commitLogDirectories, separated by commas",
            StoreFault.LOG_ELSEWHERE,
        )
    raise NotAStoreError(
        f"{shown(path)} has neither a directory `commitlog` nor files named by 20 digits in it",
        StoreFault.NO_LOG,
    )


def _spread_place(paths: Sequence[str], directories: Sequence[str]) -> StorePlace:
    if len(paths) > 1:
        raise NotAStoreError(
            f"commitLogDirectories is for one store, and load() names {len(paths)}; load each of"
            " them for itself and unite the tables",
            StoreFault.SEVERAL_STORES,
        )
    address = paths[0] if paths else directories[0]
    for directory in directories:
        if root_of(directory) != root_of(address):
            raise NotAStoreError(
                f"{shown(directory)} and {shown(address)} are not on the same file system",
                StoreFault.SEVERAL_SYSTEMS,
            )
        if not _is_directory(storage_at(directory), _path_of(directory), directory):
            text = f"commitLogDirectories: {shown(directory)} is not a directory"
            raise NotAStoreError(text, StoreFault.NO_DIRECTORY)
    folders = tuple(_path_of(directory) for directory in directories)
    if len(set(folders)) < len(folders):
        text = "commitLogDirectories names a directory twice"
        raise NotAStoreError(text, StoreFault.NAMED_TWICE)
    if paths and not _is_directory(storage_at(address), _path_of(address), address):
        text = f"{shown(address)} is not a directory; give the store root"
        raise NotAStoreError(text, StoreFault.NO_DIRECTORY)
    return StorePlace(shown(address), address, folders, _path_of(address) if paths else "")


def _is_directory(storage: Storage, place: str, path: str) -> bool:
    try:
        return storage.is_directory(place)
    except OSError as error:
        text = f"{shown(path)} cannot be read: {error}"
        raise NotAStoreError(text, StoreFault.UNREACHABLE) from error


def _path_of(path: str) -> str:
    clean = shown(path) if is_remote(path) else local_part(path)
    return clean.rstrip("/") or "/"


def expand(path: str) -> list[str]:
    """Return the directories that `path` fits, in order; `path` itself if it is no pattern.

    A name that begins with a dot fits no pattern. In an address with a scheme, `?` begins the
    query and is no pattern.

    Raises:
        NotAStoreError: nothing fits.
    """
    pattern = urlsplit(path).path if is_remote(path) else local_part(path)
    if not _GLOB.search(pattern) or _exists(path):
        return [path]
    found: dict[str, None] = {}
    for each in _without_braces(pattern):
        for folder in _fitting(path, each):
            found[folder] = None
    if not found:
        raise NotAStoreError(f"{shown(path)} fits no directory", StoreFault.NO_MATCH)
    return list(found)


def _exists(path: str) -> bool:
    return not is_remote(path) and storage_at(path).is_directory(_path_of(path))


def _without_braces(pattern: str) -> list[str]:
    braces = _BRACES.search(pattern)
    if braces is None:
        return [pattern]
    before, after = pattern[: braces.start()], pattern[braces.end() :]
    return [
        each for choice in braces[1].split(",") for each in _without_braces(before + choice + after)
    ]


def _fitting(path: str, pattern: str) -> Iterator[str]:
    """Follow `pattern` from directory to directory. `path` says on which storage."""
    storage = storage_at(path)
    parts = pattern.split("/")
    folders = [parts[0]]
    if _GLOB.search(parts[0]):
        folders = [name for name in _directories(storage, ".") if _fits(name, parts[0])]
    for part in parts[1:]:
        if not part:
            continue
        if not _GLOB.search(part):
            folders = [f"{folder}/{part}" for folder in folders]
            continue
        folders = [
            f"{folder}/{name}"
            for folder in folders
            for name in _directories(storage, _address(path, folder or "/"))
            if _fits(name, part)
        ]
    for folder in folders:
        place = _address(path, folder)
        if storage.is_directory(place):
            yield _with_secrets(path, folder) if is_remote(path) else folder


def _fits(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) and not name.startswith(".")


def _directories(storage: Storage, folder: str) -> list[str]:
    try:
        entries = storage.entries(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(entry.name for entry in entries if entry.is_directory)


def _address(path: str, folder: str) -> str:
    return shown(_with_secrets(path, folder)) if is_remote(path) else folder


def _with_secrets(path: str, folder: str) -> str:
    parts = urlsplit(path)
    return urlunsplit((parts.scheme, parts.netloc, folder, parts.query, ""))


def list_files(place: StorePlace) -> list[DataFile]:
    """Return the files of a log in order, from all its directories. Empty ones are left out.

    Raises:
        NotAStoreError: a directory cannot be listed; or two hold files of one offset.
    """
    files = []
    for directory in place.directories:
        try:
            entries = place.storage.entries(directory)
        except OSError as error:
            text = f"{directory} cannot be listed: {error}"
            raise NotAStoreError(text, StoreFault.UNREACHABLE) from error
        files += [file for file in data_files(directory, entries) if file.size]
    twice = [offset for offset, count in Counter(f.offset for f in files).items() if count > 1]
    if twice:
        paths = " and ".join(file.path for file in files if file.offset == twice[0])
        text = f"{paths} both say to hold offset {twice[0]}: whose logs are these?"
        raise NotAStoreError(text, StoreFault.SAME_FILE)
    return sorted(files, key=lambda file: file.offset)

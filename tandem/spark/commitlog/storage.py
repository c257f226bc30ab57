"""Where files of stores are read from: this machine, or whatever pyarrow and fsspec can reach.

    data/broker-a-0, file:///data/broker-a-0    this machine, read with `pread`
    s3://bucket/broker-a-0, hdfs://name:8020/…  pyarrow.fs, with its own options in the query
    any other scheme                            fsspec, if it is installed and knows the scheme

Nothing past this module knows which: a `Storage` lists directories and opens files, an `OpenedFile`
is read at positions. A missing file is a FileNotFoundError, a refusal another OSError, on
all of them.

Addresses may hold secrets: a user and password, or access keys in the query. They are used for
opening, and `shown` is what goes into tables and errors.
"""

import functools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs

from tandem import data_file
from tandem.data_file import Entry
from tandem.spark.errors import NotAStoreError, StoreFault

REMOTE_BLOCK_BYTES: Final = 256 * 1024
"""What a small read of a remote file fetches: a request takes longer than its bytes."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")


class OpenedFile(Protocol):
    """A file that can be read at any position."""

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position` on; return how many bytes there were."""

    def only_zeros(self, start: int, end: int) -> bool:
        """Say whether there is nothing but zeros in [start, end)."""


class Storage(Protocol):
    """Directories and files under paths of one kind."""

    gap_bytes: int
    """Reading on over a gap of this size is as cheap as another read."""

    block_bytes: int
    """Reading so much is as cheap as reading a few bytes."""

    def entries(self, directory: str) -> list[Entry]:
        """What is in a directory, in no order.

        Raises:
            FileNotFoundError, NotADirectoryError: it is not there, or not a directory.
        """

    def is_directory(self, path: str) -> bool:
        """Say whether there is such a directory."""

    @contextmanager
    def opened(self, path: str) -> Iterator[OpenedFile]:
        """Open a file for reading. A refusal of the system is an OSError."""

    def listed(self, directory: str) -> "Storage":
        """Return this storage, with what is below a directory listed at once if that is cheaper.

        What is created there later is not in the listing.
        """


def is_remote(address: str) -> bool:
    """Say whether `address` has a scheme other than `file:`."""
    return _SCHEME.match(address) is not None and not address.startswith("file:")


def shown(address: str) -> str:
    """Return `address` without what may be secret in it: user, password and query."""
    if not is_remote(address):
        return address
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def local_part(address: str) -> str:
    """Return the path that `address` names on this machine, with or without Spark's `file:`."""
    return unquote(urlsplit(address).path) if address.startswith("file:") else address


def root_of(address: str) -> str:
    """Return the part of `address` that decides which storage it is on; "" for this machine."""
    if not is_remote(address):
        return ""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc, "", parts.query, ""))


def storage_at(address: str) -> Storage:
    """Return the storage that `address` is on.

    Raises:
        NotAStoreError: nothing here can read such addresses. The text says what would.
    """
    root = root_of(address)
    return _remote_storage(root) if root else LocalStorage()


@functools.lru_cache(maxsize=64)
def _remote_storage(root: str) -> "RemoteStorage":
    address = re.sub("^s3[an]://", "s3://", root)
    scheme = urlsplit(address).scheme
    try:
        system, path = fs.FileSystem.from_uri(address)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if "nrecognized filesystem type" not in str(error):
            raise NotAStoreError(f"{shown(address)}: {error}", StoreFault.UNREACHABLE) from error
        system, path = _by_fsspec(address, scheme)
    except OSError as error:  # no libhdfs, no credentials, no such host
        text = f"{shown(address)} cannot be reached: {error}"
        raise NotAStoreError(text, StoreFault.UNREACHABLE) from error
    clean = shown(root)
    prefix = clean.removesuffix(path) if clean.endswith(path) else f"{urlsplit(root).scheme}://"
    return RemoteStorage(system, prefix)


def _by_fsspec(address: str, scheme: str) -> tuple[fs.FileSystem, str]:
    try:
        import fsspec  # noqa: PLC0415 - only for addresses that need it
    except ImportError as error:
        raise NotAStoreError(
            f"{shown(address)}: pyarrow cannot read {scheme}:// addresses; install fsspec and its"
            f" package for {scheme}",
            StoreFault.UNREACHABLE,
        ) from error
    try:
        system, path = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise NotAStoreError(f"{shown(address)}: {error}", StoreFault.UNREACHABLE) from error
    return fs.PyFileSystem(fs.FSSpecHandler(system)), path


class LocalStorage:
    """The file system of this machine."""

    gap_bytes = 2 * 1024
    block_bytes = 4 * 1024

    def entries(self, directory: str) -> list[Entry]:
        """See `Storage`."""
        return data_file.entries_in(directory)

    def is_directory(self, path: str) -> bool:
        """See `Storage`."""
        return os.path.isdir(path)  # noqa: PTH112 - paths are texts here, local or not

    @contextmanager
    def opened(self, path: str) -> Iterator[OpenedFile]:
        """See `Storage`."""
        with data_file.opened(path) as descriptor:
            yield LocalFile(descriptor)

    def listed(self, directory: str) -> "Storage":
        """See `Storage`."""
        return self


class LocalFile:
    """A file of this machine, by its descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def read_into(self, buffer: memoryview, position: int) -> int:
        """See `OpenedFile`."""
        return data_file.read_into(self.descriptor, buffer, position)

    def only_zeros(self, start: int, end: int) -> bool:
        """See `OpenedFile`. Holes are not read."""
        return data_file.only_zeros(self.descriptor, start, end)


class RemoteStorage:
    """A file system of pyarrow. Paths are addresses without secrets: `prefix` and its own path."""

    gap_bytes = 1024 * 1024
    block_bytes = REMOTE_BLOCK_BYTES

    def __init__(self, system: fs.FileSystem, prefix: str) -> None:
        self._system = system
        self._prefix = prefix

    def entries(self, directory: str) -> list[Entry]:
        """See `Storage`."""
        selector = fs.FileSelector(self._path(directory).rstrip("/"))
        return [
            Entry(info.base_name, info.type == fs.FileType.Directory, info.size or 0)
            for info in self._system.get_file_info(selector)
        ]

    def is_directory(self, path: str) -> bool:
        """See `Storage`."""
        info = self._system.get_file_info(self._path(path).rstrip("/"))
        return bool(info.type == fs.FileType.Directory)

    @contextmanager
    def opened(self, path: str) -> Iterator[OpenedFile]:
        """See `Storage`."""
        with self._system.open_input_file(self._path(path)) as file:
            yield RemoteFile(file)

    def listed(self, directory: str) -> "Storage":
        """See `Storage`. An object store lists a thousand objects with one request."""
        root = self._path(directory).rstrip("/")
        selector = fs.FileSelector(root, allow_not_found=True, recursive=True)
        found: dict[str, dict[str, Entry]] = {}
        for info in self._system.get_file_info(selector):
            is_directory = info.type == fs.FileType.Directory
            above, _, name = info.path.rpartition("/")
            found.setdefault(above, {})[name] = Entry(name, is_directory, info.size or 0)
            if is_directory:
                found.setdefault(info.path, {})
        return ListedStorage(self, {f"{self._prefix}{path}": each for path, each in found.items()})

    def _path(self, address: str) -> str:
        return address.removeprefix(self._prefix)


class ListedStorage:
    """A storage whose directories, as far as they are in a listing, are not asked for again."""

    def __init__(self, storage: Storage, found: Mapping[str, Mapping[str, Entry]]) -> None:
        self._storage = storage
        self._found = found
        self.gap_bytes = storage.gap_bytes
        self.block_bytes = storage.block_bytes

    def entries(self, directory: str) -> list[Entry]:
        """See `Storage`."""
        known = self._found.get(directory.rstrip("/"))
        return self._storage.entries(directory) if known is None else list(known.values())

    def is_directory(self, path: str) -> bool:
        """See `Storage`."""
        return path.rstrip("/") in self._found or self._storage.is_directory(path)

    @contextmanager
    def opened(self, path: str) -> Iterator[OpenedFile]:
        """See `Storage`."""
        with self._storage.opened(path) as file:
            yield file

    def listed(self, directory: str) -> Storage:
        """See `Storage`."""
        return self._storage.listed(directory)


class RemoteFile:
    """A file that answers slowly: small reads fetch a block, and the last block is kept."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self._size = file.size()
        self._block_at = 0
        self._block = b""

    def read_into(self, buffer: memoryview, position: int) -> int:
        """See `OpenedFile`."""
        wanted = max(min(len(buffer), self._size - position), 0)
        if wanted >= REMOTE_BLOCK_BYTES:
            data = self._file.read_at(wanted, position)
        else:
            data = self._out_of_block(position, wanted)
        buffer[: len(data)] = data
        return len(data)

    def only_zeros(self, start: int, end: int) -> bool:
        """See `OpenedFile`."""
        for at in range(start, min(end, self._size), data_file.READ_BYTES):
            size = min(data_file.READ_BYTES, end - at, self._size - at)
            if any(self._file.read_at(size, at)):
                return False
        return True

    def _out_of_block(self, position: int, size: int) -> bytes:
        at = position - self._block_at
        if not 0 <= at <= at + size <= len(self._block):
            self._block_at = position - position % 4096
            self._block = self._file.read_at(REMOTE_BLOCK_BYTES + 4096, self._block_at)
            at = position - self._block_at
        return self._block[at : at + size]

"""A disk in memory that can lose what was never synced.

Every file has two contents: the page cache, which is what a mapping shows, and what is durable.
A sync copies the first over the second. So the two ways to die differ as they do in life:

- `crashed()`, kill -9: the page cache survives, the process does not;
- `powered_off()`: of every page not synced the machine kept the old bytes, the new bytes, or some
  512-byte sectors of each.

Both return a *new* disk. What the dead process still does to the old one, while its tasks are
being cancelled, nobody will see. Both may be called from `on_event`, in the middle of a change.

Memory that belongs to no file, as the transient store pool uses it, dies with the process.

Names are durable when `create`, `replace` and `remove` return: the real disk syncs the directory.
That of a file that grows is durable with the first sync of the file; until then a power loss may
take it.
"""

import errno
import mmap
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from posixpath import dirname
from typing import Final

import trio

from node.simulated.file import NEVER_MS, ReadOnlyFile, SimulatedFile
from store.machine.disk import (
    TEMPORARY_SUFFIX,
    Buffer,
    DiskFile,
    DiskSpace,
    FoundFile,
    all_of_them,
    check_pages,
    check_size,
)
from store.machine.errors import (
    CorruptLogError,
    DiskFailedError,
    LogFault,
    StoreFullError,
    StoreLockedError,
)
from store.machine.kept_files import KeptFiles
from tandem.wire.store_layout import PAGE_BYTES

SECTOR_BYTES: Final = 512


class SimulatedDisk:
    """Implements `store.machine.disk.Disk` in memory; public attributes are its faults.

    Attributes:
        capacity_bytes: lower it to `used_bytes` and the disk is full.
        volumes: further file systems: the bytes each holds, by the directory it is mounted at.
        now_ms: the wall clock of modification times; without one no file ever gets old.
        locked_in_memory: the paths of the files that are.
        touched: by path, what was, from offset to offset.
        sync_seconds: returns how long the next `fdatasync` takes.
        sync_fails: while true, a sync or a write through the file ends in EIO and does nothing.
            A later sync of that file leaves out the pages that have not changed since: Linux takes
            them for written.
        replaced_ahead: how many small files were replaced by what had been written ahead.
        writes_fail: while true, no small file can be replaced either: the whole directory is gone.
        on_event: is told what is about to happen, for the trace.
    """

    def __init__(
        self,
        *,
        capacity_bytes: int = 1 << 40,
        sync_seconds: Callable[[], float] = lambda: 0.0002,
        on_event: Callable[[str], None] = lambda _: None,
        now_ms: Callable[[], int] = lambda: NEVER_MS,
    ) -> None:
        self.volumes: dict[str, int] = {}
        self.now_ms = now_ms
        self.locked_in_memory: set[str] = set()
        self.touched: dict[str, list[tuple[int, int]]] = {}
        self.brought_in: dict[str, list[tuple[int, int]]] = {}
        self.capacity_bytes = capacity_bytes
        self.sync_seconds = sync_seconds
        self.sync_fails = False
        self.writes_fail = False
        self.replaced_ahead = 0
        self._ahead: dict[str, bytes] = {}
        self._written_ahead: dict[str, bytes] = {}
        self.open_files_max = 1 << 20
        self.many_files = 4
        self.on_event = on_event
        self.kept = KeptFiles()
        self._files: dict[str, SimulatedFile] = {}
        self._locked: set[str] = set()

    def sync_within(self, seconds: Callable[[], float]) -> None:
        """Have each sync take as long as this says, from now on."""
        self.sync_seconds = seconds

    @property
    def used_bytes(self) -> int:
        """Bytes taken by all files."""
        return sum(file.allocated for file in self._files.values())

    def create(self, path: str, size: int, *, grows: bool = False) -> SimulatedFile:
        """See `Disk.create`."""
        check_size(path, size)
        self.kept.forget(path)
        allocated = min(size, PAGE_BYTES) if grows else size
        self._expect_room(path, allocated)
        self.on_event(f"create {path} {size}")
        file = self._files[path] = self._file(path, bytes(size))
        file.allocated = allocated
        file.has_durable_name = not grows
        return file

    def open(self, path: str, *, read_only: bool = False, grows: bool = False) -> SimulatedFile:
        """See `Disk.open`. One object per file: two mappings share the page cache."""
        file = self._existing(path)
        if file.size == 0:
            raise CorruptLogError(f"{path}: the file is empty", path=path, fault=LogFault.LENGTH)
        if not read_only and not grows:
            file.allocate(file.size)
        return ReadOnlyFile(file) if read_only else file

    def _existing(self, path: str) -> SimulatedFile:
        file = self._files.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return file

    def list_files(self, directory: str) -> list[tuple[str, int]]:
        """See `Disk.list_files`."""
        prefix = directory.rstrip("/") + "/"
        # Crash campaigns ask this millions of times.
        return sorted(
            (path[len(prefix) :], file.size)
            for path, file in self._files.items()
            if path.startswith(prefix)
            and path.find("/", len(prefix)) < 0
            and not path.endswith(TEMPORARY_SUFFIX)
        )

    def list_files_with_times(self, directory: str) -> list[FoundFile]:
        """See `Disk.list_files_with_times`."""
        files = self.list_files(directory)
        return [(name, size, self.modified_ms(f"{directory}/{name}")) for name, size in files]

    def list_directories(self, directory: str) -> list[str]:
        """See `Disk.list_directories`."""
        prefix = directory.rstrip("/") + "/"
        below = (path[len(prefix) :] for path in self._files if path.startswith(prefix))
        return sorted({rest.split("/")[0] for rest in below if "/" in rest})

    def list_trees(
        self, directory: str, is_wanted: Callable[[str, str], bool] = all_of_them
    ) -> Iterator[tuple[str, str, list[FoundFile]]]:
        """See `Disk.list_trees`. Crash campaigns ask this often: one look at the names."""
        prefix = directory.rstrip("/") + "/"
        found: dict[tuple[str, str], list[FoundFile]] = {}
        for path, file in self._files.items():
            if not path.startswith(prefix):
                continue
            outer, _, rest = path[len(prefix) :].partition("/")
            name, is_two_below, file_name = rest.partition("/")
            if is_two_below and is_wanted(outer, name):
                files = found.setdefault((outer, name), [])
                if "/" not in file_name and not path.endswith(TEMPORARY_SUFFIX):
                    files.append((file_name, file.size, self.modified_ms(path)))
        for (outer, name), files in sorted(found.items()):
            yield outer, name, sorted(files)

    def exists(self, path: str) -> bool:
        """See `Disk.exists`."""
        return path in self._files

    def remove(self, path: str) -> None:
        """See `Disk.remove`."""
        self.kept.forget(path)
        if self._files.pop(path, None) is not None:
            self.on_event(f"remove {path}")

    def remove_directory(self, path: str) -> None:
        """See `Disk.remove_directory`. Here directories go with their last file."""

    def read(self, path: str) -> bytes | None:
        """See `Disk.read`."""
        file = self._files.get(path)
        if file is None:
            return None
        return file.content

    def replace(self, path: str, data: bytes) -> None:
        """See `Disk.replace`."""
        if self.writes_fail:
            self.on_event(f"replace {path} failed")
            raise DiskFailedError(f"{path}: {os.strerror(errno.EIO)}; check the disk", path=path)
        self._expect_room(path, len(data))
        self._ahead.pop(path, None)
        self.replaced_ahead += self._written_ahead.pop(path, None) is data
        self.on_event(f"replace {path} {len(data)}")
        self.kept.forget(path)
        self._files[path] = self._file(path, data)

    def will_replace(self, path: str, data: bytes) -> None:
        """See `Disk.will_replace`."""
        self._ahead[path] = data

    async def write_ahead(self) -> None:
        """See `Disk.write_ahead`. It shows nowhere, and takes no time here."""
        self._written_ahead |= self._ahead
        self._ahead.clear()

    def rename(self, path: str, new_path: str) -> bool:
        """See `Disk.rename`."""
        self.kept.forget(path)
        moved = [p for p in self._files if p == path or p.startswith(f"{path}/")]
        if not moved:
            return False
        if any(p == new_path or p.startswith(f"{new_path}/") for p in self._files):
            raise DiskFailedError(f"{new_path}: {os.strerror(errno.EEXIST)}", path=new_path)
        self.on_event(f"rename {path} {new_path}")
        for name in moved:
            file = self._files.pop(name)
            file.path = new_path + name[len(path) :]
            self._files[file.path] = file
        return True

    def lock(self, path: str) -> Callable[[], None]:
        """See `Disk.lock`."""
        if path in self._locked:
            raise StoreLockedError(
                f"{path}: another process has this store open; stop it or use another directory"
            )
        self._locked.add(path)
        self._files.setdefault(path, self._file(path, b"lock")).modified_ms = self.now_ms()
        return lambda: self._locked.discard(path)

    def free_bytes(self, directory: str) -> int:
        """See `Disk.free_bytes`."""
        used, capacity = self._usage(directory)
        return max(0, capacity - used)

    def space(self, directory: str) -> DiskSpace:
        """See `Disk.space`. A directory exists while there is something in it."""
        prefix = directory.rstrip("/") + "/"
        if not any(path.startswith(prefix) for path in self._files):
            return DiskSpace(0, 0)
        used, capacity = self._usage(directory)
        return DiskSpace(used, max(0, capacity - used))

    def _usage(self, path: str) -> tuple[int, int]:
        """Return used bytes and capacity of the file system that holds `path`."""
        volume = self._volume(path)
        used = sum(f.allocated for name, f in self._files.items() if self._volume(name) == volume)
        return used, self.volumes.get(volume, self.capacity_bytes)

    def _volume(self, path: str) -> str:
        mounted = (m for m in self.volumes if f"{path}/".startswith(m.rstrip("/") + "/"))
        return max(mounted, key=len, default="")

    def modified_ms(self, path: str) -> int:
        """See `Disk.modified_ms`. See `SimulatedFile` for when it moves."""
        return self._existing(path).modified_ms

    def allocate_buffer(self, size: int) -> Buffer:
        """See `Disk.allocate_buffer`."""
        check_size("memory", size)
        return mmap.mmap(-1, size)

    async def lock_in_memory(self, file: DiskFile) -> None:
        """See `Disk.lock_in_memory`."""
        with trio.CancelScope(shield=True):
            await trio.sleep(self.sync_seconds())
        self.locked_in_memory.add(file.path)

    async def unlock_memory(self, file: DiskFile) -> None:
        """See `Disk.unlock_memory`."""
        await trio.lowlevel.checkpoint()
        self.locked_in_memory.discard(file.path)

    async def create_in_background(self, path: str, size: int) -> SimulatedFile | None:
        """See `Disk.create_in_background`: under a passing name first, like the real one."""
        waiting = f"{dirname(path)}/next{TEMPORARY_SUFFIX}"
        file = self.create(waiting, size)
        with trio.CancelScope(shield=True):
            await trio.sleep(self.sync_seconds())
        del self._files[waiting]
        if path in self._files:
            return None
        self.on_event(f"link {path}")
        self._files[path] = file
        file.path = path
        # The name is there for all to see before this call returns.
        with trio.CancelScope(shield=True):
            await trio.sleep(self.sync_seconds())
        return file

    async def touch(self, file: DiskFile, start: int, size: int, *, clean: bool = False) -> None:
        """See `Disk.touch`."""
        assert isinstance(file, SimulatedFile)
        check_pages(file, start, size)
        await trio.lowlevel.checkpoint()
        where = self.brought_in if clean else self.touched
        where.setdefault(file.path, []).append((start, start + size))

    async def read_from_disk(self, path: str, start: int, size: int) -> bytes:
        """See `Disk.read_from_disk`. What is not synced is written first, as Linux does."""
        file = self._existing(path)
        with trio.CancelScope(shield=True):
            await trio.sleep(self.sync_seconds())
        return file.as_on_disk()[start : start + size]

    def sync_names(self, directories: Iterable[str]) -> None:
        """See `Disk.sync_names`."""
        wanted = set(directories)
        for path, file in self._files.items():
            if dirname(path) in wanted:
                file.has_durable_name = True

    def sync_tree_now(self, directory: str) -> bool:
        """See `Disk.sync_tree_now`: here one file after the other."""
        if not self._may_sync_tree(directory):
            return False
        for file in self._below(directory):
            file.sync()
        return True

    async def sync_tree(self, directory: str) -> bool:
        """See `Disk.sync_tree`. What was in the files when the call began is durable then."""
        may = self._may_sync_tree(directory)
        below = self._below(directory) if may else []
        written = [(file, file.content, file.durable) for file in below]
        with trio.CancelScope(shield=True):
            await trio.sleep(self.sync_seconds())
        self.on_event(f"sync below {directory}{'' if may else ' failed'}")
        for file, content, durable in written:
            # What another sync has brought there meanwhile, may be newer.
            file.made_durable(content if file.durable is durable else file.content)
        return may

    def _may_sync_tree(self, directory: str) -> bool:
        is_one = len({self._volume(path) for path in self._files if path.startswith(directory)}) < 2
        return is_one and not self.sync_fails and f"{directory}/lock" in self._locked

    def _below(self, directory: str) -> list[SimulatedFile]:
        files = [f for path, f in self._files.items() if path.startswith(f"{directory}/")]
        for file in files:
            file.expect_no_bus_error()
        return files

    def sync_now(self, files: Sequence[DiskFile]) -> None:
        """See `Disk.sync_now`: here one after the other."""
        for file in files:
            file.sync()

    def sync_closed_now(self, paths: Sequence[str]) -> None:
        """See `Disk.sync_closed_now`: here one after the other."""
        for path in paths:
            self._existing(path).sync()

    def read_ahead(self, paths: Sequence[str]) -> None:
        """See `Disk.read_ahead`: here all is in memory."""

    async def sync_together(self, files: Sequence[DiskFile]) -> None:
        """See `Disk.sync_together`: here one after the other."""
        if not files:
            await trio.lowlevel.checkpoint()
        for file in files:
            await self.sync(file)

    async def sync(self, file: DiskFile) -> None:
        """See `Disk.sync`. What was in the file when the call began is durable when it ends."""
        if not isinstance(file, SimulatedFile):
            raise TypeError(f"{file!r} does not belong to this disk")
        file.expect_no_bus_error()
        written = file.content
        failed = self.sync_fails
        with trio.CancelScope(shield=True):
            await trio.sleep(self.sync_seconds())
        self.on_event(f"sync {file.path}{' failed' if failed else ''}")
        if failed:
            file.sync_failed()
            raise OSError(errno.EIO, os.strerror(errno.EIO), file.path)
        file.made_durable(written)

    def crashed(self) -> "SimulatedDisk":
        """Return the disk as the next process finds it after kill -9 of this one."""
        twin = self._twin()
        for path, file in self._files.items():
            file.expect_no_bus_error()
            twin._files[path] = twin._file(path, file.content)
            twin._files[path].allocated = file.allocated
            twin._files[path].durable = file.durable
            twin._files[path].given_up = dict(file.given_up)
            twin._files[path].modified_ms = file.modified_ms
            twin._files[path].has_durable_name = file.has_durable_name
            twin._files[path].is_named_by_sync = file.has_durable_name
        return twin

    def powered_off(self, chance: random.Random) -> "SimulatedDisk":
        """Return the disk as it is after the machine lost power; `chance` decides what was lost."""
        twin = self._twin()
        for path, file in self._files.items():
            if not file.has_durable_name and chance.random() < 0.5:
                continue
            kept = _after_power_loss(file.content, file.durable, chance)
            file.expect_no_bus_error()
            twin._files[path] = twin._file(path, kept)
            twin._files[path].allocated = file.allocated
            twin._files[path].modified_ms = file.modified_ms
        return twin

    def _file(self, path: str, content: bytes) -> SimulatedFile:
        return SimulatedFile(path, content, lambda: self.sync_fails, self.now_ms, self._expect_room)

    def _twin(self) -> "SimulatedDisk":
        twin = SimulatedDisk(
            capacity_bytes=self.capacity_bytes,
            sync_seconds=self.sync_seconds,
            on_event=self.on_event,
            now_ms=self.now_ms,
        )
        twin.volumes = self.volumes
        twin.sync_fails = self.sync_fails
        twin.writes_fail = self.writes_fail
        self.on_event = lambda _: None
        return twin

    def _expect_room(self, path: str, size: int) -> None:
        if size > self.free_bytes(path):
            self.on_event(f"full {path} {size}")
            raise StoreFullError(
                f"{path}: no room for {size} bytes ({os.strerror(errno.ENOSPC)});"
                " free space on that disk, then send again",
                path=path,
            )


def _after_power_loss(cache: bytes, durable: bytes, chance: random.Random) -> bytes:
    """Return the bytes left: per unsynced page the old, the new, or sectors of both."""
    if cache == durable:
        return durable
    kept = bytearray(durable)
    luck = chance.choice((0.0, 0.5, 0.5, 0.9))
    for page in range(0, len(cache), PAGE_BYTES):
        new = cache[page : page + PAGE_BYTES]
        if new == durable[page : page + PAGE_BYTES]:
            continue
        if chance.random() < 0.5:
            _tear_page(kept, page, new, chance)
        elif chance.random() < luck:
            kept[page : page + len(new)] = new
    return bytes(kept)


def _tear_page(kept: bytearray, page: int, new: bytes, chance: random.Random) -> None:
    for sector in range(0, len(new), SECTOR_BYTES):
        if chance.random() < 0.5:
            piece = new[sector : sector + SECTOR_BYTES]
            kept[page + sector : page + sector + len(piece)] = piece


class NothingKept(random.Random):
    """For `powered_off`: of every page that was not synced the disk keeps the old content."""

    def random(self) -> float:
        """Return what keeps nothing."""
        return 0.99

"""A simulated disk that stops the world at every single step: before each operation, between the
writes into a mapping, and before what was synced counts as durable.

`on_step` may take a picture (`disk.crashed()`, `disk.powered_off()`) or raise `Interrupted`, as a
kill would.
"""

import random
from collections.abc import Callable, Iterable
from mmap import mmap
from typing import Any

from node.simulated.disk import SimulatedDisk
from node.simulated.file import SimulatedFile
from store.machine.disk import DiskFile
from tandem.wire.store_layout import PAGE_BYTES


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """The process dies here."""


class StepMap(mmap):
    """A mapping whose slice assignments are steps.

    `struct.pack_into` goes past this: what it wrote shows at the next step.
    """

    on_write: Callable[[], None]

    def __setitem__(self, key: Any, value: Any) -> None:  # noqa: ANN401
        self.on_write()
        super().__setitem__(key, value)


class StepFile(SimulatedFile):
    """A file of a `StepDisk`."""

    def __init__(self, disk: "StepDisk", file: SimulatedFile) -> None:
        super().__init__(file.path, b"")
        self.size = file.size
        self.allocated = file.allocated
        self.has_durable_name = file.has_durable_name
        self._expect_room = disk._expect_room
        self.durable = file.durable
        self.modified_ms = file.modified_ms
        self._now_ms = disk.now_ms
        self._sync_fails = lambda: disk.sync_fails
        pages = StepMap(-1, max(1, self.size))
        pages.on_write = _nothing
        pages[: self.size] = file.content
        pages.on_write = lambda: disk.step(f"write {self.path}")
        self._pages = self.buffer = pages
        self._disk = disk

    def write(self, position: int, data: memoryview) -> None:
        """See `DiskFile.write`."""
        self._disk.step(f"commit {self.path}")
        # Not through the mapping, which would make another step of it.
        mmap.__setitem__(self._pages, slice(position, position + len(data)), bytes(data))
        self.modified_ms = self._now_ms()

    def made_durable(self, content: bytes) -> None:
        """Take note that `content` has reached the disk, unless the process dies first."""
        self._disk.step(f"sync {self.path}")
        super().made_durable(content)

    def write_back(self, page: int) -> None:
        """Make one page durable that nobody has asked for, as the kernel may at any time."""
        start, end = page * PAGE_BYTES, (page + 1) * PAGE_BYTES
        self.durable = self.durable[:start] + self.content[start:end] + self.durable[end:]


class StepDisk(SimulatedDisk):
    """Calls `on_step` with the name of the step that comes next."""

    def __init__(
        self,
        content: SimulatedDisk | None = None,
        *,
        now_ms: Callable[[], int] | None = None,
        sync_seconds: Callable[[], float] | None = None,
    ) -> None:
        super().__init__()
        self.now_ms = now_ms or self.now_ms
        self.sync_seconds = sync_seconds or self.sync_seconds
        self.on_step: Callable[[str], None] = lambda _: None
        self.on_event = self._link
        self.steps = 0
        self._syncing: list[DiskFile] = []
        if content is not None:
            for path, file in content._files.items():
                self._files[path] = StepFile(self, file)

    def step(self, name: str) -> None:
        """Tell that `name` is about to happen."""
        self.steps += 1
        self.on_step(name)

    def create(self, path: str, size: int, *, grows: bool = False) -> SimulatedFile:
        self.step(f"create {path}")
        file = self._files[path] = StepFile(self, super().create(path, size, grows=grows))
        return file

    def _twin(self) -> SimulatedDisk:
        # A picture is not the end: this disk goes on, and its steps are still told.
        twin = super()._twin()
        twin.on_event, self.on_event = _nothing_of, self._link
        return twin

    def _link(self, event: str) -> None:
        if event.startswith("link "):
            self.step(event)

    def remove(self, path: str) -> None:
        self.step(f"remove {path}")
        super().remove(path)

    def replace(self, path: str, data: bytes) -> None:
        self.step(f"replace {path}")
        super().replace(path, data)

    def rename(self, path: str, new_path: str) -> bool:
        self.step(f"rename {path}")
        return super().rename(path, new_path)

    def sync_names(self, directories: Iterable[str]) -> None:
        super().sync_names(directories)

    async def sync(self, file: DiskFile) -> None:
        self._syncing.append(file)
        try:
            await super().sync(file)
        finally:
            self._syncing.remove(file)

    def write_back(self, chance: random.Random) -> None:
        """Let the kernel write a page of some file to the disk.

        Not of a file that is being synced: there the simulated disk has read the pages already.
        """
        file = chance.choice(list(self._files.values()))
        if isinstance(file, StepFile) and file not in self._syncing and file.size:
            file.write_back(chance.randrange((file.size - 1) // PAGE_BYTES + 1))


def die_at(step: int) -> Callable[[str], None]:
    """Return an `on_step` that raises `Interrupted` at the step of that number, from 1 on."""
    left = step

    def on_step(name: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Interrupted(name)

    return on_step


def _nothing() -> None:
    """Take no notice."""


def _nothing_of(_: str) -> None:
    """Take no notice of what is about to happen."""

"""A simulated disk that stops the world at every single step: before each operation and between
the writes into a mapping.

`on_step` may take a picture (`disk.crashed()`) or raise `Interrupted`, as a kill would.
"""

from collections.abc import Callable
from mmap import mmap
from typing import Any

from tests.support.simulated_disk import SimulatedDisk, SimulatedFile


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
        super().__init__(file.path, file.content)
        self.durable = file.durable
        self.modified_ms = file.modified_ms
        self._now_ms = disk.now_ms
        self._sync_fails = lambda: disk.sync_fails
        pages = StepMap(-1, max(1, self.size))
        pages.on_write = _nothing
        pages[: self.size] = file.content
        pages.on_write = lambda: disk.step(f"write {file.path}")
        self._pages = self.buffer = pages
        self._disk = disk

    def sync(self) -> None:
        """Make durable what is in the buffer now, unless the process dies first."""
        self._disk.step(f"sync {self.path}")
        super().sync()


class StepDisk(SimulatedDisk):
    """Calls `on_step` with the name of the step that comes next."""

    def __init__(self, content: SimulatedDisk | None = None) -> None:
        super().__init__()
        self.on_step: Callable[[str], None] = lambda _: None
        self.steps = 0
        if content is not None:
            for path, file in content._files.items():
                self._files[path] = StepFile(self, file)

    def step(self, name: str) -> None:
        """Tell that `name` is about to happen."""
        self.steps += 1
        self.on_step(name)

    def create(self, path: str, size: int) -> SimulatedFile:
        self.step(f"create {path}")
        file = self._files[path] = StepFile(self, super().create(path, size))
        return file

    def remove(self, path: str) -> None:
        self.step(f"remove {path}")
        super().remove(path)

    def replace(self, path: str, data: bytes) -> None:
        self.step(f"replace {path}")
        super().replace(path, data)


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

"""SharedByQueues: what all queues of one store have in common."""

from __future__ import annotations

from typing import Generic, TypeVar

from store.files.open_files import OpenFiles
from store.queue.awake_queues import AwakeQueues

Q = TypeVar("Q")


class SharedByQueues(Generic[Q]):
    """Which of them have changed lately, and which of their files are open."""

    def __init__(self, open_files: OpenFiles) -> None:
        self.awake: AwakeQueues[Q] = AwakeQueues()
        self.open_files = open_files

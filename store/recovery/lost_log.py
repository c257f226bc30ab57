"""A store that is closed and has no file of its log left: did it have one?

Only what needs a log says so: a checkpoint that vouches for bytes of one, the note of where it
begins, units of queues. A store in which nobody has ever put a message has none of that, and nor
has one that was set aside.
"""

from __future__ import annotations

from typing import Final

from store.config import StoreConfig
from store.files.store_checkpoint import OWN_COUNT
from store.log.log_start import UNKNOWN, noted_start
from store.machine.disk import Disk
from store.recovery.truncation import SET_ASIDE_FILE
from tandem.wire.checkpoint_copy import settled
from tandem.wire.store_layout import CHECKPOINT_BYTES, QUEUE_KINDS

_NUMBER_COUNT: Final = 6
_CONFIRM, _REPLICATED = 4, 5
"""Of the numbers in a checkpoint."""


def why_log_is_lost(config: StoreConfig, disk: Disk) -> str | None:
    """Return what says that there was a log, in words; None if nothing does, or if it is there.

    A file of no length is none. A store that is about to be set aside has not lost anything.
    """
    both = (*config.commit_log_directories, *config.read_only_commit_log_store_paths)
    directories = {path.rstrip("/") for path in both}
    if any(size for path in directories for _, size in disk.list_files(path)):
        return None
    directory = config.directory
    if disk.exists(f"{directory}/{SET_ASIDE_FILE}"):
        return None
    vouched_bytes = _vouched_bytes(disk, f"{directory}/checkpoint")
    if vouched_bytes > 0:
        return f"{vouched_bytes} bytes of it were on disk before the last stop"
    if noted_start(disk, directory) != UNKNOWN:
        return "it is written down where it began"
    for name in QUEUE_KINDS:
        if _has_files(disk, f"{directory}/{name}"):
            return f"there are queues in {name}"
    return None


def _vouched_bytes(disk: Disk, path: str) -> int:
    try:
        data = disk.read(path)
    except OSError:
        return 0  # The opening says what is the matter with it.
    if data is None or len(data) != CHECKPOINT_BYTES:
        return 0
    numbers = settled(data, _NUMBER_COUNT, OWN_COUNT).numbers
    return max(numbers[_CONFIRM], numbers[_REPLICATED])


def _has_files(disk: Disk, directory: str) -> bool:
    return any(
        size
        for topic in disk.list_directories(directory)
        for queue in disk.list_directories(f"{directory}/{topic}")
        for _, size in disk.list_files(f"{directory}/{topic}/{queue}")
    )

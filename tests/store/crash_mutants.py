"""Deliberately broken variants of the store, to show that the crash campaign would notice.

Each is a mistake that somebody could make, most of them mistakes that stores have made: a sync left
out, an order turned round, a check that is not there. One that no seed catches means that the
campaign is blind there.

    python -m tests.store.crash_mutants          the table: what caught which, in which seed
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

import store.recovery.store_recovery
from store.files.mapped_file import MappedFile
from store.index.index_service import IndexService
from store.log.commit_log import CommitLog
from store.machine.disk import DiskFile
from store.queue.consume_queue import ConsumeQueue
from store.queue.consume_queue_store import ConsumeQueueStore
from store.recovery.store_recovery import StoreRecovery
from store.services.flush_service import FlushService
from tests.store.crash_campaign import run_seed
from tests.store.crash_check import BrokenPromiseError
from tests.store.step_disk import StepDisk

SEEDS_MAX: Final = 40


class Mutant(msgspec.Struct, frozen=True):
    """One mistake: `owner.name` is replaced by `replacement` of the real one."""

    title: str
    owner: Any
    name: str
    replacement: Callable[[Any], Any]
    seed: int = 0
    """Where to begin: a seed that is known to notice saves the time of those that do not."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break the code for as long as the context lasts."""
        real = self.owner.__dict__[self.name]
        setattr(self.owner, self.name, self.replacement(real))
        try:
            yield
        finally:
            setattr(self.owner, self.name, real)


def _nothing(_: object) -> Callable[..., None]:
    """Replace a function by one that does nothing."""
    return lambda *_, **__: None


def _unsynced(*areas: str) -> Callable[[Any], Any]:
    """Replace FlushService._sync_files: files of these directories count as synced at once."""

    def replacement(real: Any) -> Any:  # noqa: ANN401
        async def sync_files(self: FlushService, *files: DiskFile) -> bool:
            left = [file for file in files if not any(f"/{area}" in file.path for area in areas)]
            done: bool = await real(self, *left)
            return done

        return sync_files

    return replacement


def _answers_at_once(real: Callable[..., None]) -> Callable[..., None]:
    def submit(self: FlushService, end_offset: int, deadline: float, done: Any) -> None:  # noqa: ANN401
        real(self, min(end_offset, self._commit_log.files.flushed_where), deadline, done)

    return submit


def _front_to_back(_: object) -> object:
    def write_run(file: MappedFile, data: bytes) -> None:
        start, middle, end = (file.wrote_position + n for n in (0, len(data) // 2, len(data)))
        file.write_buffer[start:middle] = data[: middle - start]
        file.write_buffer[middle:end] = data[middle - start :]
        file.wrote_position = end

    return staticmethod(write_run)


def _zeros_nothing(_: object) -> Callable[[MappedFile, int], bool]:
    return lambda file, position: False


def _moves_at_the_put(real: Callable[..., None]) -> Callable[..., None]:
    def wake(self: FlushService) -> None:
        self._checkpoint.confirm_physical_offset = self._commit_log.append_offset
        real(self)

    return wake


def _speaks_for_what_came_later(real: Callable[..., Any]) -> Callable[..., Any]:
    async def flush_checkpoint(self: FlushService) -> None:
        self._checkpoint.physic_msg_timestamp_ms = self._commit_log.last_store_timestamp_ms
        self._checkpoint.logics_msg_timestamp_ms = self._commit_log.last_store_timestamp_ms
        await real(self)

    return flush_checkpoint


def _trusts(_: object) -> Callable[..., None]:
    return lambda *_: None


def _never_synced(_: object) -> property:
    return property(lambda queue: (queue.files,))


def _last_file(_: object) -> Callable[..., int]:
    return lambda files, **_: len(files) - 1


def _without_crc(real: Callable[..., Any]) -> Callable[..., Any]:
    def find_log_end(*arguments: Any, **settings: Any) -> Any:  # noqa: ANN401
        return real(*arguments, **{**settings, "check_crc": False})

    return find_log_end


def _without_abort(real: Callable[..., None]) -> Callable[..., None]:
    def replace(self: StepDisk, path: str, data: bytes) -> None:
        if not path.endswith("/abort"):
            real(self, path, data)

    return replace


MUTANTS: Final = (
    Mutant(
        "the log counts as flushed without a sync",
        FlushService,
        "_sync_files",
        _unsynced("commitlog", "disk"),
    ),
    Mutant(
        "queues count as flushed without a sync",
        FlushService,
        "_sync_files",
        _unsynced("consumequeue/"),
        seed=4,
    ),
    Mutant(
        "batch queues count as flushed without a sync",
        FlushService,
        "_sync_files",
        _unsynced("batchconsumequeue/"),
        seed=4,
    ),
    Mutant(
        "index files count as on disk without a sync",
        FlushService,
        "_sync_files",
        _unsynced("index/"),
        seed=1,
    ),
    Mutant("extensions are never synced", ConsumeQueue, "file_queues", _never_synced, seed=2),
    Mutant("a put is answered before the sync", FlushService, "submit", _answers_at_once, seed=7),
    Mutant("the checkpoint moves at the put", FlushService, "wake", _moves_at_the_put),
    Mutant(
        "the checkpoint speaks for what came during the sync",
        FlushService,
        "_flush_checkpoint",
        _speaks_for_what_came_later,
        seed=1,
    ),
    Mutant("a run is written front to back", CommitLog, "_write_run", _front_to_back, seed=31),
    Mutant("a truncation leaves the bytes standing", MappedFile, "zero_from", _zeros_nothing),
    Mutant("queues are not cut with the log", ConsumeQueueStore, "truncate_dirty", _nothing),
    Mutant("recovery does not sync the queues", StoreRecovery, "_sync_queues", _nothing),
    Mutant(
        "recovery starts at the last file", store.recovery.store_recovery, "start_index", _last_file
    ),
    Mutant(
        "recovery does not look at the CRC",
        store.recovery.store_recovery,
        "find_log_end",
        _without_crc,
        seed=1,
    ),
    Mutant("units are not repaired", ConsumeQueue, "_repair", _nothing),
    Mutant(
        "an index file that was being written is trusted", IndexService, "_doubt", _trusts, seed=1
    ),
    Mutant("a crash is taken for a clean stop", StepDisk, "replace", _without_abort),
)


def caught_by(mutant: Mutant) -> tuple[int, str]:
    """Return how many seeds it took to notice a mutant, and what was said; 0 if none did."""
    with mutant.applied():
        for count in range(SEEDS_MAX):
            try:
                run_seed(mutant.seed + count)
            except BrokenPromiseError as error:
                return count + 1, str(error).split("\n", maxsplit=1)[0]
    return 0, "nobody noticed"


def line_of(mutant: Mutant, seeds: int, finding: str) -> str:
    """Return a line of the table, for people."""
    return f"{seeds:3} seeds  {mutant.title:52} {finding[:110]}\n"


def main() -> int:
    """Print the table; return how many mutants got through."""
    missed = 0
    for mutant in MUTANTS:
        seeds, finding = caught_by(mutant)
        missed += not seeds
        sys.stdout.write(line_of(mutant, seeds, finding))
    return missed


if __name__ == "__main__":
    logging.getLogger("store").setLevel(logging.CRITICAL)
    sys.exit(main())

"""When what was put leaves the pool's buffers for the files of the log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from node.simulated.disk import SimulatedDisk
from store import StoreConfig
from store.files.transient_store_pool import TransientStorePool
from store.log.commit_log import CommitLog
from store.services.commit_real_time_service import CommitRealTimeService
from tests.store.store_world import STORE_HOST

PAGE: Final = 4096
LOG_BYTES: Final = 16 * PAGE
CONFIG: Final = StoreConfig(
    directory="/w",
    commit_interval_commit_log_ms=200,
    commit_commit_log_least_pages=4,
    commit_commit_log_thorough_interval_ms=1000,
)


class World:
    """A log, with a pool unless it has no buffers, and the service that commits it."""

    def __init__(self, *, buffers: int = 2) -> None:
        self.disk = SimulatedDisk()
        pool = TransientStorePool(buffers, LOG_BYTES, self.disk, fast_fail=True)
        self.log = CommitLog(
            "/w/commitlog", LOG_BYTES, self.disk, STORE_HOST, pool=pool if buffers else None
        )
        self.failures: list[str] = []
        self.commits: list[tuple[float, int]] = []
        self.start = trio.current_time()
        self.service = CommitRealTimeService(
            self.log.files, CONFIG, on_failure=self.failures.append, after_commit=self._committed
        )

    def _committed(self) -> None:
        at = round(trio.current_time() - self.start, 3)
        self.commits.append((at, self.log.files.committed_where))

    def put(self, size: int) -> None:
        self.log.append_data(self.log.files.max_offset, b"a" * size)
        self.service.wake()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.service.run)
            await wait_all_tasks_blocked()
            yield
            nursery.cancel_scope.cancel()


async def test_enough_pages_are_committed_at_once_and_less_after_the_interval(
    autojump_clock: MockClock,
) -> None:
    """commitCommitLogLeastPages, commitCommitLogThoroughInterval."""
    world = World()
    async with world.running():
        world.put(100)
        await trio.sleep(0.5)
        assert world.commits == []
        world.put(4 * PAGE)
        await trio.sleep(0.1)
        assert world.commits == [(0.5, 4 * PAGE + 100)]
        world.put(100)
        await trio.sleep(2)
        assert [end for _, end in world.commits] == [4 * PAGE + 100, 4 * PAGE + 200]
        assert 1.5 <= world.commits[1][0] <= 1.7


async def test_all_of_it_is_committed_when_somebody_asks(autojump_clock: MockClock) -> None:
    world = World()
    world.put(100)
    assert not world.service.commit(4)
    assert world.service.commit(0)
    assert not world.service.commit(0)
    assert world.commits == [(0.0, 100)]


async def test_whoever_flushes_is_woken_by_a_commit(autojump_clock: MockClock) -> None:
    world = World()
    async with world.running(), trio.open_nursery() as nursery:
        nursery.start_soon(world.service.committed.wait)
        await wait_all_tasks_blocked()
        world.put(4 * PAGE)


async def test_a_failed_commit_is_said_once_and_never_tried_again(
    autojump_clock: MockClock,
) -> None:
    world = World()
    world.put(100)
    world.disk.sync_fails = True
    async with world.running():
        assert not world.service.commit(0)
        world.disk.sync_fails = False
        world.put(4 * PAGE)
        await trio.sleep(5)
        assert not world.service.commit(0)
    assert len(world.failures) == 1
    assert f"/w/commitlog/{0:020d}: commit failed" in world.failures[0]
    assert world.log.files.committed_where == 0
    assert world.commits == []


async def test_without_a_pool_there_is_nothing_to_commit(autojump_clock: MockClock) -> None:
    world = World(buffers=0)
    world.put(100)
    assert not world.service.commit(0)
    assert world.log.files.committed_where == 100

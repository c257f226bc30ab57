"""The tasks of a store are cancelled at each place where they wait; nothing must be half done."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from store import FlushDiskType, MessageStore, PutMessageStatus
from tests.store.store_world import (
    DIRECTORY,
    a_batch,
    a_message,
    check_store,
    number_of,
    open_store,
    put,
    recover_and_check,
)


async def work(store: MessageStore, answered: list[PutMessageStatus]) -> int:
    """Put messages of all kinds for as long as it takes; return how many."""
    number = 0
    while True:
        await trio.sleep(0.037)
        put(store, a_message(number, body_bytes=900))
        put(store, a_batch(range(number + 1, number + 4)))
        number += 4
        store.flush_service.submit(
            store.max_physical_offset,
            trio.current_time() + 0.2,
            lambda status, _: answered.append(status),
        )
        store.announce()


@pytest.mark.slow
@pytest.mark.parametrize("flush_disk_type", FlushDiskType)
@pytest.mark.parametrize("moment", [0.01 * n for n in range(0, 120, 3)])
async def test_a_store_stopped_at_any_moment_loses_nothing(
    flush_disk_type: FlushDiskType, moment: float, autojump_clock: MockClock
) -> None:
    disk = SimulatedDisk(sync_seconds=lambda: 0.05)
    store = open_store(disk, flush_disk_type=flush_disk_type)
    answered: list[PutMessageStatus] = []
    with trio.move_on_after(moment):
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            nursery.start_soon(work, store, answered)
    count = len(check_store(store))
    killed = disk.crashed()
    store.close()
    for found in (recover_and_check(killed), recover_and_check(disk)):
        assert [number_of(m) for m in found.messages] == list(range(count))
        assert not [path for path in found.files if path.endswith(".tmp")]
    assert not disk.exists(f"{DIRECTORY}/abort") or count == 0


class CancelsAt(trio.abc.Instrument):
    """Cancels a scope when the task that made this gets its turn for the `waits`-th time."""

    def __init__(self, scope: trio.CancelScope, waits: int) -> None:
        self._scope = scope
        self._left = waits
        self._task = trio.lowlevel.current_task()
        if waits == 0:
            scope.cancel()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._left -= 1
            if self._left == 0:
                self._scope.cancel()


async def cancelled_at_each_wait(
    start: Callable[[], Awaitable[object]], check: Callable[[bool], None]
) -> None:
    """Run what `start` returns again and again, cancelled at its first wait, its second, ..."""
    for waits in range(50):
        with trio.CancelScope() as scope:
            instrument = CancelsAt(scope, waits)
            trio.lowlevel.add_instrument(instrument)
            try:
                await start()
            finally:
                trio.lowlevel.remove_instrument(instrument)
        check(scope.cancelled_caught)
        if not scope.cancelled_caught and not scope.cancel_called:
            return
    pytest.fail("it never ended")


async def test_a_cancelled_preparation_of_the_next_file_can_be_repeated(
    autojump_clock: MockClock,
) -> None:
    disk = SimulatedDisk(sync_seconds=lambda: 0.1)
    store = open_store(disk)
    put(store, a_message(0, body_bytes=5000))
    files = store.commit_log.files

    def check(_: bool) -> None:  # noqa: FBT001 - whether it was cancelled makes no difference
        names = [name for name, _ in disk.list_files(f"{DIRECTORY}/commitlog")]
        assert "next.tmp" not in names
        assert len(names) == 1 + (not files.next_file.is_wanted)

    await cancelled_at_each_wait(files.next_file.prepare, check)
    put(store, a_message(1, body_bytes=5000))
    assert len(check_store(store)) == 2
    store.close()


async def test_a_cancelled_checkpoint_is_written_the_next_time(autojump_clock: MockClock) -> None:
    disk = SimulatedDisk(sync_seconds=lambda: 0.1)
    store = open_store(disk)
    checkpoint = store.checkpoint
    path = f"{DIRECTORY}/checkpoint"

    async def flush() -> None:
        checkpoint.confirm_physical_offset += 1
        await checkpoint.flush()

    def check(was_cancelled: bool) -> None:  # noqa: FBT001
        if not was_cancelled:
            expected = checkpoint.confirm_physical_offset.to_bytes(8, "big")
            assert disk.open(path).durable[32:40] == expected

    await cancelled_at_each_wait(flush, check)
    checkpoint.confirm_physical_offset = 0
    store.close()


async def test_a_wait_for_the_disk_that_is_given_up_answers_nobody_twice(
    autojump_clock: MockClock,
) -> None:
    """Whoever submitted a put may be gone: the answer then goes nowhere, once."""
    disk = SimulatedDisk(sync_seconds=lambda: 0.3)
    store = open_store(disk, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    answers: list[PutMessageStatus] = []
    for life in range(2):
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            for number in range(3):
                put(store, a_message(number))
                store.flush_service.submit(
                    store.max_physical_offset,
                    trio.current_time() + 9,
                    lambda s, _: answers.append(s),
                )
            store.announce()
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
        # The sync that was on its way ends, and whoever waited for it is told.
        assert len(answers) <= 3 * (life + 1)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert answers == [PutMessageStatus.PUT_OK] * 6
    store.close()

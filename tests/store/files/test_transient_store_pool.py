"""Buffers that take the puts before the file does."""

import mmap
from pathlib import Path

import pytest

from node.simulated.disk import SimulatedDisk
from store.files.transient_store_pool import TransientStorePool
from store.machine.errors import NoBufferError, StoreFullError
from store.machine.real_disk import RealDisk

SIZE = 4096


def a_pool(size: int, *, fast_fail: bool = False) -> TransientStorePool:
    return TransientStorePool(size, SIZE, SimulatedDisk(), fast_fail=fast_fail)


def test_every_buffer_is_lent_once_and_comes_back() -> None:
    """TransientStorePool.borrowBuffer, returnBuffer, availableBufferNums."""
    pool = a_pool(2)
    first, second = pool.borrow_buffer("/a"), pool.borrow_buffer("/b")
    assert first is not None
    assert second is not None
    assert first is not second
    assert (len(first), first[:]) == (SIZE, bytes(SIZE))
    assert pool.available_buffer_nums == 0
    pool.return_buffer(first)
    assert pool.available_buffer_nums == 1
    assert pool.borrow_buffer("/c") is first


def test_without_a_buffer_a_file_does_without_one() -> None:
    pool = a_pool(1)
    pool.borrow_buffer("/a")
    assert pool.borrow_buffer("/b") is None


def test_without_a_buffer_the_next_file_is_refused_if_that_was_asked_for() -> None:
    """fastFailIfNoBufferInStorePool."""
    pool = a_pool(1, fast_fail=True)
    buffer = pool.borrow_buffer("/a")
    with pytest.raises(NoBufferError) as caught:
        pool.borrow_buffer("/b")
    assert caught.value.path == "/b"
    assert buffer is not None
    pool.return_buffer(buffer)
    assert pool.borrow_buffer("/b") is buffer


def test_all_buffers_are_there_from_the_start_or_the_store_does_not_open() -> None:
    """TransientStorePool.init."""

    class SmallMemory(SimulatedDisk):
        left = 3

        def allocate_buffer(self, size: int) -> mmap.mmap | bytearray:
            if not self.left:
                raise StoreFullError("no memory", path="memory")
            self.left -= 1
            return super().allocate_buffer(size)

    assert TransientStorePool(3, SIZE, SmallMemory(), fast_fail=False).available_buffer_nums == 3
    with pytest.raises(StoreFullError) as caught:
        TransientStorePool(4, SIZE, SmallMemory(), fast_fail=False)
    assert caught.value.path == "memory"


def test_the_memory_goes_back_to_the_system() -> None:
    def mapped_kib() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmSize:")[1].split()[0])

    before = mapped_kib()
    pool = TransientStorePool(2, 64 << 20, RealDisk(), fast_fail=False)
    assert mapped_kib() >= before + (128 << 10)
    pool.close()
    assert mapped_kib() < before + (64 << 10)
    assert pool.available_buffer_nums == 0

"""TransientStorePool: memory that takes the puts, so that no put waits for a page of a file.

    put ---> buffer of the pool ---commit---> file (page cache) ---flush---> disk
                                                |
                                                '--> readers, replication

A file borrows a buffer when it becomes the one being written and returns it when all of it has
been committed. The buffers are as large as a file and locked into memory where the system allows
that. In the pool they hold zeros: commit clears what it has moved.

The price: what was put but not committed is lost with the process. kill -9 then takes with it up to
a commit interval of messages that a master with asynchronous flush has already answered. Without
the pool only a power loss can do that.

If there is no buffer left, the disk is slower than the puts. Then either puts are refused until
there is one again (`fast_fail`), or the next file is written directly, as without a pool. RocketMQ
never moves the committed position of such a file, so nobody can read it; here its bytes count as
committed when they are written.

Source: org.apache.rocketmq.store.TransientStorePool of 5.3.3.
"""

from __future__ import annotations

from store.machine.disk import Buffer, Disk
from store.machine.errors import NoBufferError


class TransientStorePool:
    """The buffers of one store, all allocated at the start. The store closes it after its files.

    Raises:
        StoreFullError: there is not enough memory for them.
    """

    def __init__(self, size: int, buffer_bytes: int, disk: Disk, *, fast_fail: bool) -> None:
        self._fast_fail = fast_fail
        self._buffer_bytes = buffer_bytes
        self._available: list[Buffer] = []
        for _ in range(size):
            self._available.append(disk.allocate_buffer(buffer_bytes))

    @property
    def available_buffer_nums(self) -> int:
        """How many buffers nobody has borrowed. RocketMQ's broker refuses messages at 0."""
        return len(self._available)

    def borrow_buffer(self, path: str) -> Buffer | None:
        """Return a buffer of zeros for the file at `path`; None if it has to do without.

        Raises:
            StoreFullError: there is none, and files do not do without (`fast_fail`).
        """
        if self._available:
            return self._available.pop()
        if self._fast_fail:
            raise NoBufferError(
                f"{path}: no buffer left in the transient store pool, the disk is slower than the"
                " messages come; send again later, or raise transient_store_pool_size",
                path=path,
            )
        return None

    def return_buffer(self, buffer: Buffer) -> None:
        """Take back a buffer, which holds zeros again."""
        assert len(buffer) == self._buffer_bytes
        self._available.append(buffer)

    def close(self) -> None:
        """Give the memory back to the system."""
        self._available.clear()

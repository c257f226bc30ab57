"""What can go wrong with a store, a disk or a network, and what to do about it."""


class StoreError(Exception):
    """Base of everything `store` raises on purpose. The text names the file and the remedy."""


class StoreLockedError(StoreError):
    """Another process has this store open. Stop it, or use another directory."""


class CorruptLogError(StoreError):
    """A file is not what it must be (length, name, content in the middle of the log).

    The commit log was left as it is; queues that were found damaged before may be shorter. A person
    has to look: restore the file, or move it away.
    """

    def __init__(self, message: str, *, path: str, offset: int = -1) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset


class StoreFullError(StoreError):
    """No room for the next file. Nothing was written; free space and send again."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class StoreClosedError(StoreError):
    """The store was closed by its owner."""


class DiskFailedError(StoreError):
    """The disk refuses something other than room; the text says what.

    After a failed sync what is durable is unknown, so the store takes no more writes. Restart the
    node once the disk is sound; recovery finds out what survived.
    """


class TableFileError(StoreError):
    """A table file (`config/topics.json` and its like) can be neither read nor made.

    Nothing was changed on disk. Restore the file or its `.bak`, or remove both for an empty table.
    """


class AppendGapError(StoreError):
    """Replicated bytes do not continue the log. The link has to start over."""

    def __init__(self, *, offset: int, expected: int) -> None:
        super().__init__(f"replicated bytes start at {offset}, the log ends at {expected}")
        self.offset = offset
        self.expected = expected


class NetworkError(Exception):
    """The network refused or broke. Nobody's bug; trying again later is right."""


class ConnectionLost(NetworkError):  # noqa: N818  # an event of ordinary life, named as such
    """The stream is broken, reset, closed under us, or could not be opened.

    The text names the peer and what happened. The stream is unusable: close it.
    """


class AddressInUseError(NetworkError):
    """A listener could not be opened because something else holds the port."""

    def __init__(self, *, host: str, port: int) -> None:
        """`host` and `port` are the address that was asked for."""
        self.host = host
        self.port = port
        super().__init__(
            f"{host}:{port} is in use: stop the process that listens there, or choose another"
            " port in cluster.yaml"
        )

"""What can go wrong with a store, a disk or a network, and what to do about it."""

import enum


class StoreError(Exception):
    """Base of everything `store` raises on purpose. The text names the file and the remedy."""


class StoreLockedError(StoreError):
    """Another process has this store open. Stop it, or use another directory."""


class SettingError(StoreError):
    """A setting does not fit the store, or what is asked of it. `setting` is its name."""

    def __init__(self, message: str, *, setting: str) -> None:
        super().__init__(message)
        self.setting = setting


class FileNameError(StoreError):
    """`name` cannot be the name of a file here. Nothing was changed; give another."""

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class NameTakenError(StoreError):
    """Something is at `path` already. Nothing was changed; use another name."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class LogFault(enum.Enum):
    """What is wrong where a `CorruptLogError` is raised."""

    LENGTH = enum.auto()
    """A file has another length than it must have."""
    NAME = enum.auto()
    """A file has a name that no file of the store has."""
    MISSING_FILE = enum.auto()
    """In a row of files one is missing."""
    SAME_NAME = enum.auto()
    """Two directories have a file of the same name."""
    READ_ONLY = enum.auto()
    """A file of a read-only directory would have to be changed."""
    NO_RECORD = enum.auto()
    """There is no record where there has to be one."""
    LOST_END = enum.auto()
    """The log ends before what was known to be on disk."""
    CHANGED = enum.auto()
    """Bytes are not what they were."""
    KNOWN_DAMAGE = enum.auto()
    """Bytes are noted as damaged, and the log goes on after them."""
    QUEUE_GAP = enum.auto()
    """A queue does not fit the log: it has to be built anew."""
    LOG_GAP = enum.auto()
    """Queues that were built from the log alone do not fit it."""
    QUEUE_KIND = enum.auto()
    """A topic has queues of the wrong kind."""
    CUT_BELOW_START = enum.auto()
    """The log is to be cut where it has no bytes any more."""
    CUT_CONFIRMED = enum.auto()
    """The log is to be cut below what was confirmed."""
    CUT_IN_RECORD = enum.auto()
    """The log is to be cut inside of a record."""
    ORDER = enum.auto()
    """The file that says what is to be done to the log cannot be read."""


class CorruptLogError(StoreError):
    """A file is not what it must be (length, name, content in the middle of the log).

    The commit log was left as it is; queues that were found damaged before may be shorter. A person
    has to look: restore the file, or move it away.

    Where it is bytes of the commit log: `offset` is the first that is bad, `damaged_end` the first
    after it that is not, and `synced_end` up to where the log was known to be on disk; where it is
    not known which bytes are bad, they are somewhere between the first two. -1: unknown.
    `store.recovery.closed_log` puts bytes of another replica there, in the store that is closed.
    `fault` tells the causes apart.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str,
        fault: LogFault,
        offset: int = -1,
        damaged_end: int = -1,
        synced_end: int = -1,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.fault = fault
        self.offset = offset
        self.damaged_end = damaged_end
        self.synced_end = synced_end


class BrokenRowError(CorruptLogError):
    """In a row of files one is missing, or has another length than all have to have."""


class NoPlaceError(StoreError):
    """There is no place `offset` in a log. Nothing was changed; give an offset of it."""

    def __init__(self, message: str, *, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class Unfit(enum.Enum):
    """Why bytes do not heal a range of the log."""

    OUTSIDE = enum.auto()
    """The log does not have all of the range."""
    READ_ONLY = enum.auto()
    """The file may only be read."""
    OTHER_BLOCK = enum.auto()
    """With them a block would not be what its fingerprint says."""
    OTHER_RECORD = enum.auto()
    """With them there would not be sound records alone: they are others, or not whole ones."""


class UnfitBytesError(StoreError):
    """Bytes that were to heal a range of the log do not fit there; nothing was changed.

    Ask somebody else for them, or for a larger range. `cause` is what is wrong with them.
    """

    def __init__(self, message: str, *, cause: Unfit, start: int, end: int) -> None:
        super().__init__(message)
        self.cause = cause
        self.start = start
        self.end = end


class StoreFullError(StoreError):
    """No room for the next file. Nothing was written; free space and send again."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class NoBufferError(StoreFullError):
    """The transient store pool has no buffer left for the next file. Send again later."""


class StoreClosedError(StoreError):
    """The store takes nothing: it was closed by its owner, or its disk failed.

    `flags` are those of `RunningFlag` that forbid it.
    """

    def __init__(self, message: str, *, flags: int) -> None:
        super().__init__(message)
        self.flags = flags


class DiskFailedError(StoreError):
    """The disk refuses something other than room; the text says what. `path`: where.

    After a failed sync what is durable is unknown, so the store takes no more writes. Restart the
    node once the disk is sound; recovery finds out what survived.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class TableFileError(StoreError):
    """A table file (`config/topics.json` and its like) can be neither read nor made.

    Nothing was changed on disk. Restore the file or its `.bak`, or remove both for an empty table.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class RecordDamagedError(StoreError):
    """A record is not what its queue says, or its bytes are known to be bad.

    It is read again once it is healed. Attributes name the message, and its place in the log;
    queue id and number are -1 where only the place is known, and the place is where it is not.
    """

    def __init__(
        self, topic: str, queue_id: int, queue_offset: int, physical_offset: int, reason: str
    ) -> None:
        super().__init__(topic, queue_id, queue_offset, physical_offset, reason)
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset
        self.reason = reason

    def __str__(self) -> str:
        of_topic = f" of topic {self.topic!r}" if self.topic else ""
        number = f" {self.queue_offset} of queue {self.queue_id}" if self.queue_offset >= 0 else ""
        place = f", at {self.physical_offset} of the log," if self.physical_offset >= 0 else ""
        return (
            f"message{number}{of_topic}{place} is damaged:"
            f" {self.reason}. It is read again once"
            " it is healed: by another node of a fenced group, else `tandem log verify` says how;"
            " to go on without it, move the group past it with `tandem group reset`, or set"
            " store.skip_damaged_records"
        )


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


class ClosedHere(ConnectionLost):
    """Our own side has closed the stream or the listener."""


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

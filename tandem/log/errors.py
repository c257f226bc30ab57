"""What can go wrong when a store is looked at from outside. Each text names file and remedy."""

import enum

from tandem import data_file


class LogToolError(Exception):
    """Base of what `tandem.log` raises on purpose; one line for a person at a terminal."""

    def __str__(self) -> str:
        # Attributes are in `args` too: what a worker process raises travels whole.
        return str(self.args[0])


class NoStore(enum.Enum):
    """Why a path is not a store."""

    NOT_THERE = enum.auto()
    NO_DIRECTORY = enum.auto()
    """There is something, and it is not a directory."""
    NO_LOG = enum.auto()
    """The directory has no commit log."""


class NotAStoreError(data_file.NotAStoreError, LogToolError):
    """A path is neither a store root nor a directory with files of a commit log. Give another.

    Attributes:
        path: The path.
        cause: What is wrong with it.
    """

    def __init__(self, text: str, path: str, cause: NoStore) -> None:
        super().__init__(text, path, cause)
        self.path = path
        self.cause = cause


class RequestFault(enum.Enum):
    """What is wrong with what was asked for."""

    UNREADABLE = enum.auto()
    """A range or a time is not written as one."""
    EMPTY_RANGE = enum.auto()
    UNKNOWN_COLUMN = enum.auto()
    FILE_EXISTS = enum.auto()
    """The file to be written is there, and was not to be replaced."""
    INDEX_SETTINGS = enum.auto()
    """Files of the index do not have the length that the given settings demand."""
    NO_LOG = enum.auto()
    """The directory has no file of a commit log, or is not a whole store."""
    SAME_STORE = enum.auto()
    """A store was named as the copy of itself."""
    CUT_AFTER_DAMAGE = enum.auto()
    """The log is corrupt before the place where it is to be cut."""
    CUT_IN_RECORD = enum.auto()
    """No record starts where the log is to be cut."""


class BadRequestError(LogToolError):
    """What was asked for makes no sense: a time that cannot be read, a range that is empty.

    Attributes:
        fault: What is wrong.
        subject: The option, file, directory or column that it is wrong with.
        offset: Of a cut: where the log is corrupt, or where no record starts; else -1.
    """

    def __init__(self, text: str, fault: RequestFault, subject: str, offset: int = -1) -> None:
        super().__init__(text, fault, subject, offset)
        self.fault = fault
        self.subject = subject
        self.offset = offset


class UnreadableFileError(LogToolError):
    """The system does not let us read a file, or it has gone since the directory was listed.

    Attributes:
        path: The file.
    """

    def __init__(self, path: str, error: OSError) -> None:
        gone = isinstance(error, FileNotFoundError)
        remedy = (
            "it was removed meanwhile, perhaps by a running node; run the command again"
            if gone
            else "run as the user who owns the store, and check the disk"
        )
        super().__init__(f"{path}: {error.strerror or error}; {remedy}")
        self.path = path
        self.error = error

    def __reduce__(self) -> tuple[type["UnreadableFileError"], tuple[str, OSError]]:
        # Raised in worker processes: the default would call __init__ with the text alone.
        return UnreadableFileError, (self.path, self.error)


class WorkerError(LogToolError):
    """A worker process ended before its work was done: killed, or out of memory."""


class MissingPackageError(LogToolError):
    """An optional package is needed and not installed; the text has the command that brings it.

    Attributes:
        package: Its name.
    """

    def __init__(self, text: str, package: str) -> None:
        super().__init__(text, package)
        self.package = package


class OutputError(LogToolError):
    """The result cannot be written where it should go; nothing half-finished is left there.

    Attributes:
        path: Where it should go.
    """

    def __init__(self, text: str, path: str) -> None:
        super().__init__(text, path)
        self.path = path


class NoRepair(enum.Enum):
    """Why a store is not repaired, or not healed from a copy."""

    IN_USE = enum.auto()
    """A running node has it open."""
    FILE_LENGTH = enum.auto()
    """A file of the log has a length that no file of it has."""
    LOSS = enum.auto()
    """Messages would be lost, and the loss was not accepted with the place of the cut."""
    OTHER_SIZE = enum.auto()
    """The copy has files of another length: it is the copy of another store."""
    OTHER_EPOCHS = enum.auto()
    """The lists of epochs show that the copy is of another log."""
    OTHER_RECORD = enum.auto()
    """Both have a sound record at one place, and not the same one."""
    NOTHING_IN_COMMON = enum.auto()
    """No record of the copy is in the store."""
    STORE = enum.auto()
    """The process that writes has refused; the text has its words."""


class RepairError(LogToolError):
    """The store was not repaired; nothing was changed.

    Attributes:
        cause: Why not.
        exit_status: 1 if the store cannot be repaired like this, 2 if the request was wrong.
    """

    def __init__(self, text: str, cause: NoRepair, exit_status: int = 1) -> None:
        super().__init__(text, cause, exit_status)
        self.cause = cause
        self.exit_status = exit_status

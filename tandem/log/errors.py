"""What can go wrong when a store is looked at from outside. Each text names file and remedy."""

from tandem import data_file


class LogToolError(Exception):
    """Base of what `tandem.log` raises on purpose; one line for a person at a terminal."""


class NotAStoreError(data_file.NotAStoreError, LogToolError):
    """A path is neither a store root nor a directory with files of a commit log. Give another."""


class BadRequestError(LogToolError):
    """What was asked for makes no sense: a time that cannot be read, a range that is empty."""


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
    """An optional package is needed and not installed; the text has the command that brings it."""


class OutputError(LogToolError):
    """The result cannot be written where it should go; nothing half-finished is left there."""


class RepairError(LogToolError):
    """The store was not repaired; nothing was changed. The text is that of the repair's process.

    Attributes:
        exit_status: 1 if the store cannot be repaired like this, 2 if the request was wrong.
    """

    def __init__(self, text: str, exit_status: int) -> None:
        super().__init__(text)
        self.exit_status = exit_status

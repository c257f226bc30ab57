"""What users of the Spark source, sink, audit, archive and jobs catch.

    SparkSourceError
      NoJavaError           no Java that Spark can run on was found
      OptionError           an option is unknown, malformed or contradicts another one
      NotAStoreError        a path is no store; see `tandem.data_file`
      UnknownTopicError     nothing knows a topic that was named
      DataLossError         what was to be read is gone, in a store, a cluster or an archive
      LogDamagedError       a record is torn or corrupt
      AuditTableError       the audit could not be done or written
      PackageError          what workers need cannot be packed
      ArchiveError          see `tandem.spark.archive.errors`

Each has one home: catching one by name catches it from every source. Readers in worker processes
raise them too; Spark then shows the name and the text.
"""

import enum
from collections.abc import Iterable

from tandem import data_file


class SparkSourceError(Exception):
    """What was asked of Spark cannot go on. The text says why and what to do."""

    def __str__(self) -> str:
        # Attributes are in `args` too: what a worker process raises travels whole.
        return str(self.args[0])


class NoJavaError(SparkSourceError):
    """No Java that Spark can run on was found. The text lists what was looked at."""


class OptionError(SparkSourceError):
    """An option of the source is unknown, malformed or contradicts another one.

    `names` are the options, or columns, that are wrong or missing; of a contradiction all of them.
    """

    def __init__(self, text: str, names: Iterable[str]) -> None:
        self.names = tuple(names)
        super().__init__(text, self.names)


class StoreFault(enum.Enum):
    """Why paths are no store."""

    UNREACHABLE = enum.auto()
    """The system does not let us look: no such file system, no rights, no library."""
    NO_DIRECTORY = enum.auto()
    NO_LOG = enum.auto()
    LOG_ELSEWHERE = enum.auto()
    """There are queues and no log: it is in directories that have to be named."""
    SEVERAL_STORES = enum.auto()
    """Directories of one log are named for several stores."""
    SEVERAL_SYSTEMS = enum.auto()
    """Directories of one log are on several file systems."""
    NAMED_TWICE = enum.auto()
    SAME_FILE = enum.auto()
    """Two directories have a file of the same name."""
    NO_MATCH = enum.auto()
    """A pattern fits no directory."""
    NO_CHECKPOINT = enum.auto()
    """Of a node of a fenced group: what says how much of its log is confirmed."""


class NotAStoreError(data_file.NotAStoreError, SparkSourceError):
    """A path holds neither a store root nor a commitlog directory. `fault` says why."""

    def __init__(self, text: str, fault: StoreFault) -> None:
        super().__init__(text, fault)
        self.fault = fault


class AuditTableError(SparkSourceError):
    """The audit could not be done or its table not written. The text says why and what to do."""


class UnknownTopicError(SparkSourceError):
    """Nothing knows `topics` that are asked for, and `ignoreMissingTopics` is false."""

    def __init__(self, text: str, topics: Iterable[str]) -> None:
        self.topics = tuple(topics)
        super().__init__(text, self.topics)


class LossCause(enum.Enum):
    """Why something cannot be read any more."""

    DELETED = enum.auto()
    """By retention or by hand. A broker says it also of what it has passed over as damaged."""
    CUT = enum.auto()
    """The log or the queue ends before a place where it was read already."""
    REWRITTEN = enum.auto()
    """It was cut, and holds other records there now."""
    BEYOND = enum.auto()
    """It ends before a place that is asked for."""
    GONE = enum.auto()
    """The queue, or its topic, is not there any more."""
    DAMAGED = enum.auto()
    """No node has it whole."""


class DataLossError(SparkSourceError):
    """What a query, stream or archive was to read is gone, and an option makes that an error.

    `failOnDataLoss` of the sources, `--lost` of the archive. What is gone begins at the offset
    `start`, of the queue or of the log; -1: unknown.
    """

    def __init__(self, text: str, cause: LossCause, start: int) -> None:
        super().__init__(text, cause, start)
        self.cause = cause
        self.start = start


class LogDamagedError(SparkSourceError):
    """A record is torn or corrupt, or a file of the log is missing, and `onError` is `fail`.

    `kind` is `torn` (nothing readable follows) or `corrupt`.
    """

    def __init__(self, file: str, physical_offset: int, kind: str, reason: str) -> None:
        super().__init__(
            f"{kind} record in {file} at physical offset {physical_offset}: {reason}."
            " Nothing after it was skipped silently; read with option onError=row to get the rest"
            " and an error row for each such place."
        )
        self.file = file
        self.physical_offset = physical_offset
        self.kind = kind
        self.reason = reason

    def __reduce__(self) -> tuple[type["LogDamagedError"], tuple[str, int, str, str]]:
        # Raised in a worker process: the default would call __init__ with the text alone.
        return LogDamagedError, (self.file, self.physical_offset, self.kind, self.reason)


class PackageError(SparkSourceError):
    """What workers need cannot be packed. The text says what is missing, or wrong with the name."""

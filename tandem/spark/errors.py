"""What can go wrong between a store directory and a Spark table."""


class SparkSourceError(Exception):
    """Reading a commit log with Spark cannot go on. The text says why and what to do."""


class NoJavaError(SparkSourceError):
    """No Java that Spark can run on was found. The text lists what was looked at."""


class OptionError(SparkSourceError):
    """An option of the source is unknown, malformed or contradicts another one."""


class NotAStoreError(SparkSourceError):
    """A path holds neither a store root nor a commitlog directory."""


class AuditTableError(SparkSourceError):
    """The audit could not be done or its table not written. The text says why and what to do."""


class UnknownTopicError(SparkSourceError):
    """No store knows a topic that is asked for, and `ignoreMissingTopics` is false."""


class DataLossError(SparkSourceError):
    """Bytes of a log that a query or stream was to read are gone, and `failOnDataLoss` is true."""


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

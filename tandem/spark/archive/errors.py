"""What can be wrong with an archive. Every text is one that a person at a terminal can act on."""

from tandem.spark.errors import DataLossError, SparkSourceError


class ArchiveError(SparkSourceError):
    """An archive cannot be read, written or trusted; the text says why and what to do."""


class NotAnArchiveError(ArchiveError):
    """A directory is no archive, or is one of another kind or version."""


class ArchiveBusyError(ArchiveError):
    """Another job is writing to the archive."""


class OtherLogError(ArchiveError):
    """A store does not go on where the archive ends: another log, or an older copy of it."""


class LostBeforeArchivedError(ArchiveError, DataLossError):
    """The log has lost what was not archived yet."""

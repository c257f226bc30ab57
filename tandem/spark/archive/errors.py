"""What can be wrong with an archive. Every text is one that a person at a terminal can act on."""

import enum

from tandem.spark.errors import DataLossError, SparkSourceError


class ArchiveError(SparkSourceError):
    """An archive cannot be read, written or trusted; the text says why and what to do."""


class ArchiveFault(enum.Enum):
    """What is wrong with a file of an archive."""

    MISSING = enum.auto()
    UNREADABLE = enum.auto()
    MOVED = enum.auto()
    """It is that of another place."""
    CONTRADICTION = enum.auto()
    """Files of the manifest contradict each other."""
    CRC = enum.auto()
    """A body is not what its CRC says."""


class ArchiveDamagedError(ArchiveError):
    """A file of an archive, or of what a job keeps, is not what was written. `fault` says how."""

    def __init__(self, text: str, fault: ArchiveFault) -> None:
        super().__init__(text, fault)
        self.fault = fault


class NotArchiveFault(enum.Enum):
    """Why a directory is not the archive that is wanted."""

    MISSING = enum.auto()
    """There is no archive."""
    NOT_EMPTY = enum.auto()
    """Something else is in it."""
    OTHER_KIND = enum.auto()
    OTHER_VERSION = enum.auto()


class NotAnArchiveError(ArchiveError):
    """A directory is no archive, or is one of another kind or version. `fault` says which."""

    def __init__(self, text: str, fault: NotArchiveFault) -> None:
        super().__init__(text, fault)
        self.fault = fault


class ArchiveBusyError(ArchiveError):
    """Another job is writing to the archive."""


class OtherReplayError(ArchiveError):
    """The state in a directory is that of another replay."""


class OtherLogError(ArchiveError):
    """A store does not go on where the archive ends: another log, or an older copy of it."""


class OldCopyError(OtherLogError):
    """It ends before the archive does, as an older copy would."""


class LostBeforeArchivedError(ArchiveError, DataLossError):
    """The log has lost what was not archived yet."""


class TableFault(enum.Enum):
    """Why there is no working with the Iceberg table of an archive."""

    NOT_INSTALLED = enum.auto()
    """The packages of the extra `iceberg` are missing."""
    NONE = enum.auto()
    """The archive has no table."""
    OTHER_TABLE = enum.auto()
    """It has one, under another name or in another catalogue."""
    MOVED = enum.auto()
    """The archive is at another place than when its table was made."""
    FOREIGN = enum.auto()
    """A table of that name is in the catalogue, and is not that of the archive."""
    SECRET = enum.auto()
    """A secret is among the properties of the catalogue."""
    PLACE = enum.auto()
    """The path of the archive cannot be written into a table."""
    CATALOGUE = enum.auto()
    """The catalogue does not answer, or refuses."""
    AHEAD = enum.auto()
    """What was asked for is not in the table yet."""
    OTHER_ROWS = enum.auto()
    """It has other rows than the manifest says."""


class ArchiveTableError(ArchiveError):
    """The Iceberg table of an archive cannot be used. `fault` says why."""

    def __init__(self, text: str, fault: TableFault) -> None:
        super().__init__(text, fault)
        self.fault = fault

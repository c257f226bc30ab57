"""Why a drill cannot be played. Each message is one line that names the thing and the remedy."""


class DrillError(Exception):
    """The drill cannot go on as asked for. It says nothing about the cluster's promises."""


class BadOptionsError(DrillError):
    """An option cannot be played: no such file, a directory in use, a binary input. Change it."""


class MissingRequirementError(DrillError):
    """A library, a Java runtime or a free port is missing on this machine. Bring it."""


class AuditError(DrillError):
    """The logs could not be read to their end, so nothing is known about promises. See the text."""


class ReportError(DrillError):
    """The report cannot be written, most likely because the disk is full."""


class LedgerError(DrillError):
    """The ledger cannot be written, most likely because the disk is full. Nothing more was sent."""


class BadScenarioError(DrillError):
    """There is no such scenario, or its file says something that nobody understands."""

"""Why a shadow cannot go on."""

import enum
from typing import ClassVar

from node.errors import NodeError


class ShadowCause(enum.Enum):
    """Why a shadow cannot go on."""

    UNKNOWN_BROKER = enum.auto()
    """The name server does not know the broker that was named."""
    WHICH_BROKER = enum.auto()
    """No broker was named, and not exactly one is at the master's address."""
    OTHER_STORE = enum.auto()
    """The directory holds a store that is not a shadow's."""
    OTHER_BROKER = enum.auto()
    """The directory holds the shadow of another broker."""
    OTHER_HISTORY = enum.auto()
    """The master's log is not the one that was copied so far."""
    MASTER_LOST = enum.auto()
    """The master's log ends before what was copied from it."""
    GAP = enum.auto()
    """The master has deleted what comes next."""
    FILE_SIZE = enum.auto()
    """The master's log files have another size."""
    TLS = enum.auto()
    """A file of TLS cannot be used."""


class ShadowError(NodeError):
    """A person has to decide something; the text says what was found and what can be done.

    Attributes:
        cause: What was found.
    """

    exit_status: ClassVar[int] = 1

    def __init__(self, text: str, cause: ShadowCause) -> None:
        super().__init__(text)
        self.cause = cause

"""What can go wrong between a DataFrame and a topic."""

import enum

from tandem.spark.errors import SparkSourceError


class RowError(SparkSourceError):
    """A row cannot be a message. The text names row, column and remedy.

    `row` is its number in the partition; the first is 0.
    """

    def __init__(self, text: str, row: int) -> None:
        super().__init__(text, row)
        self.row = row


class Stored(enum.Enum):
    """What is known of messages whose sending failed."""

    NOTHING = enum.auto()
    """They are not stored."""
    UNSAFE = enum.auto()
    """They are in the log of the master, and not as safe as asked for."""
    UNKNOWN = enum.auto()
    """They may be stored all the same."""


class SendFailedError(SparkSourceError):
    """Messages could not be stored as safely as asked for, in the time there was.

    `stored` is what is known of those that failed first.
    """

    def __init__(self, text: str, stored: Stored) -> None:
        super().__init__(text, stored)
        self.stored = stored

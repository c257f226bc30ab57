"""What can go wrong between a DataFrame and a topic."""

from tandem.spark.errors import SparkSourceError


class RowError(SparkSourceError):
    """A row cannot be a message. The text names row, column and remedy."""


class SendFailedError(SparkSourceError):
    """Messages could not be stored as safely as asked for, in the time there was."""

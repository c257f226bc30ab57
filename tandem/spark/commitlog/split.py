"""A piece of a log: what the driver hands to a task."""

import msgspec

from tandem.data_file import DataFile


class LogSplit(msgspec.Struct, frozen=True):
    """A piece of one file of the log of `store`: positions [start, end).

    `log_end` is the position up to which the file counts, `is_last_file` whether any later file
    holds something. `address` is what the file's storage is found by. If `fault` is set there is
    nothing to read but this.
    """

    store: str
    file: DataFile
    start: int
    end: int
    log_end: int
    is_last_file: bool
    address: str = ""
    fault: str = ""

"""Opening the files that `tandem log` reads, with errors that name the file."""

from collections.abc import Iterator
from contextlib import contextmanager

from tandem.data_file import opened
from tandem.log.errors import UnreadableFileError


@contextmanager
def open_file(path: str) -> Iterator[int]:
    """Open a file for reading; give its descriptor.

    Raises:
        UnreadableFileError: it cannot be opened, or a read inside the block fails.
    """
    try:
        with opened(path) as descriptor:
            yield descriptor
    except OSError as error:
        raise UnreadableFileError(path, error) from error

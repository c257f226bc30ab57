"""Files of a table that are on the disk before the catalogue names them.

PyIceberg writes metadata without a sync, and the catalogue commits with one: after a power loss the
catalogue could name a file that is empty. Catalogues take this class by its name, `py-io-impl`.
"""

from pathlib import Path
from types import TracebackType
from typing import Final

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from tandem.durable_file import make_directory, sync_directory, sync_file

IO_NAME: Final = f"{__name__}.DurableFileIO"


class DurableFileIO(PyArrowFileIO):
    """Reads as PyArrow does; a file of this machine is durable when it is closed."""

    def new_output(self, location: str) -> PyArrowFile:
        """Return the file to write."""
        plain = super().new_output(location)
        scheme, _, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return plain
        return _DurableFile(
            location,
            path,
            self.fs_by_scheme(scheme, ""),
            plain._buffer_size,  # noqa: SLF001
        )


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002 - PyIceberg's
        place = Path(self._path)
        make_directory(place.parent)
        return _SyncedStream(super().create(overwrite), place)


class _SyncedStream:
    """A stream whose bytes and name are durable when `close` returns."""

    def __init__(self, stream: OutputStream, place: Path) -> None:
        self._stream = stream
        self._place = place
        self._is_open = True

    def write(self, b: bytes) -> int:
        return self._stream.write(b)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._stream.close()
            sync_file(self._place)
            sync_directory(self._place.parent)

    def __enter__(self) -> "OutputStream":
        return self

    def __exit__(
        self,
        exctype: type[BaseException] | None,
        excinst: BaseException | None,
        exctb: TracebackType | None,
    ) -> None:
        self.close()

"""The JSON files a broker keeps its tables in, as RocketMQ's `ConfigManager` writes and reads them.

The text is fastjson's pretty form: one tab a level, no space after a colon, and integer keys
without quotes, on one line:

    "offsetTable":{
        "T@g":{0:5,1:6
        }
    }

That is not standard JSON, but readable by `decode_json_body`. Unlike RocketMQ, which overwrites
the file in place, a save writes the old content to `<file>.bak` and then replaces the file as a
whole: a crash leaves the old table or the new one.

Source: RocketMQ 5.3.3, ConfigManager, RemotingSerializable, fastjson's PrettyFormat.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import msgspec

from store.machine.errors import TableFileError
from tandem.wire.errors import MalformedFrameError
from tandem.wire.request_headers import DataVersion
from tandem.wire.route import decode_json_body

if TYPE_CHECKING:
    from store.machine.disk import Disk

_log = logging.getLogger(__name__)

_Table = TypeVar("_Table", bound=msgspec.Struct)


class TableFile:
    """One table on disk, and its previous version beside it."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._is_damaged = False

    def load(self, kind: type[_Table]) -> _Table | None:
        """Return the table, from the backup if the file is missing, empty or damaged.

        None if neither exists: a new node.

        Raises:
            TableFileError: There is a file, but neither it nor its backup can be read.
        """
        failure: Exception | None = None
        for path in (self._path, f"{self._path}.bak"):
            try:
                data = self._disk.read(path)
                table = decode_json_body(data, kind) if data else None
            except (MalformedFrameError, OSError) as error:
                failure = failure or error
                continue
            if table is not None:
                self._is_damaged = failure is not None
                if path != self._path:
                    _log.warning("%s: %s; read from %s", self._path, failure or "missing", path)
                return table
        if failure is not None:
            raise TableFileError(
                f"{self._path}: neither it nor its .bak can be read ({failure});"
                " restore one of them, or remove both to start with an empty table"
            ) from failure
        return None

    def save(self, table: object) -> None:
        """Replace the file; its old content becomes the backup. Blocks for two small writes.

        Raises:
            StoreFullError: No room. The old file still stands.
            DiskFailedError: Anything else. The old file still stands.
        """
        # The backup of a damaged file is the only good copy until the new one is there.
        old = None if self._is_damaged else self._disk.read(self._path)
        if old:
            self._disk.replace(f"{self._path}.bak", old)
        self._disk.replace(self._path, encode_table(table))
        self._is_damaged = False


def next_version(version: DataVersion, now_ms: int) -> DataVersion:
    """The version of a table after one more change. Source: DataVersion.nextVersion."""
    return DataVersion(version.state_version, now_ms, version.counter + 1)


def encode_table(table: object) -> bytes:
    """The pretty text of a table, byte for byte as fastjson writes it.

    Fields of a record come in alphabetical order, without those that are None or unset; entries of
    a map in the map's own order.
    """
    return _pretty(table, "\n").encode()


def _pretty(value: object, line_start: str) -> str:
    """`line_start` is a line break and the tabs of the current level."""
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        fields = {name: getattr(value, attribute) for name, attribute in sorted(names)}
        value = {
            name: field for name, field in fields.items() if field not in (None, msgspec.UNSET)
        }
    if not isinstance(value, dict) or not value:
        return msgspec.json.encode(value).decode()
    if all(isinstance(key, int) for key in value):
        inside = ",".join(f"{key}:{number}" for key, number in value.items())
        return f"{{{inside}{line_start}}}"
    deeper = f"{line_start}\t"
    entries = [f"{_pretty(key, '')}:{_pretty(entry, deeper)}" for key, entry in value.items()]
    return f"{{{deeper}{f',{deeper}'.join(entries)}{line_start}}}"

"""What operators keep at a name server, by namespace and key; RocketMQ's `KVConfigManager`.

Nothing here is read by a broker of ours. RocketMQ's producers would read ORDER_TOPIC_CONFIG, where
a name server tells it (orderMessageEnable, off there as here).

Source: RocketMQ 5.3.3, KVConfigManager, kvConfig.json.
"""

from __future__ import annotations

from typing import Final

import msgspec

from node.errors import RequestError
from node.tables.names import check_name
from store.machine.errors import StoreError
from store.machine.table_file import TableFile
from tandem.wire.response_code import ResponseCode

ENTRIES_MAX: Final = 1_000
VALUE_BYTES_MAX: Final = 4_096


class _File(msgspec.Struct, frozen=True, rename="camel"):
    config_table: dict[str, dict[str, str]] = {}


class KvConfigTable:
    """Values by namespace and key, and the file they are kept in. A change is on disk first.

    Raises:
        TableFileError: neither the file nor its backup can be read.
    """

    def __init__(self, file: TableFile) -> None:
        self._file = file
        self._values = (file.load(_File) or _File()).config_table

    def get(self, namespace: str, key: str) -> str | None:
        """One value, None if there is none."""
        return self._values.get(namespace, {}).get(key)

    def of_namespace(self, namespace: str) -> dict[str, str]:
        """All values of a namespace; empty if there is none."""
        return dict(self._values.get(namespace, {}))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Keep a value.

        Raises:
            RequestError: a name or the value is too long, there are too many, or the file cannot
                be written; nothing is changed.
        """
        check_name("namespace", namespace)
        check_name("key", key)
        if len(value.encode()) > VALUE_BYTES_MAX:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"a value of {len(value.encode())} bytes, the most are {VALUE_BYTES_MAX}",
            )
        count = sum(map(len, self._values.values()))
        if self.get(namespace, key) is None and count >= ENTRIES_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"this name server keeps {count} values, and no more; delete some (deleteKvConfig)",
            )
        self._replace(namespace, {**self.of_namespace(namespace), key: value})

    def delete(self, namespace: str, key: str) -> None:
        """Keep a value no longer. Harmless if there is none.

        Raises:
            RequestError: the file cannot be written; nothing is changed.
        """
        values = self.of_namespace(namespace)
        if values.pop(key, None) is not None:
            self._replace(namespace, values)

    def _replace(self, namespace: str, values: dict[str, str]) -> None:
        everything = {**self._values, namespace: values}
        if not values:
            del everything[namespace]
        try:
            self._file.save({"configTable": everything})
        except StoreError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the table of values cannot be saved: {error}"
            ) from error
        self._values = everything

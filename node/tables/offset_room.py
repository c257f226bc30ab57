"""How many consumer offsets a broker keeps: any client may commit some for any group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from node.errors import RequestError
from tandem.wire.response_code import ResponseCode

OFFSET_BYTES_MAX: Final = 12 * 1024 * 1024
"""Of all offsets, as a slave gets them in one frame: some 350,000. A frame holds 16 MiB."""

_KEY_BYTES: Final = 16
_OFFSET_BYTES: Final = 32
"""A queue id, an offset and their signs, at most."""


class OffsetRoom:
    """Counts what a table of offsets takes, in `used_bytes`, and says when it is full."""

    def __init__(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Count what is there, by `topic@group` and queue id. That may be over the bound."""
        self.used_bytes = sum(
            len(key) + _KEY_BYTES + _OFFSET_BYTES * len(queues) for key, queues in offsets.items()
        )

    def take(self, key: str, *, is_new_key: bool) -> None:
        """Count one more offset.

        Raises:
            RequestError: The table is full (SYSTEM_BUSY); nothing is counted.
        """
        size = _OFFSET_BYTES + (len(key) + _KEY_BYTES if is_new_key else 0)
        if self.used_bytes + size > OFFSET_BYTES_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"this broker keeps no more consumer offsets: they take {self.used_bytes} of"
                f" {OFFSET_BYTES_MAX} bytes; offsets that it has can be committed",
            )
        self.used_bytes += size

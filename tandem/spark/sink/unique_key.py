r"""The UNIQ_KEY of each row: the same one, however often Spark writes the row.

A key has the layout that RocketMQ's tools expect, 32 upper-case hex digits:

    address 4 | process 2 | salt 4 | ms since the start of the month 4 | counter 2
    \-------- 80 bits of ours ----/  \---------- zeros -----------/  \- 16 -/

The 96 bits are those of a hash of (write, batch, partition), plus the row's number there. Two of
2^27 partitions with a million rows each overlap with a probability below 10^-6. The time is
zero, so a tool that begins to look there finds every message since the start of the month.

A row may have a key of its own. It is hashed to the same layout, unless it has it already.

Source: RocketMQ 5.3.3, MessageClientIDSetter.createUniqID and getNearlyTimeFromID.
"""

import re
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

KEY_CHARS: Final = 32
"""How long the key of a row is that has none of its own."""

_BYTES: Final = 12
_MASK: Final = (1 << 8 * _BYTES) - 1
_COUNTERS: Final = 1 << 16
_TIME: Final = "00000000"
_OF_ROCKETMQ: Final = re.compile(r"[0-9A-F]{32}(?:[0-9A-F]{24})?")
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_DIGITS: Final = 4


class RowKeys:
    """The keys of one partition's rows, in their order.

    `write` is the id of a streaming query or of one write of a batch, `batch` the number of a
    micro-batch.
    """

    def __init__(self, write: str, batch: int, partition: int) -> None:
        self._next = _hash(f"{write}\n{batch}\n{partition}")

    def take(self, count: int) -> list[str]:
        """Return the keys of the next `count` rows."""
        keys: list[str] = []
        while count:
            counter = self._next % _COUNTERS
            some = min(count, _COUNTERS - counter)
            prefix = f"{self._next >> 16:020X}{_TIME}"
            keys += [f"{prefix}{number:04X}" for number in range(counter, counter + some)]
            self._next = self._next + some & _MASK
            count -= some
        return keys

    def take_digits(self, count: int) -> NDArray[np.uint8]:
        """Return the same as `take`, as one line of ASCII a key."""
        lines = np.empty((count, KEY_CHARS), np.uint8)
        first = 0
        while first < count:
            counter = self._next % _COUNTERS
            some = min(count - first, _COUNTERS - counter)
            part = lines[first : first + some]
            prefix = f"{self._next >> 16:020X}{_TIME}".encode()
            part[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
            numbers = np.arange(counter, counter + some)
            for place in range(_DIGITS):
                digits = numbers >> 4 * (_DIGITS - 1 - place) & 15
                part[:, len(prefix) + place] = _HEX[digits]
            self._next = self._next + some & _MASK
            first += some
        return lines


def key_of(text: str) -> str:
    """Return the UNIQ_KEY of a row that has a key of its own."""
    if _OF_ROCKETMQ.fullmatch(text):
        return text
    value = _hash(f"key\n{text}")
    return f"{value >> 16:020X}{_TIME}{value % _COUNTERS:04X}"


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=_BYTES).digest())
